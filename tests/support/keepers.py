"""Keepers in tests: an executor in short private directories, and agents as small Python
scripts."""

import os
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rametd.keeper import directory
from rametd.keeper.executor import Attachment, Handle, JournalLine, LaunchSpec
from rametd.keeper.local import LocalExecutor
from rametd.keeper.place import Place

ECHO = """
    import sys
    for line in sys.stdin:
        print("got", line, end="", flush=True)
"""


@asynccontextmanager
async def private_executor() -> AsyncIterator[LocalExecutor]:
    """Yield an executor in private directories; end everything that it started afterwards."""
    home = Path(tempfile.mkdtemp(prefix="rmt-"))
    (home / "run").mkdir(0o700)
    executor = LocalExecutor(home / "agents", home / "run")
    try:
        yield executor
        for handle in executor.discover():
            await executor.end(handle, 0.0)
            await executor.destroy(handle)
    finally:
        shutil.rmtree(home)


def agent(script: str, tmp_path: Path, **changes: Any) -> LaunchSpec:
    """A Python script as an agent; ``-u``, so that its output arrives at once."""
    values: dict[str, Any] = {
        "session_id": "s",
        "generation": 1,
        "argv": (sys.executable, "-I", "-S", "-u", "-c", textwrap.dedent(script)),
        "cwd": tmp_path,
        "environment": {"PATH": "/usr/bin:/bin", "SECRET": "in the environment"},
    }
    return LaunchSpec(**{**values, **changes})


def run_record(handle: Handle) -> dict[str, Any]:
    record = Place.from_handle(handle).run()
    assert record is not None
    return record


def keeper_path(handle: Handle) -> Path:
    return Path(Place.from_handle(handle).path)


def journal_bytes(handle: Handle, name: str = directory.JOURNAL) -> bytes:
    """Return the journal's bytes on disk, all segments in order."""
    return b"".join(path.read_bytes() for path in sorted(keeper_path(handle).glob(f"{name}.0*")))


_unread: WeakKeyDictionary[Attachment, list[JournalLine]] = WeakKeyDictionary()
"""Lines that arrived together with the requested ones."""


async def read_lines(attachment: Attachment, count: int) -> list[JournalLine]:
    lines = _unread.setdefault(attachment, [])
    while len(lines) < count:
        lines += await attachment.__anext__()
    _unread[attachment] = lines[count:]
    return lines[:count]


async def next_line(attachment: Attachment) -> JournalLine:
    return (await read_lines(attachment, 1))[0]


async def rest_of(attachment: Attachment) -> list[JournalLine]:
    """Return all further lines, until the end."""
    lines = _unread.pop(attachment, [])
    async for more in attachment:
        lines += more
    return lines


async def read_all(attachment: Attachment) -> bytes:
    return b"".join(line.data for line in await rest_of(attachment)) + attachment.tail


def resident_kib(pid: int, field: str = "VmRSS") -> int:
    """Return the memory of a process as Linux counts it, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {field}")


def is_running(pid: int) -> bool:
    """Return whether this pid is a process and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
