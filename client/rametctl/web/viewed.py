"""Which files a person has looked at, by session, path and content: a file that changes has not been looked at."""

import json
import os
from collections.abc import Collection
from pathlib import Path


class Viewed:
    """Marks in a file of mode 0600, which one server writes. ``version`` grows with each change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.version = 0
        try:
            self._marks: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._marks = {}  # none yet, or cut short: a mark is no work that can be lost

    def has(self, session_id: str, path: str, content: str) -> bool:
        return self._marks.get(session_id, {}).get(path) == content

    def mark(self, session_id: str, path: str, content: str, *, sessions: Collection[str]) -> None:
        """Set a mark, or clear it where ``content`` is ""; those of sessions that are not among ``sessions`` are dropped."""
        self._marks = {id_: marks for id_, marks in self._marks.items() if id_ in sessions}
        marks = self._marks.setdefault(session_id, {})
        marks[path] = content
        if not content:
            del marks[path]
        self.version += 1
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(self._marks, file)
        fresh.replace(self._file)
