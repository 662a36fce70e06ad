"""What a person who got something wrong is told, and that nothing was made by it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.daemon import Ran, Sandbox, git
from tests.support.eventually import eventually_sync


def refused(ran: Ran, code: int, *words: str) -> None:
    """One line on standard error with all of ``words``, nothing on standard output, and the exit code."""
    assert (ran.code, ran.stdout) == (code, ""), ran
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, ran.stderr
    assert lines[0].startswith("rametctl: ")
    assert "Traceback" not in lines[0]
    for word in words:
        assert word.lower() in lines[0].lower(), (word, lines[0])


@dataclass(frozen=True)
class World:
    """Everything that a session is made of, as it lies about."""

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

    def is_no_more_than(self, before: "World") -> bool:
        """Whether all is as before, but for processes of earlier sessions that have ended meanwhile."""
        return replace(self, processes=0) == replace(before, processes=0) and self.processes <= before.processes


@contextmanager
def unchanged(box: Sandbox, repo: Path | None = None) -> Iterator[None]:
    """Nothing is made, or left, by what happens inside."""
    eventually_sync(lambda: not beginning(box))
    before = World.of(box, repo)
    yield
    eventually_sync(lambda: World.of(box, repo).is_no_more_than(before))


def beginning(box: Sandbox) -> list[str]:
    """Sessions whose start is being kept, in the background."""
    with closing(sqlite3.connect(f"file:{box.root}/state/ramet.db?mode=ro", uri=True)) as db:
        query = "SELECT id FROM sessions WHERE NOT EXISTS (SELECT 1 FROM checkpoints WHERE session_id = sessions.id)"
        return [name for (name,) in db.execute(query)]
