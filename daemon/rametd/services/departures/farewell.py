"""Warnings for losses that archive and remove do not ask about: running commands, a running turn, ignored files."""

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
    """Warn of the running turn and commands that end with the session."""
    living, background = await core.store.read(
        lambda reader: (reader.commands.living(session.id), in_background(reader, session.id))
    )
    warnings = [
        f"ended `{first_line(shlex.join(command.argv), SHOWN)}`, which ran in its worktree"
        for command in living
        if command.kind == CommandKind.RUN
    ]
    warnings += [ends_with_agent(command) for command in background]
    if session.state in {State.WORKING, State.WAITING}:
        warnings.insert(0, "ended its agent in the middle of a turn")
    return warnings


def ends_with_agent(command: BackgroundCommand) -> str:
    return f"ended `{first_line(command.description, SHOWN)}`, which ran in the background of its agent"


async def what_is_ignored(core: Core, session: Session, main: Path) -> list[str]:
    """Warn of the ignored files that are deleted with the worktree.

    Unchanged copies of files in ``main``, the main worktree, do not count.
    """
    tree = session.worktree
    if session.worktree_kind != WorktreeKind.OWN:
        return []
    try:
        await core.git.worktrees.verify(tree, None)
        places = await core.git.worktrees.ignored_files(tree)
    except RametError:  # no worktree, so git cannot list its ignored files
        return []
    files, taken = await asyncio.to_thread(_count, tree, places, main)
    if not files:
        return []
    return [f"deleted {plural(files, 'ignored file')} ({size(taken)}), which cannot be restored"]


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
    """Size and time of a file; None for a link, whose target stays, and for a missing file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return None if path.is_symlink() else (status.st_size, status.st_mtime_ns)
