"""What was kept of a session and git does not have all of any more: said before something relies on it, and left aside where it is to go on without."""

import asyncio
import shlex
from collections.abc import Sequence

from rametd.domain.checkpoints import Checkpoint
from rametd.domain.errors import RefNotFoundError, WorkAtRiskError
from rametd.domain.models import Session
from rametd.git import RepositoryInfo, Snapshot
from rametd.services.core import Core
from rametd.services.departures.clearing import archive_ref
from rametd.store import Reader

LOOKED_AT = 20
"""Checkpoints, the newest first, among which one is looked for that is whole, where the one that a session stood at is not."""


async def lost_checkpoint(core: Core, info: RepositoryInfo, session: Session) -> str:
    """What is missing of the checkpoint that a session stood at, in words; "" where nothing is."""
    stood = await core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None or not (lost := await core.git.snapshots.lost(info, stood.snapshot)):
        return ""
    return f"checkpoint {stood.number}, at which {session.name} stood, is not whole: {_words(lost)}"


async def lost_archive(core: Core, info: RepositoryInfo, session: Session) -> str:
    """What is missing of what an archived session was kept in, in words; "" where nothing is, or its ref is gone as a whole."""
    commit = (await core.git.refs.below(info, archive_ref(session.id))).get(archive_ref(session.id))
    if commit is None or not (lost := await core.git.snapshots.lost(info, commit)):
        return ""
    return f"what was kept of {session.name} is not whole: {_words(lost)}"


async def archived_as(core: Core, info: RepositoryInfo, session: Session) -> str:
    """The snapshot of an archived session; "" where nothing knows it."""
    known = session.archive_commit or await core.git.refs.last_target(info, archive_ref(session.id))
    return known or await core.git.snapshots.mark_of(info, session.worktree)


async def ref_gone(core: Core, info: RepositoryInfo, session: Session, ref: str, commit: str) -> RefNotFoundError:
    """Why a session does not come back; ``commit`` is the object that the ref kept, "" where nothing knows it."""
    message = f"{ref}, which kept the work of {session.name}, is gone"
    if commit and await core.git.commits.exists(info, commit):
        again = shlex.join(("git", "-C", str(info.root), "update-ref", ref, commit))
        return RefNotFoundError(
            f"{message}; its snapshot, {commit[:12]}, is still there", hint=f"keep it again, then try again: {again}"
        )
    return RefNotFoundError(message, hint="`rametctl doctor` says what is left of it and how to have that")


def not_whole(words: str) -> WorkAtRiskError:
    """Why a session is not removed."""
    return WorkAtRiskError(
        f"{words}, so that nobody can say what would be lost",
        hint="bring it back (`git fsck` tells more), or add --force: what there is goes to the trash",
    )


async def last_whole(core: Core, info: RepositoryInfo, session: Session) -> tuple[Snapshot | None, list[str]]:
    """What stands in for files that a person has deleted: the newest whole snapshot up to the one that the session stood at, else where it began; and what
    is to be told of those that are not whole."""
    there = await asyncio.to_thread(session.worktree.exists)
    words = "" if there else await lost_checkpoint(core, info, session)

    def known(reader: Reader) -> Sequence[Checkpoint]:
        stood = reader.checkpoints.current(session)
        if stood is None:
            return ()
        return [stood, *reader.checkpoints.list(session.id, before=stood.number, limit=LOOKED_AT)]

    for tried, each in enumerate(await core.store.read(known)):
        snapshot = await core.git.snapshots.read(info, each.snapshot)
        if snapshot is not None and (there or not await core.git.snapshots.lost(info, each.snapshot)):
            told = [f"{words}; the files of checkpoint {each.number} are kept instead"] if tried and words else []
            return snapshot, told
    told = [f"{words}; none of its files are kept"] if words else []
    if not await core.git.commits.exists(info, session.base_commit):
        return None, told
    return await core.git.snapshots.of_commit(info, session.base_commit, session.branch), told


def _words(lost: Sequence[str]) -> str:
    more = f" and {len(lost) - 1} others" if len(lost) > 1 else ""
    return f"git has {lost[0][:12] if lost[0].isalnum() else lost[0]}{more} no more"
