"""Check the worktrees that git lists and no session has: ours, others in our directories, and
missing ones."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from rametd.domain.errors import WorktreeChangedError
from rametd.git import Registration, may_exist
from rametd.services.archiving.at_risk import describe
from rametd.services.landing import trees as landing_trees
from rametd.services.upkeep.scene import (
    Finding,
    Fix,
    Scene,
    folders_of_scene,
    is_of,
    placed,
    places_of,
    roots,
    severity_at,
    shell,
)

STALE = "git lists a worktree of ours whose directory is gone, and no session has it"
OTHERS = "it belongs to a Ramet with another state directory or another `worktrees.root`: no session here has it"


async def worktrees(scene: Scene) -> AsyncIterator[Finding]:
    found, stale = await asyncio.to_thread(_registrations, scene)
    for each in found:
        yield each
    for entry in stale:
        yield await _stale(scene, entry)


def _registrations(scene: Scene) -> tuple[list[Finding], list[Registration]]:
    """Findings, and our entries whose directory is gone. Blocks."""
    findings: list[Finding] = []
    stale: list[Registration] = []
    theirs = places_of(scene.sessions)
    ground = [*roots(scene.core), *folders_of_scene(scene)]
    for entry in scene.inventory.registrations:
        scene.checked["worktrees"] += 1
        if entry.path is None or placed(entry.path) in theirs:
            continue
        if {entry.path.name, entry.admin_dir.name} & scene.known:  # `sessions` reports a moved worktree
            continue
        inside = any(placed(entry.path).is_relative_to(place) for place in ground)
        if scene.inventory.ours(entry):
            if not may_exist(entry.path) and _is_of_this_ramet(scene, entry.path):
                stale.append(entry)
            elif not (
                landing_trees.NAME.fullmatch(entry.path.name) and may_exist(entry.path)
            ):  # else gc removes it in time
                findings.append(_ours(scene, entry, inside=inside))
        elif not may_exist(entry.path):
            findings.append(_gone(scene, entry, inside=inside))
        elif inside:
            findings.append(_by_hand(scene, entry))
    return findings, stale


def _is_of_this_ramet(scene: Scene, path: Path) -> bool:
    """Whether a former session of this Ramet had the worktree, or its folder has our id of the
    repository."""
    return path.name in scene.departed or is_of(scene.repo, path.parent)


def _ours(scene: Scene, entry: Registration, *, inside: bool) -> Finding:
    path, root = entry.path, scene.info.root
    assert path is not None
    if not may_exist(path):
        advice = f"leave it to that Ramet\nif there is none, unregister it: {_remove(root, path)}"
        return Finding("info", "registration-foreign", str(path), "", f"{OTHERS}, and its directory is gone", advice)
    adopt = f"{shell('git', '-C', root, 'worktree', 'unlock', path)} && {shell('rametctl', 'adopt', path)}"
    remove = _remove(root, path)
    if inside:
        message = "Ramet created it, and no session has it"
        look = shell("rametctl", "gc", "--repo", scene.repo.name)
        advice = (
            f"see what is in it: {look}\ncreate a session there: {adopt}\ndelete it with everything in it: {remove}"
        )
    else:
        message = OTHERS
        advice = f"leave it to that Ramet\nif there is none, create a session there: {adopt}"
    severity = "warning" if inside else "info"
    return Finding(severity, "worktree-unknown", str(path), "", message, advice)


async def _stale(scene: Scene, entry: Registration) -> Finding:
    path, root = entry.path, scene.info.root
    assert path is not None
    risk = await scene.core.git.worktrees.work_at_risk(scene.info, path, "", None)
    if not risk:
        advice = "doctor --fix unregisters it"
        return Finding("warning", "registration-stale", str(path), "", STALE, advice, _prune(scene, entry))
    advice = f"if you moved it: {shell('git', '-C', root, 'worktree', 'repair')} NEW-PATH\n"
    if risk.unique_commits:
        advice += (
            f"save its commits on a branch: {shell('git', '-C', root, 'branch')} NAME {risk.unique_commits[0][0]}\n"
        )
    message = f"{STALE}; only its entry in git has {describe(risk)}"
    return Finding(
        "warning", "registration-stale", str(path), "", message, f"{advice}delete that: {_remove(root, path)}"
    )


def _remove(root: Path, path: Path) -> str:
    return shell("git", "-C", root, "worktree", "remove", "-f", "-f", path)


def _gone(scene: Scene, entry: Registration, *, inside: bool) -> Finding:
    """Report a missing worktree that Ramet did not create, at any path: for git its branch is still
    checked out."""
    path, root = entry.path, scene.info.root
    assert path is not None
    where = " in a directory of Ramet's" if inside else ""
    message = f"git lists a worktree of your own{where} whose directory is gone"
    if entry.branch is not None:
        message = f"{message}; it holds branch {entry.branch}"
    off, unlock = shell("git", "-C", root, "worktree", "remove", path), ""
    if entry.locked is not None:
        message = f"{message}; it is locked{f': {entry.locked}' if entry.locked else ''}"
        unlock = f"{shell('git', '-C', root, 'worktree', 'unlock', path)} && "
    advice = (
        f"leave it if its disk is not mounted\nif you moved it: {shell('git', '-C', root, 'worktree', 'repair')} NEW-PATH\n"
        f"unregister it: {unlock}{off}\n"
        f"unregister all missing ones: {shell('git', '-C', root, 'worktree', 'prune')}"
    )
    return Finding("info", "registration-foreign", str(path), "", message, advice)


def _by_hand(scene: Scene, entry: Registration) -> Finding:
    path, root = entry.path, scene.info.root
    assert path is not None
    message = "it is a worktree of your own in a directory of Ramet's"
    advice = (
        f"create a session in it: {shell('rametctl', 'adopt', path)}\n"
        f"move it: {shell('git', '-C', root, 'worktree', 'move', path)} NEW-PATH\n"
        f"delete it (git refuses if it has uncommitted changes): {shell('git', '-C', root, 'worktree', 'remove', path)}"
    )
    return Finding(severity_at(scene.core, path), "worktree-foreign", str(path), "", message, advice)


def _prune(scene: Scene, entry: Registration) -> Fix:
    async def prune() -> None:
        assert entry.path is not None
        if await asyncio.to_thread(entry.path.exists):  # it may have work
            raise WorktreeChangedError(f"{entry.path} is there again", hint="look at it")
        await scene.core.git.worktrees.remove(scene.info, entry.path, "", delete_branch=False)

    return prune
