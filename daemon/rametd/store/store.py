"""The store as the rest of the daemon sees it: works go in, results and events come out on the event loop.

The tables are in ``rametd.store.unit``; a work is a plain function that gets them, and runs in a thread of the store's.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from rametd.domain.errors import UnavailableError
from rametd.domain.models import Event, NewEvent
from rametd.store import connection
from rametd.store.database import Database, open_database
from rametd.store.readers import Readers
from rametd.store.rebuild import Rebuilt, RecoveredSession, rebuilt_event
from rametd.store.schema import Migration
from rametd.store.unit import Reader, Unit
from rametd.store.writer import Job, Pace, Writer, damaged_error, read_only_error

T = TypeVar("T")
Subscriber = Callable[[Sequence[Event]], None]


class Store:
    """Belongs to the event loop that opened it."""

    epoch: str
    """Identity of this log of events; another one when the database was built anew."""

    rebuilt: Rebuilt | None
    """What this open had to do about a damaged database."""

    on_read_only: Callable[[bool], None] | None = None
    """Called on the loop when writing begins to fail for lack of room (True), and when it goes on (False)."""

    on_damaged: Callable[[str], None] | None = None
    """Called on the loop when the database turns out malformed: all further calls fail, and only a new start helps."""

    def __init__(self, database: Database, path: Path, *, clock: Callable[[], float], pace: Pace) -> None:
        self.epoch = database.epoch
        self.rebuilt = database.rebuilt
        self.read_only = False
        self._damaged = False
        self._loop = asyncio.get_running_loop()
        self._subscribers: list[Subscriber] = []
        self._readers = Readers(path)
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
        """Open the database at ``path``, or make it.

        A damaged one is moved to ``quarantine/`` beside it, and a new one is filled from ``keepers`` (called in a thread);
        ``describe`` gives the event that tells of it. ``steps`` are the migrations, the package's own unless given.

        Raises ``NewerDatabaseError`` (the file stays as it is), ``DatabaseUnusableError``, ``StoreBusyError``.
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
        """Where a damaged database went, if this open had to set one aside."""
        return None if self.rebuilt is None else self.rebuilt.quarantined

    async def begin_run(self, instance_id: str, pid: int, version: str) -> int:
        """Record this run of a daemon; the number is the fence, higher than that of any run before it."""
        return await self.write(lambda unit: unit.begin_run(instance_id, pid, version))

    async def write(self, work: Callable[[Unit], T], *, lifecycle: bool = True) -> T:
        """Run ``work`` in a transaction and return what it returned, once that is committed.

        With ``lifecycle`` the commit comes at once and is on the disk. Without it may wait for 50 ms, along with others, and
        a power cut (not a kill) may take the last ones, as a whole and in order. A work that raises is undone alone, and its error is
        raised here. A caller that is cancelled stops waiting; its work is still done, as a whole.

        Raises ``ReadOnlyError``, ``StoreBusyError``, ``DatabaseDamagedError``: then nothing of it was done.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        self._writer.submit(Job(work, lifecycle, answer))
        return await answer

    async def read(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` on what the last commit left. Raises ``DatabaseDamagedError``, ``ReadOnlyError`` when the disk fails."""
        try:
            answer = self._loop.run_in_executor(self._readers.executor, self._readers.run, work)
        except RuntimeError as error:  # how an executor says that it was shut down
            raise UnavailableError("the daemon is shutting down", hint="try again when it runs") from error
        try:
            return await answer
        except sqlite3.Error as error:
            if connection.is_damage(error):
                await asyncio.to_thread(self._writer.condemn, error)
                self._become_damaged(str(error))
                raise damaged_error(error) from error
            if connection.is_no_room(error):
                raise read_only_error(error) from error
            raise

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Have ``callback`` called on the loop after each commit that appended events, in order; returns what ends that."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    async def aclose(self) -> None:
        """Do what was submitted, then close; later calls raise ``UnavailableError``."""
        await asyncio.to_thread(self._readers.close)
        await asyncio.to_thread(self._writer.close)  # the last connection to close is one that can fold the log in

    def _finish(self, jobs: Sequence[Job], events: Sequence[Event]) -> None:
        for job in jobs:
            answer = cast("asyncio.Future[Any]", job.answer)
            if answer.done():  # its caller was cancelled, and cannot be told of an error any more
                if job.error is not None:
                    self._loop.call_exception_handler({"message": "a work failed unheard", "exception": job.error})
            elif job.error is None:
                answer.set_result(job.result)
            else:
                answer.set_exception(job.error)
        if events:
            for subscriber in tuple(self._subscribers):
                self._loop.call_soon(subscriber, events)

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
    """Carries the writer's news to the loop's thread, in order."""

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
        with suppress(RuntimeError):  # the loop was closed without aclose(): nobody is left to be told
            self._loop.call_soon_threadsafe(callback, *values)
