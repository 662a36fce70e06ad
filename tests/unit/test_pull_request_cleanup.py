"""Cleaning up after merged pull requests."""

import sqlite3
from contextlib import closing
from pathlib import Path

from rametd.services.pull_requests.cleanup import move_stacked
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session


def test_sessions_of_a_stack_move_to_the_base_that_stays() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        unit.repos.upsert(a_repo())
        bases = {"one": "main", "two": "ramet/one", "three": "ramet/two"}
        stack = [
            unit.sessions.insert(
                a_session(id=name, name=name, branch=f"ramet/{name}", base_ref=base, worktree=Path(f"/{name}"))
            )
            for name, base in bases.items()
        ]
        for merged in stack[:2]:  # as they were before the first of them moved
            move_stacked(unit, merged)
        assert [unit.sessions.get(name).base_ref for name in bases] == ["main", "main", "main"]
