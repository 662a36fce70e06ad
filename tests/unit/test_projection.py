"""Any batches of a journal's lines result in the same rows, each exactly once."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ramet.v1 import event_pb2
from rametd.agents.base import Answered, Frame, Question
from rametd.agents.claude.frames import read_frame
from rametd.agents.claude.kind import Claude
from rametd.config import Config
from rametd.domain.calls import describe_wish
from rametd.domain.errors import StaleBatchError
from rametd.domain.models import AgentState, PromptState, RequestKind, Tokens
from rametd.domain.states import State
from rametd.domain.text import first_line
from rametd.services.agents.projection import MOST_OPEN, open_request
from rametd.services.agents.runner import project
from rametd.services.core import Policy
from rametd.services.views import now_words
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.agents import SCRIPTED
from tests.support.contract import converse
from tests.support.rows import a_control_request, a_repo, a_session, an_agent

TABLES = ("sessions", "agents", "prompts", "requests", "control_requests", "ledger", "events")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[Frame]:
    """Return an agent's lines of a conversation with turns, questions, tasks, an interrupt, MCP
    calls and noise."""
    home: Path = tmp_path_factory.mktemp("talk")
    lines = [json.dumps(frame).encode() + b"\n" for frame in asyncio.run(converse(home, SCRIPTED, 0))]
    lines.insert(len(lines) // 2, b"(node:7) Warning: something\n")
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    return [read_frame("one", 1, start, end, line) for (start, end), line in zip(pairwise(ends), lines, strict=True)]


@contextmanager
def a_unit() -> Iterator[tuple[sqlite3.Connection, Unit]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session(state=State.WORKING, generation=1))
        unit.agents.insert(an_agent())
        yield db, unit


def tables(db: sqlite3.Connection) -> dict[str, list[Any]]:
    """Return all rows, without random parts: ids of requests, also in events."""
    drawn = [row[0] for row in db.execute("SELECT id FROM requests ORDER BY control_id")]

    def plain(value: Any) -> Any:
        for number, identity in enumerate(drawn):
            stand_in = f"{number:08}"
            if isinstance(value, bytes):
                value = value.replace(identity.encode(), stand_in.encode())
            elif isinstance(value, str):
                value = value.replace(identity, stand_in)
        return value

    found = {}
    for table in TABLES:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "version"]
        rows = db.execute(f"SELECT {', '.join(columns)} FROM {table}")  # noqa: S608 - our own names
        found[table] = sorted((tuple(plain(value) for value in row) for row in rows), key=repr)
    return found


POLICY = Policy(Config(), {"claude": Claude()})


def in_batches(unit: Unit, frames: Sequence[Frame], cuts: Sequence[int]) -> None:
    for start, end in pairwise([0, *sorted(set(cuts) - {0, len(frames)}), len(frames)]):
        project(unit, "one", 1, frames[start:end], POLICY)
    unit.events.flush()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_split_into_batches_leads_to_the_same_rows(journal: list[Frame], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(journal)), max_size=len(journal)))
    with a_unit() as (whole, unit):
        in_batches(unit, journal, [])
        with a_unit() as (split, other):
            in_batches(other, journal, cuts)
            assert tables(split) == tables(whole)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_batches_that_come_twice_or_too_early_change_nothing(journal: list[Frame], data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(journal) - 1), st.integers(1, len(journal))).map(
        lambda b: (b[0], max(b[1], b[0] + 1))
    )
    with a_unit() as (whole, unit), a_unit() as (other, tried):
        in_batches(unit, journal, [])
        at = 0
        for start, end in data.draw(st.lists(bounds, max_size=12)):
            try:
                with tried._scope.savepoint():
                    project(tried, "one", 1, journal[start:end], POLICY)
                assert start == at
                at = end
            except StaleBatchError:
                assert start != at
        if at < len(journal):
            project(tried, "one", 1, journal[at:], POLICY)
        tried.events.flush()
        assert tables(other) == tables(whole)


def test_every_line_becomes_one_event_that_holds_it(journal: list[Frame]) -> None:
    with a_unit() as (_, unit):
        in_batches(unit, journal, [])
        framed = [event for event in unit.events.list() if event.frame]
        assert [event.frame + b"\n" for event in framed] == [frame.line for frame in journal]
        assert {event.principal for event in framed} == {"session:one"}


def test_a_conversation_ends_idle_with_its_turns_costs_and_questions_on_record(journal: list[Frame]) -> None:
    with a_unit() as (_, unit):
        in_batches(unit, journal, [])
        session = unit.sessions.get("one")
        results = [frame for frame in journal if frame.event.WhichOneof("payload") == "turn_ended"]
        assert session.state == State.IDLE
        assert session.turns == len(results)
        assert session.cost_usd == pytest.approx(sum(frame.event.turn_ended.cost_usd for frame in results))
        assert session.conversation_begun
        assert {request.kind for request in unit.requests.open("one")} == {RequestKind.REVIEW}
        assert unit.agents.latest("one") is not None


def test_a_cost_that_is_unknown_once_stays_unknown_and_tokens_still_count(journal: list[Frame]) -> None:
    answered = [fact for frame in journal for fact in frame.facts if isinstance(fact, Answered)]
    unpriced = {
        id(fact): replace(fact, costs=tuple(replace(entry, cost_usd=None) for entry in fact.costs))
        for fact in answered[:1]
    }
    changed = [frame._replace(facts=tuple(unpriced.get(id(fact), fact) for fact in frame.facts)) for frame in journal]
    with a_unit() as (_, unit):
        in_batches(unit, changed, [])
        session, total = unit.sessions.get("one"), unit.ledger.total()
        assert session.turns == len(answered) > 1
        assert session.cost_usd is None
        assert session.tokens == total.tokens != Tokens()
        assert total.unpriced
        assert total.cost_usd == pytest.approx(sum(each.cost_usd or 0 for fact in answered[1:] for each in fact.costs))


def test_the_logged_changes_of_state_form_one_chain(journal: list[Frame]) -> None:
    with a_unit() as (_, unit):
        in_batches(unit, journal, range(len(journal)))
        changes = [
            event_pb2.Event.FromString(event.payload).state_changed
            for event in unit.events.list(kinds=["state_changed"])
        ]
        assert changes
        for before, after in pairwise(changes):
            assert before.new_state == after.old_state


def test_the_receipt_of_a_prompt_is_counted_once(journal: list[Frame]) -> None:
    seen = [frame.event.user_message.prompt_id for frame in journal if frame.event.user_message.prompt_id]
    with a_unit() as (_, unit):
        for identity in seen:
            unit.prompts.add(identity, "one", "do it", "owner")
            unit.prompts.mark_sent(identity, 1)
        in_batches(unit, journal, [])
        assert {prompt.state for prompt in unit.prompts.list("one")} == {PromptState.RECEIVED}
        assert len(unit.events.list(kinds=["prompt_received"])) == len(seen)


@given(st.text(), st.integers(2, 40))
def test_a_reason_is_one_line_of_bounded_length(words: str, limit: int) -> None:
    line = first_line(words, limit)
    assert len(line) <= limit
    assert line.splitlines() == ([line] if line else [])
    assert bool(line) == bool(words.strip())


def test_now_is_the_call_during_a_turn_and_the_last_words_after_it(journal: list[Frame]) -> None:
    said: dict[State, set[str]] = {}
    with a_unit() as (_, unit):
        for frame in journal:
            project(unit, "one", 1, [frame], POLICY)
            session = unit.sessions.get("one")
            said.setdefault(session.state, set()).add(now_words(session))
    assert any(words.startswith("Bash ") for words in said[State.WORKING])
    assert any(words.startswith("wants to run: ") for words in said[State.WAITING])
    assert {"interrupted", "end"} <= said[State.IDLE]
    assert not any("ede_diagnostic" in words for words in said[State.IDLE])


def test_since_is_when_the_state_was_entered_not_when_its_reason_changed() -> None:
    with a_unit() as (_, unit):
        unit._scope.now = 10.0
        unit.sessions.transition("one", State.WAITING, reason="wants to run: ls")
        unit._scope.now = 20.0
        assert unit.sessions.transition("one", State.WAITING, reason="asks: why?").state_time == 10.0
        assert unit.sessions.transition("one", State.WORKING).state_time == 20.0


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("Bash", {"command": "ls"}, "wants to run: ls"),
        ("Bash", {"command": "ls\n"}, "wants to run: ls"),
        ("Bash", {"command": "touch x\n\n\nrm -rf ~"}, "wants to run: touch x …"),
        ("Bash", {"command": "\ntouch x\x0crm -rf ~"}, "wants to run: touch x …"),
        ("Bash", {"command": "rm -rf ~", "file_path": "README.md", "description": "look"}, "wants to run: rm -rf ~"),
        ("Edit", {"file_path": "a.py", "command": "x"}, "wants to edit a.py"),
    ],
)
def test_a_wish_in_one_line_hides_no_command(tool: str, given: dict[str, str], words: str) -> None:
    assert describe_wish(tool, given) == words


def test_a_session_has_no_more_open_requests_than_a_person_can_answer() -> None:
    with a_unit() as (_, unit):
        for number in range(MOST_OPEN + 20):
            unit.control.add(a_control_request(id=str(number)))
            question = Question("permission", "Bash", str(number), json.dumps({"command": f"x{number}"}), "", "[]")
            open_request(unit, POLICY, "one", 1, str(number), question)
        asked = unit.requests.open("one")
        assert len(asked) == MOST_OPEN
        assert unit.requests.by_control("one", 1, str(MOST_OPEN)) is None
        unit.requests.answer(asked[0].id, "{}", "owner")
        open_request(unit, POLICY, "one", 1, str(MOST_OPEN + 1), question)
        assert len(unit.requests.open("one")) == MOST_OPEN
        # The next process asks something else: the leftovers of this one must not block it.
        first = unit.agents.update("one", 1, state=AgentState.EXITED)
        unit.requests.detach("one", 1)
        unit.agents.insert(replace(first, generation=2, handle="h2", state=AgentState.LIVE))
        unit.control.add(a_control_request(id="next", generation=2))
        other = Question("permission", "Bash", "next", json.dumps({"command": "other"}), "", "[]")
        open_request(unit, POLICY, "one", 2, "next", other)
        assert [each.generation for each in unit.requests.open("one")] == [2]
