"""Conversion between rows and the domain's dataclasses, by the types of their fields.

A field is one column of the same name, except that ``Tokens`` takes four. Enums, flags, paths, and
JSON lists and objects are converted; SQLite stores everything else unchanged.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

from rametd.domain.errors import InvalidInputError
from rametd.domain.models import BackgroundCommand, Event, LastWords, Tokens

T = TypeVar("T")
Value = str | bytes | int | float | None
Read = Callable[..., Any]
Write = Callable[[Any], tuple[Value, ...]]


FOUND = 20
"""Maximum number of records to find by a prefix: two are ambiguous already."""
ROWS = 32
"""Maximum number of rows of one INSERT; SQLite caches a statement for each number of rows."""


@dataclass(slots=True)
class Scope:
    """State that the tables of one connection share while a work runs."""

    db: sqlite3.Connection
    now: float = 0.0
    appended: list[Event] = field(default_factory=list)  # by the transaction
    inserted: int = 0  # how many of them are rows already (`Events.flush`)
    words: dict[str, LastWords] = field(default_factory=dict)  # by session; with those that are not

    @contextmanager
    def savepoint(self, *, alone: bool = False) -> Iterator[None]:
        """Roll back the statements and events of the block if it raises, and nothing else of the
        transaction.

        With ``alone`` there is no savepoint, with which SQLite copies each page that the block
        changes: the caller rolls the transaction back.
        """
        before = len(self.appended), self.inserted, dict(self.words)
        if not alone:
            self.db.execute("SAVEPOINT work")
        try:
            yield
        except BaseException:  # KeyboardInterrupt too: a later commit must not include half of this work
            appended, self.inserted, self.words = before
            del self.appended[appended:]
            if not alone and self.db.in_transaction:  # some errors, such as a full disk, end the whole transaction
                self.db.execute("ROLLBACK TO work")
                self.db.execute("RELEASE work")
            raise
        if not alone:
            self.db.execute("RELEASE work")

    def reset(self) -> None:
        """Begin anew, for another transaction."""
        self.appended.clear()
        self.inserted = 0
        self.words.clear()


class Table:
    """Base of classes with the statements on one table."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def _db(self) -> sqlite3.Connection:
        return self._scope.db


