"""Pull requests as messages of the contract, and their event."""

from dataclasses import replace

from ramet.v1 import event_pb2, landing_pb2

from rametd.domain.models import DAEMON
from rametd.domain.pull_requests import PullRequest
from rametd.services import events
from rametd.services.messages import to_message
from rametd.store import Reader, Unit


def pull_message(reader: Reader, pull: PullRequest) -> landing_pb2.PullRequest:
    session = reader.sessions.find(pull.session_id)
    return to_message(landing_pb2.PullRequest, pull, session_name=session.name if session is not None else "")


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
