"""Wait for sessions: until they are idle, need a person, end, or settle."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rametd.domain.models import Hold, Request, Session
from rametd.domain.states import State
from rametd.services.core import Core
from rametd.services.views import in_background
from rametd.store import Reader


class Condition(Enum):
    IDLE = "idle"
    WAITING = "waiting"
    ENDED = "ended"
    SETTLED = "settled"


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


ENDED_STATES = frozenset({State.PAUSED, State.FAILED, State.ARCHIVED})


async def wait(
    core: Core, session_ids: Sequence[str], condition: Condition, *, any_one: bool, within: float | None
) -> Waited:
    """Wait, at most ``within`` seconds, until the condition holds, a person is needed, or the
    condition can no longer hold by itself.

    A session that is removed meanwhile counts as ended, and for any other condition as failed.
    """
    watcher = core.hub.watch(await core.store.read(lambda reader: reader.events.last_seq()))
    loop = asyncio.get_running_loop()
    deadline = None if within is None else loop.time() + within
    try:
        while True:
            waited = await core.store.read(lambda reader: judge(reader, session_ids, condition, any_one=any_one))
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


def judge(reader: Reader, session_ids: Sequence[str], condition: Condition, *, any_one: bool) -> Waited:
    """The present outcome; TIMEOUT means that the wait continues."""
    found = [reader.sessions.find(identity) for identity in session_ids]
    sessions = [session for session in found if session is not None]
    requests = [request for session in sessions for request in reader.requests.open(session.id)]
    verdicts = [judge_one(reader, session, condition) for session in found]
    enough = any if any_one else all
    if enough(verdict == Outcome.DONE for verdict in verdicts):
        return Waited(Outcome.DONE, sessions, requests)
    if Outcome.ATTENTION in verdicts:
        return Waited(Outcome.ATTENTION, sessions, requests)
    hopeless = all if any_one else any
    if hopeless(verdict == Outcome.FAILED for verdict in verdicts):
        return Waited(Outcome.FAILED, sessions, requests)
    return Waited(Outcome.TIMEOUT, sessions, requests)


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
