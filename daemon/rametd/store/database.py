"""Open the database: inspect it, migrate it, or rebuild it."""

import sqlite3
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rametd.domain.errors import DatabaseDamagedError, DatabaseUnusableError
from rametd.domain.models import NewEvent
from rametd.store import connection, damage, schema
from rametd.store.rebuild import Rebuilt, RecoveredSession, restore_sessions
from rametd.store.rows import Scope
from rametd.store.schema import Migration
from rametd.store.unit import Unit


@dataclass(frozen=True, slots=True)
class Database:
    connection: sqlite3.Connection  # to write
    epoch: str
    rebuilt: Rebuilt | None


def open_database(
    path: Path,
    *,
    keepers: Callable[[], Iterable[RecoveredSession]],
    describe: Callable[[Rebuilt], NewEvent],
    now: float,
    steps: Sequence[Migration] | None = None,
) -> Database:
    """Open or create the database at ``path``; quarantine and rebuild a damaged one. Blocks.

    ``steps`` are the migrations, by default the package's. If only opening the database shows
    damage, the first round records it, and the second one quarantines the file. Raises
    ``NewerDatabaseError``,
    ``DatabaseUnusableError``, ``StoreBusyError``.
    """
    steps = schema.migrations() if steps is None else steps
    for _ in range(2):
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            reason = damage.find_damage(path, steps)
            if reason is not None:
                damage.quarantine(path, reason, now)
            return _open(path, keepers=keepers, describe=describe, now=now, steps=steps)
        except sqlite3.Error as error:
            if not connection.is_damage(error):
                raise damage.refusal(error, path) from error
            damage.note_damage(path, str(error))
        except OSError as error:
            raise DatabaseUnusableError(
                f"{path} cannot be opened: {error.strerror}",
                hint="check its permissions and the free space on its disk",
            ) from error
    raise DatabaseDamagedError(f"{path} was created and is damaged at once", hint="check the disk")


def _open(
    path: Path,
    *,
    keepers: Callable[[], Iterable[RecoveredSession]],
    describe: Callable[[Rebuilt], NewEvent],
    now: float,
    steps: Sequence[Migration],
) -> Database:
    connection.create(path)
    db = connection.connect(path, "rw")
    with ExitStack() as undo:
        undo.callback(db.close)
        connection.prepare_to_write(db)
        schema.migrate(db, path, steps)
        row = db.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        if row is None:
            epoch, rebuilt = _fill(db, path, keepers, describe, now)
        else:
            epoch, rebuilt = str(row[0]), None
        damage.note_epoch(path, epoch)
        undo.pop_all()
    return Database(db, epoch, rebuilt)


def _fill(
    db: sqlite3.Connection,
    path: Path,
    keepers: Callable[[], Iterable[RecoveredSession]],
    describe: Callable[[Rebuilt], NewEvent],
    now: float,
) -> tuple[str, Rebuilt | None]:
    """Insert the first rows of a new database, with its epoch, in one transaction.

    If ``NAME.id`` shows that a database existed, the sessions are restored from the keepers. A
    start that is killed before the commit leaves a database without an epoch, so that the next
    start repeats this.
    """
    epoch = uuid.uuid4().hex
    existed = damage.id_note(path).exists()
    rebuilt: Rebuilt | None = None
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT INTO meta (key, value) VALUES ('epoch', ?)", (epoch,))
        fence = int(now * 1000)  # above every fence of earlier databases, unless the clock was set back
        if existed:
            db.execute("INSERT INTO meta (key, value) VALUES ('recall', '')")  # the rows of checkpoints are gone too
            found = list(keepers())
            fence = max([fence, *(each.fence for each in found)])
            restored, lost = restore_sessions(scope := Scope(db, now), found)
            quarantined, reason = damage.last_quarantine(path)
            rebuilt = Rebuilt(reason, quarantined, restored, lost)
            unit = Unit(scope)
            unit.events.append(describe(rebuilt))
            unit.events.flush()
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('runs', ?)", (fence,))
        db.execute("COMMIT")
    except BaseException:  # KeyboardInterrupt too: the next user of the connection must not see half of these rows
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return epoch, rebuilt
