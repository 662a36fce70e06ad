"""Patches in git's format as files, hunks and rows, side by side or unified, with the words that changed within a line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from rametctl.render.diff import HUNK

MOST_WORDS = 400
"""Words of a line up to which it is compared with the line that it replaces."""
ALIKE = 0.4
"""Share of characters that two lines have in common, from which on one replaces the other."""
_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}

Span = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """A line of a hunk. ``mark`` is "-", "+" or " "; a number is 0 where that side does not have the line."""

    mark: str
    old: int
    new: int
    text: str
    unended: bool = False
    """It is the last line of its file and has no line feed."""


@dataclass(frozen=True)
class Pair:
    """What stands side by side: a line and the one that replaces it, or one of them alone; the same row twice where nothing changed."""

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
    """Lines that no hunk shows, before a hunk; ``lines`` is how many."""

    lines: int
    heading: str


@dataclass(frozen=True)
class Patch:
    """The patch of one file. Modes are git's, such as "100644"; each is "" where it is not told."""

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
    """The files of a patch in their order. A file whose type changed is there twice: removed, then added."""
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
    """The new and the old path of ``a/OLD b/NEW``. Where they differ, lines that follow tell them."""
    if names.startswith(b'"'):
        first = re.match(rb'"(?:[^"\\]|\\.)*"', names)
        old = unquoted(first[0]) if first else ""
    else:
        old = names[: len(names) // 2].decode("utf-8", "replace")
    path = old.removeprefix("a/")
    return path, path


def unquoted(name: bytes) -> str:
    """A path as git writes it: with escapes between quotation marks where it is an odd one."""
    if len(name) >= 2 and name.startswith(b'"') and name.endswith(b'"'):
        name = _ESCAPE.sub(
            lambda found: bytes([_ESCAPES[found[1]] if found[1] in _ESCAPES else int(found[1], 8) & 255]), name[1:-1]
        )
    return name.decode("utf-8", "replace")


def _hunk(lines: Sequence[bytes], at: int, head: re.Match[str]) -> tuple[Hunk, int]:
    """A hunk whose first row is line ``at``, and where the patch goes on. The head's counts say where it ends: a row may look like anything."""
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
    """Rows side by side: in a block of removed and added lines the first with the first, and so on."""
    for removed, added, same in _blocks(rows):
        for index in range(max(len(removed), len(added))):
            yield Pair(removed[index] if index < len(removed) else None, added[index] if index < len(added) else None)
        if same is not None:
            yield Pair(same, same)


def unified(rows: Sequence[Row]) -> Iterator[Pair]:
    """Rows in the patch's order, each with the line that it replaces or that replaces it, as a pair of which ``left`` is the row to show."""
    for removed, added, same in _blocks(rows):
        for mine, others in ((removed, added), (added, removed)):
            for index, row in enumerate(mine):
                yield Pair(row, others[index] if index < len(others) else None)
        if same is not None:
            yield Pair(same, same)


def _blocks(rows: Sequence[Row]) -> Iterator[tuple[list[Row], list[Row], Row | None]]:
    """(removed, added, the unchanged row after them) in order."""
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
    """What a view of a file shows, in order."""
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


def changed_words(old: str, new: str) -> tuple[list[Span], list[Span]]:
    """The parts of two lines that differ, as (start, end); none where the lines have too little in common for it to help."""
    if old == new:
        return [], []
    left, right = _WORD.findall(old), _WORD.findall(new)
    if len(left) > MOST_WORDS or len(right) > MOST_WORDS:
        return [], []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    gone: list[Span] = []
    come: list[Span] = []
    common = 0
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            common += len("".join(left[a:b]).strip())
            continue
        _extend(gone, len("".join(left[:a])), len("".join(left[a:b])))
        _extend(come, len("".join(right[:c])), len("".join(right[c:d])))
    longest = max(len(old.strip()), len(new.strip()), 1)
    return (gone, come) if common >= ALIKE * longest or old.strip() == new.strip() else ([], [])


def _extend(spans: list[Span], start: int, length: int) -> None:
    if length:
        spans.append((start, start + length))


@dataclass
class Folder:
    """A directory of a tree of files; ``name`` has several parts where directories hold nothing but one another."""

    name: str
    folders: list["Folder"] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    """(name, path)"""


def tree(paths: Sequence[str]) -> Folder:
    """Paths as directories, each in the order of ``paths``."""
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
