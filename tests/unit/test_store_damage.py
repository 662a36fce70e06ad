"""Damaged databases are quarantined and rebuilt from the keepers' directories."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rametd.domain.errors import DatabaseDamagedError
from rametd.domain.models import AgentState, NewEvent, Tokens
from rametd.domain.states import State
from rametd.store import RecoveredSession, Store, Unit

from tests.support.eventually import eventually
from tests.support.rows import a_repo, a_session, an_agent

CONTENT = b"content of an event" * 50
CLOCK = 1_000_000.0
CLOCK_FENCE = int(CLOCK * 1000)  # the start of a new database


def keepers() -> Iterable[RecoveredSession]:
    """Write session ``one`` with two generations, ``two`` with one."""
    one = a_session("one", state=State.WORKING, cost_usd=1.5, tokens=Tokens(10), create_time=1.0)
    yield RecoveredSession(a_repo(), one, an_agent("one", 2, journal_offset=77, stdin_offset=7), fence=CLOCK_FENCE + 5)
    yield RecoveredSession(
        a_repo(), replace(one, cost_usd=0.0, tokens=Tokens()), an_agent("one", 1), fence=CLOCK_FENCE + 2
    )
    yield RecoveredSession(a_repo(), a_session("two", create_time=2.0), an_agent("two", 1, state=AgentState.EXITED))


async def make(path: Path) -> str:
    """Create a database with a session and 2,000 events, and close it."""
    store = await Store.open(path)

    def fill(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session("old"))
        unit.events.append(*(NewEvent("event", "old", payload=CONTENT) for _ in range(2000)))

    await store.write(fill)
    await store.aclose()
    return store.epoch


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate_to_nothing_much(path: Path) -> None:
    os.truncate(path, 40)


def truncate_within_the_first_page(path: Path) -> None:
    os.truncate(path, 1000)


def truncate_in_the_middle(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def overwrite_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flip_the_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        page = file.read(4096)
        file.seek(100)
        file.write(bytes(byte ^ 0xFF for byte in page[100:]))


def flip_the_table_of_sessions(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        content = file.read(4096)
        file.seek((page - 1) * 4096)
        file.write(bytes(byte ^ 0xFF for byte in content))


def drop_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE outbox")


def replace_by_another_programs(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")


def delete(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "harm",
    [
        empty,
        truncate_to_nothing_much,
        truncate_within_the_first_page,
        truncate_in_the_middle,
        fill_with_garbage,
        overwrite_with_zeros,
        flip_the_first_page,
        flip_the_table_of_sessions,
        drop_a_table,
        replace_by_another_programs,
        delete,
    ],
)
async def test_it_is_quarantined_and_rebuilt(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "ramet.db"
    epoch = await make(path)
    harm(path)
    remains = path.read_bytes() if path.exists() else None

    store = await Store.open(path, keepers=keepers, clock=lambda: CLOCK)
    assert store.epoch != epoch
    assert store.rebuilt is not None
    assert store.quarantined == tmp_path / "quarantine" / "19700112T134640Z"
    assert store.rebuilt.sessions == ("one", "two")
    assert (store.quarantined / "reason.txt").read_text().strip() == store.rebuilt.reason
    quarantined = store.quarantined / "ramet.db"
    assert (quarantined.read_bytes() if quarantined.exists() else None) == remains

    sessions = await store.read(lambda reader: reader.sessions.list())
    assert [(each.id, each.generation, each.state) for each in sessions] == [
        ("one", 2, State.WORKING),
        ("two", 1, State.QUEUED),
    ]
    agents = await store.read(lambda reader: reader.agents.list("one"))
    assert [(each.generation, each.state, each.journal_offset, each.stdin_offset) for each in agents] == [
        (1, AgentState.LOST, 0, 0),
        (2, AgentState.LIVE, 0, 0),
    ]
    assert (await store.read(lambda reader: reader.ledger.totals("one"))).cost_usd == 1.5
    assert [each.kind for each in await store.read(lambda reader: reader.events.list())] == ["store.rebuilt"]
    assert await store.begin_run("instance", 1, "0.1.0") > CLOCK_FENCE + 5
    await store.aclose()

    again = await Store.open(path, keepers=keepers)
    assert again.epoch == store.epoch
    assert again.rebuilt is None
    await again.aclose()


async def test_a_log_of_the_damaged_one_does_not_stay_behind(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    with closing(sqlite3.connect(path)) as crashed:
        crashed.execute("CREATE TABLE in_the_log (x)")
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"ramet.db{suffix}", tmp_path / f"copy{suffix}")
    (tmp_path / "copy").replace(path)
    (tmp_path / "copy-wal").replace(tmp_path / "ramet.db-wal")
    empty(path)
    store = await Store.open(path)
    assert store.quarantined is not None
    assert {"ramet.db", "ramet.db-wal"} <= {each.name for each in store.quarantined.iterdir()}
    await store.aclose()


async def test_damage_at_run_time_is_reported_and_a_restart_repairs_it(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    with path.open("r+b") as file:  # beyond the small tables: only reads of events notice
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096 * 40)
    store = await Store.open(path, keepers=keepers)
    assert store.rebuilt is None
    reports: list[str] = []
    store.on_damaged = reports.append
    with pytest.raises(DatabaseDamagedError):
        await store.read(lambda reader: reader.events.list(limit=10_000))
    assert len(reports) == 1
    with pytest.raises(DatabaseDamagedError):
        await store.write(lambda unit: unit.events.append(NewEvent("lost")))
    await store.aclose()

    again = await Store.open(path, keepers=keepers)
    assert again.rebuilt is not None
    assert "malformed" in again.rebuilt.reason
    assert not path.with_name("ramet.db.damaged").exists()
    await again.aclose()


async def test_damage_that_the_writer_finds_is_reported_too(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096 * 40)
    store = await Store.open(path)
    reports: list[str] = []
    store.on_damaged = reports.append
    with pytest.raises(DatabaseDamagedError):
        await store.write(lambda unit: unit.events.list(limit=10_000))
    await eventually(lambda: reports)
    with pytest.raises(DatabaseDamagedError):
        await store.write(lambda unit: unit.events.last_seq())
    await store.aclose()
    assert path.with_name("ramet.db.damaged").exists()


async def test_a_rebuild_that_was_cut_off_is_done_by_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    empty(path)

    def killed() -> Iterable[RecoveredSession]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Store.open(path, keepers=killed)
    store = await Store.open(path, keepers=keepers)
    assert store.rebuilt is not None
    assert store.rebuilt.sessions == ("one", "two")
    assert store.rebuilt.reason == "its file is empty"
    assert [each.name for each in (tmp_path / "quarantine").iterdir()] == [store.rebuilt.quarantined.name]
    await store.aclose()


async def test_colliding_sessions_get_another_name_or_are_reported_lost(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    empty(path)
    found = [
        RecoveredSession(a_repo(), a_session("one", create_time=1.0), an_agent("one")),
        RecoveredSession(
            a_repo("twin", common_dir=a_repo().common_dir),
            a_session("two", repo_id="twin", name="one"),
            an_agent("two"),
        ),
        RecoveredSession(a_repo(), a_session("three", branch="ramet/one"), an_agent("three")),
    ]
    store = await Store.open(path, keepers=lambda: found)
    assert store.rebuilt is not None
    assert (store.rebuilt.sessions, store.rebuilt.lost) == (("one", "two"), ("three",))
    two = await store.read(lambda reader: reader.sessions.get("two"))
    assert (two.name, two.repo_id) == ("one (two)", "repo")
    await store.aclose()


async def test_an_empty_file_where_there_never_was_a_database_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    path.touch()
    store = await Store.open(path)
    assert store.quarantined is None
    await store.aclose()


async def test_the_event_can_be_described_by_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    empty(path)
    store = await Store.open(path, describe=lambda rebuilt: NewEvent("told", payload=rebuilt.reason.encode()))
    (event,) = await store.read(lambda reader: reader.events.list())
    assert (event.kind, event.payload) == ("told", b"its file is empty")
    await store.aclose()
