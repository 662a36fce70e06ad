"""Refs that are gone though a row counts on what they kept: how they are made again, and what is lost where that cannot be."""

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
    """``message`` follows on what the ref kept; ``advice`` is a line for each way out but giving it up."""

    message: str
    advice: str


async def lost(scene: Scene, session: Session, ref: str, name: str) -> Lost:
    """``name`` is the object that the ref kept, "" where nothing knows it."""
    name = name or await scene.core.git.snapshots.mark_of(scene.info, session.worktree)
    if name and await scene.core.git.commits.exists(scene.info, name):
        again = shell("git", "-C", scene.info.root, "update-ref", ref, name)
        return Lost(f"is gone; its snapshot, {name[:12]}, is still there", f"create the ref again: {again}")
    rest, instead = await _rest(scene, session, ref)
    return Lost(f"is gone, and so is its snapshot{f', {name[:12]}' if name else ''}: {rest}", instead)


async def _rest(scene: Scene, session: Session, ref: str) -> tuple[str, str]:
    """What is lost, and how to have what is not."""
    root = scene.info.root
    found = await _last(scene, session)
    words = "what was not committed is lost"
    since = f" as far as it was changed after checkpoint {found.number}" if found is not None else ""
    shelf = scene.core.git.snapshots.shelf_of(session.worktree)
    if await asyncio.to_thread(shelf.is_dir):
        words, since = f"its worktree is still at {shelf}", ""
    if found is None:
        there = session.branch in scene.inventory.tips
        return words + (f"; branch {session.branch} is there" if there else ", and so is its branch"), ""
    instead = shell("git", "-C", root, "update-ref", ref, found.snapshot)
    advice = f"have the files of checkpoint {found.number} instead: {instead}"
    return words + since, advice


async def _last(scene: Scene, session: Session) -> Checkpoint | None:
    """Of the checkpoint that it stood at, and those before it, the newest that git has."""

    def known(reader: Reader) -> Sequence[Checkpoint]:
        stood = reader.checkpoints.current(session)
        return [stood, *reader.checkpoints.list(session.id, before=stood.number)] if stood is not None else []

    for checkpoint in await scene.core.store.read(known):
        if await scene.core.git.commits.exists(scene.info, checkpoint.snapshot):
            return checkpoint
    return None
