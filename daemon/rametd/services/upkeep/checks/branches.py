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
    inventory = scene.inventory
    had = {session.branch for session in scene.sessions} | await scene.core.store.read(
        lambda reader: {entry.branch for entry in reader.trash.list(scene.repo.id)}
    )
    for branch in inventory.tips:
        scene.checked["branches"] += 1
        made_for = inventory.made.get(branch)
        if branch in inventory.checked_out or branch in had:
            continue
        if made_for is not None:
            if made_for.name in scene.departed:  # another Ramet's are told with its refs
                yield await _unknown(scene, branch)
        elif branch.startswith(PREFIX):
            yield await _unknown(scene, branch)


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
