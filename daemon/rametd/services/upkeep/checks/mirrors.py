"""Check: mirror remotes, from which a fetch would delete branches and refs of sessions."""

from collections.abc import AsyncIterator

from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.scene import Scene


async def mirrors(scene: Scene) -> AsyncIterator[Finding]:
    for remote in await scene.core.git.upkeep.mirrored(scene.info):
        message = (
            f"it is a mirror: `git fetch --prune` deletes branches that {remote} does not have, and all of refs/ramet/"
        )
        beside = f"+refs/heads/*:refs/remotes/{remote}/*"
        change = shell("git", "-C", scene.info.root, "config", "--replace-all", f"remote.{remote}.fetch", beside)
        advice = f"fetch its branches beside yours: {change}\nor never use --prune there (fetch.prune, remote.{remote}.prune)"
        yield Finding("warning", "remote-mirrored", remote, "", message, advice)
