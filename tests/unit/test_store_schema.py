"""Migrations, their backups, and foreign databases."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rametd.domain.errors import DatabaseUnusableError, NewerDatabaseError, StoreBusyError
from rametd.domain.models import NewEvent
from rametd.store import Store
from rametd.store.schema import APPLICATION_ID, Migration, migrations, version_of

BASE = migrations()
COLOURED = Migration(len(BASE) + 1, "ALTER TABLE repos ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';")
BROKEN = Migration(len(BASE) + 1, "ALTER TABLE repos ADD COLUMN colour TEXT; CREATE TABLE meta (x);")


def later(count: int) -> tuple[Migration, ...]:
    """Return the package's migrations and ``count`` more."""
    first = len(BASE) + 1
    return (*BASE, *(Migration(first + n, f"CREATE TABLE later{n} (x);") for n in range(count)))


async def make(path: Path, *kinds: str) -> str:
    store = await Store.open(path)
    await store.write(lambda unit: unit.events.append(*map(NewEvent, kinds)))
    await store.aclose()
    return store.epoch


def digests(directory: Path) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in directory.iterdir()}


def count_events(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM events").fetchone()[0])


def test_migrations_are_numbered_without_gaps() -> None:
    assert [each.number for each in BASE] == list(range(1, len(BASE) + 1))


async def test_a_new_database_is_marked_as_ours_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ramet.db"
    epoch = await make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("ramet.db.id").read_text() == f"{epoch}\n"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert version_of(db) == len(BASE)


async def test_an_older_database_is_backed_up_and_migrated(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    epoch = await make(path, "kept")
    store = await Store.open(path, steps=(*BASE, COLOURED))
    assert store.epoch == epoch
    assert [event.kind for event in await store.read(lambda reader: reader.events.list())] == ["kept"]
    await store.aclose()
    with closing(sqlite3.connect(path)) as db:
        assert version_of(db) == COLOURED.number
        assert db.execute("SELECT colour FROM repos").fetchall() == []
    backup = tmp_path / f"ramet.db.backup-{len(BASE)}"
    assert count_events(backup) == 1
    with closing(sqlite3.connect(backup)) as db:
        assert version_of(db) == len(BASE)


async def test_a_failed_migration_leaves_the_database_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    epoch = await make(path, "kept")
    with pytest.raises(DatabaseUnusableError, match="meta already exists"):
        await Store.open(path, steps=(*BASE, BROKEN))
    assert await make(path) == epoch
    assert count_events(path) == 1


async def test_the_newest_three_backups_stay(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    await make(path)
    for count in range(1, 6):
        await (await Store.open(path, steps=later(count))).aclose()
    found = sorted(int(name.rpartition("-")[2]) for name in digests(tmp_path) if "backup" in name)
    assert found == [len(BASE) + n for n in (2, 3, 4)]


@pytest.mark.parametrize("how", ["closed cleanly", "with its newest version still in the log"])
async def test_a_newer_database_is_refused_and_unchanged(tmp_path: Path, how: str) -> None:
    path = tmp_path / "ramet.db"
    await make(path, "kept")
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 999")
        if how == "closed cleanly":
            newer.close()
        before = digests(tmp_path)
        with pytest.raises(NewerDatabaseError) as refused:
            await Store.open(path)
        assert refused.value.data == {"version": "999"}
        after = digests(tmp_path)
    # The index of the log is scratch space that every reader may write to; it holds no data.
    for each in ("ramet.db-shm", "ramet.db-wal") if how == "closed cleanly" else ("ramet.db-shm",):
        before.pop(each, None)
        after.pop(each, None)
    assert after == before


async def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")
    before = digests(tmp_path)
    with pytest.raises(DatabaseUnusableError, match="another program"):
        await Store.open(path)
    assert digests(tmp_path) == before


async def test_a_place_that_cannot_hold_a_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "directory", tmp_path / "file" / "ramet.db"):
        with pytest.raises(DatabaseUnusableError) as refused:
            await Store.open(path)
        assert str(path) in refused.value.message


async def test_a_first_start_that_was_cut_off_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "ramet.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    store = await Store.open(path)
    assert store.rebuilt is None
    await store.aclose()


async def test_a_lock_of_another_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rametd.store.connection._BUSY_MS", 10)
    path = tmp_path / "ramet.db"
    store = await Store.open(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError):
            await store.write(lambda unit: unit.events.append(NewEvent("refused")))
    assert (await store.write(lambda unit: unit.events.append(NewEvent("fine"))))[0].seq == 1
    assert not store.read_only
    await store.aclose()
