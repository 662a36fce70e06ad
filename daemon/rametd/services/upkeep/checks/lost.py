"""Refs that are gone though a row counts on what they kept: how they are made again, and what is lost where that cannot be."""

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


async def lost(scene: Scene, session: Session, ref: str, commit: str) -> Lost:
    """``commit`` is what the ref kept, "" where nothing knows it."""
    root = scene.info.root
    if commit and await scene.core.git.has_object(scene.info, commit):
        again = shell("git", "-C", root, "update-ref", ref, commit)
        return Lost(f"is gone; its commit, {commit[:12]}, is still there", f"keep it again: {again}")
    rest, instead = await _rest(scene, session, ref)
    if commit:
        return Lost(f"is gone, and so is its commit, {commit[:12]}: {rest}", instead)
    # Unreachable as it is, git has it until its next collection; it is known by its title.
    title = f"{ref.split('/')[2]}: {session.branch} ({session.id})"
    unreachable = f"{shell('git', '-C', root, 'fsck', '--unreachable', '--no-reflogs', '--no-progress')} 2>/dev/null"
    shown = shell(
        "git", "-C", root, "log", "--no-walk", "--stdin", "--format=%H %cd", "--fixed-strings", f"--grep={title}"
    )
    find = f"find its commit: {unreachable} | sed -n 's/^unreachable commit //p' | {shown}"
    again = f"keep that again: {shell('git', '-C', root, 'update-ref', ref)} COMMIT"
    message = f"is gone, and nothing knows its commit; where git does not find that, {rest}"
    return Lost(message, "\n".join(filter(None, (find, again, instead))))


async def _rest(scene: Scene, session: Session, ref: str) -> tuple[str, str]:
    """What is lost, and how to have what is not."""
    root = scene.info.root
    found = await _last(scene, session)
    words = "what was not committed is lost"
    if found is None:
        there = session.branch in scene.inventory.tips
        return words + (f"; branch {session.branch} is there" if there else ", and so is its branch"), ""
    instead = shell("git", "-C", root, "update-ref", ref, found.snapshot)
    advice = f"have the files of checkpoint {found.number} instead: {instead}"
    return f"{words} as far as it was changed after checkpoint {found.number}", advice


async def _last(scene: Scene, session: Session) -> Checkpoint | None:
    """Of the checkpoint that it stood at, and those before it, the newest that git has."""

    def known(reader: Reader) -> Sequence[Checkpoint]:
        stood = reader.checkpoints.current(session)
        return [stood, *reader.checkpoints.list(session.id, before=stood.number)] if stood is not None else []

    for checkpoint in await scene.core.store.read(known):
        if await scene.core.git.has_object(scene.info, checkpoint.snapshot):
            return checkpoint
    return None
