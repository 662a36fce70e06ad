"""Pull requests of sessions, as values."""

from dataclasses import dataclass, field
from enum import StrEnum


class PullState(StrEnum):
    NONE = "none"  # the branch is pushed; there is no way to open one from here
    OPEN = "open"
    DRAFT = "draft"
    MERGED = "merged"
    CLOSED = "closed"


OPEN_STATES = frozenset({PullState.OPEN, PullState.DRAFT})


class Checks(StrEnum):
    UNKNOWN = ""
    NONE = "none"
    RUNNING = "running"
    FAILED = "failed"
    PASSED = "passed"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What is known of a session's pull request, or of its branch on the remote alone."""

    session_id: str
    repo_id: str
    remote: str  # git's name for where the branch was pushed to
    branch: str
    base: str
    host: str = ""  # "github.com"; "" where the remote is no GitHub that `gh` is logged in to
    slug: str = ""  # "OWNER/NAME" of the repository that the pull request is in
    number: int = 0  # 0 while none is known
    url: str = ""  # where it is looked at, or opened by hand
    title: str = ""
    state: PullState = PullState.NONE
    checks: Checks = Checks.UNKNOWN
    review: str = ""  # "approved", "changes_requested", "review_required" or ""
    mergeable: str = "unknown"  # "mergeable", "conflicting" or "unknown"
    blockers: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    commit: str = ""  # that we pushed last
    head_commit: str = ""  # of the branch, as GitHub said last; of a merged one, what was merged
    check_time: float | None = None  # of the last look that succeeded
    error: str = ""  # why there was no look since
    etags: dict[str, str] = field(default_factory=dict)  # by path of the interface: what was answered last
    sent: tuple[str, ...] = ()  # comments and failed checks that the agent has been given
    create_time: float = 0.0
    update_time: float = 0.0
