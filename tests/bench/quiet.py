"""Costs of idle sessions: memory of keepers and daemon, processor time of the daemon."""

import asyncio
import time
from collections.abc import AsyncIterator

from tests.bench.figures import Figure, Scale, cpu_time, progress, resident
from tests.bench.herd import CONFIG, gather_herd, put_to_sleep
from tests.support.daemon import connected, daemon_process, make_sandbox

SETTLE_S = 1.0
"""Seconds after the last answer for timers and caches of the daemon to settle."""
REST_S, REST_LIMIT_S = 2.0, 30.0
"""The daemon is idle once it has used less than 1 ms of the processor for these seconds; its last
work (copies of conversations, checkpoints, conflict prediction) follows the turns by some seconds.
A daemon that is never idle is measured after the limit."""


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    count = scale.live
    settle = min(SETTLE_S, scale.idle_s)
    with make_sandbox(config=CONFIG) as sandbox, daemon_process(sandbox, forked=False) as daemon:
        repository = sandbox.repository()
        async with connected(sandbox) as client:
            await gather_herd(client, repository, 1)
            await asyncio.sleep(settle)
            one = resident(daemon.pid)
            ids = await gather_herd(client, repository, count, first=1)
            await asyncio.sleep(settle)
            many = resident(daemon.pid)
            keepers = [resident(keeper.pid) for keeper in sandbox.keepers()]
        yield Figure("keeper memory", max(keepers), "MB", f"largest RSS of {len(keepers)} keepers of live agents", 12)
        yield Figure(
            "daemon memory per live session",
            (many - one) / (count - 1),
            "MB",
            f"slope of the daemon's RSS from 1 ({one:.1f} MB) to {count} ({many:.1f} MB) live sessions",
            0.2,
        )
        await rest(daemon.pid, scale)
        progress(f"idling {scale.idle_s:g} s with {count} agents alive")
        alive = await idling(daemon.pid, scale.idle_s)
        async with connected(sandbox) as client:
            await put_to_sleep(client, ids)
        await rest(daemon.pid, scale)
        progress(f"idling {scale.idle_s:g} s with {count} agents asleep")
        asleep = await idling(daemon.pid, scale.idle_s)
        for name, percent in (("alive", alive), ("asleep", asleep)):
            how = f"processor time of the daemon's threads over {scale.idle_s:g} s with {count} idle sessions, agents {name}"
            yield Figure(f"idle daemon, agents {name}", percent, "% of a core", how, 0.1)


async def rest(pid: int, scale: Scale) -> None:
    """Wait until the daemon is idle."""
    limit = time.monotonic() + min(REST_LIMIT_S, 3 * scale.idle_s)
    before = -1.0
    while (now := cpu_time(pid)) - before > 0.001 and time.monotonic() < limit:
        before = now
        await asyncio.sleep(min(REST_S, scale.idle_s))


async def idling(pid: int, seconds: float) -> float:
    """Return the percentage of one core that a process uses."""
    before, began = cpu_time(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_time(pid) - before) / (time.monotonic() - began) * 100
