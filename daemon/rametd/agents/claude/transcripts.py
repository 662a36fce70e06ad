"""Find and copy Claude Code's transcripts. Every call blocks.

A conversation is ``projects/PROJECT/ID.jsonl`` below the configuration directory, with a directory
``projects/PROJECT/ID`` for subagents and long tool results. PROJECT names the directory in which
the conversation began; the program searches all projects.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rametd.agents.values import parse, text

TASK_ID = re.compile(r"[A-Za-z0-9_-]+")
NOT_IN_PROJECT = re.compile(r"[^A-Za-z0-9]")
LARGEST = 256 << 20
"""Maximum number of bytes of a file beside a transcript that is copied."""
COMPARED = 64 * 1024
"""Number of bytes before the end of the shorter file to compare: if they are equal, the longer file
continues it, because transcripts only grow."""


def configuration_directory(environment: Mapping[str, str]) -> Path:
    """Return the configuration directory of an agent with this environment."""
    if configured := environment.get("CLAUDE_CONFIG_DIR"):
        return Path(configured)
    return Path(environment.get("HOME") or Path.home()) / ".claude"


def task_output(worktree: Path, conversation_id: str, task_id: str, environment: Mapping[str, str]) -> str:
    """Return the file with the output of a running shell command; "" for an id that is no file
    name."""
    if not TASK_ID.fullmatch(task_id):
        return ""
    temporary = environment.get("CLAUDE_CODE_TMPDIR") or "/tmp"  # noqa: S108 - the program's own default
    project = NOT_IN_PROJECT.sub("-", str(worktree))
    return f"{temporary}/claude-{os.getuid()}/{project}/{conversation_id}/tasks/{task_id}.output"


def find(root: Path, conversation_id: str) -> Path | None:
    """Return the transcript of a conversation below ``root``, or None."""
    with suppress(OSError), os.scandir(root / "projects") as projects:
        # Strings instead of paths, for speed: the end of each turn searches the projects of all
        # sessions.
        for project in projects:
            transcript = f"{project.path}/{conversation_id}.jsonl"
            if os.path.exists(transcript):  # noqa: PTH110
                return Path(transcript)
    return None


def copy(conversation_id: str, source: Path, target: Path, *, overwrite: bool) -> bool:
    """Update a conversation below ``target`` from ``source``; return False if ``source`` does not
    have it.

    Append to a file that the source continues, and leave a file that is longer than the source's.
    Only with ``overwrite``, replace a file that differs. If the transcript was deleted while the
    program ran, the program has begun a new file with the later messages only: join the two.
    """
    transcript = find(source, conversation_id)
    if transcript is None:
        return False
    there = find(target, conversation_id)
    project = there.parent if there is not None else target / transcript.parent.relative_to(source)
    # Copy the transcript last: all files that it names must exist then.
    for file in (*_files(transcript.with_suffix("")), transcript):
        _update(file, project / file.relative_to(transcript.parent), overwrite=overwrite)
    return True


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory to which the agent may write: no links, pipes and devices,
    and none without a sensible size."""
    for folder, _, names in os.walk(directory):
        for file in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                    yield file


def _update(source: Path, target: Path, *, overwrite: bool) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with source.open("rb") as new, target.open("r+b") as old:
            have = old.seek(0, os.SEEK_END)
            size = os.fstat(new.fileno()).st_size
            start = max(0, min(have, size) - COMPARED)
            old.seek(start)
            new.seek(start)
            alike = old.read(min(have, size) - start) == new.read(min(have, size) - start)
            if alike and size > have:
                old.seek(have)
                shutil.copyfileobj(new, old)
            if alike:
                return
    except FileNotFoundError:
        if not source.exists():
            return
        joined = None
    else:
        joined = _joined(source, target, overwrite=overwrite) if source.suffix == ".jsonl" else None
        if joined is None and not overwrite:
            return
    temporary = target.with_name(f".{target.name}.new")
    if joined is None:
        shutil.copyfile(source, temporary)
    else:
        temporary.write_bytes(joined)
    temporary.chmod(0o600)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())  # a power cut must not leave an empty file in place of the old one
    temporary.replace(target)


def _joined(source: Path, target: Path, *, overwrite: bool) -> bytes | None:
    """Return both files' lines, if the newer file (``source`` with ``overwrite``, else ``target``)
    lacks the first messages of the older one, else None. Return the older one's alone if the newer
    has no message at all: a crash left it empty, zeroed, or with notes of the program only."""
    older, newer = (_lines(file) for file in ((target, source) if overwrite else (source, target)))
    first, later = ({key: None for key in lines if isinstance(key, str)} for lines in (older, newer))
    if not first or next(iter(first)) in later:
        return None
    return b"".join((older | newer if later else older).values())


def _lines(file: Path) -> dict[str | bytes, bytes]:
    """Return the complete lines of a transcript by the message's uuid, others by themselves."""
    data = file.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    return {text(parse(line) or {}, "uuid") or line: line for line in lines}
