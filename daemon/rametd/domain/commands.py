"""Commands that run, or ran, in a worktree."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class CommandKind(StrEnum):
    RUN = "run"  # a caller asked for it
    SETUP = "setup"
    TEARDOWN = "teardown"
    CHECK = "check"


class CommandState(StrEnum):
    STARTING = "starting"  # the intent is stored, the keeper is not known to run
    RUNNING = "running"
    EXITED = "exited"
    STOPPED = "stopped"  # stopped by the daemon or by its timeout
    LOST = "lost"  # its process is gone and its exit status is unknown


LIVING = frozenset({CommandState.STARTING, CommandState.RUNNING})


@dataclass(frozen=True, slots=True)
class Command:
    """One command, run by a keeper of its own."""

    id: str
    session_id: str  # "" for one of no session: it ends with the daemon that started it
    repo_id: str
    kind: CommandKind
    name: str  # in the configuration, or its purpose
    argv: tuple[str, ...]
    directory: Path
    state: CommandState
    handle: str  # the executor's, opaque
    pid: int
    exit_status: str  # "code 0", "signal SIGKILL", "" unknown
    stop_reason: str  # stored before the daemon stops it; "" if the daemon did not
    deadline: float | None  # when it times out
    reported_bytes: int  # bytes of its output that are stored as events
    output_bytes: int  # known once it has ended
    digest: str  # of the files that a setup depends on
    principal: str
    start_time: float
    end_time: float | None

    @property
    def living(self) -> bool:
        return self.state in LIVING

    @property
    def succeeded(self) -> bool:
        return self.state == CommandState.EXITED and self.exit_status == "code 0"
