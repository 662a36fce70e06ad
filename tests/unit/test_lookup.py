"""Lookup of names from the command line."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rametd.domain.errors import AmbiguousError, SessionNotFoundError
from rametd.services.lookup import find_session
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session, a_trash_entry

SESSIONS = (
    ("aaaa1111", "repo", "fix-login"),
    ("aaaa2222", "repo", "docs"),
    ("bbbb3333", "repo", "docs-faq"),
    ("cccc4444", "other", "docs-old"),
    ("dddd5555", "other", "fix-other"),
    ("eeee6666", "repo", "aaaa"),
)


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        for repo in ("repo", "other"):
            unit.repos.upsert(a_repo(repo))
        for session_id, repo, name in SESSIONS:
            unit.sessions.insert(a_session(session_id, repo_id=repo, name=name, branch=f"b/{session_id}"))
        unit.trash.add(a_trash_entry("t1", name="fix"))
        yield unit


@pytest.mark.parametrize(
    ("word", "repo", "session_id"),
    [
        ("fix-l", None, "aaaa1111"),
        ("docs", None, "aaaa2222"),  # a complete name wins over a prefix of another
        ("docs-", "repo", "bbbb3333"),  # of two, the one of the caller's repository
        ("repo/docs", None, "aaaa2222"),
        ("aaaa", None, "eeee6666"),  # a name wins over a prefix of an id
        ("aaaa1", None, "aaaa1111"),
        ("fix-", "other", "dddd5555"),
    ],
)
def test_a_word_names_one_session(unit: Unit, word: str, repo: str | None, session_id: str) -> None:
    assert find_session(unit, word, repo_id=repo).id == session_id


def test_a_beginning_of_several_names_is_refused_with_all_of_them(unit: Unit) -> None:
    with pytest.raises(AmbiguousError, match=r"repo/docs-faq .* other/docs-old|other/docs-old .* repo/docs-faq"):
        find_session(unit, "docs-")


def test_the_name_of_a_removed_session_means_no_other(unit: Unit) -> None:
    with pytest.raises(SessionNotFoundError) as caught:
        find_session(unit, "fix")
    assert "restore fix" in caught.value.hint


@pytest.mark.parametrize(("word", "whole"), [("d", False), ("docs-f", True), ("nothing", False), ("", False)])
def test_too_little_or_an_agents_word_is_no_beginning(unit: Unit, word: str, whole: bool) -> None:
    with pytest.raises(SessionNotFoundError):
        find_session(unit, word, complete=whole)
