"""Entries of the merge queues."""

from dataclasses import dataclass
from enum import StrEnum


class LandingState(StrEnum):
    QUEUED = "queued"  # waits for its turn
    MERGING = "merging"  # is being brought onto the target, or the target is being moved
    CHECKING = "checking"
    WAITING = "waiting"  # for something that comes by itself, or for somebody's checkout; looked at again and again
    RETURNED = "returned"  # its agent has it back; queued again when the agent has committed something
    HELD = "held"  # a person is asked
    LANDED = "landed"
    REMOVED = "removed"


ENDED = frozenset({LandingState.LANDED, LandingState.REMOVED})
READY = frozenset({LandingState.QUEUED, LandingState.WAITING})
"""Looked at in each round of their queue."""
AT_WORK = frozenset({LandingState.MERGING, LandingState.CHECKING})


@dataclass(frozen=True, slots=True)
class Landing:
    """An entry. Commits are hashes, "" before there is one."""

    id: str
    repo_id: str
    session_id: str
    session_name: str  # as it was when it was queued: the session may go
    branch: str
    target: str
    method: str  # "merge", "rebase", "squash"
    checks: tuple[str, ...]  # what must succeed first
    state: LandingState
    reason: str
    merge_order: int
    position: int  # when it was queued, among all
    after: tuple[str, ...]  # ids of sessions
    returns: int
    commit: str  # of the branch, as it was last looked at
    old_target: str
    new_target: str
    check_command_id: str
    batch: tuple[str, ...]  # ids of the entries that were checked with it
    principal: str
    create_time: float
    update_time: float

    @property
    def lane(self) -> tuple[str, str]:
        """Whose turns it shares."""
        return self.repo_id, self.target
