"""Spares: prepared worktrees that wait for a session."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rametd.domain.models import SetupState


class SpareState(StrEnum):
    """States of a spare. A starting daemon removes spares in any state but READY and FAILED: their
    preparation was cut off."""

    MAKING = "making"
    READY = "ready"
    UPDATING = "updating"
    REMOVING = "removing"
    FAILED = "failed"  # its directory does not exist


@dataclass(frozen=True, slots=True)
class Spare:
    """A worktree without a branch. The session that claims it takes its id, because the id names
    its directory."""

    id: str
    repo_id: str
    path: Path
    commit: str
    state: SpareState
    reason: str  # why it is FAILED
    inherits: str  # digest of the files copied from the main worktree
    setup: SetupState
    setup_digest: str
    settings: str  # digest of the settings that prepared it
    warnings: tuple[str, ...]  # of its preparation, for the session that claims it
    create_time: float

    def fits(self, inherits: str, settings: str) -> bool:
        """Whether a session may get it: it was prepared as the two digests say."""
        return self.state == SpareState.READY and (self.inherits, self.settings) == (inherits, settings)
