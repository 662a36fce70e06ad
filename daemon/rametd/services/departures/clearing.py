"""Steps that remove and archive share."""

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
    """Raise `WrongStateError` if the worktree of another session is inside this one: it would be removed too."""
    if session.worktree_kind != WorktreeKind.OWN or session.state == State.ARCHIVED:
        return
    for other in reader.sessions.list():
        if other.id != session.id and other.worktree.is_relative_to(session.worktree):
            raise WrongStateError(
                f"{other.name} works in {other.worktree}, inside the worktree of {session.name}, and would lose it",
                hint=f"`rametctl archive {other.name}` or `rametctl rm {other.name}` first, then try again",
            )


TREE_GOES = "tree-goes"
"""Step of the operation after which the worktree may be gone."""
TREE = "tree"
"""Key in the operation's data: "1" if the worktree existed at that step."""


async def tree_goes(core: Core, operation: Operation, session: Session) -> None:
    """Record that the worktree may be gone from now on."""
    there = "1" if await asyncio.to_thread(session.worktree.exists) else "0"

    def note(unit: Unit) -> None:
        now = unit.operations.get(operation.id)
        if now is not None and now.step != TREE_GOES:
            unit.operations.advance(now.id, TREE_GOES, {TREE: there})

    await core.store.write(note)


async def is_touched(core: Core, operation: Operation, session: Session) -> bool:
    """Whether the worktree is gone already, so that the operation cannot be undone."""
    now = await core.store.read(lambda reader: reader.operations.get(operation.id))
    noted = now.data.get(TREE) if now is not None else None
    return noted == "0" or (noted == "1" and not await asyncio.to_thread(session.worktree.exists))


@asynccontextmanager
async def recorded_under(
    core: Core, info: RepositoryInfo, operation: Operation, session: Session, ref: str
) -> AsyncIterator[None]:
    """Around taking a snapshot under ``ref`` and shelving the worktree: if that fails early, delete the new ref."""
    before = (await core.git.refs.below(info, ref)).get(ref)
    try:
        yield
    except RametError:
        if before is None and not await is_touched(core, operation, session):
            try:
                if ref in await core.git.refs.below(
                    info, ref
                ):  # do not start a transaction that would fail like the first
                    await core.git.refs.drop(info, ref)
            except RametError as error:
                log.warning("ref not deleted", ref=ref, error=error.message)
        raise


async def give_up(core: Core, operation: Operation, error: BaseException | None) -> None:
    """Undo a failed removal or archiving. If the worktree is gone already, record on the session how to retry."""
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
                unit, found, found.state, reason=f"{unfinished(failed)}; retry with `{again}`", hold=found.hold
            )

    await write_for_sure(core.store, work)
    core.live.schedule()


def last_known(reader: Reader, session: Session) -> tuple[str, str]:
    """Commit and snapshot of the current checkpoint; without one, the base commit and ""."""
    stood = reader.checkpoints.current(session)
    return (stood.head, stood.snapshot) if stood is not None else (session.base_commit, "")


def archive_ref(session_id: str) -> str:
    """The ref of an archived session's snapshot."""
    return f"{ARCHIVE}{session_id}"
