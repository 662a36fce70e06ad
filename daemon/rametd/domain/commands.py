"""Commands that run, or ran, in a worktree."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class CommandKind(StrEnum):
    RUN = "run"  # somebody asked for it
    SETUP = "setup"
    TEARDOWN = "teardown"
    CHECK = "check"


class CommandState(StrEnum):
    STARTING = "starting"  # the intent is stored, the keeper is not known to run
    RUNNING = "running"
    EXITED = "exited"
    STOPPED = "stopped"  # we ended it, or its time did
    LOST = "lost"  # gone, and nobody saw how


LIVING = frozenset({CommandState.STARTING, CommandState.RUNNING})


@dataclass(frozen=True, slots=True)
class Command:
    """One command, held by a keeper of its own."""

    id: str
    session_id: str  # "" for one that belongs to no session: it is ended when the daemon that wanted it is gone
    repo_id: str
    kind: CommandKind
    name: str  # in the configuration, or what it is for
    argv: tuple[str, ...]
    directory: Path
    state: CommandState
    handle: str  # the executor's; opaque
    pid: int
    exit_status: str  # "code 0", "signal SIGKILL", "" unknown
    stop_reason: str  # stored before it is ended; "" when we did not
    deadline: float | None  # when its time is over
    told: int  # bytes of its output that are events
    output_bytes: int  # known once it has ended
    digest: str  # of a setup: what it depends on
    principal: str
    start_time: float
    end_time: float | None

    @property
    def living(self) -> bool:
        return self.state in LIVING

    @property
    def succeeded(self) -> bool:
        return self.state == CommandState.EXITED and self.exit_status == "code 0"
