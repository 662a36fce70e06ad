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
            sizes = []
            for first, last in ((0, 1), (1, count)):
                await gather_herd(client, repository, last, first=first)
                await asyncio.sleep(settle)
                sizes.append(resident(daemon.pid))
        await rest(daemon.pid, scale)
        progress(f"idling {scale.idle_s:g} s with {count} agents alive")
        alive = await idling(daemon.pid, scale.idle_s)
        async with connected(sandbox) as client:
            ids = await gather_herd(client, repository, 2 * count, first=count)
            await asyncio.sleep(settle)
            sizes.append(resident(daemon.pid))
            keepers = [resident(keeper.pid) for keeper in sandbox.keepers()]
            await put_to_sleep(client, ids)
        await rest(daemon.pid, scale)
        progress(f"idling {scale.idle_s:g} s with {len(ids)} agents asleep")
        asleep = await idling(daemon.pid, scale.idle_s)
    yield Figure("keeper memory", max(keepers), "MB", f"largest RSS of {len(keepers)} keepers of live agents", 12)
    one, some, many = sizes
    how = "slope of the daemon's RSS from {} ({:.1f} MB) to {} ({:.1f} MB) live sessions"
    yield Figure(
        "daemon memory per live session", (many - some) / count, "MB", how.format(count, some, 2 * count, many), 0.2
    )
    name = "daemon memory, each of the first live sessions"  # which fill pools of threads and caches
    yield Figure(name, (some - one) / (count - 1), "MB", how.format(1, one, count, some))
    for state, number, percent in (("alive", count, alive), ("asleep", len(ids), asleep)):
        how = f"processor time of the daemon's threads over {scale.idle_s:g} s with {number} idle sessions, agents {state}"
        yield Figure(f"idle daemon, agents {state}", percent, "% of a core", how, 0.1)


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
