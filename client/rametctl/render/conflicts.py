"""Conflicts between sessions, as a matrix and as files with their lines."""

from collections.abc import Iterator, Mapping, Sequence

from ramet.jsonify import enum_name
from ramet.v1.worktree_pb2 import Conflict, FileConflict, LineRange, ListConflictsResponse, WatchConflictsResponse
from ramet.words import plural

from rametctl.console.lines import Line, Span, line
from rametctl.console.output import Output

SHOWN_FILES = 10
WORDS = {
    "same_file": "same file, other lines",
    "overlap": "same lines",
    "delete_edit": "one deletes, one changes",
    "rename": "renames clash",
    "binary": "both change a binary file",
    "submodule": "both move a submodule",
    "add_add": "both add it",
}


def conflict_lines(
    output: "Output",
    answer: "ListConflictsResponse | WatchConflictsResponse",
    names: Mapping[str, str],
    *,
    every_pair: bool = True,
    matrix: bool = False,
) -> Sequence[Line]:
    """Pairs with conflicts first, then the order of landing and the matrix. ``names`` are those of
    the sessions compared.

    Without ``every_pair`` the answer has only pairs of some sessions, and a matrix would show the
    others as clean.
    """
    lines = list(_lines(answer, names, every_pair))
    return [*lines, *_matrix(output, answer.conflicts, names)] if matrix and len(names) > 1 else lines


def _lines(
    answer: "ListConflictsResponse | WatchConflictsResponse",
    names: Mapping[str, str],
    every_pair: bool,
) -> Iterator[Line]:
    found = [each for each in answer.conflicts if enum_name(each, "kind") != "clean"]
    pairs = sorted(found, key=lambda each: not each.red)
    if not names:
        yield line("no sessions to compare")
        return
    red = [each for each in pairs if each.red]
    for each in pairs:
        yield from _pair_lines(each)
    if not red and not every_pair:
        yield line(("no conflicts", "green"))
    elif not red:
        what = f"all {len(names)} sessions merge" if len(names) > 1 else f"{next(iter(names.values()))} merges"
        yield line((what, "green"), " with each other and with their base" if len(names) > 1 else " with its base")
    elif len(answer.landing_order) > 1:
        order = " → ".join(names.get(each, each) for each in answer.landing_order)
        met = answer.order_conflicts
        yield line(("best order to land: ", "dim"), order, (f"  ({_times(met)})", "dim"))


def _times(met: int) -> str:
    return "meets no conflict" if not met else f"meets {plural(met, 'conflict')}"


def _matrix(output: "Output", pairs: Sequence["Conflict"], names: Mapping[str, str]) -> list[Line]:
    found = {frozenset((each.session_id, each.other_id)): each for each in pairs}
    headers = ["", *(str(number) for number in range(1, len(names) + 1)), "BASE"]
    rows: list[list[Span]] = []
    for number, (one, name) in enumerate(names.items(), 1):
        cells = [_mark(found.get(frozenset((one, other)))) if other != one else ("", "dim") for other in names]
        rows.append([(f"{number} {name}", "bold"), *cells, _mark(found.get(frozenset((one, ""))))])
    return output.table(headers, rows, shrink=[("", 10)])


def _mark(pair: "Conflict | None") -> Span:
    if pair is None or enum_name(pair, "kind") == "clean":
        return (".", "dim")
    return ("X", "bold red") if pair.red else ("s", "yellow")


def _pair_lines(pair: "Conflict") -> Iterator[Line]:
    style = "bold red" if pair.red else "yellow"
    other = pair.other_name if pair.other_id else f"its base {pair.other_name}"
    verdict = "will not merge" if pair.red else "merge, though they change the same files"
    yield line((pair.session_name, "bold"), " and ", (other, "bold"), " ", (verdict, style))
    for each in pair.files[:SHOWN_FILES]:
        yield _file_line(each)
    if len(pair.files) > SHOWN_FILES:
        yield line((f"… and {plural(len(pair.files) - SHOWN_FILES, 'more file')}", "dim"), indent=2)


def _file_line(each: "FileConflict") -> Line:
    where = ""
    if each.lines:
        where = f": {spans(each.lines)} and {spans(each.other_lines)}"
    path = each.path + (f" / {each.other_path}" if each.other_path else "")
    kind = enum_name(each, "kind") or ""
    return line(path, (f"  {WORDS.get(kind, kind)}{where}", "dim"), indent=2)


def spans(ranges: Sequence["LineRange"]) -> str:
    """Return ranges of lines as ``line 3`` or ``lines 3, 7-9``."""
    one = len(ranges) == 1 and ranges[0].end <= ranges[0].start
    return ("line " if one else "lines ") + ", ".join(
        str(each.start) if each.end <= each.start else f"{each.start}-{each.end}" for each in ranges
    )
