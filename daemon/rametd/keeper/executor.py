"""The interface through which the rest of the daemon runs agents.

An `Executor` starts agents and finds them again; an `Attachment` is a connection to one of them.
Both know only bytes, offsets and signals; `agents` reads the content. `LocalExecutor` runs agents
on this machine.
"""

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NewType, Protocol

Handle = NewType("Handle", str)
"""Names a process; opaque and versioned, saved in the store. Only the executor that created it
reads it."""

SEGMENT_BYTES = 16 << 20
SESSION_VARIABLE = "RAMET_SESSION"
COMMAND_VARIABLE = "RAMET_COMMAND"
KEEPER_VARIABLE = "RAMET_KEEPER"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One process of one session. ``generation`` numbers the processes of the session.

    ``environment`` is complete: the process inherits nothing. The executor adds RAMET_SESSION and
    RAMET_KEEPER (unique to this process), by which it finds the agent's descendants. ``cgroup`` is
    a directory of the cgroup file system that this user may write to. ``nice`` is the minimum
    niceness of the process. ``keep_bytes`` limits the journal to that size and a segment; with 0 it
    has all bytes that were not released. A command has a keeper too: ``session_id`` is then the
    command's id, and RAMET_COMMAND replaces RAMET_SESSION.
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
    nice: int = 0


@dataclass(frozen=True, slots=True)
class EndRequest:
    """The source of a requested end. ``by`` is ``controller`` or ``signal``; ``epoch`` is that of
    the daemon that was attached then."""

    by: str
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How an agent ended. One of ``code`` and ``signal`` is set; neither if the keeper could not
    learn it.

    Times are seconds since the epoch. ``swept``: number of descendants found when it ended;
    ``left``: pids of those that survived SIGKILL.
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
        """Raise KeyError or TypeError for an incomplete record."""
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
        """Return the status as the contract has it: "code 0", "signal SIGKILL", or "" if
        unknown."""
        if self.signal is not None:
            return f"signal {self.signal}"
        return f"code {self.code}" if self.code is not None else ""


class Liveness(enum.Enum):
    ALIVE = "alive"
    """The keeper runs: attach."""
    EXITED = "exited"
    """The agent and its keeper have ended, and the record exists."""
    KEEPER_LOST = "keeper_lost"
    """The keeper is gone without a record, and the agent may still run: call ``end``."""
    UNKNOWN = "unknown"
    """The handle's directory is missing or unreadable."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """``exit`` is set for EXITED, ``agent_alive`` for KEEPER_LOST; ``stderr_tail`` is the end of
    the agent's stderr."""

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
    """The journal from an offset on, and the agent's stdin. It has one reader; if that stops
    iterating, `wait_exit` never returns.

    Iteration ends after the last complete line of an ended agent. It raises KeeperFencedError after
    another controller took over, and KeeperError if the keeper lives but the connection to it
    broke.
    """

    def __aiter__(self) -> AsyncIterator[Sequence[JournalLine]]: ...

    async def __anext__(self) -> Sequence[JournalLine]:
        """Wait for the next lines; return all available ones, at least one."""
        ...

    @property
    def tail(self) -> bytes:
        """Output of the ended agent after its last newline; known once the iteration has ended."""
        ...

    async def write(self, line: bytes) -> int:
        """Send the agent complete lines with their newlines. Return the end of the stdin journal
        once they are in it.

        Raise WrongStateError if the agent's stdin is closed, PromptTooLargeError over 64 MiB, and
        KeeperError if the connection broke first; then only `written_since` shows whether they were
        written.
        """
        ...

    async def signal(self, name: str) -> None:
        """Send ``SIGINT``, …, to the agent only. Raise WrongStateError if it has ended."""
        ...

    def release(self, offset: int) -> None:
        """Let the keeper delete the journal below ``offset``. No effect once the agent has
        ended."""
        ...

    def release_stdin(self, offset: int) -> None:
        """Let the keeper delete the stdin journal below ``offset``, except bytes that the agent has
        not read yet."""
        ...

    async def status(self) -> Mapping[str, Any]:
        """Return the keeper's status: pids, offsets, ``blocked`` (why writing to the disk fails),
        ``stderr_tail``, …"""
        ...

    async def wait_exit(self) -> ExitRecord | None:
        """Wait for the end; return its record, None without one."""
        ...

    async def written_since(self, offset: int) -> list[JournalLine]:
        """Return the lines of the stdin journal from ``offset`` on. Raise LookupError for a
        released offset."""
        ...

    async def close(self) -> None:
        """Detach; the agent keeps running."""
        ...


class Executor(Protocol):
    """Starts agents and finds them again."""

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start the agent and return when it runs.

        Idempotent for one (session, generation), so that recovery can repeat an interrupted intent:
        returns an existing process, running or ended. A failure leaves no process and no files.
        Raise WorkingDirectoryError, AgentUnavailableError (the program is missing or cannot be
        executed), RuntimeDirectoryError (the socket's path), or KeeperError. A cancelled caller
        does not stop the start; repeat the call to get its outcome.
        """
        ...

    async def recover(self, handle: Handle) -> Recovered:
        """Return the state of the process, found by the keeper's lock and by pid, start time and
        boot, since a pid may be reused."""
        ...

    async def attach(self, handle: Handle, *, epoch: int, offset: int) -> Attachment:
        """Attach, with the journal from ``offset`` (the start of a line) on. After the agent's end,
        the attachment reads the directory.

        Raise KeeperFencedError if the keeper knows a newer epoch, NotFoundError if ``handle`` names
        nothing, LookupError for an offset outside the journal, and KeeperError.
        """
        ...

    async def wait(self, handle: Handle) -> ExitRecord | None:
        """Wait for the end without attaching; return its record, None without one or if ``handle``
        names nothing.

        If the result is None, call ``end``: the process may have outlived its keeper.
        """
        ...

    async def written(self, handle: Handle) -> int:
        """Return the length of the journal in bytes, deleted ones included. Raise NotFoundError as
        ``read`` does."""
        ...

    async def read(self, handle: Handle, offset: int, size: int) -> JournalLine:
        """Return up to ``size`` bytes of the journal from ``offset`` or its first byte on,
        regardless of line ends.

        Empty at the end, which moves while the process runs. Raise NotFoundError if ``handle``
        names nothing.
        """
        ...

    async def signal(self, handle: Handle, signal_name: str, *, epoch: int | None = None) -> None:
        """Send a signal to the agent only. Raise WrongStateError if it has ended, KeeperFencedError
        for an old epoch."""
        ...

    async def end(self, handle: Handle, grace: float, *, epoch: int | None = None) -> ExitRecord | None:
        """End the agent and all its descendants: close stdin, SIGTERM, SIGKILL, ``grace`` seconds
        apart; idempotent.

        Works without a keeper too, but then returns None, as the exit status is unknown.
        """
        ...

    async def destroy(self, handle: Handle) -> None:
        """Delete the process's directory. Raise WrongStateError while the keeper or the agent runs;
        idempotent."""
        ...

    def discover(self) -> list[Handle]:
        """Return the handles of all processes not destroyed, in order of session and generation.
        Blocks: call it in a thread."""
        ...
