"""How a worktree comes to be watched: its rules read, and watches set on all directories that they leave, while somebody may be at work in it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rametd.git.context import GitContext
from rametd.git.tracking.events import Events
from rametd.git.tracking.rules import Rules, is_rule, read_rules
from rametd.git.tracking.walking import is_below

TRIES: Final = 3
"""How often watches are set before a scan is made without: an agent may change rules, or make directories, faster than that is done."""


@dataclass(frozen=True, slots=True)
class Begun:
    """``files`` that are there, those of ignored directories left out unless they are tracked. ``attributed``: there may be attributes. ``settled``:
    every change from now on is told, and the rules hold."""

    rules: Rules
    files: frozenset[str]
    attributed: bool
    settled: bool


async def begin(git: GitContext, worktree: Path, git_dir: Path, events: Events) -> Begun:
    """Read the rules, watch what they leave, and make sure that they still are the rules: before, nothing told of their changes. Raises
    `OutOfWatchesError`, GitFailedError."""
    rules = await read_rules(git, worktree, git_dir)
    for _ in range(TRIES):
        found = await git.compute(events.begin, rules.ignored.__contains__, rules.kept)
        happened = await events.drain()
        again = await read_rules(git, worktree, git_dir)
        late: set[str] = set()
        # A directory that appeared while watches were set has none, nor has one that was ignored until now.
        for directory in rules.freed(again) | {path for path in happened.appeared if not is_below(path, again.ignored)}:
            more = await git.compute(events.look_into, directory, again.ignored.__contains__)
            late |= more.files
            found.partial |= more.partial
        settled = rules.same_as(again) and not (found.partial or happened.lost or any(map(is_rule, late)))
        rules = again
        if settled:
            break
    files = frozenset(found.files | happened.paths | late | rules.kept)
    inside = next((path for path in files if path.endswith("/.git")), None)
    if inside is not None:
        rules = replace(rules, whole=f"{inside.removesuffix('/.git')} is a repository of its own")
    # What else is in ignored directories is not listed: where something is tracked in them, they may have attributes too.
    listed = any(path.rpartition("/")[2] == ".gitattributes" for path in files)
    attributed = listed or rules.attributed or bool(rules.attributes or rules.kept)
    return Begun(rules, files, attributed, settled)
