"""The one thread that writes: it takes all works that wait and commits them as one transaction."""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rametd.domain.errors import DatabaseDamagedError, RametError, ReadOnlyError, StoreBusyError, UnavailableError
from rametd.domain.models import Event
from rametd.store import connection, damage
from rametd.store.rows import Scope
from rametd.store.unit import Unit


@dataclass(slots=True, eq=False)
class Job:
    """A work and what became of it."""

    work: Callable[[Unit], Any]
    lifecycle: bool
    answer: Any  # whatever the listener finds its caller by
    result: Any = None
    error: Exception | None = None


class Listener(Protocol):
    """Called in the writer's thread."""

    def finished(self, jobs: Sequence[Job], events: Sequence[Event]) -> None:
        """These were committed, or have failed; the events in the order of their numbers."""

    def read_only(self, now: bool) -> None:
        """It begins, or is over."""

    def damaged(self, what: str) -> None:
        """The database is malformed; every further job fails."""


@dataclass(frozen=True, slots=True)
class Pace:
    """In seconds."""

    batch: float = 0.050  # an event waits at most this long after the commit before
    retry: float = 1.0  # between two attempts to write on a full disk


@dataclass(slots=True)
class _Queue:
    changed: threading.Condition = field(default_factory=threading.Condition)
    jobs: deque[Job] = field(default_factory=deque)
    urgent: int = 0  # how many of them are lifecycle
    closed: bool = False


class Writer:
    """``submit`` may be called from any thread; the connection is this thread's alone from ``start`` on."""

    def __init__(
        self,
        db: sqlite3.Connection,
        path: Path,
        listener: Listener,
        *,
        clock: Callable[[], float],
        pace: Pace,
    ) -> None:
        self._db = db
        self._path = path
        self._listener = listener
        self._clock = clock
        self._pace = pace
        self._queue = _Queue()
        self._scope = Scope(db)
        self._unit = Unit(self._scope)
        self._synchronous = ""
        self._refusal: RametError | None = None  # while the disk is full: what callers are told
        self._attempt = 0.0  # the last one, by the clock
        self._broken: DatabaseDamagedError | None = None
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Raises ``UnavailableError`` once it is closed."""
        queue = self._queue
        with queue.changed:
            if queue.closed:
                raise UnavailableError("the daemon is shutting down", hint="try again when it runs")
            queue.jobs.append(job)
            queue.urgent += job.lifecycle
            queue.changed.notify()

    def condemn(self, error: sqlite3.Error) -> None:
        """The database is malformed: write nothing more to what the next start sets aside. From any thread; blocks."""
        self._broken = damaged_error(error)
        with suppress(OSError):  # no room for the note: the damage is met, and noted, again
            damage.note_damage(self._path, str(error))

    def close(self) -> None:
        """Blocks until what was submitted is done and the connection is closed."""
        with self._queue.changed:
            self._queue.closed = True
            self._queue.changed.notify()
        self._thread.join()

    def _run(self) -> None:
        last_commit = time.monotonic() - self._pace.batch
        while (jobs := self._take(last_commit)) is not None:
            if jobs or self._refusal is not None:
                self._serve(jobs)
                last_commit = time.monotonic()
            del jobs  # while nothing is to do, the lines of the last batch are not held
        self._db.close()

    def _take(self, last_commit: float) -> list[Job] | None:
        """All that waits, once there is reason to commit; empty when it is time to see whether the disk has room; None at the end."""
        queue = self._queue
        with queue.changed:
            while not queue.urgent and not queue.closed:
                if queue.jobs:
                    rest = last_commit + self._pace.batch - time.monotonic()
                    if rest <= 0 or not queue.changed.wait(rest):
                        break
                elif self._refusal is not None:
                    if not queue.changed.wait(self._pace.retry):
                        break
                else:
                    queue.changed.wait()
            if queue.closed and not queue.jobs:
                return None
            jobs = list(queue.jobs)
            queue.jobs.clear()
            queue.urgent = 0
            return jobs

    def _serve(self, jobs: Sequence[Job]) -> None:
        if self._broken is not None:
            self._fail(jobs, self._broken)
            return
        now = self._clock()
        # A clock that was set back must not stretch the pause, hence the lower bound.
        if self._refusal is not None and 0 <= now - self._attempt < self._pace.retry:
            self._fail(jobs, self._refusal)
            return
        self._attempt = now
        try:
            self._commit(jobs, now)
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # where even this fails, the next BEGIN does too and says so
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            self._meet(error)
            self._fail(jobs, self._translate(error))
            return
        if self._refusal is not None:
            self._refusal = None
            self._listener.read_only(False)
        self._listener.finished(jobs, tuple(self._scope.appended))
        self._scope.appended.clear()

    def _commit(self, jobs: Sequence[Job], now: float) -> None:
        """Raises ``sqlite3.Error`` when the transaction as a whole has failed."""
        self._sync(any(job.lifecycle for job in jobs) or self._refusal is not None)
        self._scope.appended.clear()
        self._db.execute("BEGIN IMMEDIATE")
        if not jobs:  # a probe: something must be written to learn whether there is room
            self._db.execute("REPLACE INTO meta (key, value) VALUES ('probed', ?)", (str(now),))
        for job in jobs:
            self._do(job)
        self._db.execute("COMMIT")

    def _do(self, job: Job) -> None:
        self._scope.now = self._clock()
        appended = len(self._scope.appended)
        try:
            with connection.savepoint(self._db):
                job.result = job.work(self._unit)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and self._is_everybodys(error):
                raise
            job.error = error
            del self._scope.appended[appended:]

    def _is_everybodys(self, error: sqlite3.Error) -> bool:
        """Whether it is about the database, not about what the work did with it."""
        return (
            not self._db.in_transaction
            or connection.is_no_room(error)
            or connection.is_damage(error)
            or connection.is_busy(error)
        )

    def _sync(self, full: bool) -> None:
        wanted = "FULL" if full else "NORMAL"
        if wanted != self._synchronous:
            self._db.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _meet(self, error: sqlite3.Error) -> None:
        """Remember what it means for the jobs to come."""
        if connection.is_damage(error):
            self.condemn(error)
            self._listener.damaged(str(error))
        elif connection.is_no_room(error):
            first = self._refusal is None
            self._refusal = read_only_error(error)
            if first:
                self._listener.read_only(True)

    def _translate(self, error: sqlite3.Error) -> Exception:
        if connection.is_busy(error):
            return StoreBusyError("another program holds the database's write lock", hint="close it and try again")
        return self._broken or self._refusal or error

    def _fail(self, jobs: Sequence[Job], error: Exception) -> None:
        """Nothing of them was committed. An error that a work raised by itself may rest on what another did, and is void too."""
        for job in jobs:
            job.result, job.error = None, error
        self._listener.finished(jobs, ())


def read_only_error(error: sqlite3.Error) -> ReadOnlyError:
    return ReadOnlyError(
        f"the database cannot be written: {error}",
        hint="make room on its disk; writing is tried again every second",
    )


def damaged_error(error: sqlite3.Error) -> DatabaseDamagedError:
    return DatabaseDamagedError(
        f"the database is damaged: {error}", hint="restart the daemon: it sets the database aside and builds it anew"
    )
