"""Record the end of an agent's process, and decide how its session continues."""

from ramet.v1 import event_pb2
from ramet.words import plural

from rametd.agents.base import AgentKind
from rametd.domain.models import AgentState, NewEvent, OutgoingKind, Session
from rametd.domain.states import BUSY_STATES, State
from rametd.domain.text import first_line
from rametd.keeper.executor import ExitRecord
from rametd.services import events
from rametd.services.delivery import begin_anew
from rametd.services.lifecycle import change_state, log_request
from rametd.store import Unit

STDERR_LIMIT = 4096


def record_end(
    unit: Unit,
    kind: AgentKind,
    session_id: str,
    generation: int,
    *,
    record: ExitRecord | None,
    stderr_tail: str,
    unterminated: bytes,
    max_resumes: int,
    refusal: str = "",
) -> Session:
    """Store how a process ended, and how its session continues. A second call changes nothing.

    ``record`` is None if no keeper saw the end. ``refusal``: why the agent took no prompts, if the
    daemon ended it for that reason. If the end was requested, its caller sets the session's state.
    """
    session = unit.sessions.get(session_id)
    agent = unit.agents.get(session_id, generation)
    if agent is None or agent.state in {AgentState.EXITED, AgentState.LOST}:
        return session
    status = record.status if record is not None else ""
    appended: list[NewEvent] = []
    if unterminated:
        noise = event_pb2.AgentNoise(text=unterminated[:STDERR_LIMIT].decode("utf-8", "replace"), unterminated=True)
        appended.append(events.make(noise, session_id=session_id, repo_id=session.repo_id))
    payload = event_pb2.AgentExited(
        generation=generation,
        exit_status=status,
        stop_intent=agent.stop_intent,
        stderr_tail=stderr_tail[-STDERR_LIMIT:],
    )
    appended.append(events.make(payload, session_id=session_id, repo_id=session.repo_id))
    unit.events.append(*appended)
    unit.agents.update(
        session_id,
        generation,
        state=AgentState.LOST if record is None else AgentState.EXITED,
        end_time=unit.now if record is None else record.ended_at,
        exit_status=status,
        background_commands=(),
    )
    unit.prompts.requeue_unreceived(session_id, generation)
    unsent = unit.outbox.pending(session_id, generation)
    unit.outbox.drop(session_id, generation)
    # An answer that cannot have reached the agent counts when the agent asks again. One that may
    # have reached it does not count again: the approved call may have run already, so the person
    # decides anew.
    unanswered = {request.id for request in unit.control.open(session_id, generation)}
    unwritten = {line.ref for line in unsent if line.kind == OutgoingKind.ANSWER}
    unit.requests.detach_answered(session_id, generation, unanswered | unwritten)
    unit.control.prune(session_id, generation)
    if (
        not kind.capabilities.ask_again
    ):  # the agent's program tells a resumed conversation that the call was interrupted
        for closed in unit.requests.mark_all_gone(session_id):
            log_request(unit, session, closed)
    unit.requests.detach(session_id, generation)
    if agent.in_turn and not session.interrupted:
        # A requested end may interrupt a turn too: one that began between the request and the end.
        session = unit.sessions.update(session_id, interrupted=True)
    if agent.stop_intent or session.state not in BUSY_STATES:
        return session

    words = refusal or kind.exit_reason(stderr_tail)
    if kind.conversation_exists(stderr_tail):
        session = unit.sessions.update(session_id, conversation_begun=True)
    elif kind.conversation_missing(stderr_tail):
        if not session.conversation_lost:  # the program's last line may have ended the turn already
            session = begin_anew(unit, session)
    elif not agent.initialize_reply and record is not None and record.code:
        # It did not start, and gave a reason: another try would fail for the same reason.
        return change_state(unit, session, State.FAILED, reason=words or f"the agent did not start ({status})")
    how = f"the agent ended ({status})" if status else "the agent ended with its keeper, as in a reboot"
    return lose(unit, session, words or how, max_resumes)


def lose(unit: Unit, session: Session, reason: str, max_resumes: int) -> Session:
    """Set a session whose agent vanished to LOST, to be resumed, or to FAILED after ``max_resumes``
    tries."""
    reason = first_line(reason)
    session = change_state(unit, session, State.LOST, reason=reason)
    if session.resumes >= max_resumes:
        tries = f"; resumed {plural(session.resumes, 'time')} without a turn that ended" if session.resumes else ""
        return change_state(
            unit, session, State.FAILED, reason=f"{reason}{tries}: `rametctl resume {session.reference}` tries again"
        )
    return session
