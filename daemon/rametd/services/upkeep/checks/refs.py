"""Check the refs under `refs/ramet/`: orphaned, broken, missing, or of another Ramet."""

from collections.abc import AsyncIterator

from ramet.words import plural

from rametd.services.upkeep.checks.branches import maybe_of_strangers
from rametd.services.upkeep.checks.lost import lost
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.rows import KINDS, is_orphan, kind_and_id
from rametd.services.upkeep.scene import Scene
from rametd.services.words import listed
from rametd.store import load_session

MANY = 3
"""How many lost objects a message names."""


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
    """Report all refs and branches of another Ramet as one finding. ``maybe``: branches that may be its."""
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
        message = f"{message}; {listed(maybe, MANY)}: judged by the name alone"
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
