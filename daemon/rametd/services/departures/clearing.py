"""Removing and archiving a session: what they have in common."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from rametd.domain.errors import RametError, WrongStateError
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.operations import Operation
from rametd.domain.states import State
from rametd.git import ARCHIVE, RepositoryInfo
from rametd.services.core import Core
from rametd.services.lifecycle import change_state
from rametd.services.operations.busy import unfinished
from rametd.services.persistence import write_for_sure
from rametd.store import Reader, Unit

log = structlog.get_logger()


def refuse_around(reader: Reader, session: Session) -> None:
    """Raises `WrongStateError` while another session works inside the worktree that would go: its own would go with it, under its agent."""
    if session.worktree_kind != WorktreeKind.OWN or session.state == State.ARCHIVED:
        return
    for other in reader.sessions.list():
        if other.id != session.id and other.worktree.is_relative_to(session.worktree):
            raise WrongStateError(
                f"{other.name} works in {other.worktree}, inside the worktree of {session.name}, and would lose it",
                hint=f"`rametctl archive {other.name}` or `rametctl rm {other.name}` first, then try again",
            )


TREE_GOES = "tree-goes"
"""The step from which on the worktree may be gone."""
TREE = "tree"
"""In the operation's data: "1" where the worktree was there at that step."""


async def tree_goes(core: Core, operation: Operation, session: Session) -> None:
    """Store that the worktree may be gone from here on."""
    there = "1" if await asyncio.to_thread(session.worktree.exists) else "0"

    def note(unit: Unit) -> None:
        now = unit.operations.get(operation.id)
        if now is not None and now.step != TREE_GOES:
            unit.operations.advance(now.id, TREE_GOES, {TREE: there})

    await core.store.write(note)


async def is_touched(core: Core, operation: Operation, session: Session) -> bool:
    """Whether something was removed already, so that there is no way back."""
    now = await core.store.read(lambda reader: reader.operations.get(operation.id))
    noted = now.data.get(TREE) if now is not None else None
    return noted == "0" or (noted == "1" and not await asyncio.to_thread(session.worktree.exists))


@asynccontextmanager
async def recorded_under(
    core: Core, info: RepositoryInfo, operation: Operation, session: Session, ref: str
) -> AsyncIterator[None]:
    """Inside, a snapshot is taken under ``ref`` and the worktree is shelved. What fails before that leaves no ref that was not there."""
    before = (await core.git.refs.below(info, ref)).get(ref)
    try:
        yield
    except RametError:
        if before is None and not await is_touched(core, operation, session):
            try:
                if ref in await core.git.refs.below(info, ref):  # else whatever held us up would do so again
                    await core.git.refs.drop(info, ref)
            except RametError as error:
                log.warning("ref stays", ref=ref, error=error.message)
        raise


async def give_up(core: Core, operation: Operation, error: BaseException | None) -> None:
    """Undo a removal or an archiving that failed, while the session is whole; else say on the session what waits to be tried again."""
    session = await core.store.read(lambda reader: reader.sessions.find(operation.session_id))
    touched = session is not None and await is_touched(core, operation, session)
    words = error.message if isinstance(error, RametError) else str(error)

    def work(unit: Unit) -> None:
        found = unit.sessions.find(operation.session_id)
        if found is None or not touched:
            unit.operations.undo(operation.id)
        elif (failed := unit.operations.fail(operation.id, words)) is not None:
            again = shlex.join(("rametctl", *failed.traits.retry, found.name))
            change_state(
                unit, found, found.state, reason=f"{unfinished(failed)}; `{again}` tries again", hold=found.hold
            )

    await write_for_sure(core.store, work)
    core.live.schedule()


def last_known(reader: Reader, session: Session) -> tuple[str, str]:
    """The commit and the snapshot of the checkpoint that the session stood at; where it began, and "", without one."""
    stood = reader.checkpoints.current(session)
    return (stood.head, stood.snapshot) if stood is not None else (session.base_commit, "")


def archive_ref(session_id: str) -> str:
    """The ref of an archived session's snapshot."""
    return f"{ARCHIVE}{session_id}"
