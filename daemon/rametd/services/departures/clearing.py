"""What removing and archiving a session have in common: its agent and all it started end, and only then its worktree goes."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from rametd.domain.errors import RametError, WorkAtRiskError, WrongStateError
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.operations import Operation
from rametd.domain.states import State
from rametd.git.repository import RepositoryInfo
from rametd.git.trash import ARCHIVE, TrashRecord
from rametd.platform.disk import tree_bytes
from rametd.services.core import Core
from rametd.services.lifecycle import change_state
from rametd.services.operations.busy import unfinished
from rametd.services.persistence import write_for_sure
from rametd.services.worktrees.places import next_git_dirs_aside
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
async def kept_under(
    core: Core, info: RepositoryInfo, operation: Operation, session: Session, ref: str
) -> AsyncIterator[None]:
    """Inside, the work is kept under ``ref`` and the tree goes. What fails before the tree went leaves no ref that was not there."""
    before = (await core.git.refs_below(info, ref)).get(ref)
    try:
        yield
    except RametError:
        if before is None and not await is_touched(core, operation, session):
            try:
                if ref in await core.git.refs_below(info, ref):  # else whatever held us up would do so again
                    await core.git.drop_ref(info, ref)
            except RametError as error:
                log.warning("ref stays", ref=ref, error=error.message)
        raise


async def keep_git_dirs(core: Core, session: Session, record: TrashRecord | None) -> int:
    """Of repositories inside, what no commit can hold: kept as it is, beside the worktree, before that goes. The bytes that it takes."""
    if record is None or not record.git_dirs:
        return 0
    folder = await asyncio.to_thread(next_git_dirs_aside, session.worktree, record.tree)
    await core.git.keep_git_dirs(record.git_dirs, folder)
    return await asyncio.to_thread(tree_bytes, folder)


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
    core.wake()


def unread_error(session: Session, unread: Sequence[str], hint: str) -> WorkAtRiskError:
    """Why a tree stays: what git cannot read it cannot keep."""
    return WorkAtRiskError(
        f"{session.name} has what git cannot keep, so that it would be lost: {'; '.join(unread)}",
        hint=f"make it readable (mend the filter), move it away or have git ignore it, then try again{hint}",
        unread="\n".join(unread),
    )


async def is_first(core: Core, operation: Operation) -> bool:
    """Whether the worktree cannot be gone by this operation, so that what its ref keeps is of an earlier one."""
    now = await core.store.read(lambda reader: reader.operations.get(operation.id))
    return now is None or now.step != TREE_GOES


def last_known(reader: Reader, session: Session) -> tuple[str, str]:
    """Commits that stand in for branch and files where somebody has deleted both: of the checkpoint that the session stood at, or where it began."""
    stood = reader.checkpoints.current(session)
    return (stood.head, stood.snapshot) if stood is not None else (session.base_commit, session.base_commit)


def archive_ref(session_id: str) -> str:
    """The ref that keeps what an archived session had."""
    return f"{ARCHIVE}{session_id}"
