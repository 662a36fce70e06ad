"""The intake stores lines without facts of many agents exactly once, in any order and despite
errors of one agent."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import event_pb2
from rametd.agents.base import Activity, CallFailed, ControlSettled, Doing, Fact, Frame, Said, Trouble
from rametd.domain.models import Session
from rametd.failpoints import Failpoint
from rametd.services.intake import Intake, line_events, store_calm, take
from rametd.store import Store, Unit

from tests.support.eventually import eventually
from tests.support.rows import a_repo, a_session, an_agent


class Agent:
    """A source with numbered lines of a byte each; ``more`` lines follow right after the first
    commit."""

    generation = 1

    def __init__(self, session: Session, intake: Intake) -> None:
        self.session = session
        self.frames: list[Frame] = []
        self.written = self.more = 0
        self.was_refused = asyncio.Event()
        self._intake = intake
        self._waits = False

    def write(self, count: int) -> None:
        for at in range(self.written, self.written + count):
            line = bytes([at, 10])
            event = event_pb2.Event(agent_notice=event_pb2.AgentNotice(type="x"))
            self.frames.append(Frame(at, at + 1, line, event, (), None))
        self.written += count
        if not self._waits:
            self._waits = True
            self._intake.add(self)

    def stored(self, frames: Sequence[Frame]) -> None:
        self._waits = False
        assert self.frames[: len(frames)] == frames
        del self.frames[: len(frames)]
        if self.frames:
            self._waits = True
            self._intake.add(self)
        elif self.more:
            asyncio.get_running_loop().call_soon(self.write, self.more)
            self.more = 0

    def refused(self) -> None:
        self.was_refused.set()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "ramet.db")
    yield store
    await store.aclose()


async def agents(store: Store, count: int) -> list[Agent]:
    intake = Intake(store, Failpoint())
    made = [a_session(f"s{number}") for number in range(count)]

    def add(unit) -> None:  # type: ignore[no-untyped-def]
        unit.repos.upsert(a_repo())
        for session in made:
            unit.sessions.insert(session)
            unit.agents.insert(an_agent(session.id))

    await store.write(add)
    return [Agent(session, intake) for session in made]


async def stored_lines(store: Store, agent: Agent) -> bytes:
    events = await store.read(lambda reader: reader.events.list(session_id=agent.session.id))
    offset = await store.read(lambda reader: reader.agents.latest(agent.session.id))
    assert offset is not None
    assert offset.journal_offset == len(events), "events and offset are in one commit"
    return b"".join(event.frame for event in events)


async def settled(herd: Sequence[Agent]) -> None:
    await eventually(lambda: not any(each.frames and not each.was_refused.is_set() for each in herd), every=0.001)


async def test_lines_that_come_at_every_moment_of_a_commit_are_stored_once_and_in_order(store: Store) -> None:
    herd = await agents(store, 3)
    for number in range(200):
        agent = herd[number % 3]
        if agent.written < 200:
            agent.write(1 + number % 3)
        if number % 7 == 0:
            await settled(herd)  # the intake's task ends here: the next line begins another
        elif number % 2:
            await asyncio.sleep(0)
    await settled(herd)
    for agent in herd:
        assert await stored_lines(store, agent) == bytes(range(agent.written))


async def test_lines_that_come_as_the_intake_runs_dry_are_stored(store: Store) -> None:
    # The loop calls `write` between the end of the intake's task and its done callback.
    (agent,) = await agents(store, 1)
    agent.more = 2
    agent.write(1)
    await eventually(lambda: agent.written == 3 and not agent.frames, every=0.001)
    assert await stored_lines(store, agent) == bytes(range(3))


async def test_lines_of_many_agents_take_as_many_statements_as_those_of_one(store: Store) -> None:
    herd = await agents(store, 12)
    for each in herd:
        each._waits = True  # stored here instead of by the intake
        each.write(2)

    def statements(unit: Unit, some: Sequence[Agent]) -> int:
        traced: list[str] = []
        db = unit._scope.db
        db.set_trace_callback(traced.append)
        store_calm(unit, take(some))
        db.set_trace_callback(None)
        return len(traced)

    one = await store.write(lambda unit: statements(unit, herd[:1]))
    assert await store.write(lambda unit: statements(unit, herd[1:])) == one


async def test_an_agent_that_another_daemon_advanced_is_refused_alone(store: Store) -> None:
    stale, sound = await agents(store, 2)
    await store.write(lambda unit: unit.agents.advance("s0", 1, 9, expect_offset=0))
    stale.write(3)
    sound.write(3)
    await settled([stale, sound])
    assert stale.was_refused.is_set()
    assert await stored_lines(store, sound) == bytes(range(3))
    assert len(stale.frames) == 3, "nothing of it was dropped"


async def test_of_two_sources_of_one_agent_only_one_is_stored(store: Store) -> None:
    (agent,) = await agents(store, 1)
    twin = Agent(agent.session, agent._intake)
    agent.write(3)
    twin.write(3)
    await settled([agent, twin])
    assert twin.was_refused.is_set()
    assert await stored_lines(store, agent) == bytes(range(3))


async def test_a_failed_unit_of_work_returns_all_lines_to_their_agents(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await agents(store, 2)
    first.frames.append(Frame(0, 1, b"x", event_pb2.Event(), (), None))
    monkeypatch.setattr(first, "session", None)  # an internal error: the work raises an unexpected exception
    first.write(1)
    second.write(1)
    async with asyncio.timeout(10):
        await first.was_refused.wait()
        await second.was_refused.wait()
    assert second.frames


async def test_the_last_words_of_calm_lines_are_stored_with_them(store: Store) -> None:
    (agent,) = await agents(store, 1)
    session = agent.session
    inside = f"wants to edit {session.worktree}/a.py"
    facts = [
        (Doing("reads"), Said(session.conversation_id, "one")),
        (Doing(inside), Said(session.conversation_id, "two")),
        (Said("a conversation that the session has left", "three"),),
        (),
    ]
    for at, each in enumerate(facts):
        frame = Frame(at, at + 1, b"\n", event_pb2.Event(agent_notice=event_pb2.AgentNotice(type="x")), each, None)
        assert frame.is_calm
        agent.frames = [frame]
        agent.written = at + 1
        agent.write(0)
        await eventually(lambda: not agent.frames)
        stored = await store.read(lambda reader: reader.sessions.get(session.id))
        assert (stored.doing, stored.last_message_id) == [
            ("reads", "one"),
            ("wants to edit a.py", "two"),
            ("wants to edit a.py", "two"),
            ("wants to edit a.py", "two"),
        ][at]


@pytest.mark.parametrize("fact", [Activity("idle"), CallFailed(Trouble.OVERLOAD), ControlSettled("1")])
def test_a_line_that_changes_more_than_last_words_is_not_calm(fact: Fact) -> None:
    event = event_pb2.Event(agent_notice=event_pb2.AgentNotice(type="x"))
    assert not Frame(0, 1, b"\n", event, (Doing("reads"), fact), None).is_calm
    assert not Frame(0, 1, b"\n", event, (), {"type": "control_request"}).is_calm


def test_pieces_of_a_message_are_one_event_for_each_run_and_lines_stay_lines() -> None:
    def frame(number: int, **payload: Any) -> Frame:
        return Frame(number, number + 1, bytes([number]), event_pb2.Event(offset=number, **payload), (), None)

    def piece(number: int, text: str = "", **more: Any) -> Frame:
        return frame(number, partial=event_pb2.Partial(text=text, **more))

    line = event_pb2.AssistantMessage()
    frames = [
        piece(0, "a"), piece(1, "b"), piece(2), frame(3, assistant_message=line), piece(4), piece(5, output_tokens=7),
        frame(6, assistant_message=line), piece(7, "of a subagent", parent_tool_use_id="t1"),
    ]  # fmt: skip
    made = [(event_pb2.Event.FromString(event.payload), event.frame) for event in line_events(a_session(), frames)]
    assert [(event.partial.text, event.partial.output_tokens, event.offset, line) for event, line in made] == [
        ("ab", 0, 0, b""), ("", 0, 3, b"\x03"), ("", 7, 5, b""), ("", 0, 6, b"\x06"),
    ]  # fmt: skip
