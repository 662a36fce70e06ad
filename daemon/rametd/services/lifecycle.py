"""Changes of a session's state, each with its event. Everything here runs in one unit of work."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Unpack

from ramet.v1 import event_pb2

from rametd.agents.base import COMPACT, AgentKind
from rametd.domain.errors import WrongStateError
from rametd.domain.models import DAEMON, Hold, Request, RequestKind, RequestState, Session
from rametd.domain.states import State
from rametd.services import events
from rametd.services.ids import new_id
from rametd.services.views import STATES, one_session_message, request_message
from rametd.store import Reader, Unit
from rametd.store.sessions import SessionColumns

COMMAND = re.compile(r"`(rametctl [^`]+)`")


def change_state(
    unit: Unit,
    session: Session,
    to: State,
    *,
    reason: str = "",
    hold: Hold = Hold.NONE,
    principal: str = DAEMON,
    **columns: Unpack[SessionColumns],
) -> Session:
    """Change a session's state, with an event. Raises `WrongStateError` for a forbidden transition,
    or while a person is attached."""
    if session.hold == Hold.ATTACHED and hold != Hold.ATTACHED:
        refuse_attached(unit, session)
    changed = unit.sessions.transition(session.id, to, reason=reason, hold=hold, expect={session.state}, **columns)
    if (session.state, session.state_reason) != (changed.state, changed.state_reason):
        payload = event_pb2.StateChanged(old_state=STATES[session.state], new_state=STATES[to], reason=reason)
        events.log(unit, session, payload, principal)
    stuck = to == State.FAILED or (to == State.PAUSED and hold == Hold.BUDGET)
    if (session.state, session.hold) != (changed.state, changed.hold) or (stuck and session.state_reason != reason):
        _update_inbox(unit, changed, stuck=stuck)
    return changed


def refuse_archived(session: Session) -> None:
    """Raise `WrongStateError` for an archived session."""
    if session.state == State.ARCHIVED:
        raise WrongStateError(
            f"{session.name} is archived", hint=f"restore it: `rametctl restore {shlex.quote(session.name)}`"
        )


def refuse_attached(reader: Reader, session: Session) -> None:
    """Raise `WrongStateError` while a person has the session's conversation open in the agent's own
    program."""
    found = reader.attachments.get(session.id)
    if found.pid:
        raise WrongStateError(f"{session.name} is {found.place}", hint="leave the agent's program there first")


def _update_inbox(unit: Unit, session: Session, *, stuck: bool) -> None:
    """Put a stuck session into the inbox; remove an archived one from it."""
    kinds = {RequestKind.TROUBLE}
    if session.state == State.ARCHIVED:
        kinds |= {RequestKind.REVIEW, RequestKind.LOGIN, RequestKind.TRUST}
    for kind in sorted(kinds):
        for request in unit.requests.close_of_kind(session.id, kind):
            log_request(unit, session, request)
    if stuck:
        named = COMMAND.search(session.state_reason)
        command = named[1] if named is not None else f"rametctl resume {shlex.quote(session.name)}"
        reason = f"failed: {session.state_reason}" if session.state == State.FAILED else session.state_reason
        given = {"command": command} | ({"prompt": COMPACT} if command == compacting(session) else {})
        ask_person(unit, session, RequestKind.TROUBLE, given, reason)


def too_long(reader: Reader, kind: AgentKind, session: Session, words: str) -> str:
    """Reason of a session whose conversation is too long for its model: the agent's ``words``, and
    the commands that help. To continue would fail again."""
    ways = [f"`{compacting(session)}` shortens the conversation"] if kind.capabilities.compact else []
    earlier = [each for each in reader.checkpoints.list(session.id) if each.message_id and each.turn < session.turns]
    if kind.capabilities.rewind and earlier:
        number = earlier[-1].number
        ways.append(f"`rametctl rewind {session.reference} {number}` returns to an earlier turn")
        ways.append(f"`rametctl fork {session.reference} --at {number}` continues from there in a copy")
    return "; ".join([words, *ways])


def compacting(session: Session) -> str:
    """The command that shortens a session's conversation."""
    return f"rametctl send {session.reference} {COMPACT}"


def held_by_person(session: Session) -> str:
    """Reason of a session that `pause` holds."""
    return f"held: `rametctl resume {session.reference}` continues it"


def release_login(unit: Unit, agent: str, principal: str = DAEMON) -> None:
    """Queue all sessions that wait for the login of a kind of agent."""
    for session in unit.sessions.list(states={State.PAUSED}):
        if session.agent == agent:
            release_session_login(unit, session.id, principal)


def release_session_login(unit: Unit, session_id: str, principal: str = DAEMON) -> None:
    """Queue a session, if it waits for its login."""
    session = unit.sessions.find(session_id)
    if session is not None and session.hold == Hold.LOGIN and session.state == State.PAUSED:
        change_state(unit, session, State.QUEUED, principal=principal, resume_at=None)


def close_reviews(unit: Unit, session: Session, principal: str = DAEMON) -> None:
    """Close the requests to review finished turns of a session."""
    for review in unit.requests.close_reviews(session.id):
        log_request(unit, session, review, principal=principal)


def log_update(unit: Unit, session: Session, fields: list[str], principal: str) -> None:
    """Log that fields of a session changed."""
    payload = event_pb2.SessionUpdated(session=one_session_message(unit, session), fields=fields)
    events.log(unit, session, payload, principal)


def ask_person(unit: Unit, session: Session, kind: RequestKind, given: Mapping[str, object], reason: str) -> Request:
    """Open a request of the daemon about a session; the end of its agent does not close it.
    ``given``: values for the handler of the answer."""
    request = Request(
        id=new_id(),
        session_id=session.id,
        generation=0,
        control_id="",
        tool_use_id="",
        kind=kind,
        tool="",
        input=json.dumps(given, ensure_ascii=False),
        reason=reason,
        suggestions="[]",
        edit=b"",
        offers=(),
        state=RequestState.OPEN,
        answer="",
        answered_by="",
        answer_time=None,
        create_time=unit.now,
    )
    log_request(unit, session, unit.requests.add(request))
    return request


def log_request(unit: Unit, session: Session, request: Request, *, principal: str = DAEMON) -> None:
    """Log that a request was opened or closed, depending on its state."""
    message = request_message(request, session=session.name, repo=unit.repos.get(session.repo_id).name)
    payload = (
        event_pb2.RequestOpened(request=message)
        if request.state == "open"
        else event_pb2.RequestClosed(request=message)
    )
    events.log(unit, session, payload, principal)
