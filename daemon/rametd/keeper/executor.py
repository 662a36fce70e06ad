"""Running agents somewhere, as the rest of the daemon sees it.

An `Executor` starts agents and finds them again; an `Attachment` is one live conversation with one of them. Both are bytes, offsets
and signals: what an agent says is for `agents` to understand. `LocalExecutor` runs them on this machine.
"""

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NewType, Protocol

Handle = NewType("Handle", str)
"""Opaque and versioned; kept in the store. Only the executor that made it reads it."""

SEGMENT_BYTES = 16 << 20
SESSION_VARIABLE = "RAMET_SESSION"
COMMAND_VARIABLE = "RAMET_COMMAND"
KEEPER_VARIABLE = "RAMET_KEEPER"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One process of one session. ``generation`` counts the processes that the session has had.

    ``environment`` is complete: nothing is inherited. RAMET_SESSION and RAMET_KEEPER (unique to this process) are set over it,
    for they are how the agent's descendants are known. ``cgroup`` is a directory of the cgroup file system that this user may write to.
    ``keep_bytes``: no more of the journal is kept than that and a segment; 0 keeps all that is not released. For a command, which is held
    in the same way, ``session_id`` is the command's id, and RAMET_COMMAND holds it.
    """

    session_id: str
    generation: int
    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str] = field(repr=False)
    cgroup: Path | None = None
    keep_descendants: bool = False
    segment_bytes: int = SEGMENT_BYTES
    keep_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EndRequest:
    """Who asked for the end: ``by`` is ``controller`` or ``signal``, ``epoch`` that of the daemon attached then."""

    by: str
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How an agent ended. One of ``code`` and ``signal`` is set; neither where the keeper could not learn it.

    Times are seconds since the epoch. ``swept``: how many descendants were found when it ended; ``left``: pids of those that even
    SIGKILL did not end.
    """

    code: int | None
    signal: str | None
    started_at: float
    ended_at: float
    asked: EndRequest | None
    swept: int
    left: tuple[int, ...]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ExitRecord":
        """Raises KeyError or TypeError for a record that lacks something."""
        asked = record["asked"]
        return cls(
            code=record["code"],
            signal=record["signal"],
            started_at=record["started_at"],
            ended_at=record["ended_at"],
            asked=None if asked is None else EndRequest(asked["by"], asked["at"], asked["epoch"]),
            swept=record["swept"],
            left=tuple(record["left"]),
        )

    @property
    def status(self) -> str:
        """In words, as the contract has it: "code 0", "signal SIGKILL", or "" where nobody knows."""
        if self.signal is not None:
            return f"signal {self.signal}"
        return f"code {self.code}" if self.code is not None else ""


class Liveness(enum.Enum):
    ALIVE = "alive"
    """The keeper lives: attach."""
    EXITED = "exited"
    """All is over and on record."""
    KEEPER_LOST = "keeper_lost"
    """The keeper is gone and left no record: how the agent ended, or whether it will, nobody knows. Call ``end``."""
    UNKNOWN = "unknown"
    """There is nothing where the handle points to, or nothing that can be read."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """``exit`` is set for EXITED; ``agent_alive`` tells more about KEEPER_LOST; ``stderr_tail`` is what the agent said last."""

    liveness: Liveness
    agent_alive: bool = False
    exit: ExitRecord | None = None
    stderr_tail: str = ""


class JournalLine(NamedTuple):
    """Bytes ``start`` to ``end`` of the agent's stdout or stdin, newline included."""

    start: int
    end: int
    data: bytes


