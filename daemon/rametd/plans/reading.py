"""Read a `plan.toml`: the plan, and its problems with their positions."""

import difflib
import re
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ramet import toml

from rametd.plans.keys import PLAN, THREAD, TITLE_WORDS, keys_of
from rametd.plans.model import PlanText, Problem, ThreadText
from rametd.plans.positions import Path, lines_of

LIMIT = 1 << 20
"""Maximum size of a plan, in bytes."""
MOST_THREADS = 1000
_SHARED = frozenset(keys_of(PLAN)) & frozenset(keys_of(THREAD)) - {"name", "goal"}


@dataclass(frozen=True, slots=True)
class Reading:
    """The readable part of a plan, its problems, and line numbers by path."""

    plan: PlanText
    problems: tuple[Problem, ...]
    lines: Mapping[Path, int]

    def at(self, *path: str | int) -> dict[str, Any]:
        """``line`` and ``key`` of a `Problem` at ``path``. If the path has no line, its nearest
        parent with a line counts."""
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), 0)
        return {"line": line, "key": key_of(path)}

    def at_thread(self, thread: ThreadText, *path: str | int) -> dict[str, Any]:
        """As `at`, for a key of a thread; if the thread inherits the value, the position is in
        `[plan]`."""
        whole = (THREAD, thread.index, *path)
        if path and whole not in self.lines and (PLAN, *path) in self.lines:
            whole = (PLAN, *path)
        return {**self.at(*whole), "threads": (thread.id,)}


def key_of(path: Path) -> str:
    """Path as text, such as ``threads[2].owns[0]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def read(text: str) -> Reading:
    """Read a plan. Never raises: errors become problems."""
    if len(text.encode("utf-8", "surrogatepass")) > LIMIT:
        return Reading(PlanText(), (Problem("too-large", f"the plan is over {LIMIT:,} bytes"),), {})
    try:
        document = toml.loads(text)
        lines = lines_of(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else text.rstrip().count("\n") + 1
        return Reading(PlanText(), (Problem("not-toml", f"this is not TOML: {error}", line=line),), {})
    except RecursionError:
        return Reading(PlanText(), (Problem("not-toml", "lists or tables are nested too deeply"),), {})
    tables = document.get(THREAD)
    if isinstance(tables, list) and len(tables) > MOST_THREADS:
        words = f"the plan has {len(tables):,} threads, more than {MOST_THREADS}"
        return Reading(PlanText(), (Problem("too-large", words, "split it"),), {})
    reader = _Reader(Reading(PlanText(), (), lines))
    plan = reader.plan(document)
    return Reading(plan, tuple(reader.problems), lines)


class _Reader:
    def __init__(self, places: Reading) -> None:
        self._at = places.at
        self.problems: list[Problem] = []

    def plan(self, document: Mapping[str, Any]) -> PlanText:
        self._unknown(document, (PLAN, THREAD), ())
        shared = self._table(document.get(PLAN, {}), PLAN, (PLAN,))
        tables = document.get(THREAD, [])
        if not isinstance(tables, list):
            self._wrong("bad-value", "expected [[threads]], a list of tables", (THREAD,))
            tables = []
        elif not tables:
            text = "the plan has no threads"
            self._wrong("empty", text, (THREAD,) if THREAD in document else (), hint="add a [[threads]] with an id")
        threads = [self._thread(table, index, shared) for index, table in enumerate(tables)]
        own = {name: value for name, value in shared.items() if name in PlanText.__dataclass_fields__}
        return PlanText(**own, threads=tuple(thread for thread in threads if thread is not None))

    def _thread(self, table: object, index: int, shared: Mapping[str, Any]) -> ThreadText | None:
        path: Path = (THREAD, index)
        values = self._table(table, THREAD, path)
        if "id" not in values:
            if isinstance(table, dict) and "id" not in table:
                self._wrong("missing-id", "the thread has no id", path, hint='give it one, such as id = "docs"')
            return None
        if "prompt" in values and "prompt_file" in values:
            self._wrong("bad-value", "prompt and prompt_file are both given", (*path, "prompt_file"), hint="keep one")
        inherited = {name: value for name, value in shared.items() if name in _SHARED}
        return ThreadText(index=index, **{**inherited, **values})

    def _table(self, table: object, name: str, path: Path) -> dict[str, Any]:
        """The valid values by key; records problems for the others."""
        if not isinstance(table, dict):
            self._wrong("bad-value", "expected a table", path)
            return {}
        keys = keys_of(name)
        self._unknown(table, keys, path)
        values: dict[str, Any] = {}
        for key, raw in table.items():
            if key not in keys:
                continue
            kind = keys[key].kind
            try:
                values[key] = kind.parse(raw)
            except ValueError:
                self._wrong("bad-value", f"expected {kind.accepts}, found {_excerpt(raw)}", (*path, key))
        if "title" in values:
            self._title(values["title"], (*path, "title"))
        return values

    def _title(self, title: str, path: Path) -> None:
        try:
            words = {name for _, name, _, _ in string.Formatter().parse(title) if name is not None}
        except ValueError as error:
            self._wrong("bad-value", f"the braces do not fit: {error}", path, hint="write {{ for a brace itself")
            return
        for word in sorted(words.difference(TITLE_WORDS)):
            hint = f"there are {', '.join(f'{{{each}}}' for each in TITLE_WORDS)}"
            self._wrong("bad-value", f"a title has no {{{word}}}", path, hint=hint)

    def _unknown(self, table: Mapping[str, Any], known: Mapping[str, object] | tuple[str, ...], path: Path) -> None:
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, list(known), n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                self._wrong("unknown-key", "there is no such key", (*path, name), hint=hint)

    def _wrong(self, code: str, message: str, path: Path, *, hint: str = "") -> None:
        self.problems.append(Problem(code, message, hint, **self._at(*path)))


def _excerpt(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:59]}…"
