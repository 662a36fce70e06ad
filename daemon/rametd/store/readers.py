"""Reader threads, each with a connection of its own; they never block the writer."""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rametd.store import connection
from rametd.store.rows import Scope
from rametd.store.unit import Reader

T = TypeVar("T")


class Readers:
    def __init__(self, path: Path, *, threads: int = 2) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="store-reader")

    def run(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` on a consistent view: the last commit or a later one. Call it in a thread of the executor."""
        db, reader = self._mine()
        db.execute("BEGIN")
        try:
            return work(reader)
        finally:
            if db.in_transaction:  # reading a damaged page ends the transaction
                db.execute("ROLLBACK")

    def close(self) -> None:
        """Block until the current reads are done, then close the connections."""
        self.executor.shutdown()
        for db in self._opened:
            db.close()

    def _mine(self) -> tuple[sqlite3.Connection, Reader]:
        mine: tuple[sqlite3.Connection, Reader] | None = getattr(self._local, "mine", None)
        if mine is None:
            db = connection.connect(self._path, "ro")
            self._opened.append(db)
            mine = self._local.mine = (db, Reader(Scope(db)))
        return mine
