"""The store's interface: callers submit works, and get results and events on the event loop.

A work is a plain function that takes all tables (`rametd.store.unit`) and runs in a thread of the
store.
"""

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from rametd.domain.errors import ReadOnlyError, UnavailableError
from rametd.domain.models import Event, NewEvent
from rametd.store import connection
from rametd.store.database import Database, open_database
from rametd.store.rebuild import Rebuilt, RecoveredSession, rebuilt_event
from rametd.store.rows import Scope
from rametd.store.schema import Migration
from rametd.store.unit import Reader, Unit
from rametd.store.writer import Job, Pace, Writer, damaged_error, read_only_error

T = TypeVar("T")

RETRY_S = 1.0
"""Seconds between two attempts of a work while the disk is full."""


class Readers:
    """Threads that read, each with a connection. They start with the store, so that no read waits
    for a thread that cannot start. An executor, whose futures work in any thread, takes three times
    as long for each answer, and a turn needs some fifteen reads."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, *, threads: int = 2) -> None:
        self._path = path
        self._loop = loop
        self._works: SimpleQueue[tuple[Callable[[Reader], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._answers: deque[tuple[asyncio.Future[Any], Any, Exception | None]] = deque()
        self._scheduled = False  # `_give` will run
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, name="store-reader", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[Reader], T]) -> "asyncio.Future[T]":
        """Run ``work`` on a consistent view: the last commit or a newer one."""
        if self._closed:
            raise UnavailableError("the daemon is shutting down", hint="try again when it runs")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._works.put((work, answer))
        return answer

    async def aclose(self) -> None:
        """Refuse further reads; return once the submitted ones are done and the connections
        closed."""
        self._closed = True
        for _ in self._threads:
            self._works.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _serve(self) -> None:
        db: sqlite3.Connection | None = None
        while (job := self._works.get()) is not None:
            work, answer = job
            del job
            if answer.cancelled():
                del work, answer  # the next job may come in hours
                continue
            try:
                if db is None:
                    db = connection.connect(self._path, "ro")
                    reader = Reader(Scope(db))
                db.execute("BEGIN")
                try:
                    result = work(reader)
                finally:
                    if db.in_transaction:  # reading a damaged page ends the transaction
                        db.execute("ROLLBACK")
                self._answer(answer, result, None)
                del result
            except Exception as error:  # noqa: BLE001 - the caller gets it
                self._answer(answer, None, error)
            del work, answer
        if db is not None:
            db.close()

    def _answer(self, answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
        self._answers.append((answer, result, error))
        # `_give` clears the flag before it takes answers, so it takes this one, or runs again.
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # the loop was closed without aclose()
                self._loop.call_soon_threadsafe(self._give)

    def _give(self) -> None:
        self._scheduled = False
        while self._answers:
            answer, result, error = self._answers.popleft()
            if answer.done():  # the caller was cancelled
                continue
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(_answerable(error))


def _answerable(error: BaseException) -> BaseException:
    """Return the error as a future accepts it: for StopIteration, which it refuses, its caller and
    those after it would wait forever."""
    if not isinstance(error, StopIteration):
        return error
    answer = RuntimeError("the work raised StopIteration")
    answer.__cause__ = error
    return answer


Subscriber = Callable[[Sequence[Event]], None]


class Store:
    """The database, bound to the event loop that opened it."""

    epoch: str
    """Identity of this event log; a rebuilt database has a new one."""

    rebuilt: Rebuilt | None
    """Result of `open` for a damaged database; None if it was intact."""

    on_read_only: Callable[[bool], None] | None = None
    """Called on the loop when writing begins to fail on a full disk (True), and when it works again
    (False)."""

    on_damaged: Callable[[str], None] | None = None
    """Called on the loop when the database turns out damaged: all further calls fail until the
    daemon restarts."""

    def __init__(self, database: Database, path: Path, *, clock: Callable[[], float], pace: Pace) -> None:
        self.epoch = database.epoch
        self.rebuilt = database.rebuilt
        self.read_only = False
        self._damaged = False
        self._loop = asyncio.get_running_loop()
        self._subscribers: list[Subscriber] = []
        self._readers = Readers(path, self._loop)
        self._writer = Writer(database.connection, path, _Messenger(self._loop, self), clock=clock, pace=pace)
        self._writer.start()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        keepers: Callable[[], Iterable[RecoveredSession]] | None = None,
        describe: Callable[[Rebuilt], NewEvent] = rebuilt_event,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
        steps: Sequence[Migration] | None = None,
    ) -> "Store":
        """Open the database at ``path``, or create it.

        A damaged one is moved to ``quarantine/`` next to it, and a new one is filled from
        ``keepers`` (called in a thread); ``describe`` returns the event for this. ``steps`` are the
        migrations, by default the package's own.

        Raises ``NewerDatabaseError`` (the file stays unchanged), ``DatabaseUnusableError``,
        ``StoreBusyError``.
        """
        database = await asyncio.to_thread(
            open_database,
            path,
            keepers=keepers or tuple,
            describe=describe,
            now=clock(),
            steps=steps,
        )
        return cls(database, path, clock=clock, pace=pace or Pace())

    @property
    def quarantined(self) -> Path | None:
        """Directory of the damaged database that `open` quarantined, if any."""
        return None if self.rebuilt is None else self.rebuilt.quarantined

    async def begin_run(self, instance_id: str, pid: int, version: str) -> int:
        """Record this run of the daemon; return its fence, higher than that of any earlier run."""
        return await self.write(lambda unit: unit.begin_run(instance_id, pid, version))

    async def write(self, work: Callable[[Unit], T], *, lifecycle: bool = True) -> T:
        """Run ``work`` in a transaction; return its result after the commit.

        With ``lifecycle`` the commit is immediate and flushed to disk. Without, the work may wait 5
        ms for others, and a power cut (not a kill) may lose the newest works, each completely. If
        ``work`` raises, only this work is rolled back, and its error is raised here. If the caller
        is cancelled, the work still runs completely.

        Raises ``ReadOnlyError``, ``StoreBusyError``, ``DatabaseDamagedError``: then nothing was
        written.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        self._writer.submit(Job(work, lifecycle, answer))
        return await answer

    async def write_for_sure(self, work: Callable[[Unit], T], *, lifecycle: bool = True) -> T:
        """As `write`, and retry while the disk is full: for works whose error no caller could
        handle. Agents' journals have their lines."""
        while True:
            try:
                return await self.write(work, lifecycle=lifecycle)
            except ReadOnlyError:
                await asyncio.sleep(RETRY_S)

    async def read(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` on the last committed state. Raises ``DatabaseDamagedError``;
        ``ReadOnlyError`` if the disk fails."""
        try:
            return await self._readers.submit(work)
        except sqlite3.Error as error:
            if connection.is_damage(error):
                await asyncio.to_thread(self._writer.condemn, error)
                self._become_damaged(str(error))
                raise damaged_error(error) from error
            if connection.is_no_room(error):
                raise read_only_error(error) from error
            raise

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call ``callback`` on the loop after each commit with events, in order. Return a function
        that unsubscribes."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    async def aclose(self) -> None:
        """Finish the submitted works, then close; later calls raise ``UnavailableError``."""
        await self._readers.aclose()
        await asyncio.to_thread(self._writer.close)  # last, because only a writing connection can checkpoint the WAL

    def _finish(self, jobs: Sequence[Job], events: Sequence[Event]) -> None:
        if events:  # before the answers: when a caller continues, watchers have its events
            for subscriber in tuple(self._subscribers):
                self._loop.call_soon(subscriber, events)
        for job in jobs:
            answer = cast("asyncio.Future[Any]", job.answer)
            if answer.done():  # the caller was cancelled and cannot receive an error
                if job.error is not None:
                    self._loop.call_exception_handler(
                        {"message": "the work of a cancelled caller failed", "exception": job.error}
                    )
            elif job.error is None:
                answer.set_result(job.result)
            else:
                answer.set_exception(_answerable(job.error))

    def _become_read_only(self, now: bool) -> None:
        self.read_only = now
        if self.on_read_only is not None:
            self.on_read_only(now)

    def _become_damaged(self, what: str) -> None:
        if not self._damaged:
            self._damaged = True
            if self.on_damaged is not None:
                self.on_damaged(what)


class _Messenger:
    """Passes the writer's notifications to the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self._loop = loop
        self._store = store

    def finished(self, jobs: Sequence[Job], events: Sequence[Event]) -> None:
        self._call(self._store._finish, jobs, events)

    def read_only(self, now: bool) -> None:
        self._call(self._store._become_read_only, now)

    def damaged(self, what: str) -> None:
        self._call(self._store._become_damaged, what)

    def _call(self, callback: Callable[..., None], *values: object) -> None:
        with suppress(RuntimeError):  # the loop was closed without aclose()
            self._loop.call_soon_threadsafe(callback, *values)
