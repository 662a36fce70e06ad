"""The summary for a session that takes over from another kind of agent."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ramet.v1 import event_pb2
from rametd.domain.checkpoints import ConversationCut
from rametd.domain.models import OWNER, Session
from rametd.services import events
from rametd.services.delivery import ENTRY_LIMIT, RECAP_LIMIT, recap
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session, an_agent

NOW = 10_000.0


@pytest.fixture
def scope() -> Iterator[Scope]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        yield Scope(db, now=NOW)


@pytest.fixture
def unit(scope: Scope) -> Unit:
    unit = Unit(scope)
    unit.repos.upsert(a_repo())
    unit.sessions.insert(a_session("one", agent="claude"))
    unit.agents.insert(an_agent("one"))
    return unit


def turn(unit: Unit, asked: str, answer: str) -> None:
    prompt = unit.prompts.add(asked, "one", asked, OWNER)
    unit.prompts.mark_sent(prompt.id, 1)
    unit.prompts.mark_received(prompt.id, 1)
    events.log(unit, unit.sessions.get("one"), event_pb2.TurnEnded(text=answer))


def handed_to(unit: Unit, **fields: object) -> Session:
    given = {"agent": "codex", "forked_from": "one", "create_time": NOW, "conversation_lost": True, **fields}
    unit.sessions.insert(a_session("two", **given))
    return unit.sessions.get("two")


def test_another_kind_gets_the_conversation_as_a_summary_that_names_the_speaker(unit: Unit) -> None:
    turn(unit, "fix the login", "The login works.")
    unit.conversation_cuts.put(ConversationCut("two", "conversation", ""))
    words = recap(unit, handed_to(unit)).split("\n\n")
    assert words[0].startswith("[Ramet] You take over from another agent, claude.")
    assert words[1:3] == ["Asked: fix the login", "claude: The login works."]
    assert words[3].startswith("[Ramet] End of the summary.")


def test_a_long_conversation_is_capped_and_says_so(unit: Unit, scope: Scope) -> None:
    for number in range(30):
        scope.now = NOW - 30 + number
        turn(unit, f"task {number} {'x' * ENTRY_LIMIT}", "y" * 2 * ENTRY_LIMIT)
    words = recap(unit, handed_to(unit))
    assert len(words) < RECAP_LIMIT + 1000
    assert "(earlier parts are left out)" in words
    assert "task 29" in words
    assert "task 0 " not in words


def test_later_work_of_the_other_session_is_not_shown(unit: Unit) -> None:
    turn(unit, "later", "Later.")
    assert recap(unit, handed_to(unit, create_time=NOW - 1)) == ""


def test_a_lost_conversation_is_named_as_the_sessions_own(unit: Unit) -> None:
    turn(unit, "fix the login", "The login works.")
    words = recap(unit, unit.sessions.get("one"))
    assert words.startswith("[Ramet] Your earlier conversation in this worktree is lost")
    assert "You: The login works." in words
