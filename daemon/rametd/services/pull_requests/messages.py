"""Pull requests as messages of the contract, and their event."""

from dataclasses import replace

from ramet.v1 import event_pb2, landing_pb2

from rametd.domain.models import DAEMON
from rametd.domain.pull_requests import Checks, PullRequest
from rametd.services import events
from rametd.services.views import stamp
from rametd.store import Reader, Unit

CHECKS = {
    Checks.UNKNOWN: landing_pb2.CHECKS_STATE_UNSPECIFIED,
    Checks.NONE: landing_pb2.CHECKS_STATE_NONE,
    Checks.RUNNING: landing_pb2.CHECKS_STATE_RUNNING,
    Checks.FAILED: landing_pb2.CHECKS_STATE_FAILED,
    Checks.PASSED: landing_pb2.CHECKS_STATE_PASSED,
}


def pull_message(reader: Reader, pull: PullRequest) -> landing_pb2.PullRequest:
    session = reader.sessions.find(pull.session_id)
    return landing_pb2.PullRequest(
        session_id=pull.session_id,
        session_name=session.name if session is not None else "",
        number=pull.number,
        url=pull.url,
        state=pull.state,
        title=pull.title,
        branch=pull.branch,
        base=pull.base,
        checks=CHECKS[pull.checks],
        review=pull.review,
        mergeable=pull.mergeable,
        blockers=pull.blockers,
        check_time=stamp(pull.check_time),
        error=pull.error,
        commit=pull.commit,
        failed_checks=pull.failed_checks,
    )


def store(unit: Unit, pull: PullRequest, principal: str = DAEMON) -> PullRequest:
    """Store a pull request, with an event if a visible value changed. Raises `SessionNotFoundError` for a removed session."""
    unit.sessions.get(pull.session_id)
    before = unit.pull_requests.find(pull.session_id)
    stored = unit.pull_requests.put(pull)
    if before is None or _visible(before) != _visible(stored):
        payload = event_pb2.PullRequestChanged(pull_request=pull_message(unit, stored))
        unit.events.append(events.make(payload, session_id=pull.session_id, repo_id=pull.repo_id, principal=principal))
    return stored


def _visible(pull: PullRequest) -> PullRequest:
    """The message without values that each refresh changes."""
    return replace(pull, check_time=None, etags={}, sent=(), update_time=0.0)
