"""Diffs: coloured patches, counts per file, and the edits that a tool is about to make."""

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ramet.jsonify import enum_name
from ramet.words import plural

from rametctl.lines import Line, cell_width, line

if TYPE_CHECKING:
    from ramet.v1.worktree_pb2 import FileChange, GetDiffResponse, WatchChangesResponse

_BAR = 30


def patch_style(text: str) -> str:
    """The style of one line of a patch."""
    if text.startswith(
        ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "similarity", "rename ", "Binary")
    ):
        return "bold"
    if text.startswith("@@"):
        return "cyan"
    return "green" if text.startswith("+") else "red" if text.startswith("-") else ""


def patch_lines(patch: bytes) -> Iterator[Line]:
    """The patch, a style per line."""
    for text in patch.decode("utf-8", "replace").removesuffix("\n").split("\n") if patch else ():
        yield line((text, patch_style(text)))


def stat_lines(answer: "GetDiffResponse | WatchChangesResponse") -> list[Line]:
    """As `git diff --stat` shows it."""
    if not answer.files:
        return []
    names = [_label(change) for change in answer.files]
    width = max(cell_width(name) for name in names)
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


def edit_lines(before: str, after: str, path: str) -> Iterator[Line]:
    """What an edit changes, as a patch."""
    patch = difflib.unified_diff(before.splitlines(), after.splitlines(), fromfile=path, tofile=path, lineterm="", n=3)
    for text in patch:
        yield line((text, patch_style(text)), indent=2)
