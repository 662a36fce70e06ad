"""The directory of one agent process, read without its keeper."""

import asyncio
import json
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rametd.domain.errors import BadNameError, NotFoundError
from rametd.keeper import directory
from rametd.keeper.executor import (
    KEEPER_VARIABLE,
    SESSION_VARIABLE,
    ExitRecord,
    Handle,
    Liveness,
    Recovered,
)
from rametd.keeper.tree import PAUSE
from rametd.platform import processes

HANDLE_VERSION = 1
STDERR_TAIL = 16 << 10
_NAME = re.compile(r"([a-z0-9][a-z0-9-]{0,47})-([0-9]{1,9})")


async def until(condition: Callable[[], bool], *, within: float = math.inf) -> bool:
    """Poll for a condition that another process fulfils; return False after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not await asyncio.to_thread(condition):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(PAUSE)
    return True


@dataclass(frozen=True, slots=True)
class Place:
    """The keeper's directory ``root/<session>-<generation>``. All methods block for milliseconds:
    call them in a thread.

    Commands have their own ``root`` and ids; ``variable`` is the environment variable with the id.
    """

    root: Path
    session: str
    generation: int
    variable: str = SESSION_VARIABLE

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadNameError(f"{self.name!r} names no process of a session")

    @classmethod
    def from_name(cls, root: Path, name: str, variable: str = SESSION_VARIABLE) -> Self | None:
        match = _NAME.fullmatch(name)
        return None if match is None else cls(root, match[1], int(match[2]), variable)

    @classmethod
    def from_handle(cls, handle: Handle) -> Self:
        """Raise NotFoundError for a handle of another executor."""
        try:
            value = json.loads(handle)
            if value["executor"] == "local" and value["version"] == HANDLE_VERSION:
                variable = value.get("variable", SESSION_VARIABLE)
                return cls(Path(value["root"]), value["session"], value["generation"], variable)
        except (ValueError, KeyError, TypeError, BadNameError) as error:
            raise NotFoundError(f"{handle!r} is no handle: {error!r}") from error
        raise NotFoundError(f"{handle!r} belongs to another executor or release")

    @property
    def name(self) -> str:
        return f"{self.session}-{self.generation}"

    @property
    def path(self) -> str:
        return os.fspath(self.root / self.name)

    @property
    def handle(self) -> Handle:
        fields = {"root": os.fspath(self.root), "session": self.session, "generation": self.generation}
        if self.variable != SESSION_VARIABLE:
            fields["variable"] = self.variable
        return Handle(json.dumps({"executor": "local", "version": HANDLE_VERSION, **fields}))

    @property
    def tags(self) -> dict[str, str]:
        """Variables in the environment of all descendants. They include the directory, and so
        exclude descendants of a later process, and of a session with the same id under another
        daemon."""
        return {self.variable: self.session, KEEPER_VARIABLE: self.path}

    def exists(self) -> bool:
        return (self.root / self.name).is_dir()

    def is_locked(self) -> bool:
        return directory.is_locked(self.path)

    def run(self) -> dict[str, Any] | None:
        """Return the record of the started processes, or None. Raise ValueError for a damaged
        one."""
        record = directory.read_record(self.path, directory.RUN)
        return None if record is None or "error" in record else record

    def is_starting(self) -> bool:
        """Return whether a launcher runs that has not reported success or failure yet."""
        return self.is_locked() and directory.read_record(self.path, directory.RUN) is None

    def agent(self) -> processes.Process | None:
        """Return the agent's process if exactly that process lives."""
        run = self.run()
        if run is None or run["boot_id"] != processes.boot_id():
            return None
        process = processes.find(run["agent_pid"])
        return process if process is not None and process.start == run["agent_start"] and not process.zombie else None

    def inspect(self) -> Recovered:
        """Return the state of the agent and the end of its stderr."""
        if not self.exists():
            return Recovered(Liveness.UNKNOWN)
        try:
            record = directory.read_record(self.path, directory.EXIT)
            if record is None and self.is_locked():
                return Recovered(Liveness.ALIVE, agent_alive=self.agent() is not None)
            # The keeper may have written it and exited between the two reads.
            record = record or directory.read_record(self.path, directory.EXIT)
            stderr_tail = directory.read_stderr_tail(self.path, STDERR_TAIL).decode(errors="replace")
            if record is None:
                alive = self.agent() is not None
                return Recovered(Liveness.KEEPER_LOST, agent_alive=alive, stderr_tail=stderr_tail)
            return Recovered(Liveness.EXITED, exit=ExitRecord.from_record(record), stderr_tail=stderr_tail)
        except (ValueError, KeyError, TypeError, OSError):
            # An unreadable record counts as unknown.
            return Recovered(Liveness.UNKNOWN)
