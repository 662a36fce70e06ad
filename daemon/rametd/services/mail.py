"""What reaches an agent: prompts of the person, messages of its family, and what the daemon has to tell it. Inside one unit of work.

A prompt to a session at work goes into its running turn; an idle one starts a turn; one that is held keeps it. What a session says is marked, so
that no agent takes it for the person's word.
"""

from rametd.agents.base import AgentKind
from rametd.domain.errors import WrongStateError
from rametd.domain.models import OWNER, Hold, Prompt, Session
from rametd.domain.states import State
from rametd.services.delivery import add_prompt, deliver
from rametd.services.lifecycle import change_state, close_reviews
from rametd.store import Reader, Unit

TURN_STATES = frozenset({State.WORKING, State.WAITING})


def post(
    unit: Unit, kind: AgentKind, session: Session, text: str, source: str, *, hops: int = 0
) -> tuple[Prompt, Session]:
    """Queue a prompt and set going what it sets going: the caller wakes the runner and the scheduler once this is committed.

    The person's word also starts a session that was stopped or has failed; a message waits until it goes on. Raises `WrongStateError` for an
    archived one.
    """
    if session.state == State.ARCHIVED:
        raise WrongStateError(
            f"{session.name} is archived", hint=f"bring it back with `rametctl restore {session.name}`"
        )
    if source == OWNER:
        close_reviews(unit, session, source)
    prompt = add_prompt(unit, session, text, source, hops=hops)
    wakes = {State.IDLE}
    if source == OWNER:
        wakes.add(State.FAILED)
        if session.hold == Hold.STOPPED:
            wakes.add(State.PAUSED)
    if session.state in wakes:
        session = change_state(unit, session, State.QUEUED, principal=source, resumes=0)
    elif session.state in TURN_STATES and has_agent(unit, session):
        session = deliver(unit, kind, session)
    return unit.prompts.get(prompt.id) or prompt, session


def has_agent(reader: Reader, session: Session) -> bool:
    """Whether an agent lives that is not being ended."""
    agent = reader.agents.latest(session.id)
    return agent is not None and agent.state == "live" and not agent.stop_intent


def outcome(session: Session) -> str:
    """What becomes of a message to a session in this state, in words."""
    if session.state in TURN_STATES:
        return "it is read in the running turn"
    if session.state in {State.QUEUED, State.STARTING, State.IDLE}:
        return "it starts a turn"
    return f"it is kept: the session is {session.state}"
