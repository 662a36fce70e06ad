"""Create a keeper's directory, run the launcher, and undo both if the start fails."""

import asyncio
import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rametd.domain.errors import (
    AgentUnavailableError,
    InvalidInputError,
    KeeperError,
    RametError,
    RuntimeDirectoryError,
    WorkingDirectoryError,
)
from rametd.keeper import directory, framing, lost, program
from rametd.keeper.executor import LaunchSpec
from rametd.keeper.place import Place, until
from rametd.keeper.tree import SWEEP_GRACE, Tree

TIMEOUT = 20.0
"""Seconds that a launcher may take on a busy machine."""
PROGRAM = Path(program.__file__).absolute()


def check(spec: LaunchSpec) -> None:
    """Raise InvalidInputError for arguments or an environment that no process can have."""
    texts = (*spec.argv, os.fspath(spec.cwd), *spec.environment, *spec.environment.values())
    if (
        not spec.argv
        or any("\0" in text for text in texts)
        or any("=" in name or not name for name in spec.environment)
    ):
        raise InvalidInputError("an empty command, or a NUL byte in it or in its environment")


def prepare(place: Place, spec: LaunchSpec, socket: Path) -> None:
    """Create the keeper's directory atomically. Blocks."""
    environment = {**spec.environment, **place.tags}
    fresh = place.root / f".{place.name}.new"
    place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(0o700)
    try:
        directory.write_private(os.fspath(fresh / directory.ENVIRONMENT), directory.encode_environment(environment))
        directory.write_record(
            os.fspath(fresh),
            directory.SPEC,
            {
                "version": framing.PROTOCOL_VERSION,
                "session": spec.session_id,
                "generation": spec.generation,
                "argv": spec.argv,
                "cwd": os.fspath(spec.cwd),
                "environment_names": sorted(environment),
                "tags": place.tags,
                "socket": os.fspath(socket),
                "segment_bytes": spec.segment_bytes,
                "keep_bytes": spec.keep_bytes,
                "keep_descendants": spec.keep_descendants,
                "nice": spec.nice,
                "cgroup": None if spec.cgroup is None else os.fspath(spec.cgroup),
            },
        )
        fresh.rename(place.path)
        directory.sync_directory(os.fspath(place.root))
    finally:  # renamed when complete
        shutil.rmtree(fresh, ignore_errors=True)


async def launch(place: Place, spec: LaunchSpec, python: str, environment: Mapping[str, str]) -> None:
    """Run the launcher for a prepared ``place``. Raise as `Executor.start`; then nothing runs, and
    the directory is deleted."""
    try:
        failure = await _run_launcher(place, spec, python, environment)
    except OSError as error:
        failure = KeeperError(
            f"the keeper cannot be started with {python}: {error}", hint="is the installation complete?"
        )
    if failure is not None:
        # The directory of a hanging keeper stays: it may continue later, for example if its agent's
        # directory is on a dead network mount.
        if await until(lambda: not place.is_locked(), within=lost.PATIENCE):
            await undo(place)
        raise failure


async def _run_launcher(
    place: Place, spec: LaunchSpec, python: str, environment: Mapping[str, str]
) -> RametError | None:
    launcher = await asyncio.create_subprocess_exec(
        *(python, "-I", "-S", PROGRAM, "launch", place.path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,  # a Ctrl-C in the daemon's terminal must not reach it
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            _, complaint = await launcher.communicate()
    except TimeoutError:
        launcher.kill()
        await launcher.wait()
        return KeeperError(
            f"the keeper of {place.name} did not start within {TIMEOUT:.0f} s", hint="is the machine stuck?"
        )
    if launcher.returncode == program.LOCKED:
        # The launcher of a killed daemon is starting a keeper in the same directory; use that
        # keeper.
        await until(lambda: not place.is_starting())
    elif launcher.returncode != 0:
        log = await asyncio.to_thread(_log, place)
        reason = (log or complaint.decode(errors="replace")).strip().rpartition("\n")[2]
        return KeeperError(f"the keeper of {place.name} failed: {reason or f'status {launcher.returncode}'}")
    record = await asyncio.to_thread(directory.read_record, place.path, directory.RUN)
    if record is None:
        return KeeperError(f"the keeper of {place.name} ended without reporting a result")
    return _explain(record["error"], spec) if "error" in record else None


async def undo(place: Place) -> None:
    """Remove the leftovers of an unfinished start, including an agent that the keeper forked before
    it was killed."""
    await lost.sweep(Tree(None, place.tags, None), SWEEP_GRACE)
    await asyncio.to_thread(shutil.rmtree, place.path, ignore_errors=True)


def _explain(error: Mapping[str, Any], spec: LaunchSpec) -> RametError:
    program_name, number, message = spec.argv[0], error["errno"], error["message"]
    if error["stage"] == "cwd":
        return WorkingDirectoryError(
            f"the working directory {spec.cwd} cannot be entered: {message}",
            hint="`rametctl doctor` says what to do",
        )
    if error["stage"] == "cgroup":
        return KeeperError(f"the control group {spec.cgroup} cannot be entered: {message}")
    if error["stage"] == "socket":
        return RuntimeDirectoryError(f"the keeper's socket cannot be made: {message}", hint="look at RAMET_RUNTIME_DIR")
    if number == errno.ENOENT and "/" in program_name and (spec.cwd / program_name).is_file():
        return AgentUnavailableError(f"the interpreter that {program_name} names in its first line is missing")
    if number == errno.ENOENT:
        return AgentUnavailableError(
            f"there is no program {program_name}", hint="install it, or set agents.claude.path in config.toml"
        )
    return AgentUnavailableError(f"{program_name} cannot be started: {message}")


def _log(place: Place) -> str:
    path = Path(place.path, directory.LOG)
    return path.read_text(errors="replace") if path.exists() else ""