class RowType(Generic[T]):
    """Mapping of a dataclass to a table."""

    def __init__(
        self, model: Callable[..., T], table: str, *, columns: Mapping[str, str] | None = None, remembered: int = 0
    ) -> None:
        """``columns`` maps fields to columns of another name. ``remembered`` is the size of the
        cache, by id (the first column), that returns the last record again for an equal row."""
        self._model = model
        self._table = table
        self._fields: dict[str, _Field] = {}
        self._conversions: list[tuple[int, int, Read]] = []  # (start, end, conversion) of columns in a row
        names: list[str] = []
        for name, hint in get_type_hints(model).items():
            each = self._fields[name] = _field((columns or {}).get(name, name), hint)
            if each.read is not None:
                self._conversions.insert(0, (len(names), len(names) + len(each.columns), each.read))
            names += each.columns
        self.columns = ", ".join(names)
        self.select = f"SELECT {self.columns} FROM {table}"  # noqa: S608 - names of fields
        self.insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks(len(names))})"  # noqa: S608 - as above
        self._insert_many = self.insert.replace(
            "INSERT", "INSERT OR FAIL", 1
        )  # the work's transaction undoes it, not SQLite page by page
        self._row = f", ({marks(len(names))})"
        self._remembered = remembered
        self._known: dict[Value, tuple[tuple[Any, ...], T]] = {}
        self.read: Callable[[tuple[Any, ...]], T] = self._read_again if remembered else self._read

    def _read_again(self, row: tuple[Any, ...]) -> T:
        known = self._known.get(row[0])
        if known is not None and known[0] == row:
            return known[1]
        if len(self._known) >= self._remembered:
            self._known.clear()
        record = self._read(row)
        self._known[row[0]] = (
            row,
            record,
        )  # several threads may write this; any of their records will be compared with the next row
        return record

    def _read(self, row: tuple[Any, ...]) -> T:
        """The record in a row of ``select``."""
        values = list(row)
        for start, end, read in self._conversions:  # last to first, so that earlier positions stay valid
            values[start:end] = (read(*values[start:end]),)
        return self._model(*values)

    def read_all(self, rows: sqlite3.Cursor) -> list[T]:
        return [self.read(row) for row in rows]

    def find_all(self, db: sqlite3.Connection, tail: str = "", *values: object) -> list[T]:
        """Return the records of ``select`` with ``tail``, such as ``WHERE id = ?``, and its
        parameters."""
        return self.read_all(db.execute(f"{self.select} {tail}", values))

    def find_one(self, db: sqlite3.Connection, tail: str, *values: object) -> T | None:
        """As ``find_all``, but return the first record, or None."""
        row = db.execute(f"{self.select} {tail}", values).fetchone()
        return None if row is None else self.read(row)

    def find_by_prefix(self, db: sqlite3.Connection, prefix: str, *, first: str = "") -> list[T]:
        """Return the first records whose id begins with ``prefix``, in the order of ``first``, then
        of their ids."""
        tail = f"WHERE id >= ?1 AND id < ?1 || char(0x10FFFF) ORDER BY {first and f'{first}, '}id LIMIT ?2"
        return self.find_all(db, tail, prefix, FOUND)

    def add(self, db: sqlite3.Connection, record: T) -> None:
        db.execute(self.insert, self.values(record))

    def values(self, record: T) -> list[Value]:
        """Parameters for ``insert``."""
        return [value for name, each in self._fields.items() for value in each.write(getattr(record, name))]

    def insert_many(self, db: sqlite3.Connection, rows: Sequence[Sequence[Value]]) -> None:
        """Insert rows with few statements.

        SQLite releases the interpreter's lock during each statement, also during each of
        ``executemany``. Another thread then takes the lock, and the writer waits for it longer than
        it takes to insert a row.
        """
        for first in range(0, len(rows), ROWS):
            some = rows[first : first + ROWS]
            db.execute(self._insert_many + self._row * (len(some) - 1), [value for row in some for value in row])

    def dump(self, record: T) -> str:
        """Encode as a JSON object of columns, for tables without blobs."""
        names = [column for each in self._fields.values() for column in each.columns]
        return json_text(dict(zip(names, self.values(record), strict=True)))

    def load(self, text: str) -> T:
        """Decode the output of ``dump``, also of another release: ignore unknown columns; fields
        with a default are optional.

        Raises ``InvalidInputError``.
        """
        try:
            columns = json.loads(text)
            present = {
                name: each.of([columns[column] for column in each.columns])
                for name, each in self._fields.items()
                if all(column in columns for column in each.columns)
            }
            return self._model(**present)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"not the record of one of the {self._table}: {error}") from error

    def update(self, changes: Mapping[str, object]) -> tuple[str, list[Value]]:
        """``UPDATE … SET …`` for fields by name, and its values; the caller appends the WHERE
        clause."""
        assignments: list[str] = []
        values: list[Value] = []
        for name, value in changes.items():
            each = self._fields[name]
            assignments += [f"{column} = ?" for column in each.columns]
            values += each.write(value)
        return f"UPDATE {self._table} SET {', '.join(assignments)}", values  # noqa: S608 - names of fields


def marks(count: int) -> str:
    """``?, ?, ?`` for an ``IN (…)``."""
    return ", ".join("?" * count)


def path_text(path: Path) -> str:
    """Text of a path. Raises ``InvalidInputError`` if it is not UTF-8: SQLite cannot store it as
    text."""
    text = str(path)
    if not text.isprintable():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"the path {text!r} is not valid UTF-8", hint="rename the directory") from None
    return text


def json_text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _Field:
    columns: tuple[str, ...]
    read: Read | None  # None if the column has the value of the field
    write: Write

    def of(self, values: Sequence[Any]) -> Any:
        return values[0] if self.read is None else self.read(*values)


def _field(column: str, hint: Any) -> _Field:
    if hint is Tokens:
        return _Field(
            ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), Tokens, _write_tokens
        )
    if hint is bool:
        return _Field((column,), bool, lambda value: (int(value),))
    if hint is Path:
        return _Field((column,), Path, lambda value: (path_text(value),))
    if hint == tuple[BackgroundCommand, ...]:
        return _Field((column,), _read_commands, lambda value: (json_text(value),))
    if get_origin(hint) is tuple:
        return _Field((column,), _read_tuple, lambda value: (json_text(value),))
    if get_origin(hint) is dict:
        return _Field((column,), json.loads, lambda value: (json_text(value),))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _Field((column,), hint, lambda value: (str(value),))
    return _Field((column,), None, lambda value: (value,))


def _write_tokens(tokens: Tokens) -> tuple[Value, ...]:
    return (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)


def _read_commands(text: str) -> tuple[BackgroundCommand, ...]:
    return tuple(BackgroundCommand(*each) for each in _read_tuple(text))


def _read_tuple(text: str) -> tuple[Any, ...]:
    return () if text == "[]" else tuple(json.loads(text))
