"""Parse git patches into files, hunks and rows; lay rows out side by side or unified."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rametctl.render.diff import HUNK

_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


@dataclass(frozen=True)
class Row:
    """A line of a hunk. ``mark`` is "-", "+" or " ". ``old`` and ``new`` are line numbers, 0 if
    that side does not have the line."""

    mark: str
    old: int
    new: int
    text: str
    unended: bool = False
    """Whether it is the last line of its file and has no line feed."""


@dataclass(frozen=True)
class Pair:
    """A row of the side-by-side view: the old and the new line, either may be None. An unchanged
    line is on both sides."""

    left: Row | None
    right: Row | None


@dataclass(frozen=True)
class Hunk:
    old: int
    new: int
    heading: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Gap:
    """Hidden lines before a hunk; ``lines`` is their number."""

    lines: int
    heading: str


@dataclass(frozen=True)
class Patch:
    """The patch of one file. Modes are those of git, such as "100644", or "" if the patch does not
    name them."""

    path: str
    old_path: str
    old_mode: str = ""
    mode: str = ""
    similarity: str = ""
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()

    @property
    def submodule(self) -> bool:
        return "160000" in {self.old_mode, self.mode}


@dataclass
class _Draft:
    path: str
    old_path: str
    facts: dict[str, str] = field(default_factory=dict)
    binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)


def parse(patch: bytes) -> list[Patch]:
    """Parse a patch into its files, in order. A file that changed its type appears twice: first
    deleted, then added."""
    drafts: list[_Draft] = []
    lines = patch.split(b"\n")
    at, end = 0, len(lines)
    while at < end:
        line = lines[at]
        at += 1
        if line.startswith(b"diff --git "):
            drafts.append(_Draft(*_header(line[len(b"diff --git ") :])))
        elif drafts and (found := HUNK.match(line.decode("utf-8", "replace"))):
            hunk, at = _hunk(lines, at, found)
            drafts[-1].hunks.append(hunk)
        elif drafts:
            _fact(drafts[-1], line)
    return [_patch(draft) for draft in drafts]


def _patch(draft: _Draft) -> Patch:
    facts = draft.facts
    mode = facts.get("new file mode") or facts.get("new mode") or facts.get("index", "")
    old_mode = facts.get("deleted file mode") or facts.get("old mode") or facts.get("index", "")
    return Patch(
        path=draft.path,
        old_path=draft.old_path,
        old_mode="" if "new file mode" in facts else old_mode,
        mode="" if "deleted file mode" in facts else mode,
        similarity=facts.get("similarity index", ""),
        binary=draft.binary,
        hunks=tuple(draft.hunks),
    )


def _fact(draft: _Draft, line: bytes) -> None:
    for name in ("rename from ", "copy from ", "rename to ", "copy to "):
        if line.startswith(name.encode()):
            path = unquoted(line[len(name) :])
            if name.endswith("from "):
                draft.old_path = path
            else:
                draft.path = path
            return
    if line.startswith(b"--- ") and line != b"--- /dev/null":
        draft.old_path = unquoted(line[4:].removesuffix(b"\t")).removeprefix("a/")
    elif line.startswith(b"+++ ") and line != b"+++ /dev/null":
        draft.path = unquoted(line[4:].removesuffix(b"\t")).removeprefix("b/")
    elif line.startswith((b"Binary files ", b"GIT binary patch")):
        draft.binary = True
    elif line.startswith(b"index "):
        draft.facts["index"] = line.decode("utf-8", "replace").partition(" ")[2].partition(" ")[2]
    else:
        for name in ("old mode", "new mode", "deleted file mode", "new file mode", "similarity index"):
            if line.startswith(name.encode() + b" "):
                draft.facts[name] = line[len(name) + 1 :].decode("utf-8", "replace")


def _header(names: bytes) -> tuple[str, str]:
    """Return the new and the old path of ``a/OLD b/NEW``. If they differ, later lines of the patch
    name them."""
    if names.startswith(b'"'):
        first = re.match(rb'"(?:[^"\\]|\\.)*"', names)
        old = unquoted(first[0]) if first else ""
    else:
        old = names[: len(names) // 2].decode("utf-8", "replace")
    path = old.removeprefix("a/")
    return path, path


def unquoted(name: bytes) -> str:
    """Decode a path as git writes it: a path with special characters is quoted and escaped."""
    if len(name) >= 2 and name.startswith(b'"') and name.endswith(b'"'):
        name = _ESCAPE.sub(
            lambda found: bytes([_ESCAPES[found[1]] if found[1] in _ESCAPES else int(found[1], 8) & 255]), name[1:-1]
        )
    return name.decode("utf-8", "replace")


def _hunk(lines: Sequence[bytes], at: int, head: re.Match[str]) -> tuple[Hunk, int]:
    """Parse the hunk whose first row is line ``at``; return it and the line after it. Only the
    counts of its header tell where it ends."""
    text = head.string
    counts = re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)", text, re.DOTALL)
    assert counts is not None  # HUNK matches less
    left, right = (1 if count is None else int(count) for count in counts.group(1, 2))
    old, new = int(head[1]), int(head[2])
    start = old, new
    rows: list[Row] = []
    while (left or right) and at < len(lines):
        line = lines[at].decode("utf-8", "replace")
        mark = line[:1] or " "
        if mark == "\\" and rows:
            rows[-1] = replace(rows[-1], unended=True)
            at += 1
            continue
        if mark not in " +-":
            break  # a patch that was cut
        rows.append(Row(mark, old if mark != "+" else 0, new if mark != "-" else 0, line[1:]))
        old, left = old + (mark != "+"), left - (mark != "+")
        new, right = new + (mark != "-"), right - (mark != "-")
        at += 1
    if rows and at < len(lines) and lines[at].startswith(b"\\"):
        rows[-1] = replace(rows[-1], unended=True)
        at += 1
    return Hunk(*start, counts[3], tuple(rows)), at


def pairs(rows: Sequence[Row]) -> Iterator[Pair]:
    """Pair rows for the side-by-side view: the first removed line of a block with its first added
    line, and so on."""
    for removed, added, same in _blocks(rows):
        for index in range(max(len(removed), len(added))):
            yield Pair(removed[index] if index < len(removed) else None, added[index] if index < len(added) else None)
        if same is not None:
            yield Pair(same, same)


def unified(rows: Sequence[Row]) -> Iterator[Pair]:
    """Return rows in order of the patch. ``left`` of a pair is the row to show, ``right`` its
    counterpart for changed words."""
    for removed, added, same in _blocks(rows):
        for mine, others in ((removed, added), (added, removed)):
            for index, row in enumerate(mine):
                yield Pair(row, others[index] if index < len(others) else None)
        if same is not None:
            yield Pair(same, same)


def _blocks(rows: Sequence[Row]) -> Iterator[tuple[list[Row], list[Row], Row | None]]:
    """Yield blocks: removed rows, added rows, and the unchanged row that follows."""
    removed: list[Row] = []
    added: list[Row] = []
    for row in rows:
        if row.mark == "-" and added:
            yield removed, added, None
            removed, added = [], []
        if row.mark == "-":
            removed.append(row)
        elif row.mark == "+":
            added.append(row)
        else:
            yield removed, added, row
            removed, added = [], []
    if removed or added:
        yield removed, added, None


def items(patch: Patch, *, split: bool) -> list[Pair | Gap]:
    """Return the rows and gaps that a view of a file shows, in order."""
    found: list[Pair | Gap] = []
    shown = 0
    for hunk in patch.hunks:
        first = hunk.new if patch.mode else hunk.old
        if first > shown + 1 or hunk.heading:
            found.append(Gap(max(first - shown - 1, 0), hunk.heading))
        found.extend(pairs(hunk.rows) if split else unified(hunk.rows))
        numbers = [row.new if patch.mode else row.old for row in hunk.rows]
        shown = max([shown, *numbers])
    return found


@dataclass
class Folder:
    """A directory in a tree of files. A directory that contains only one directory is joined with
    it: ``name`` is then "a/b"."""

    name: str
    folders: list["Folder"] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    """(name, path)"""


def tree(paths: Sequence[str]) -> Folder:
    """Return paths as a tree of directories, each in the order of ``paths``."""
    top = Folder("")
    places: dict[str, Folder] = {"": top}

    def folder(path: str) -> Folder:
        if path not in places:
            above, _, name = path.rpartition("/")
            places[path] = made = Folder(name)
            folder(above).folders.append(made)
        return places[path]

    for path in paths:
        above, _, name = path.rpartition("/")
        folder(above).files.append((name, path))

    def folded(one: Folder) -> Folder:
        one.folders = [folded(each) for each in one.folders]
        if one.name and not one.files and len(one.folders) == 1:
            (only,) = one.folders
            return Folder(f"{one.name}/{only.name}", only.folders, only.files)
        return one

    return folded(top)
