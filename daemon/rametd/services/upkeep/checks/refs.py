"""Check the refs below `refs/ramet/` (orphaned, broken, missing, or of another Ramet), and branches
created for sessions that are gone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ramet.words import plural

from rametd.domain.checkpoints import Checkpoint
from rametd.domain.models import Session
from rametd.domain.text import listed
from rametd.services.archiving.at_risk import describe
from rametd.services.upkeep.orphaned import judge_branch
from rametd.services.upkeep.scene import KINDS, Finding, Scene, is_orphan, kind_and_id, shell
from rametd.store import Reader, load_session


@dataclass(frozen=True, slots=True)
class Lost:
    """``message`` continues the sentence about the ref. ``advice`` has a line for each solution but
    dropping it."""

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
    """Describe what is lost, and how to get the rest."""
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


MANY = 3
"""Maximum number of lost objects that a message names."""


async def refs(scene: Scene) -> AsyncIterator[Finding]:
    inventory = scene.inventory
    scene.checked["refs"] += len(inventory.refs)
    ours = {ref: commit for ref, commit in inventory.refs.items() if kind_and_id(ref)[0] in KINDS}
    for ref in inventory.refs.keys() - ours.keys():
        yield _foreign(scene, ref)
    if (strangers := _of_strangers(scene, await maybe_of_strangers(scene))) is not None:
        yield strangers
    ours = {ref: commit for ref, commit in ours.items() if kind_and_id(ref)[1] not in scene.strangers}
    there = {ref: commit for ref, commit in ours.items() if await scene.core.git.commits.exists(scene.info, commit)}
    for ref in ours.keys() - there.keys():
        yield await _broken(scene, ref)
    orphans = await scene.core.store.read(lambda reader: [ref for ref in there if is_orphan(reader, ref)])
    for ref in orphans:
        time = await scene.core.git.snapshots.time_of(scene.info, there[ref])
        yield await (_orphan(scene, ref, there[ref], time) if time is not None else _broken(scene, ref))
    async for found in _trash(scene):
        yield found


async def _orphan(scene: Scene, ref: str, name: str, time: float) -> Finding:
    core, info = scene.core, scene.info
    expired = core.clock() - time > core.config.retention.trash
    safe = expired or await core.git.commits.reachable(info, name)

    async def drop() -> None:
        if await core.store.read(lambda reader: is_orphan(reader, ref)):
            await core.git.snapshots.drop(info, ref, name)

    if safe:
        advice = "doctor --fix deletes it: its commits are on branches, or it is older than `retention.trash`"
    else:
        look = shell("git", "-C", info.root, "show", "--first-parent", "--stat", ref)
        drop_it = shell("git", "-C", info.root, "update-ref", "-d", ref)
        advice = f"look at it: {look}\ndelete it: {drop_it}; doctor --fix does once it is older than `retention.trash`"
    message = "it has work of a session that is gone"
    return Finding("info", "ref-unknown", ref, "", message, advice, drop if safe else None)


async def _broken(scene: Scene, ref: str) -> Finding:
    lost = await scene.core.git.snapshots.lost(scene.info, scene.inventory.refs[ref])
    message = f"git has lost objects of it ({listed([each[:12] for each in lost], MANY)}); only another copy of the repository may have them"
    look = shell("git", "-C", scene.info.root, "fsck", "--no-dangling")
    advice = (
        f"see what else is missing: {look}\ndelete it: {shell('git', '-C', scene.info.root, 'update-ref', '-d', ref)}"
    )
    return Finding("warning", "ref-broken", ref, kind_and_id(ref)[1], message, advice)


def _foreign(scene: Scene, ref: str) -> Finding:
    message = "it is below refs/ramet/, but this release creates no such ref"
    look = shell("git", "-C", scene.info.root, "show", "--stat", ref)
    advice = f"look at it: {look}\ndelete it: {shell('git', '-C', scene.info.root, 'update-ref', '-d', ref)}"
    return Finding("info", "ref-foreign", ref, "", message, advice)


def _of_strangers(scene: Scene, maybe: list[str]) -> Finding | None:
    """Report all refs and branches of another Ramet as one finding. ``maybe``: branches that may
    belong to it."""
    ours = {ref: kind_and_id(ref) for ref in scene.inventory.refs}
    refs = sorted(ref for ref, (kind, identity) in ours.items() if kind in KINDS and identity in scene.strangers)
    branches = sorted(branch for branch, path in scene.inventory.made.items() if path.name in scene.strangers)
    branches += maybe
    if not refs and not branches:
        return None
    kinds = [plural(len(names), kind) for names, kind in ((refs, "ref"), (branches, "branch")) if names]
    names = listed([*refs, *branches], MANY)
    message = f"{' and '.join(kinds)} of unknown sessions ({names}): another Ramet works here too, or they are older than the rebuilt database"
    if maybe:
        message = f"{message}; {listed(maybe, MANY)}: judged only by the name"
    root = scene.info.root
    advice = f"leave them to the other Ramet: gc and doctor --fix do not touch them\nif there is none, delete one: {shell('git', '-C', root, 'update-ref', '-d')} REF\nsee when they were created: {shell('git', '-C', root, 'for-each-ref', '--format=%(committerdate) %(refname)', 'refs/ramet')}"
    return Finding("info", "ref-foreign", "refs/ramet", "", message, advice)


async def _trash(scene: Scene) -> AsyncIterator[Finding]:
    entries = await scene.core.store.read(lambda reader: reader.trash.list(scene.repo.id))
    for entry in entries:
        if not entry.ref or entry.ref in scene.inventory.refs:
            continue
        if await scene.core.store.read(lambda reader, id_=entry.id: reader.trash.get(id_) is None):  # type: ignore[misc]
            continue  # restored or dropped meanwhile
        found = await lost(scene, load_session(entry.session), entry.ref, entry.commit)
        message = f"{entry.ref} with the work of {entry.name} {found.message}"
        advice = f"{found.advice}\ndrop it: {shell('rametctl', 'trash', 'empty', entry.id)}".lstrip()
        yield Finding("error", "trash-ref-missing", entry.name, entry.session_id, message, advice)


PREFIX = "ramet/"
"""Default prefix of branches that Ramet creates. Branches of the person may have a configured
`worktrees.branch_prefix`, so that one proves nothing."""


async def branches(scene: Scene) -> AsyncIterator[Finding]:
    """Find branches of removed sessions, and branches with our prefix of whose creation the reflog
    has no record.

    Skip branches that are checked out, and branches of sessions in the trash.
    """
    inventory, had = scene.inventory, await _had(scene)
    for branch in inventory.tips:
        scene.checked["branches"] += 1
        made_for = inventory.made.get(branch)
        if branch in inventory.checked_out or branch in had:
            continue
        if made_for is not None:
            if made_for.name in scene.departed:  # `refs` reports those of another Ramet
                yield await _unknown(scene, branch)
        elif branch.startswith(PREFIX) and not scene.strangers:
            yield await _unknown(scene, branch)


async def maybe_of_strangers(scene: Scene) -> list[str]:
    """Branches with our prefix that may belong to sessions of another Ramet, if one works here
    too."""
    if not scene.strangers:
        return []
    inventory = scene.inventory
    settled = inventory.made.keys() | inventory.checked_out.keys() | await _had(scene)
    return sorted(branch for branch in inventory.tips.keys() - settled if branch.startswith(PREFIX))


async def _had(scene: Scene) -> set[str]:
    """Branches of sessions, including those in the trash."""
    trash = await scene.core.store.read(lambda reader: {entry.branch for entry in reader.trash.list(scene.repo.id)})
    return trash | {session.branch for session in scene.sessions}


async def _unknown(scene: Scene, branch: str) -> Finding:
    made = branch in scene.inventory.made
    risk, landed = await judge_branch(scene.core, scene.info, scene.inventory, branch)
    message = "its session is gone" if made else "it is named like a session's branch, and no session has it"
    go_on = f"work on it: {shell('rametctl', 'new', '--existing', branch)}"
    if landed:
        message = f"{message}; it is {landed}"
    elif risk.unique_commits:
        message = f"{message}; it has {describe(risk)}"
        delete = shell("git", "-C", scene.info.root, "branch", "-D", branch)
        return Finding("info", "branch-unknown", branch, "", message, f"{go_on}\ndelete it with its commits: {delete}")
    else:
        message = f"{message}; other branches have its commits"
    delete = shell("git", "-C", scene.info.root, "branch", "-D", branch)
    if made:
        delete = shell("rametctl", "gc", "--yes", "--repo", scene.repo.name)
    return Finding("info", "branch-unknown", branch, "", message, f"delete it: {delete}\n{go_on}")
