"""Diffs: coloured patches, counts per file, and the edits that a tool is about to make."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ramet.jsonify import enum_name
from ramet.v1.common_pb2 import FileEdit
from ramet.visible import visible
from ramet.words import plural

from rametctl.console.lines import Line, Span, cell_width, line

if TYPE_CHECKING:
    from ramet.v1.worktree_pb2 import FileChange, GetDiffResponse, WatchChangesResponse

_BAR, _NAME = 30, 100
_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
Range = tuple[int, int]
MOST_PAIRED = 40
LONGEST_PAIRED = 400
"""Longest line, in characters, whose words are compared; a longer one would delay the screen."""
ALIKE = 0.4
"""Least part of the longer line that two lines have in common if one replaces the other."""
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def patch_style(text: str) -> str:
    """Return the style of a patch's line."""
    if text.startswith(
        ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "similarity", "rename ", "Binary")
    ):
        return "bold"
    if text.startswith("@@"):
        return "cyan"
    return "green" if text.startswith("+") else "red" if text.startswith("-") else ""


def patch_lines(patch: bytes) -> Iterator[Line]:
    """Return the patch with a style per line."""
    for text in patch.decode("utf-8", "replace").removesuffix("\n").split("\n") if patch else ():
        yield line((text, patch_style(text)))


def changed_words(texts: Sequence[str]) -> dict[int, tuple[Span, ...]]:
    """Return spans, by index, for lines of a patch that replace as many preceding lines: the
    differing words are reversed."""
    found: dict[int, tuple[Span, ...]] = {}
    index = 0
    while index < len(texts):
        old = _run(texts, index, "-")
        new = _run(texts, index + old, "+") if old else 0
        if old and old == new and old <= MOST_PAIRED:
            for at in range(index, index + old):
                found |= _pair(at, texts[at], at + old, texts[at + old])
        index += (old + new) or 1
    return found


def _run(texts: Sequence[str], begin: int, mark: str) -> int:
    """Return the number of lines from ``begin`` on with this mark; file headers have none."""
    heads = ("--- ", "+++ ")
    return sum(1 for _ in takewhile(lambda text: text.startswith(mark) and not text.startswith(heads), texts[begin:]))


def _pair(old_at: int, old: str, new_at: int, new: str) -> dict[int, tuple[Span, ...]]:
    gone, come = changed_ranges(old[1:], new[1:])
    if not gone and not come:
        return {}
    return {
        old_at: (("-", "red"), *_marked(old[1:], gone, "red")),
        new_at: (("+", "green"), *_marked(new[1:], come, "green")),
    }


def _marked(text: str, ranges: Sequence[Range], style: str) -> Iterator[Span]:
    """Return the spans of a line, with the ranges reversed."""
    end = 0
    for start, stop in ranges:
        yield visible(text[end:start]), style
        yield visible(text[start:stop]), f"{style} reverse"
        end = stop
    yield visible(text[end:]), style


def changed_ranges(old: str, new: str) -> tuple[list[Range], list[Range]]:
    """Return the ranges (start, end) of whole words in which two lines differ; none if the lines
    have too little in common, or are long."""
    if old == new or max(len(old), len(new)) > LONGEST_PAIRED:
        return [], []
    left, right = _WORD.findall(old), _WORD.findall(new)
    gone: list[Range] = []
    come: list[Range] = []
    common = 0
    for kind, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            common += len("".join(left[a:b]).strip())
            continue
        _extend(gone, len("".join(left[:a])), len("".join(left[a:b])))
        _extend(come, len("".join(right[:c])), len("".join(right[c:d])))
    longest = max(len(old.strip()), len(new.strip()), 1)
    return (gone, come) if common >= ALIKE * longest or old.strip() == new.strip() else ([], [])


def _extend(ranges: list[Range], start: int, length: int) -> None:
    if length:
        ranges.append((start, start + length))


