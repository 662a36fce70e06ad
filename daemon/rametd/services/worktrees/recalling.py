"""Checkpoints whose rows went with a damaged database, entered again from their refs.

A snapshot notes what only the row would know (`facts`).
"""

from collections.abc import Mapping
from itertools import pairwise

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import GitFailedError, RefNotFoundError
from rametd.domain.models import Session
from rametd.git import CHECKPOINTS, FileChange, Numbered, RepositoryInfo
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.store import Unit


def facts(
    reason: CheckpointReason, turn: int, conversation_id: str, message_id: str, summary: str, parent: int
) -> Mapping[str, str | int]:
    """What a checkpoint's snapshot notes."""
    return {
        "reason": reason,
        "turn": turn,
        "conversation": conversation_id,
        "message": message_id,
        "asked": summary,
        "parent": parent,
    }


async def recall(core: Core, session: Session) -> Checkpoint | None:
    """Enter what a session without any checkpoint has refs of; the latest. None where it has none.

    The first one's ref may also be of a daemon that was killed before it wrote the row: that is the same checkpoint, and is entered too.
    """
    repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
    info = await info_of(core, repo)
    kept = await core.git.snapshots.below(info, f"{CHECKPOINTS}{session.id}")
    if not kept:
        return None
    changes = [await changed_since(core, info, session, None, kept[0].snapshot.files)]
    for before, after in pairwise(kept):
        changes.append(await changed_since(core, info, session, before.snapshot.files, after.snapshot.files))
    rows = [
        _row(
            session,
            each,
            files=len(files),
            additions=sum(file.additions for file in files),
            deletions=sum(file.deletions for file in files),
        )
        for each, files in zip(kept, changes, strict=True)
    ]

    def enter(unit: Unit) -> Checkpoint | None:
        now = unit.sessions.find(session.id)
        if now is not None and unit.checkpoints.latest(session.id) is None:
            for row in rows:
                unit.checkpoints.add(row)
            # The agent's journal is read again from its beginning: what it tells of these turns is kept already.
            kept_turns = max((row.turn for row in rows if row.reason == CheckpointReason.TURN), default=0)
            turns = max(kept_turns, now.checkpointed_turns)
            unit.sessions.update(session.id, checkpoint=rows[-1].number, checkpointed_turns=turns)
        return unit.checkpoints.latest(session.id)

    return await write_for_sure(core.store, enter)


async def changed_since(
    core: Core, info: RepositoryInfo, session: Session, before: str | None, tree: str
) -> tuple[FileChange, ...]:
    """What a checkpoint tells as changed: since the tree of the one ``before``, or, of the first, since what its session started from."""
    if before == tree:
        return ()
    try:
        return (await core.git.diffs.between(info, before or session.base_commit, tree, patch=False)).files
    except (RefNotFoundError, GitFailedError):
        # A history that was rewritten and collected, or that a loss of power has taken: the files are kept all the same.
        return ()


def _row(session: Session, found: Numbered, *, files: int, additions: int, deletions: int) -> Checkpoint:
    known = found.snapshot.facts
    reason = known.get("reason", "")
    return Checkpoint(
        id=new_id(),
        session_id=session.id,
        number=found.number,
        reason=CheckpointReason(reason) if reason in set(CheckpointReason) else CheckpointReason.MANUAL,
        turn=known.get("turn", 0),
        snapshot=found.snapshot.id,
        tree=found.snapshot.files,
        head=found.snapshot.head,
        ref=found.ref,
        create_time=found.snapshot.time,
        summary=known.get("asked", ""),
        files=files,
        additions=additions,
        deletions=deletions,
        conversation_id=known.get("conversation", session.conversation_id),
        message_id=known.get("message", ""),
        parent=known.get("parent", found.number - 1),
    )
