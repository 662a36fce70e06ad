"""Results of gc: a table for each repository, and a summary line."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ramet.v1.worktree_pb2 import CollectGarbageResponse, Garbage
from ramet.words import plural, size

from rametctl.console.lines import Line, line
from rametctl.console.output import Output

KINDS = ("session", "worktree", "branch", "ref", "agent")
"""Kinds, in display order."""


def listing(output: "Output", answer: "CollectGarbageResponse", again: str) -> list[Line]:
    """Return the result of a dry run; ``again`` is the command that removes the items."""
    removable = [item for item in answer.items if item.verdict != "kept"]
    if not removable:
        return [*_tables(output, answer.items), line("nothing to clear")]
    what = [f"{_deeds(items, 'move', 'delete')}{_in(repo)}" for repo, items in _by_repo(removable)]
    room = f"; that frees {size(answer.bytes)}" if answer.bytes else ""
    return [*_tables(output, answer.items), line((again, "bold"), f" would {', '.join(what)}{room}", hang=2)]


def done(output: "Output", answer: "CollectGarbageResponse") -> list[Line]:
    """Return the result of a clean-up."""
    gone = [item for item in answer.items if item.removed]
    if not gone:
        return [*_tables(output, answer.items), line("nothing was removed")]
    what = [f"{_deeds(items, 'moved', 'deleted')}{_in(repo)}" for repo, items in _by_repo(gone)]
    room = f"; {size(answer.bytes)} freed" if answer.bytes else ""
    lines = [*_tables(output, answer.items), line(", ".join(what) + room, hang=2)]
    if any(item.kind == "session" for item in gone):
        lines.append(line("to bring a session back: rametctl restore NAME"))
    return lines


def _by_repo(items: Iterable["Garbage"]) -> list[tuple[str, list["Garbage"]]]:
    """Group by repository's name; items without one come last."""
    found: dict[str, list[Garbage]] = {}
    for item in items:
        found.setdefault(item.repo, []).append(item)
    return sorted(found.items(), key=lambda each: (not each[0], each[0]))


def _tables(output: "Output", items: Sequence["Garbage"]) -> list[Line]:
    lines: list[Line] = []
    for repo, of_it in _by_repo(items):
        lines += [line((repo or "in no repository", "bold")), *_table(output, of_it), line("")]
    return lines


def _table(output: "Output", items: Iterable["Garbage"]) -> list[Line]:
    """Order: removable items first."""
    return output.table(
        ["WHAT", "NAME", "VERDICT", "SIZE", "WHY"],
        [
            [
                (item.kind, "dim"),
                (item.name, "bold"),
                ("removed" if item.removed else item.verdict, "dim" if item.verdict == "kept" else "yellow"),
                (size(item.bytes), ""),
                (item.reason, "dim"),
            ]
            for item in sorted(items, key=lambda item: (item.verdict == "kept", item.kind, item.name))
        ],
        shrink=[("WHY", 20), ("NAME", 20), ("WHY", 10), ("NAME", 8)],
        right=frozenset({"SIZE"}),
    )


def _deeds(items: Iterable["Garbage"], move: str, delete: str) -> str:
    """Describe what happens to items, as in "move 2 sessions to the trash and delete 1 branch"."""
    counts = Counter(item.kind for item in items)
    deeds = [f"{move} {plural(counts['session'], 'session')} to the trash"] if counts["session"] else []
    others = sorted(counts.keys() - {"session"}, key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS))
    if others:
        deeds.append(f"{delete} {_and([_counted(counts[kind], kind) for kind in others])}")
    return _and(deeds)


def _counted(count: int, kind: str) -> str:
    return plural(count, "agent directory" if kind == "agent" else kind)


def _and(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _in(repo: str) -> str:
    return f" in {repo}" if repo else ""
