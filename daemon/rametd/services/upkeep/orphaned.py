"""Leftovers without a session: worktrees, branches, refs, directories of keepers; and idle
worktrees of merge queues."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ramet.words import plural

from rametd.domain.models import Repo
from rametd.git import Inventory, RepositoryInfo, Risk
from rametd.keeper.executor import Liveness
from rametd.keeper.place import Place
from rametd.platform.files import tree_bytes
from rametd.services.archiving.at_risk import describe
from rametd.services.core import Core
from rametd.services.landing import trees
from rametd.services.upkeep.scene import IDENTITY, Scene, is_orphan, kind_and_id, known_ids, placed, places_of
from rametd.services.worktrees.places import folders_of

KEPT = "kept"
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Garbage:
    """As in the contract. The verdict "kept" means that it stays."""

    kind: str
    name: str
    session_id: str
    repo: str
    verdict: str
    reason: str
    bytes: int = 0
    removed: bool = False
    commit: str = ""  # of the checked branch or ref
    warnings: tuple[str, ...] = ()

    @property
    def is_removable(self) -> bool:
        return self.verdict != KEPT


LANDING_TREE_S = 7 * DAY_S


async def orphaned(scene: Scene) -> AsyncIterator[Garbage]:
    """Find the leftovers of one repository. The verdict on those that may have work is "kept"."""
    for find in (_trees, _landing_trees, _branches, _refs):
        async for item in find(scene):
            yield item


async def _trees(scene: Scene) -> AsyncIterator[Garbage]:
    """Find worktrees without a session."""
    core, inventory, repo = scene.core, scene.inventory, scene.repo.name
    theirs = await asyncio.to_thread(places_of, scene.sessions)
    for path in await asyncio.to_thread(_trees_of, core, scene.repo):
        if path.name in scene.known | scene.trash or await asyncio.to_thread(placed, path) in theirs:
            continue
        risk = await core.git.worktrees.work_at_risk(scene.info, path, "", None)
        size = await asyncio.to_thread(tree_bytes, path)
        verdict, reason = "orphaned", "no session has it"
        if risk:
            verdict, reason = KEPT, f"no session has it; it has {describe(risk)}"
        elif not any(entry.path == path and inventory.ours(entry) for entry in inventory.registrations):
            verdict, reason = KEPT, "no session has it, and it is not registered in git as ours"
        yield Garbage("worktree", str(path), "", repo, verdict, reason, size)


def _trees_of(core: Core, repo: Repo) -> list[Path]:
    """Directories of one repository with names like ids: a configured root may hold anything.
    Blocks."""
    folders = folders_of(core, repo)
    return sorted(
        path for folder in folders for path in folder.iterdir() if IDENTITY.fullmatch(path.name) and path.is_dir()
    )


async def _landing_trees(scene: Scene) -> AsyncIterator[Garbage]:
    """Find worktrees of merge queues that have been idle for a week. The next landing creates its
    worktree again."""
    for tree in await trees.unused(scene.core, scene.repo):
        days = (scene.core.clock() - tree.since) / DAY_S
        if tree.since and days * DAY_S < LANDING_TREE_S:
            continue
        reason = f"unused for {plural(round(days), 'day')}" if tree.since else "no queue has it"
        size = await asyncio.to_thread(tree_bytes, tree.path)
        yield Garbage("worktree", str(tree.path), "", scene.repo.name, "stale", reason, size)


async def _branches(scene: Scene) -> AsyncIterator[Garbage]:
    """Find branches created for sessions that are gone."""
    for branch, path in scene.inventory.made.items():
        if path.name not in scene.departed or branch in scene.inventory.checked_out:
            continue
        risk, landed = await judge_branch(scene.core, scene.info, scene.inventory, branch)
        if risk.unique_commits and not landed:
            reason = f"its session is gone; it has {describe(risk)}"
            yield Garbage("branch", branch, "", scene.repo.name, KEPT, reason)
        else:
            why = f"it is {landed}" if landed else "other branches have its commits"
            reason = f"its session is gone, and {why}"
            commit = scene.inventory.tips[branch]
            yield Garbage("branch", branch, "", scene.repo.name, "orphaned", reason, commit=commit)


async def judge_branch(core: Core, info: RepositoryInfo, inventory: Inventory, branch: str) -> tuple[Risk, str]:
    """Return the work that deleting the branch would lose, and a description of where it has
    landed, "" if it has not."""
    nowhere = inventory.made.get(branch, info.common_dir / "no-worktree")
    risk = await core.git.worktrees.work_at_risk(info, nowhere, branch, None)
    targets = await core.git.landing.targets_of(info, "", branch)
    answer = await core.git.landing.landed(info, inventory.tips[branch], "", targets)
    return risk, answer.reason if answer else ""


async def _refs(scene: Scene) -> AsyncIterator[Garbage]:
    """Find refs without a session."""
    core, refs, repo = scene.core, scene.inventory.refs, scene.repo.name
    orphans = await core.store.read(lambda reader: [ref for ref in refs if is_orphan(reader, ref)])
    for ref in orphans:
        time = await core.git.snapshots.time_of(scene.info, refs[ref])
        if time is None:
            continue  # doctor reports it
        age = core.clock() - time
        verdict = "orphaned"
        if await core.git.commits.reachable(scene.info, refs[ref]):
            reason = "its session is gone, and a branch has its commits"
        elif age > core.config.retention.trash:
            reason = f"its session is gone for {plural(round(age / DAY_S), 'day')}"
        else:
            verdict, reason = KEPT, "its session is gone, but it may have work that exists nowhere else"
        yield Garbage("ref", ref, kind_and_id(ref)[1], repo, verdict, reason, commit=refs[ref])


async def orphaned_agents(core: Core) -> AsyncIterator[Garbage]:
    """Find directories of keepers without a session."""
    handles = await asyncio.to_thread(core.executor.discover)
    known = await core.store.read(lambda reader: known_ids(reader, trash=False))
    for handle in handles:
        place = Place.from_handle(handle)
        if place.session in known:
            continue
        recovered = await core.executor.recover(handle)
        size = await asyncio.to_thread(tree_bytes, Path(place.path))
        verdict, reason = "orphaned", "no session has it"
        if recovered.liveness in {Liveness.ALIVE, Liveness.KEEPER_LOST}:
            verdict, reason = KEPT, "no session has it, and it may be alive"
        yield Garbage("agent", place.name, place.session, "", verdict, reason, size)
