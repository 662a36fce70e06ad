"""What is kept under `refs/ramet/`: for nobody, or for somebody but gone."""

from collections.abc import AsyncIterator

from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.rows import is_orphan
from rametd.services.upkeep.scene import Scene
from rametd.services.upkeep.still_kept import StillKept, still_kept


async def refs(scene: Scene) -> AsyncIterator[Finding]:
    inventory = scene.inventory
    scene.checked["refs"] += len(inventory.refs)
    orphans = await scene.core.store.read(lambda reader: [ref for ref in inventory.refs if is_orphan(reader, ref)])
    for ref in orphans:
        yield await _orphan(scene, ref, inventory.refs[ref])
    for kept in await still_kept(scene.core, scene.info, inventory.refs):
        yield _still_kept(scene, kept)
    async for found in _trash(scene):
        yield found


async def _orphan(scene: Scene, ref: str, commit: str) -> Finding:
    core, info = scene.core, scene.info
    kept = await core.git.kept(info, ref)
    expired = kept is not None and core.clock() - kept.time > core.config.retention.trash
    safe = expired or await core.git.reachable(info, commit)

    async def drop() -> None:
        if await core.store.read(lambda reader: is_orphan(reader, ref)):
            await core.git.drop_ref(info, ref, commit)

    if safe:
        advice = "doctor --fix deletes it: branches have its commits, or it is older than trash is kept"
    else:
        look = shell("git", "-C", info.root, "show", "--first-parent", "--stat", ref)
        drop_it = shell("git", "-C", info.root, "update-ref", "-d", ref)
        advice = f"look at it: {look}\ndelete it: {drop_it}, or have doctor --fix do that once it is older than trash is kept"
    message = "it keeps something of a session that is no more"
    return Finding("info", "ref-unknown", ref, "", message, advice, drop if safe else None)


def _still_kept(scene: Scene, kept: StillKept) -> Finding:
    look = shell("rametctl", "diff", kept.session.name, "--against", kept.ref)
    message = f"it keeps {kept.what}"
    advice = f"look at it: {look}\nit goes by itself {kept.when(scene.core.clock())}"
    return Finding("info", "ref-still-kept", kept.ref, kept.session.id, message, advice)


async def _trash(scene: Scene) -> AsyncIterator[Finding]:
    entries = await scene.core.store.read(lambda reader: reader.trash.list(scene.repo.id))
    for entry in entries:
        if not entry.ref or entry.ref in scene.inventory.refs:
            continue
        if await scene.core.store.read(lambda reader, id_=entry.id: reader.trash.get(id_) is None):  # type: ignore[misc]
            continue  # brought back or dropped meanwhile
        message = f"{entry.ref}, which keeps what {entry.name} had, is gone"
        fsck = shell("git", "-C", scene.info.root, "fsck", "--lost-found")
        empty = shell("rametctl", "trash", "empty", entry.id)
        advice = f"{fsck} may find its commit, {entry.commit[:12]}\ngive it up: {empty}"
        yield Finding("error", "trash-ref-missing", entry.name, entry.session_id, message, advice)
