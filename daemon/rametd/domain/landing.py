"""Entries of the merge queues."""

from dataclasses import dataclass
from enum import StrEnum


class LandingState(StrEnum):
    QUEUED = "queued"  # waits for its turn
    MERGING = "merging"  # being merged onto the target, or the target is being moved
    CHECKING = "checking"
    WAITING = (
        "waiting"  # blocked by a condition that ends by itself, or by a checkout of the target; retried in each round
    )
    RETURNED = "returned"  # returned to its agent; queued again after the agent's next commit
    HELD = "held"  # needs a person's answer
    LANDED = "landed"
    REMOVED = "removed"


ENDED = frozenset({LandingState.LANDED, LandingState.REMOVED})
READY = frozenset({LandingState.QUEUED, LandingState.WAITING})
"""States that each round of the queue considers."""
AT_WORK = frozenset({LandingState.MERGING, LandingState.CHECKING})


@dataclass(frozen=True, slots=True)
class Landing:
    """An entry of a merge queue. Commits are hashes, "" for a missing one."""

    id: str
    repo_id: str
    session_id: str
    session_name: str  # when it was queued: the session may be removed
    branch: str
    target: str
    method: str  # "merge", "rebase", "squash"
    checks: tuple[str, ...]  # commands that must succeed first
    state: LandingState
    reason: str
    merge_order: int
    position: int  # order of queueing among all entries
    after: tuple[str, ...]  # ids of sessions
    returns: int
    commit: str  # of the branch, when it was last read
    old_target: str
    new_target: str
    check_command_id: str
    batch: tuple[str, ...]  # ids of the entries that were checked with it
    principal: str
    create_time: float
    update_time: float

    @property
    def lane(self) -> tuple[str, str]:
        """Key of its queue: repository and target."""
        return self.repo_id, self.target
