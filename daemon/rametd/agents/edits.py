"""The change that one tool call makes to a file, as a bounded diff.

`planned` applies the input of a call that has not run yet to the present file; `reported` reads the
hunks that the agent reports afterwards. `planned` reads a file, so it runs only for calls about
which a person is asked.
"""

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ramet.v1 import common_pb2

from rametd.platform.files import read_regular

EDITORS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
"""Tools whose input determines the new content of a file."""
PATCH_LINES = 400
PATCH_BYTES = 32 * 1024
LINE_CHARACTERS = 1000
"""Maximum characters of a line in a patch; generated files have lines of megabytes."""
FILE_BYTES = 2 << 20
"""Maximum size of a file to compare, in bytes; of a larger file only the replaced texts are
compared."""
COMPARED_LINES = 4000
"""Maximum lines of a changed region to compare; a larger one is shown as replaced completely,
because a comparison takes seconds."""
CONTEXT = 3
NOWHERE = "@@ -0,0 +0,0 @@"
"""Header of a hunk whose position in the file is unknown."""
NO_NEWLINE = "\\ No newline at end of file"
_OPEN = "\0"
"""Mark at the end of a last line without newline, so that it differs from the same line with
one."""


def planned(tool: str, call: Mapping[str, Any], worktree: Path) -> common_pb2.FileEdit | None:
    """Compute the change of a call; None for other tools and for malformed input. Blocks.

    Never read a file outside ``worktree``, not even through a link.
    """
    if tool == "NotebookEdit":
        return _planned_cell(call, worktree)
    named = call.get("file_path")
    if tool not in EDITORS or not isinstance(named, str) or not named:
        return None
    edits = _replacements(call)
    content = call.get("content")
    if not edits and not isinstance(content, str):
        return None
    before, exists = _text_of(worktree, named)
    path = named.removeprefix(f"{worktree}/")
    if isinstance(content, str):
        if before is not None:
            return build(path, _hunks(before, content), creates=not exists)
        return build(path, _snippet("", content))
    after = _replaced(before, edits) if before is not None else None
    if before is not None and after is not None:
        return build(path, _hunks(before, after), creates=not exists)
    # The text to replace is missing, or the file is unreadable. The agent will report that; show
    # its intention anyway.
    return build(path, (line for old, new, _ in edits for line in _snippet(old, new)))


def _planned_cell(call: Mapping[str, Any], worktree: Path) -> common_pb2.FileEdit | None:
    """Return the change of a notebook's cell: its source before and after, without the JSON around
    it."""
    named, source = call.get("notebook_path"), call.get("new_source")
    if not isinstance(named, str) or not named or not isinstance(source, str):
        return None
    mode, old = call.get("edit_mode"), ""
    if mode != "insert":
        text, _ = _text_of(worktree, named)
        old = _cell_source(text or "", call.get("cell_id"))
    return build(named.removeprefix(f"{worktree}/"), _snippet(old, "" if mode == "delete" else source))


def _cell_source(notebook: str, cell_id: object) -> str:
    """Return the source of a cell by its id, or by "cell-N"; "" if there is none."""
    try:
        cells = json.loads(notebook)["cells"]
        for number, cell in enumerate(cells):
            if cell_id in {cell.get("id"), f"cell-{number}"}:
                source = cell["source"]
                return source if isinstance(source, str) else "".join(source)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # no notebook; the agent will report that
    return ""


def reported(result: Mapping[str, Any]) -> common_pb2.FileEdit | None:
    """Read the change from the structured result of an editing tool; None without one."""
    path, hunks = result.get("filePath"), result.get("structuredPatch")
    if not isinstance(path, str) or not isinstance(hunks, list):
        return None
    if result.get("type") == "create" and isinstance(content := result.get("content"), str):
        return build(path, _hunks("", content), creates=True)
    return build(path, _reported_lines(hunks))


def changed(path: str, old: str | None, new: str) -> common_pb2.FileEdit:
    """Return the change between two texts of a file; None: there is no file."""
    return build(path, _hunks(old or "", new), creates=old is None)


def build(path: str, lines: Iterable[str], *, creates: bool = False) -> common_pb2.FileEdit:
    """Collect the lines of hunks up to the limits, and count the rest."""
    edit = common_pb2.FileEdit(path=path, creates=creates)
    patch: list[str] = []
    size = cut = omitted = 0
    for line in lines:
        edit.additions += line.startswith("+")
        edit.deletions += line.startswith("-")
        shown = line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "…"
        size += len(shown.encode("utf-8", "replace")) + 1
        if omitted or len(patch) >= PATCH_LINES or size > PATCH_BYTES:
            omitted += not line.startswith(("@@", "\\"))
        else:
            patch.append(shown)
            cut += shown != line
    edit.omitted_lines = omitted + cut
    edit.patch = "\n".join(patch).encode("utf-8", "replace").decode()
    return edit


