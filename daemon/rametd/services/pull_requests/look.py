"""Read a pull request with one GraphQL query."""

from dataclasses import dataclass, replace
from typing import Any

from ramet.words import plural

from rametd.domain.errors import PullRequestNotFoundError
from rametd.domain.pull_requests import Checks, PullRequest, PullState
from rametd.services.pull_requests.github import GitHub

LOOK = """
query Look($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    number url title body state isDraft headRefName headRefOid baseRefName mergeable mergeStateStatus reviewDecision
    commits(last: 1) { nodes { commit { statusCheckRollup { contexts(first: 100) { nodes {
      __typename
      ... on CheckRun { databaseId name status conclusion title summary detailsUrl checkSuite { app { slug } } }
      ... on StatusContext { context state description targetUrl }
    } } } } } }
    reviewThreads(first: 100) { nodes { isResolved isOutdated path line originalLine
      comments(first: 50) { nodes { id author { login } body diffHunk url } } } }
    reviews(last: 50) { nodes { id author { login } state body url } }
  } }
}
"""
FAILURES = frozenset({"FAILURE", "TIMED_OUT", "CANCELLED", "ACTION_REQUIRED", "STARTUP_FAILURE", "ERROR"})
PENDING = frozenset({"PENDING", "EXPECTED"})
STATES = {"MERGED": PullState.MERGED, "CLOSED": PullState.CLOSED}


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a commit: a check run, or an older status."""

    key: str  # unique among those of all commits
    name: str
    failed: bool
    running: bool
    run_id: int  # 0 for a status
    by_actions: bool
    summary: str
    url: str


def repository(pull: PullRequest) -> tuple[str, str]:
    owner, name = pull.slug.split("/", 1)
    return owner, name


async def look(github: GitHub, pull: PullRequest) -> dict[str, Any]:
    """Query a pull request. Raises `PullRequestNotFoundError`, and the errors of `GitHub`."""
    owner, name = repository(pull)
    data = await github.query(LOOK, owner=owner, name=name, number=pull.number)
    found: dict[str, Any] | None = (data.get("repository") or {}).get("pullRequest")
    if found is None:
        raise PullRequestNotFoundError(
            f"{pull.slug} has no pull request {pull.number}", hint="`rametctl pr link` names another"
        )
    return found


def seen(pull: PullRequest, answer: dict[str, Any], now: float) -> PullRequest:
    """Update the row from the answer."""
    state = STATES.get(answer["state"], PullState.DRAFT if answer["isDraft"] else PullState.OPEN)
    checks = checks_of(answer)
    failed = tuple(sorted({check.name for check in checks if check.failed}))
    verdict = Checks.NONE
    if checks:
        running = any(check.running for check in checks)
        verdict = Checks.FAILED if failed else Checks.RUNNING if running else Checks.PASSED
    review = (answer.get("reviewDecision") or "").lower()
    mergeable = (answer.get("mergeable") or "UNKNOWN").lower()
    return replace(
        pull,
        number=answer["number"],
        url=answer["url"],
        title=answer["title"],
        branch=answer["headRefName"],
        base=answer["baseRefName"],
        head_commit=answer["headRefOid"],
        state=state,
        checks=verdict,
        review=review,
        mergeable=mergeable,
        failed_checks=failed,
        blockers=blockers(answer, state, verdict, failed) if state in {PullState.OPEN, PullState.DRAFT} else (),
        check_time=now,
        error="",
    )


def checks_of(answer: dict[str, Any]) -> list[Check]:
    nodes = answer["commits"]["nodes"]
    rollup = nodes[0]["commit"]["statusCheckRollup"] if nodes else None
    return [_check(node) for node in (rollup or {"contexts": {"nodes": []}})["contexts"]["nodes"]]


def _check(node: dict[str, Any]) -> Check:
    if node["__typename"] == "StatusContext":
        state = node["state"]
        key = f"status:{node['context']}:{node.get('targetUrl') or ''}"
        return Check(
            key,
            node["context"],
            state in FAILURES,
            state in PENDING,
            0,
            False,
            node.get("description") or "",
            node.get("targetUrl") or "",
        )
    app = ((node.get("checkSuite") or {}).get("app") or {}).get("slug", "")
    said = [part for part in (node.get("title"), node.get("summary")) if part]
    return Check(
        f"check:{node['databaseId']}",
        node["name"],
        (node.get("conclusion") or "") in FAILURES,
        node["status"] != "COMPLETED",
        node["databaseId"],
        app == "github-actions",
        "\n".join(said),
        node.get("detailsUrl") or "",
    )


def blockers(answer: dict[str, Any], state: PullState, verdict: Checks, failed: tuple[str, ...]) -> tuple[str, ...]:
    """Reasons that block the merge; first those that the author can remove."""
    base = answer["baseRefName"]
    found = []
    if state == PullState.DRAFT:
        found.append("it is a draft")
    if answer.get("mergeable") == "CONFLICTING":
        found.append(f"it conflicts with {base}")
    if failed:
        found.append(f"failed: {', '.join(failed)}")
    elif verdict == Checks.RUNNING:
        found.append("checks are running")
    if answer.get("reviewDecision") == "CHANGES_REQUESTED":
        found.append("changes are requested")
    elif answer.get("reviewDecision") == "REVIEW_REQUIRED":
        found.append("a review is required")
    open_threads = sum(not thread["isResolved"] for thread in answer["reviewThreads"]["nodes"])
    if open_threads:
        found.append(plural(open_threads, "open review thread"))
    if answer.get("mergeStateStatus") == "BEHIND":
        found.append(f"it is behind {base}")
    elif answer.get("mergeStateStatus") == "BLOCKED" and not found:
        found.append(f"the rules of {base} do not allow it yet")
    return tuple(found)
