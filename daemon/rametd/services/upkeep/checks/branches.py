"""Branches of ours that no session has any more."""

from collections.abc import AsyncIterator

from rametd.services.departures.at_risk import describe
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.orphaned import judge_branch
from rametd.services.upkeep.scene import Scene

PREFIX = "ramet/"
"""What our branches are named like unless `worktrees.branch_prefix` says something else, which may be how the person's own are named."""


async def branches(scene: Scene) -> AsyncIterator[Finding]:
    """Those that we made for a session that is no more, and those named like ours whose making git has forgotten.

    What is checked out somewhere is at work, and what something in the trash had comes back with it.
    """
    inventory, had = scene.inventory, await _had(scene)
    for branch in inventory.tips:
        scene.checked["branches"] += 1
        made_for = inventory.made.get(branch)
        if branch in inventory.checked_out or branch in had:
            continue
        if made_for is not None:
            if made_for.name in scene.departed:  # another Ramet's are told with its refs
                yield await _unknown(scene, branch)
        elif branch.startswith(PREFIX) and not scene.strangers:
            yield await _unknown(scene, branch)


async def maybe_of_strangers(scene: Scene) -> list[str]:
    """Where another Ramet works too, the branches named like ours whose making git has forgotten: a session of that one may go on with them."""
    if not scene.strangers:
        return []
    inventory = scene.inventory
    settled = inventory.made.keys() | inventory.checked_out.keys() | await _had(scene)
    return sorted(branch for branch in inventory.tips.keys() - settled if branch.startswith(PREFIX))


async def _had(scene: Scene) -> set[str]:
    """The branches of sessions, and of what is in the trash."""
    trash = await scene.core.store.read(lambda reader: {entry.branch for entry in reader.trash.list(scene.repo.id)})
    return trash | {session.branch for session in scene.sessions}


async def _unknown(scene: Scene, branch: str) -> Finding:
    made = branch in scene.inventory.made
    risk, landed = await judge_branch(scene.core, scene.info, scene.inventory, branch)
    message = "it was made for a session that is no more" if made else "it is named like ours, and no session has it"
    go_on = f"go on with it: {shell('rametctl', 'new', '--existing', branch)}"
    if landed:
        message = f"{message}; it is {landed}"
    elif risk.unique_commits:
        message = f"{message}; it has {describe(risk)}"
        delete = shell("git", "-C", scene.info.root, "branch", "-D", branch)
        return Finding("info", "branch-unknown", branch, "", message, f"{go_on}\ngive its commits up: {delete}")
    else:
        message = f"{message}; other branches have its commits"
    delete = shell("git", "-C", scene.info.root, "branch", "-D", branch)
    if made:
        delete = shell("rametctl", "gc", "--yes", "--repo", scene.repo.name)
    return Finding("info", "branch-unknown", branch, "", message, f"delete it: {delete}\n{go_on}")