def _replacements(call: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return (old text, new text, whether everywhere) of each edit; empty if one is malformed."""
    listed = call.get("edits")
    found: list[tuple[str, str, bool]] = []
    for edit in listed if isinstance(listed, list) else [call] if "old_string" in call else []:
        old, new = (edit.get("old_string"), edit.get("new_string")) if isinstance(edit, Mapping) else (None, None)
        if not isinstance(old, str) or not isinstance(new, str):
            return []
        found.append((old, new, edit.get("replace_all") is True))
    return found


def _text_of(worktree: Path, named: str) -> tuple[str | None, bool]:
    """Return the text of a file in the worktree, and whether it exists: "" for a new file, None for
    an unreadable one."""
    try:
        real, top = os.path.realpath(worktree / named), os.path.realpath(worktree)
        if not real.startswith(top.rstrip("/") + "/"):
            return None, True
        data = read_regular(Path(real), FILE_BYTES)
        return (None if data is None else data.decode()), True
    except (FileNotFoundError, NotADirectoryError):
        return "", False
    except (OSError, UnicodeDecodeError, ValueError):
        return None, True


def _replaced(text: str, edits: Sequence[tuple[str, str, bool]]) -> str | None:
    """Return the text after all edits, None if one does not apply."""
    for old, new, everywhere in edits:
        if not old:
            if text:
                return None
            text = new
        elif old not in text:
            return None
        else:
            text = text.replace(old, new) if everywhere else text.replace(old, new, 1)
    return text


def _hunks(before: str, after: str) -> Iterator[str]:
    """Return a unified diff without file headers; compares only the region between the common
    beginning and end."""
    old, new = _lines(before), _lines(after)
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    changed_old, changed_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(changed_old), len(changed_new)) > COMPARED_LINES or not (changed_old and changed_new):
        groups = [[("replace", 0, len(changed_old), 0, len(changed_new))]] if changed_old or changed_new else []
    else:
        groups = list(difflib.SequenceMatcher(None, changed_old, changed_new).get_grouped_opcodes(CONTEXT))
    for number, group in enumerate(groups):
        # Context around the compared region comes from the common beginning and end.
        lead = old[max(head - CONTEXT, 0) : head] if number == 0 and group[0][1] == 0 else []
        trail = (
            old[len(old) - tail :][:CONTEXT] if number == len(groups) - 1 and group[-1][2] == len(changed_old) else []
        )
        lead = lead[len(_equal(group[0])) :] if lead else lead
        trail = trail[: max(CONTEXT - len(_equal(group[-1])), 0)]
        start_old, start_new = head + group[0][1] - len(lead), head + group[0][3] - len(lead)
        count_old = group[-1][2] - group[0][1] + len(lead) + len(trail)
        count_new = group[-1][4] - group[0][3] + len(lead) + len(trail)
        yield f"@@ -{start_old + bool(count_old)},{count_old} +{start_new + bool(count_new)},{count_new} @@"
        yield from _marked(" ", lead)
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from _marked(" ", changed_old[a:b])
            else:
                yield from _marked("-", changed_old[a:b])
                yield from _marked("+", changed_new[c:d])
        yield from _marked(" ", trail)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += _OPEN
    else:
        lines.pop()
    return lines


def _marked(mark: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix(_OPEN)
        if line.endswith(_OPEN):
            yield NO_NEWLINE


def _equal(opcode: tuple[str, int, int, int, int]) -> range:
    return range(opcode[2] - opcode[1]) if opcode[0] == "equal" else range(0)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of lines in the common beginning of two lists."""
    for index, (first, second) in enumerate(zip(old, new, strict=False)):
        if first != second:
            return index
    return min(len(old), len(new))


def _snippet(old: str, new: str) -> Iterator[str]:
    """Return the hunks of two texts whose position in the file is unknown."""
    old, new = (text if not text or text.endswith("\n") else f"{text}\n" for text in (old, new))
    for line in _hunks(old, new):
        yield NOWHERE if line.startswith("@@ ") else line


def _reported_lines(hunks: Sequence[Any]) -> Iterator[str]:
    for hunk in hunks:
        lines = hunk.get("lines") if isinstance(hunk, Mapping) else None
        if not isinstance(lines, list):
            continue
        place = [hunk.get(name) for name in ("oldStart", "oldLines", "newStart", "newLines")]
        if all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 1 << 31 for each in place):
            yield "@@ -{},{} +{},{} @@".format(*place)
        else:
            yield NOWHERE
        yield from (
            line.replace("\n", " ") for line in lines if isinstance(line, str) and line[:1] in {"+", "-", " ", "\\"}
        )
