"""Check: branches created for sessions that are gone."""

from collections.abc import AsyncIterator

from rametd.services.departures.at_risk import describe
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.orphaned import judge_branch
from rametd.services.upkeep.scene import Scene

PREFIX = "ramet/"
"""Default prefix of branches that Ramet creates. A configured `worktrees.branch_prefix` may be the person's own, so it proves nothing."""


async def branches(scene: Scene) -> AsyncIterator[Finding]:
    """Find branches of removed sessions, and branches with our prefix whose creation the reflog no longer records.

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
    """If another Ramet works here too: branches with our prefix that may belong to its sessions."""
    if not scene.strangers:
        return []
    inventory = scene.inventory
    settled = inventory.made.keys() | inventory.checked_out.keys() | await _had(scene)
    return sorted(branch for branch in inventory.tips.keys() - settled if branch.startswith(PREFIX))


async def _had(scene: Scene) -> set[str]:
    """Branches of sessions, the trash included."""
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
