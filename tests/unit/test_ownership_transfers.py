"""Transfers of paths between sessions: no set of patterns becomes too large to be compared."""

from pathlib import Path

import pytest
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Session
from rametd.ownership import Patterns
from rametd.services.ownership.claims import claims_of
from rametd.services.ownership.transfers import transfer
from rametd.store import Reader, Store, Unit

from tests.support.rows import a_repo, a_session


def paths(letter: str) -> tuple[str, ...]:
    """20 KiB: two such sets are too large together."""
    return tuple(f"/src/{letter}{number:0194}" for number in range(100))


@pytest.mark.parametrize(
    ("giver", "receiver"),
    [
        (a_session("a", owns=("/src/", *(f"!{each}" for each in paths("x")))), a_session("b", owns=("/web/",))),
        (a_session("a", owns=("/src/",)), a_session("b", owns=("/web/", *paths("x")))),
        (a_session("a", owns=("/src/",)), a_session("b", forbids=("/src/", *paths("x")))),
    ],
    ids=["giver", "receiver", "forbidden"],
)
async def test_a_transfer_that_makes_a_set_too_large_changes_nothing(
    tmp_path: Path, giver: Session, receiver: Session
) -> None:
    store = await Store.open(tmp_path / "ramet.db")

    def begin(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        for each in (giver, receiver):
            unit.sessions.insert(each)

    def give(unit: Unit) -> None:
        had, to = unit.sessions.get("a"), unit.sessions.get("b")
        transfer(unit, [had], to, Patterns.parse(paths("y")), "owner", ignore_case=False)

    def read(reader: Reader) -> list[tuple[object, ...]]:
        sessions = [reader.sessions.get(each) for each in "ab"]
        return [(each.owns, each.forbids, bool(claims_of(reader, each))) for each in sessions]

    try:
        await store.write(begin)
        before = await store.read(read)
        with pytest.raises(InvalidInputError, match="at most 32,768"):
            await store.write(give)
        assert await store.read(read) == before
    finally:
        await store.aclose()
