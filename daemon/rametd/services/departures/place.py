"""Choose the branch for a restored session: its own, or a new one beside it."""

from dataclasses import dataclass

from rametd.domain.errors import BranchTakenError
from rametd.domain.models import Session
from rametd.git import RepositoryInfo, Snapshot, branch_name
from rametd.services.core import Core
from rametd.store import Reader


@dataclass(frozen=True, slots=True)
class Place:
    """Branch and commit to restore on, and whether to create the branch."""

    branch: str
    commit: str
    new: bool
    warnings: tuple[str, ...] = ()


async def place_of(core: Core, info: RepositoryInfo, session: Session, snapshot: Snapshot, *, archived: bool) -> Place:
    """Choose the session's branch if it has not moved, or has only moved forward and the snapshot has nothing else.

    For an ``archived`` session a deleted branch is worth a warning; removal always deletes it.
    """
    branch = session.branch
    tip = str(snapshot.facts.get("branch") or snapshot.head)
    taken = await core.store.read(lambda reader: _holder(reader, session))
    found = {each.name: each for each in await core.git.branches.list(info)}
    here = found.get(branch)
    why = f"session {taken} has branch {branch}" if taken else ""
    if not why and here is None:
        try:
            await core.git.branches.require_free(info, branch, new=True)
        except BranchTakenError as error:
            why = error.message
        else:
            gone = (f"branch {branch} was deleted; it was created again at {tip[:12]}",)
            return Place(branch, tip, new=True, warnings=gone if archived else ())
    if not why and here is not None:
        if here.worktree is not None:
            why = f"branch {branch} is checked out at {here.worktree}"
        elif here.commit == tip:
            return Place(branch, tip, new=False)
        else:
            ahead, _ = await core.git.branches.ahead_behind(info, tip, here.commit)
            moved = f"branch {branch} has moved on from {tip[:12]} to {here.commit[:12]}"
            if not ahead and await _is_clean(core, info, session, snapshot):
                return Place(branch, here.commit, new=False, warnings=(f"{moved}; the worktree has its current files",))
            why = moved
    taken_names = await core.git.branches.names(info)
    other = branch_name(f"{branch}-restored", fallback=f"ramet/{session.id}", taken=taken_names)
    return Place(other, tip, new=True, warnings=(f"{why}: the work is on {other}",))


async def _is_clean(core: Core, info: RepositoryInfo, session: Session, snapshot: Snapshot) -> bool:
    """Whether the snapshot has nothing beyond its branch."""
    if snapshot.branch != session.branch or snapshot.index or snapshot.facts.get("under_way"):
        return False
    return not snapshot.skipped and not await core.git.snapshots.changed(info, snapshot)


def _holder(reader: Reader, session: Session) -> str:
    """The name of the other session that has the branch; "" for none."""
    others = reader.sessions.list(repo_id=session.repo_id)
    return next((each.name for each in others if each.branch == session.branch and each.id != session.id), "")
