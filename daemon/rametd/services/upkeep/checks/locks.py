"""Lock files that a git has left."""

from collections.abc import AsyncIterator

from ramet.words import plural

from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.scene import Scene

STALE_LOCK_S = 600.0


async def locks(scene: Scene) -> AsyncIterator[Finding]:
    for path, changed in scene.inventory.locks:
        scene.checked["locks"] += 1
        age = scene.core.clock() - changed
        if age > STALE_LOCK_S:
            message = f"git's lock file is {_long(age)} old: its git was killed, or hangs"
            advice = f"if no git runs there: {shell('rm', path)}"
            yield Finding("warning", "lock-stale", str(path), "", message, advice)


def _long(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 120:
        return plural(round(minutes), "minute")
    return plural(round(minutes / 60), "hour") if minutes < 48 * 60 else plural(round(minutes / 1440), "day")
