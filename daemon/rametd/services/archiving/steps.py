"""Steps that remove and archive share: record, undo, and warn of losses that need no
confirmation."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from ramet.words import plural, size

from rametd.domain.commands import CommandKind
from rametd.domain.errors import RametError, WrongStateError
from rametd.domain.models import BackgroundCommand, Session, WorktreeKind
from rametd.domain.operations import Operation
from rametd.domain.states import State
from rametd.domain.text import first_line
from rametd.git import ARCHIVE, RepositoryInfo
from rametd.services.agents.stopping import end_agent
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.hooks import SessionHooks
from rametd.services.lifecycle import change_state
from rametd.services.operations import unfinished
from rametd.services.views import in_background
from rametd.store import Reader, Unit

SHOWN = 60
"""Characters of a command in a warning."""


async def _warn_of_ended(core: Core, session: Session) -> list[str]:
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


async def _warn_of_ignored(core: Core, session: Session, main: Path) -> list[str]:
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


log = structlog.get_logger()


def refuse_around(reader: Reader, session: Session) -> None:
    """Raise `WrongStateError` if another session's worktree is inside this one: it would be removed
    too."""
    if session.worktree_kind != WorktreeKind.OWN or session.state == State.ARCHIVED:
        return
    for other in reader.sessions.list():
        if other.id != session.id and other.worktree.is_relative_to(session.worktree):
            raise WrongStateError(
                f"{other.name} works in {other.worktree}, inside the worktree of {session.name}, and would lose it",
                hint=f"`rametctl archive {other.reference}` or `rametctl rm {other.reference}` first, then try again",
            )


TREE_REMOVAL = "tree-removal"
"""Step of the operation after which the worktree may be gone."""
TREE = "tree"
"""Key in the operation's data: "1" if the worktree existed at that step."""


async def note_removal(core: Core, operation: Operation, session: Session) -> None:
    """Record that the worktree may be gone from now on."""
    there = "1" if await asyncio.to_thread(session.worktree.exists) else "0"

    def note(unit: Unit) -> None:
        now = unit.operations.get(operation.id)
        if now is not None and now.step != TREE_REMOVAL:
            unit.operations.advance(now.id, TREE_REMOVAL, {TREE: there})

    await core.store.write(note)


async def is_past_undo(core: Core, operation: Operation, session: Session) -> bool:
    """Whether the worktree is gone already, so that the operation cannot be undone."""
    now = await core.store.read(lambda reader: reader.operations.get(operation.id))
    noted = now.data.get(TREE) if now is not None else None
    return noted == "0" or (noted == "1" and not await asyncio.to_thread(session.worktree.exists))


async def wind_down(
    core: Core, hooks: SessionHooks, supervisor: Supervisor, operation: Operation, session: Session
) -> list[str]:
    """End the session's agent, settle its checkpoint, and warn of what is lost; safe to repeat."""
    repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
    warnings = await _warn_of_ended(core, session)
    await end_agent(core, supervisor, session, operation.kind)
    core.failpoint.hit(f"{operation.kind}.agent-ended")
    await hooks.settle_checkpoint(session.id)
    return [*warnings, *await hooks.tree_removal(session), *await _warn_of_ignored(core, session, repo.root)]


def log_warnings(operation: Operation, warnings: Sequence[str]) -> list[str]:
    """Log each warning once, and return them."""
    unique = list(dict.fromkeys(warnings))
    for words in unique:
        log.warning("done with a warning", kind=operation.kind, session=operation.session_id, what=words)
    return unique


@asynccontextmanager
async def recorded_under(
    core: Core, info: RepositoryInfo, operation: Operation, session: Session, ref: str
) -> AsyncIterator[None]:
    """Enclose taking a snapshot under ``ref`` and shelving the worktree; if that fails before the
    worktree moves, delete the new ref."""
    before = (await core.git.refs.below(info, ref)).get(ref)
    try:
        yield
    except RametError:
        if before is None and not await is_past_undo(core, operation, session):
            try:
                if ref in await core.git.refs.below(
                    info, ref
                ):  # do not start a transaction that would fail like the first
                    await core.git.refs.drop(info, ref)
            except RametError as error:
                log.warning("ref not deleted", ref=ref, error=error.message)
        raise


async def undo_or_fail(core: Core, operation: Operation, error: BaseException | None) -> None:
    """Undo a failed removal or archiving. If the worktree is gone already, record on the session
    how to retry."""
    session = await core.store.read(lambda reader: reader.sessions.find(operation.session_id))
    past_undo = session is not None and await is_past_undo(core, operation, session)
    words = error.message if isinstance(error, RametError) else str(error)

    def work(unit: Unit) -> None:
        found = unit.sessions.find(operation.session_id)
        if found is None or not past_undo:
            unit.operations.undo(operation.id)
        elif (failed := unit.operations.fail(operation.id, words)) is not None:
            again = shlex.join(("rametctl", *failed.traits.retry, found.name))
            change_state(
                unit, found, found.state, reason=f"{unfinished(failed)}; retry with `{again}`", hold=found.hold
            )

    await core.store.write_for_sure(work)
    core.live.schedule()


def last_known(reader: Reader, session: Session) -> tuple[str, str]:
    """Commit and snapshot of the current checkpoint; without one, the base commit and ""."""
    stood = reader.checkpoints.current(session)
    return (stood.head, stood.snapshot) if stood is not None else (session.base_commit, "")


def archive_ref(session_id: str) -> str:
    """The ref of an archived session's snapshot."""
    return f"{ARCHIVE}{session_id}"
