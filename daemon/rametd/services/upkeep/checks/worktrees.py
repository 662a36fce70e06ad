"""What git has on its list of worktrees that no session has: ours, those that somebody made by hand where ours are, and those whose directory is gone."""

import asyncio
from collections.abc import AsyncIterator

from rametd.git.registrations import Registration
from rametd.services.landing import trees as landing_trees
from rametd.services.upkeep.finding import Finding, Fix, shell
from rametd.services.upkeep.ground import folders_of_scene, placed, places_of, roots, severity_at
from rametd.services.upkeep.scene import Scene

STALE = "git has a worktree of ours on its list whose directory is gone, and no session has it"


async def worktrees(scene: Scene) -> AsyncIterator[Finding]:
    for found in await asyncio.to_thread(lambda: list(_registrations(scene))):
        yield found


def _registrations(scene: Scene) -> list[Finding]:
    """Blocks."""
    findings: list[Finding] = []
    theirs = places_of(scene.sessions)
    ground = [*roots(scene.core), *folders_of_scene(scene)]
    for entry in scene.inventory.registrations:
        scene.checked["worktrees"] += 1
        if entry.path is None or placed(entry.path) in theirs:
            continue
        if {entry.path.name, entry.admin_dir.name} & scene.known:  # one that was moved is told with its session
            continue
        inside = any(placed(entry.path).is_relative_to(place) for place in ground)
        if scene.inventory.ours(entry):
            if not (
                landing_trees.NAME.fullmatch(entry.path.name) and entry.path.exists()
            ):  # else gc says when it may go
                findings.append(_ours(scene, entry, inside=inside))
        elif not entry.path.exists():
            findings.append(_gone(scene, entry, inside=inside))
        elif inside:
            findings.append(_by_hand(scene, entry))
    return findings


def _ours(scene: Scene, entry: Registration, *, inside: bool) -> Finding:
    path, root = entry.path, scene.info.root
    assert path is not None
    if not path.exists():
        return Finding(
            "warning", "registration-stale", str(path), "", STALE, "doctor --fix takes it off", _prune(scene, entry)
        )
    adopt = f"{shell('git', '-C', root, 'worktree', 'unlock', path)} && {shell('rametctl', 'adopt', path)}"
    remove = shell("git", "-C", root, "worktree", "remove", "-f", "-f", path)
    if inside:
        message = "it was made by Ramet, and no session has it"
        look = shell("rametctl", "gc", "--repo", scene.repo.name)
        advice = f"see what is in it: {look}\nhave a session there: {adopt}\ndelete it with all that is in it: {remove}"
    else:
        message = (
            "it was made by a Ramet with another state directory or another `worktrees.root`: no session here has it"
        )
        advice = f"leave it to that one\nwhere there is none any more, have a session there: {adopt}"
    return Finding("warning", "worktree-unknown", str(path), "", message, advice)


def _gone(scene: Scene, entry: Registration, *, inside: bool) -> Finding:
    """Of a worktree made by hand. It is told wherever it was: git takes its branch for checked out, and so does whoever asks for that branch."""
    path, root = entry.path, scene.info.root
    assert path is not None
    where = " where Ramet's are" if inside else ""
    message = f"git has a worktree on its list that was made by hand{where}, and whose directory is gone"
    if entry.branch is not None:
        message = f"{message}; it holds branch {entry.branch}"
    off, unlock = shell("git", "-C", root, "worktree", "remove", path), ""
    if entry.locked is not None:
        message = f"{message}; it is locked{f': {entry.locked}' if entry.locked else ''}"
        unlock = f"{shell('git', '-C', root, 'worktree', 'unlock', path)} && "
    advice = (
        f"leave it, where its disk is away\nhave git find it where it was moved by hand: {shell('git', '-C', root, 'worktree', 'repair')} NEW-PATH\n"
        f"take it off: {unlock}{off}\n"
        f"take all off whose directory is gone: {shell('git', '-C', root, 'worktree', 'prune')}"
    )
    return Finding("info", "registration-foreign", str(path), "", message, advice)


def _by_hand(scene: Scene, entry: Registration) -> Finding:
    path, root = entry.path, scene.info.root
    assert path is not None
    message = "it is a worktree that Ramet did not make, where Ramet's worktrees are"
    advice = (
        f"have a session in it: {shell('rametctl', 'adopt', path)}\n"
        f"have it elsewhere: {shell('git', '-C', root, 'worktree', 'move', path)} NEW-PATH\n"
        f"delete it, which git refuses while something in it is uncommitted: {shell('git', '-C', root, 'worktree', 'remove', path)}"
    )
    return Finding(severity_at(scene.core, path), "worktree-foreign", str(path), "", message, advice)


def _prune(scene: Scene, entry: Registration) -> Fix:
    async def prune() -> None:
        assert entry.path is not None
        await scene.core.git.remove_worktree(scene.info, entry.path, "", delete_branch=False)

    return prune
