"""Conflicts between two sessions, or a session and its base, as values."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum


class ConflictKind(StrEnum):
    """Kinds of conflict, from harmless to worst."""

    CLEAN = "clean"  # different files
    SAME_FILE = "same_file"  # the same file at different places
    OVERLAP = "overlap"  # the same lines
    ADD_ADD = "add_add"  # both add the path, with different content
    BINARY = "binary"
    SUBMODULE = "submodule"
    RENAME = "rename"  # both rename, or a rename meets another file
    DELETE_EDIT = "delete_edit"  # one deletes what the other changes


SEVERITY = {kind: number for number, kind in enumerate(ConflictKind)}
"""For sorting: higher is worse."""
GREEN = frozenset({ConflictKind.CLEAN, ConflictKind.SAME_FILE})
"""Kinds that git merges by itself; all others are red."""


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines of a file, from 1, both ends included. ``end`` is ``start - 1`` if lines were only
    removed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileConflict:
    """A file that both sides change. ``other_path`` is "" if it equals ``path``."""

    path: str
    kind: ConflictKind
    other_path: str = ""
    lines: tuple[LineRange, ...] = ()
    other_lines: tuple[LineRange, ...] = ()


@dataclass(frozen=True, slots=True)
class PairConflict:
    """Result of the last comparison of two sessions, or of a session and its base (``other_id``
    "")."""

    session_id: str
    other_id: str
    repo_id: str
    kind: ConflictKind
    files: str  # JSON list, see `dump`
    change_time: float
    notified: tuple[
        str, ...
    ] = ()  # ids of the sessions whose agents have a warning about it, or a notice that waits for them

    @property
    def red(self) -> bool:
        return self.kind not in GREEN


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning that a session's agent gets with its next tool result or prompt, since it is not
    worth a turn of its own."""

    session_id: str
    other_ids: tuple[str, ...]  # of the sessions that it is about
    text: str


def dump(files: tuple[FileConflict, ...]) -> str:
    """JSON of ``files``, as stored."""
    return json.dumps([asdict(each) for each in files])


def load(text: str) -> tuple[FileConflict, ...]:
    """Inverse of `dump`."""
    return tuple(
        FileConflict(
            path=each["path"],
            kind=ConflictKind(each["kind"]),
            other_path=each["other_path"],
            lines=tuple(LineRange(**span) for span in each["lines"]),
            other_lines=tuple(LineRange(**span) for span in each["other_lines"]),
        )
        for each in json.loads(text)
    )


def worst(files: tuple[FileConflict, ...]) -> ConflictKind:
    """Worst kind among ``files``; CLEAN if there are none."""
    return max((each.kind for each in files), key=SEVERITY.__getitem__, default=ConflictKind.CLEAN)


def mirrored(files: tuple[FileConflict, ...]) -> tuple[FileConflict, ...]:
    """``files`` seen from the other side."""
    return tuple(
        FileConflict(
            path=each.other_path or each.path,
            kind=each.kind,
            other_path=each.path if each.other_path else "",
            lines=each.other_lines,
            other_lines=each.lines,
        )
        for each in files
    )
