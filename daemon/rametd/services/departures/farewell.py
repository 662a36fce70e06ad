"""What nobody is asked about when a session goes, and is told of therefore: commands that run in its worktree, a turn, files that git ignores."""

import asyncio
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ramet.words import plural, size

from rametd.domain.commands import CommandKind
from rametd.domain.errors import RametError
from rametd.domain.models import BackgroundCommand, Session, WorktreeKind
from rametd.domain.states import State
from rametd.services.core import Core
from rametd.services.views import in_background
from rametd.services.words import first_line

SHOWN = 60
"""Characters of a command."""


async def what_ends(core: Core, session: Session) -> list[str]:
    """The turn and the commands that its end cuts short, in words."""
    living, background = await core.store.read(
        lambda reader: (reader.commands.living(session.id), in_background(reader, session.id))
    )
    told = [
        f"`{first_line(shlex.join(command.argv), SHOWN)}` ran in it, and is ended"
        for command in living
        if command.kind == CommandKind.RUN
    ]
    told += [ends_with_agent(command) for command in background]
    if session.state in {State.WORKING, State.WAITING}:
        told.insert(0, "its agent was in the middle of a turn, and is ended")
    return told


def ends_with_agent(command: BackgroundCommand) -> str:
    return f"`{first_line(command.description, SHOWN)}` ran in the background of its agent, and is ended"


async def what_is_ignored(core: Core, session: Session, main: Path) -> list[str]:
    """How many files go with the worktree of which git keeps nothing, in words. Those that were carried from ``main``, the main worktree, and are as they
    are there do not count."""
    tree = session.worktree
    if session.worktree_kind != WorktreeKind.OWN:
        return []
    try:
        await core.git.worktrees.verify(tree, None)
        places = await core.git.worktrees.ignored_files(tree)
    except RametError:  # no worktree any more: git does not say what it would ignore there
        return []
    files, taken = await asyncio.to_thread(_count, tree, places, main)
    if not files:
        return []
    keeps = "git keeps nothing of it" if files == 1 else "git keeps nothing of them"
    return [f"{plural(files, 'ignored file')} ({size(taken)}) {'goes' if files == 1 else 'go'} with it: {keeps}"]


def _count(tree: Path, places: Sequence[str], main: Path) -> tuple[int, int]:
    files = taken = 0
    for place in places:
        for path in _files_of(tree, place):
            here = _stat(tree / path)
            there = _stat(main / path)
            if here is not None and here != there:
                files, taken = files + 1, taken + here[0]
    return files, taken


def _files_of(tree: Path, place: str) -> Iterator[str]:
    if not place.endswith("/"):
        yield place
        return
    for folder, _, names in os.walk(tree / place):
        inside = Path(folder).relative_to(tree)
        yield from (f"{inside}/{name}" for name in names)


def _stat(path: Path) -> tuple[int, int] | None:
    """Size and time of a file; None of a link, which leads to what stays, and where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return None if path.is_symlink() else (status.st_size, status.st_mtime_ns)
