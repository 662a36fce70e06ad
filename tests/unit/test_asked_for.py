"""The summary of a checkpoint's turn."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.models import DAEMON
from rametd.services.worktrees.checkpoints import prompt_of
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session

TURN, MANUAL = CheckpointReason.TURN, CheckpointReason.MANUAL
HELLO, FIX, MORE = ("hello\nyou", 1), ("fix it", 2), ("and more", 2)


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db, 1.0))
        unit.repos.upsert(a_repo())
        yield unit


@pytest.mark.parametrize(
    ("received", "turns", "checkpointed", "reason", "summary"),
    [
        ([], 0, 0, MANUAL, ""),
        ([HELLO], 0, 0, MANUAL, "hello"),  # in the middle of the first turn
        ([HELLO], 1, 0, TURN, "hello"),
        ([HELLO, FIX, MORE], 2, 1, TURN, "fix it"),  # the first prompt of a turn that has two
        ([HELLO, FIX], 1, 0, TURN, "hello"),  # the next turn began before the first one's checkpoint
        ([HELLO, FIX], 1, 1, MANUAL, "fix it"),
        ([HELLO, FIX], 2, 0, TURN, "hello"),  # one checkpoint for two turns
        ([HELLO], 2, 1, TURN, "hello"),  # no prompt began the second turn
        ([HELLO], 2, 2, MANUAL, "hello"),
        ([HELLO, ("not yet", 0)], 1, 1, MANUAL, "hello"),
    ],
)
def test_the_first_line_of_the_prompt_that_began_the_turn(
    unit: Unit, received: list[tuple[str, int]], turns: int, checkpointed: int, reason: CheckpointReason, summary: str
) -> None:
    session = unit.sessions.insert(a_session(turns=turns, checkpointed_turns=checkpointed))
    for number, (text, turn) in enumerate(received):
        unit.prompts.add(str(number), "one", text, "owner")
        if turn:
            assert unit.prompts.mark_received(str(number), turn)
    unit.prompts.add("daemon's", "one", "continue", DAEMON)
    unit.prompts.mark_received("daemon's", turns)
    assert prompt_of(unit, session, reason) == summary
