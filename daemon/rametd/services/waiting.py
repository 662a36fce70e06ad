"""Wait for sessions: until they are idle, need a person, end, or settle."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rametd.domain.models import ABORTED, ERROR, Hold, PromptState, Request, Session
from rametd.domain.states import State
from rametd.services.core import Core
from rametd.services.delivery import TURN_STATES
from rametd.services.views import in_background
from rametd.store import Reader


class Condition(Enum):
    IDLE = "idle"
    WAITING = "waiting"
    ENDED = "ended"
    SETTLED = "settled"
    TURN = "turn"


class Outcome(Enum):
    DONE = "done"
    ATTENTION = "attention"
    TIMEOUT = "timeout"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Waited:
    outcome: Outcome
    sessions: list[Session]
    requests: list[Request]
    reason: str = ""  # why it failed, if the states of the sessions do not show it


ENDED_STATES = frozenset({State.PAUSED, State.FAILED, State.ARCHIVED})


Turns = Mapping[str, Collection[int]]
"""By session: numbers of the prompts whose turns are awaited."""


async def wait(
    core: Core,
    session_ids: Sequence[str],
    condition: Condition,
    *,
    any_one: bool,
    within: float | None,
    prompt: int = 0,
) -> Waited:
    """Wait, at most ``within`` seconds, until the condition holds, a person is needed, or the
    condition can no longer hold by itself. TURN waits for the turn of the prompt of that number, by
    default the first.

    A session that is removed meanwhile counts as ended, and for any other condition as failed. So
    does one that is idle again, if a turn has failed that ran or was queued at the call: the next
    prompt may have started another turn before anybody saw the session FAILED.
    """

    def awaited(reader: Reader) -> Turns:
        if condition == Condition.TURN:
            return dict.fromkeys(session_ids, (prompt or 1,))
        return {each: [found.number for found in reader.prompts.unsettled(each)] for each in session_ids}

    turns = await core.store.read(awaited)
    watcher = core.hub.watch(await core.store.read(lambda reader: reader.events.last_seq()))
    loop = asyncio.get_running_loop()
    deadline = None if within is None else loop.time() + within
    try:
        while True:
            waited = await core.store.read(lambda reader: judge(reader, session_ids, condition, turns, any_one=any_one))
            if waited.outcome != Outcome.TIMEOUT:
                return waited
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return waited
            await watcher.next(left)
    finally:
        watcher.close()


async def wait_for_family(
    core: Core, ids: Sequence[str], *, seq: int, within: float, any_one: bool, since: int
) -> bool:
    """Wait up to ``within`` seconds until the sessions are done or need a person; return whether
    they are.

    Events up to ``since`` do not end the wait: a caller that waits for the rest would return at
    once each time.
    """
    core.failpoint.hit("wait.begun")
    watcher = core.hub.watch(seq, ids)
    deadline = core.loop_time() + within

    def settled(reader: Reader) -> bool:
        found = [reader.sessions.find(each) for each in ids]
        verdicts = [judge_one(reader, session, Condition.IDLE) for session in found]
        fresh = [session is None or session.last_seq > since for session in found]
        over = [verdict in {Outcome.DONE, Outcome.FAILED} for verdict in verdicts]
        # A session may wait for the person for hours: return at once.
        stuck = any(new and verdict == Outcome.ATTENTION for new, verdict in zip(fresh, verdicts, strict=True))
        some = any(new and ended for new, ended in zip(fresh, over, strict=True))
        return stuck or all(over) or (any_one and some)

    try:
        while not await core.store.read(settled):
            left = deadline - core.loop_time()
            if left <= 0:
                return False
            await watcher.next(left)
        return True
    finally:
        watcher.close()


def judge(reader: Reader, session_ids: Sequence[str], condition: Condition, turns: Turns, *, any_one: bool) -> Waited:
    """The present outcome; TIMEOUT means that the wait continues."""
    found = [reader.sessions.find(identity) for identity in session_ids]
    sessions = [session for session in found if session is not None]
    requests = [request for session in sessions for request in reader.requests.open(session.id)]
    judged = [
        judge_with_turns(reader, session, condition, turns[identity])
        for identity, session in zip(session_ids, found, strict=True)
    ]
    verdicts = [verdict for verdict, _ in judged]
    enough = any if any_one else all
    if enough(verdict == Outcome.DONE for verdict in verdicts):
        return Waited(Outcome.DONE, sessions, requests)
    if Outcome.ATTENTION in verdicts:
        return Waited(Outcome.ATTENTION, sessions, requests)
    hopeless = all if any_one else any
    if hopeless(verdict == Outcome.FAILED for verdict in verdicts):
        return Waited(Outcome.FAILED, sessions, requests, next((why for _, why in judged if why), ""))
    return Waited(Outcome.TIMEOUT, sessions, requests)


def judge_with_turns(
    reader: Reader, session: Session | None, condition: Condition, numbers: Collection[int]
) -> tuple[Outcome, str]:
    """Judge a session and the turns of these prompts; return also why a turn failed."""
    prompts = [reader.prompts.numbered(session.id, number) for number in numbers] if session is not None else []
    if session is None or condition in {Condition.WAITING, Condition.ENDED}:
        return judge_one(reader, session, condition), ""
    failed = [
        f"a turn of {session.name} failed: {each.result.removeprefix(ERROR)}"
        for each in prompts
        if each is not None and each.result.startswith(ERROR)
    ]
    if condition != Condition.TURN:
        verdict = judge_one(reader, session, condition)
        return (Outcome.FAILED, failed[0]) if verdict == Outcome.DONE and failed else (verdict, "")
    (prompt,) = prompts
    if prompt is None:
        return Outcome.FAILED, f"{session.name} has no such prompt"
    if prompt.state == PromptState.CANCELLED:
        return Outcome.FAILED, f"the prompt to {session.name} was withdrawn"
    if not prompt.result:
        return judge_one(reader, session, Condition.IDLE), ""
    agent = reader.agents.latest(session.id)
    if session.state in TURN_STATES and not (agent is not None and agent.in_turn):
        return (
            Outcome.TIMEOUT,
            "",
        )  # it is idle in a moment, unless another turn begins or a command runs in the background
    if prompt.result == ABORTED:
        return Outcome.FAILED, f"the turn of {session.name} was interrupted"
    return (Outcome.FAILED, failed[0]) if failed else (Outcome.DONE, "")


def judge_one(reader: Reader, session: Session | None, condition: Condition) -> Outcome:
    if session is None:
        return Outcome.DONE if condition == Condition.ENDED else Outcome.FAILED
    state = session.state
    if condition == Condition.WAITING:
        if state == State.WAITING:
            return Outcome.DONE
        return Outcome.FAILED if state in ENDED_STATES | {State.IDLE} else Outcome.TIMEOUT
    if state == State.WAITING or session.hold in {Hold.BUDGET, Hold.LOGIN}:
        return Outcome.ATTENTION  # a person is needed: to answer, to raise a limit, to log in
    if session.hold in {Hold.LIMIT, Hold.UPSTREAM}:
        return Outcome.TIMEOUT  # it continues by itself
    if condition == Condition.ENDED:
        return Outcome.DONE if state in ENDED_STATES else Outcome.TIMEOUT
    if state in ENDED_STATES:
        return Outcome.FAILED
    # An open prompt starts the next turn.
    if state != State.IDLE or reader.prompts.open(session.id):
        return Outcome.TIMEOUT
    busy = condition == Condition.SETTLED and in_background(reader, session.id)
    return Outcome.TIMEOUT if busy else Outcome.DONE
