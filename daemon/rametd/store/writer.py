"""The writer thread: it commits all waiting works in one transaction."""

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
    """A work and its result."""

    work: Callable[[Unit], Any]
    lifecycle: bool
    answer: Any  # opaque; identifies the caller for the listener
    result: Any = None
    error: Exception | None = None


class Listener(Protocol):
    """Callbacks of the writer, called in its thread."""

    def finished(self, jobs: Sequence[Job], events: Sequence[Event]) -> None:
        """Handle ``jobs`` that were committed or have failed. ``events`` are in the order of their
        numbers."""

    def read_only(self, now: bool) -> None:
        """Handle a disk that became full (True), or has room again (False)."""

    def damaged(self, what: str) -> None:
        """Handle a damaged database, with which every further job fails."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals of the writer, in seconds."""

    batch: float = 0.005  # maximum delay of a job without lifecycle, after the previous commit
    slice: float = 0.020  # maximum length of one transaction; later jobs wait for the next one
    retry: float = 1.0  # between two attempts to write on a full disk


@dataclass(slots=True)
class _Queue:
    changed: threading.Condition = field(default_factory=threading.Condition)
    jobs: deque[Job] = field(default_factory=deque)
    urgent: int = 0  # number of lifecycle jobs
    closed: bool = False


class Writer:
    """The thread that owns the writing connection. ``submit`` may be called from any thread."""

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
        self._refusal: RametError | None = None  # error for callers while the disk is full
        self._attempt = 0.0  # time of the last attempt to write
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
        """Stop writing to a damaged database and record the damage for the next start. Any thread
        may call it; blocks."""
        self._broken = damaged_error(error)
        with suppress(OSError):  # no room for the record: the next reader finds the damage again
            damage.note_damage(self._path, str(error))

    def close(self) -> None:
        """Block until the submitted jobs are done and the connection is closed."""
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
            del jobs  # free the memory of the last batch while idle
        self._db.close()

    def _take(self, last_commit: float) -> list[Job] | None:
        """Wait for the next batch. An empty one means: probe whether the full disk has room again.
        None means that the writer is closed."""
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
            # Take lines of agents first, which are few jobs: a hundred prompts at once must not
            # delay them.
            jobs = sorted(queue.jobs, key=lambda job: job.lifecycle)
            queue.jobs.clear()
            queue.urgent = 0
            return jobs

    def _return(self, jobs: Sequence[Job]) -> None:
        """Put jobs that the transaction did not take back in front of the queue."""
        queue = self._queue
        with queue.changed:
            queue.jobs.extendleft(reversed(jobs))
            queue.urgent += sum(job.lifecycle for job in jobs)

    def _serve(self, jobs: Sequence[Job]) -> None:
        if self._broken is not None:
            self._fail(jobs, self._broken)
            return
        now = self._clock()
        # The lower bound is for a clock that was set back, which must not extend the pause.
        if self._refusal is not None and 0 <= now - self._attempt < self._pace.retry:
            self._fail(jobs, self._refusal)
            return
        self._attempt = now
        try:
            done = self._commit(jobs, now)
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # if this fails, the next BEGIN fails too and reports it
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            self._record_failure(error)
            self._fail(jobs, self._translate(error))
            return
        if self._refusal is not None:
            self._refusal = None
            self._listener.read_only(False)
        self._return(jobs[done:])
        self._listener.finished(jobs[:done], tuple(self._scope.appended))
        self._scope.reset()

    def _commit(self, jobs: Sequence[Job], now: float) -> int:
        """Commit the first of ``jobs`` and return how many. Raises ``sqlite3.Error`` if the whole
        transaction failed."""
        self._sync(any(job.lifecycle for job in jobs) or self._refusal is not None)
        self._scope.reset()
        self._db.execute("BEGIN IMMEDIATE")
        if not jobs:  # a probe: only writing shows whether there is room
            self._db.execute("REPLACE INTO meta (key, value) VALUES ('probed', ?)", (str(now),))
        done = 0
        end = time.monotonic() + self._pace.slice
        alone = len(jobs) == 1
        for job in jobs:
            self._do(job, alone=alone)
            done += 1
            if time.monotonic() > end:
                break
        if alone and jobs[0].error is not None:
            self._db.execute("ROLLBACK")
        else:
            self._unit.events.flush()
            self._db.execute("COMMIT")
        return done

    def _do(self, job: Job, *, alone: bool) -> None:
        """Run a work; ``alone`` as in `Scope.savepoint`."""
        self._scope.now = self._clock()
        try:
            with self._scope.savepoint(alone=alone):
                job.result = job.work(self._unit)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and self._fails_transaction(error):
                raise
            job.error = error

    def _fails_transaction(self, error: sqlite3.Error) -> bool:
        """Whether the error concerns the database, not only this work."""
        return (
            not self._db.in_transaction
            or connection.is_no_room(error)
            or connection.is_damage(error)
            or connection.is_busy(error)
        )

    def _sync(self, full: bool) -> None:
        mode = "FULL" if full else "NORMAL"
        if mode != self._synchronous:
            self._db.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode

    def _record_failure(self, error: sqlite3.Error) -> None:
        """Remember a damaged database or full disk for later jobs."""
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
        """Fail all jobs, of which none was committed. Replace errors of single works: they may
        depend on another work."""
        for job in jobs:
            job.result, job.error = None, error
        self._listener.finished(jobs, ())


def read_only_error(error: sqlite3.Error) -> ReadOnlyError:
    return ReadOnlyError(
        f"the database cannot be written: {error}",
        hint="free space on its disk; the daemon retries every second",
    )


def damaged_error(error: sqlite3.Error) -> DatabaseDamagedError:
    return DatabaseDamagedError(
        f"the database is damaged: {error}",
        hint="restart the daemon: it moves the database to quarantine and rebuilds it",
    )