def stat_lines(answer: "GetDiffResponse | WatchChangesResponse") -> list[Line]:
    """Return the changes in the format of `git diff --stat`."""
    if not answer.files:
        return []
    names = [_label(change) for change in answer.files]
    width = min(max(cell_width(name) for name in names), _NAME)
    most = max(change.additions + change.deletions for change in answer.files)
    digits = len(str(most))
    scale = min(1.0, _BAR / most) if most else 1.0
    lines = []
    for change, name in zip(answer.files, names, strict=True):
        padding = " " * (width - cell_width(name))
        if change.binary or change.too_large:
            lines.append(line(f"{name}{padding} | ", ("too large" if change.too_large else "binary", "dim")))
            continue
        plus, minus = (round(count * scale) or bool(count) for count in (change.additions, change.deletions))
        count = change.additions + change.deletions
        lines.append(line(f"{name}{padding} | {count:>{digits}} ", ("+" * plus, "green"), ("-" * minus, "red")))
    added, removed = plural(answer.additions, "insertion"), plural(answer.deletions, "deletion")
    lines.append(line(f"{plural(len(names), 'file')} changed, {added}(+), {removed}(-)"))
    return lines


def _label(change: "FileChange") -> str:
    kind = enum_name(change, "kind")
    name = change.path.replace("\n", "␊")
    if change.old_path and change.old_path != change.path:
        return f"{change.old_path} => {name}"
    return name if kind in {"modified", None} else f"{name} ({kind})"


def edit_counts(edit: "FileEdit") -> str:
    """Summarise an edit in a few words."""
    if edit.creates:
        return f"new file, {plural(edit.additions, 'line')}"
    if not (edit.additions or edit.deletions):
        return "no change"
    counts = (f"+{edit.additions}" if edit.additions else "", f"−{edit.deletions}" if edit.deletions else "")
    return " ".join(filter(None, counts))


def edit_lines(edit: "FileEdit", *, most: int | None = None, indent: int = 4) -> Iterator[Line]:
    """Return the change that a tool makes to a file, with line numbers; at most ``most`` lines.

    Removed lines have their number before the change, all others their number after it.
    """
    numbered = list(_numbered(edit.patch))
    if not numbered and not edit.omitted_lines:
        yield line(("(empty file)" if edit.creates else "(no change)", "dim"), indent=indent)
        return
    digits = max((len(str(number)) for number, _, _ in numbered if number), default=0)
    shown = numbered if most is None else numbered[:most]
    for number, mark, text in shown:
        if mark == "@":
            yield line(("⋮", "dim"), indent=indent + max(digits - 1, 0))
            continue
        style = {"+": "green", "-": "red"}.get(mark, "")
        label = f"{number:>{digits}} " if number else " " * (digits + 1 if digits else 0)
        yield line((label, "dim"), (f"{mark} {text}", style), indent=indent, hang=digits + 3)
    omitted = len(numbered) - len(shown) + edit.omitted_lines
    if omitted:
        yield line((f"… {plural(omitted, 'more line')}", "dim"), indent=indent)


def whole_edit_lines(data: "Mapping[str, Any]", *, indent: int = 4) -> Iterator[Line]:
    """Yield all text that an editing tool's input writes and replaces, for a request whose diff is
    cut."""
    listed = data.get("edits")
    pairs: list[tuple[Any, Any]] = [("", data.get("content"))] if "content" in data else []
    edits = listed if isinstance(listed, list) else [data] if "old_string" in data else []
    pairs += [(edit.get("old_string"), edit.get("new_string")) for edit in edits if isinstance(edit, Mapping)]
    for old, new in pairs:
        for mark, text, style in (("-", old, "red"), ("+", new, "green")):
            if isinstance(text, str) and text:
                shown = text.removesuffix("\n").split("\n")
                yield from (line((f"{mark} {each}", style), indent=indent, hang=2) for each in shown)


def _numbered(patch: str) -> Iterator[tuple[int, str, str]]:
    """Yield (number, mark, text) of each line of hunks; number 0 if unknown, mark "@" between two
    hunks."""
    old = new = 0
    placed = False
    for index, text in enumerate(patch.split("\n") if patch else ()):
        if match := HUNK.match(text):
            old, new = int(match[1]), int(match[2])
            placed = bool(old or new)
            if index:
                yield 0, "@", ""
            continue
        if text.startswith("\\"):
            yield 0, " ", text
            continue
        mark = text[:1] or " "
        number = (old if mark == "-" else new) if placed else 0
        old += mark != "+"
        new += mark != "-"
        yield number, mark, text[1:]
