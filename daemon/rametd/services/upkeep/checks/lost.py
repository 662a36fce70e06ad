"""Missing refs that a row needs: how to create them again, and what is lost if that is impossible."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rametd.domain.checkpoints import Checkpoint
from rametd.domain.models import Session
from rametd.services.upkeep.finding import shell
from rametd.services.upkeep.scene import Scene
from rametd.store import Reader


@dataclass(frozen=True, slots=True)
class Lost:
    """``message`` continues the sentence about the ref; ``advice`` has a line for each way out but dropping it."""

    message: str
    advice: str


async def lost(scene: Scene, session: Session, ref: str, name: str) -> Lost:
    """``name`` is the object that the ref pointed to, "" if unknown."""
    name = name or await scene.core.git.snapshots.mark_of(scene.info, session.worktree)
    if name and await scene.core.git.commits.exists(scene.info, name):
        again = shell("git", "-C", scene.info.root, "update-ref", ref, name)
        return Lost(f"is gone; its snapshot, {name[:12]}, is still there", f"create the ref again: {again}")
    rest, instead = await _rest(scene, session, ref)
    return Lost(f"is gone, and so is its snapshot{f', {name[:12]}' if name else ''}: {rest}", instead)


async def _rest(scene: Scene, session: Session, ref: str) -> tuple[str, str]:
    """Say what is lost, and how to get the rest."""
    root = scene.info.root
    found = await _last(scene, session)
    words = "uncommitted changes are lost"
    since = f" from after checkpoint {found.number}" if found is not None else ""
    shelf = scene.core.git.snapshots.shelf_of(session.worktree)
    if await asyncio.to_thread(shelf.is_dir):
        words, since = f"its worktree is still at {shelf}", ""
    if found is None:
        there = session.branch in scene.inventory.tips
        return words + (f"; branch {session.branch} exists" if there else ", and so is its branch"), ""
    instead = shell("git", "-C", root, "update-ref", ref, found.snapshot)
    advice = f"use checkpoint {found.number} instead: {instead}"
    return words + since, advice


async def _last(scene: Scene, session: Session) -> Checkpoint | None:
    """Newest checkpoint, up to the current one, that git still has."""

    def known(reader: Reader) -> Sequence[Checkpoint]:
        stood = reader.checkpoints.current(session)
        return [stood, *reader.checkpoints.list(session.id, before=stood.number)] if stood is not None else []

    for checkpoint in await scene.core.store.read(known):
        if await scene.core.git.commits.exists(scene.info, checkpoint.snapshot):
            return checkpoint
    return None
