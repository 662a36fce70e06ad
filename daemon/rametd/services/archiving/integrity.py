"""Integrity of archives and checkpoints: check that git still has all their objects before an
operation relies on them."""

import asyncio
import shlex
from collections.abc import Sequence

from rametd.domain.checkpoints import Checkpoint
from rametd.domain.errors import RefNotFoundError, WorkAtRiskError
from rametd.domain.models import Session
from rametd.git import RepositoryInfo, Snapshot
from rametd.services.archiving.steps import archive_ref
from rametd.services.core import Core
from rametd.store import Reader

CHECKPOINTS_TRIED = 20
"""How many checkpoints, newest first, to try when the current one is damaged."""


async def lost_checkpoint(core: Core, info: RepositoryInfo, session: Session) -> str:
    """Describe the objects that git has lost of the session's current checkpoint; "" if it is
    intact."""
    stood = await core.store.read(lambda reader: reader.checkpoints.current(session))
    if stood is None or not (lost := await core.git.snapshots.lost(info, stood.snapshot)):
        return ""
    return f"checkpoint {stood.number}, the last one of {session.name}, is damaged: {_words(lost)}"


async def lost_archive(core: Core, info: RepositoryInfo, session: Session) -> str:
    """Describe the objects that git has lost of a session's archive; "" if it is intact or its ref
    is gone."""
    commit = (await core.git.refs.below(info, archive_ref(session.id))).get(archive_ref(session.id))
    if commit is None or not (lost := await core.git.snapshots.lost(info, commit)):
        return ""
    return f"the archive of {session.name} is damaged: {_words(lost)}"


async def archived_as(core: Core, info: RepositoryInfo, session: Session) -> str:
    """Id of the snapshot of an archived session; "" if unknown."""
    known = session.archive_commit or await core.git.refs.last_target(info, archive_ref(session.id))
    return known or await core.git.snapshots.mark_of(info, session.worktree)


async def ref_gone(core: Core, info: RepositoryInfo, session: Session, ref: str, commit: str) -> RefNotFoundError:
    """Error for a lost ref of an archive. ``commit`` is the object it pointed to, "" if unknown."""
    message = f"{ref} with the work of {session.name} is gone"
    if commit and await core.git.commits.exists(info, commit):
        again = shlex.join(("git", "-C", str(info.root), "update-ref", ref, commit))
        return RefNotFoundError(
            f"{message}; its snapshot, {commit[:12]}, is still there", hint=f"create the ref again, then retry: {again}"
        )
    return RefNotFoundError(message, hint="`rametctl doctor` lists what is left and how to get it")


def damaged(words: str) -> WorkAtRiskError:
    """Refuse to remove a session with a damaged snapshot."""
    return WorkAtRiskError(
        f"{words}, so it is unknown what would be lost",
        hint="repair the repository (`git fsck` lists what is missing), or add --force to move what is left to the trash",
    )


async def last_intact(core: Core, info: RepositoryInfo, session: Session) -> tuple[Snapshot | None, list[str]]:
    """Find the snapshot to use for deleted files, and warnings about damaged ones.

    It is the newest intact checkpoint, else the commit that the session started from.
    """
    there = await asyncio.to_thread(session.worktree.exists)
    words = "" if there else await lost_checkpoint(core, info, session)

    def known(reader: Reader) -> Sequence[Checkpoint]:
        stood = reader.checkpoints.current(session)
        if stood is None:
            return ()
        return [stood, *reader.checkpoints.list(session.id, before=stood.number, limit=CHECKPOINTS_TRIED)]

    for tried, each in enumerate(await core.store.read(known)):
        snapshot = await core.git.snapshots.read(info, each.snapshot)
        if snapshot is not None and (there or not await core.git.snapshots.lost(info, each.snapshot)):
            warnings = [f"{words}; checkpoint {each.number} is used instead"] if tried and words else []
            return snapshot, warnings
    warnings = [f"{words}; its files are lost"] if words else []
    if not await core.git.commits.exists(info, session.base_commit):
        return None, warnings
    return await core.git.snapshots.of_commit(info, session.base_commit, session.branch), warnings


def _words(lost: Sequence[str]) -> str:
    more = f" and {len(lost) - 1} others" if len(lost) > 1 else ""
    return f"git no longer has {lost[0][:12] if lost[0].isalnum() else lost[0]}{more}"