class Attachment(Protocol):
    """The journal from an offset on, and the agent's stdin. One reader; iterate all the time, or `wait_exit` never returns.

    Iteration ends after the last complete line of an agent that ended; it raises KeeperFencedError when another controller took
    over, KeeperError when the keeper lives but cannot be talked to any more.
    """

    def __aiter__(self) -> AsyncIterator[Sequence[JournalLine]]: ...

    async def __anext__(self) -> Sequence[JournalLine]:
        """Wait for the next lines: all that are there, at least one."""
        ...

    @property
    def tail(self) -> bytes:
        """What the ended agent wrote after its last newline; known once the iteration has ended."""
        ...

    async def write(self, line: bytes) -> int:
        """Give the agent one line or several, newline included; returns the end of the stdin journal once they are in it.

        Raises WrongStateError when the agent's stdin is closed, PromptTooLargeError over 64 MiB, and KeeperError when the
        connection broke first: then only `written_since` tells whether it was written.
        """
        ...

    async def signal(self, name: str) -> None:
        """Send ``SIGINT``, …, to the agent alone. Raises WrongStateError when it has ended."""
        ...

    def release(self, offset: int) -> None:
        """The journal below ``offset`` is no longer needed. No effect once the agent has ended."""
        ...

    def release_stdin(self, offset: int) -> None:
        """The stdin journal below ``offset`` is no longer needed; what the agent has not read yet is kept."""
        ...

    async def status(self) -> Mapping[str, Any]:
        """What the keeper tells of itself: pids, offsets, ``blocked`` (why the disk takes nothing), ``stderr_tail``, …"""
        ...

    async def wait_exit(self) -> ExitRecord | None:
        """Wait for the end; None when nobody recorded how it ended."""
        ...

    async def written_since(self, offset: int) -> list[JournalLine]:
        """The lines of the stdin journal from ``offset`` on. Raises LookupError for an offset that was released."""
        ...

    async def close(self) -> None:
        """Detach. The agent goes on."""
        ...


class Executor(Protocol):
    """Starts agents and finds them again."""

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start the agent and return when it runs.

        Idempotent for one (session, generation): a process that was started for it, alive or ended by now, is returned as it is,
        so an intent that was interrupted is simply repeated. On failure nothing is left. Raises WorkingDirectoryError,
        AgentUnavailableError (the program is missing or cannot be executed), RuntimeDirectoryError (the socket's path), or
        KeeperError. When the caller is cancelled the start goes on: repeat it to have its outcome.
        """
        ...

    async def recover(self, handle: Handle) -> Recovered:
        """What became of it, judged by the keeper's lock and by pid, start time and boot; never by a pid alone."""
        ...

    async def attach(self, handle: Handle, *, epoch: int, offset: int) -> Attachment:
        """The journal from ``offset`` (a line's start) on. Works after the end too: then it is read from what is left.

        Raises KeeperFencedError when a newer epoch is known to the keeper, NotFoundError when there is nothing at ``handle``,
        LookupError for an offset that the journal does not have, and KeeperError.
        """
        ...

    async def wait(self, handle: Handle) -> ExitRecord | None:
        """Wait for the end without taking the journal; None when nobody recorded how it ended, or there is nothing at ``handle``.

        When the keeper is gone what it held may live on: call ``end`` upon None.
        """
        ...

    async def written(self, handle: Handle) -> int:
        """Bytes of the journal, those included that are not kept any more. Raises NotFoundError as ``read`` does."""
        ...

    async def read(self, handle: Handle, offset: int, size: int) -> JournalLine:
        """Up to ``size`` bytes of the journal from ``offset`` on, or from the first byte that is kept; whole lines or not.

        Empty at the end, which moves while the process lives. Raises NotFoundError when there is nothing at ``handle``.
        """
        ...

    async def signal(self, handle: Handle, signal_name: str, *, epoch: int | None = None) -> None:
        """Send a signal to the agent alone. Raises WrongStateError when it has ended, KeeperFencedError for an old epoch."""
        ...

    async def end(self, handle: Handle, grace: float, *, epoch: int | None = None) -> ExitRecord | None:
        """End the agent and everything it started: close stdin, SIGTERM, SIGKILL, ``grace`` seconds between; idempotent.

        Works without a keeper too, and then returns None, for how the agent ended is not known.
        """
        ...

    async def destroy(self, handle: Handle) -> None:
        """Remove all traces. Raises WrongStateError while the keeper or the agent lives; idempotent."""
        ...

    def discover(self) -> list[Handle]:
        """Everything that was started and not destroyed, in order of session and generation. Blocks: call it in a thread."""
        ...
