"""Remotes from which git would delete what sessions have."""

from collections.abc import AsyncIterator

from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.scene import Scene


async def mirrors(scene: Scene) -> AsyncIterator[Finding]:
    for remote in await scene.core.git.upkeep.mirrored(scene.info):
        message = f"it is mirrored: `git fetch --prune` deletes branches that {remote} does not have, and what is kept below refs/ramet/"
        beside = f"+refs/heads/*:refs/remotes/{remote}/*"
        change = shell("git", "-C", scene.info.root, "config", "--replace-all", f"remote.{remote}.fetch", beside)
        advice = f"have its branches beside yours: {change}\nor never give --prune there (fetch.prune, remote.{remote}.prune)"
        yield Finding("warning", "remote-mirrored", remote, "", message, advice)
