"""Pull requests of sessions, as values."""

from dataclasses import dataclass, field
from enum import StrEnum


class PullState(StrEnum):
    NONE = "none"  # the branch is pushed, but Ramet cannot open a pull request on this remote
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
    """Last known state of a session's pull request, or of its pushed branch if there is none."""

    session_id: str
    repo_id: str
    remote: str  # git's name of the remote that the branch was pushed to
    branch: str
    base: str
    host: str = ""  # such as "github.com"; "" if `gh` is not logged in to the remote's host
    slug: str = ""  # "OWNER/NAME" of the repository of the pull request
    number: int = 0  # 0 while none is known
    url: str = ""  # of its page, or of the page on which to open it
    title: str = ""
    state: PullState = PullState.NONE
    checks: Checks = Checks.UNKNOWN
    review: str = ""  # "approved", "changes_requested", "review_required" or ""
    mergeable: str = "unknown"  # "mergeable", "conflicting" or "unknown"
    blockers: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    commit: str = ""  # last commit that Ramet pushed
    head_commit: str = ""  # head of the branch on GitHub; of a merged pull request, the merged commit
    check_time: float | None = None  # of the last successful query
    error: str = ""  # why later queries failed
    etags: dict[str, str] = field(default_factory=dict)  # ETag of the last answer, by API path
    sent: tuple[str, ...] = ()  # ids of comments and failed checks that the agent has received
    create_time: float = 0.0
    update_time: float = 0.0
