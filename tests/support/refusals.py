"""Check the message of a refused command, and that it created nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.daemon import Ran, Sandbox, git
from tests.support.eventually import eventually_sync


def refused(ran: Ran, code: int, *words: str) -> None:
    """Check for one line on standard error with all of ``words``, empty standard output, and the
    exit code."""
    assert (ran.code, ran.stdout) == (code, ""), ran
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, ran.stderr
    assert lines[0].startswith("rametctl: ")
    assert "Traceback" not in lines[0]
    for word in words:
        assert word.lower() in lines[0].lower(), (word, lines[0])


@dataclass(frozen=True)
class World:
    """Everything that sessions consist of, in the database and on disk."""

    files: frozenset[str]
    rows: tuple[tuple[str, int], ...]
    refs: str
    worktrees: str
    processes: int

    @classmethod
    def of(cls, box: Sandbox, repo: Path | None = None) -> "World":
        state = box.root / "state"
        files = frozenset(
            str(path.relative_to(state))
            for folder in ("worktrees", "agents", "index", "secrets")
            for path in (state / folder).rglob("*")
        )
        with closing(sqlite3.connect(f"file:{state}/ramet.db?mode=ro", uri=True)) as db:
            tables = ("sessions", "prompts", "requests", "agents", "operations", "trash")
            rows = tuple((table, db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables)  # noqa: S608
        refs = git(repo, "for-each-ref") if repo is not None else ""
        worktrees = git(repo, "worktree", "list", "--porcelain") if repo is not None else ""
        return cls(files, rows, refs, worktrees, len(box.processes()))

    def more_than(self, before: "World") -> list[str]:
        """Describe additions since ``before``. Fewer things are no difference: earlier sessions may
        end meanwhile."""
        rows = dict(before.rows)
        return [
            *sorted(self.files - before.files),
            *(f"{count - rows[table]} more rows in {table}" for table, count in self.rows if count > rows[table]),
            *sorted({*self.refs.splitlines()} - {*before.refs.splitlines()}),
            *sorted({*self.worktrees.splitlines()} - {*before.worktrees.splitlines()}),
            *([f"{self.processes} processes after {before.processes}"] if self.processes > before.processes else []),
        ]


@contextmanager
def unchanged(box: Sandbox, repo: Path | None = None) -> Iterator[None]:
    """Check that the block creates nothing and leaves nothing."""
    eventually_sync(lambda: not unsettled(box))
    before = World.of(box, repo)
    yield

    def nothing_more() -> bool:
        more = World.of(box, repo).more_than(before)
        assert not more, more
        return True

    eventually_sync(nothing_more)


def unsettled(box: Sandbox) -> list[str]:
    """Return sessions whose last checkpoint, of their start or of a turn's end, the daemon has yet
    to create."""
    with closing(sqlite3.connect(f"file:{box.root}/state/ramet.db?mode=ro", uri=True)) as db:
        done = "SELECT 1 FROM checkpoints WHERE session_id = sessions.id AND turn >= sessions.turns"
        return [name for (name,) in db.execute(f"SELECT id FROM sessions WHERE NOT EXISTS ({done})")]  # noqa: S608
