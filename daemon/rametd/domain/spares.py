"""Prepared worktrees that wait for a session."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rametd.domain.models import SetupState


class SpareState(StrEnum):
    """How far a spare is. In all but READY and FAILED something is under way: a daemon that finds such a row removes what it names."""

    MAKING = "making"
    READY = "ready"
    UPDATING = "updating"
    REMOVING = "removing"
    FAILED = "failed"  # nothing lies there


@dataclass(frozen=True, slots=True)
class Spare:
    """A worktree without a branch. Its id becomes that of the session that claims it, since its directory is named by it."""

    id: str
    repo_id: str
    path: Path
    commit: str
    state: SpareState
    reason: str  # why it failed
    inherits: str  # digest of what it took over from the main worktree
    setup: SetupState
    setup_digest: str
    create_time: float
