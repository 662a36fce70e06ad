"""End an agent whose keeper is gone, by its process identity."""

import asyncio
import signal
from contextlib import suppress

from rametd.keeper import directory
from rametd.keeper.place import Place, until
from rametd.keeper.tree import SWEEP_GRACE, Tree
from rametd.platform import processes

PATIENCE = 5.0
"""Seconds that the kernel may take to end a killed keeper."""


async def end_agent(place: Place, grace: float) -> None:
    """Send SIGTERM, after ``grace`` seconds SIGKILL, to the agent, then to its descendants. Its
    stdin closed with the keeper.

    Signal only the exact process of run.json, its descendants, and processes with its tags. Only by
    tags can the daemon find processes that the agent starts while it ends: these orphans have no
    known parent.
    """
    agent = await asyncio.to_thread(_agent, place)
    tree = Tree(agent, place.tags, await asyncio.to_thread(_cgroup, place))
    await asyncio.to_thread(tree.look)
    if agent is not None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.to_thread(processes.send_signal, agent.pid, agent.start, signum)
            if await until(lambda: _is_gone(agent), within=grace):
                break
    await sweep(tree, grace)


async def sweep(tree: Tree, grace: float) -> None:
    """End the processes that ``tree`` finds, with less grace than the agent."""
    looks = tree.end(min(grace, SWEEP_GRACE))
    while True:
        pause = await asyncio.to_thread(next, looks, None)
        if pause is None:
            return
        await asyncio.sleep(pause)


async def kill_keeper(place: Place) -> None:
    """Kill a keeper that does not answer, if it is that exact process. If it hangs in the kernel,
    it ends when it returns from there."""

    def kill() -> None:
        with suppress(ValueError):
            run = place.run()
            if run is not None and run["boot_id"] == processes.boot_id():
                processes.send_signal(run["keeper_pid"], run["keeper_start"], signal.SIGKILL)

    await asyncio.to_thread(kill)
    await until(lambda: not place.is_locked(), within=PATIENCE)


def _agent(place: Place) -> processes.Process | None:
    try:
        return place.agent()
    except (ValueError, KeyError):
        return None  # a damaged run.json names no process; use the tags


def _is_gone(process: processes.Process) -> bool:
    seen = processes.find(process.pid)
    return seen is None or seen != process or seen.zombie


def _cgroup(place: Place) -> str | None:
    with suppress(ValueError):
        spec = directory.read_record(place.path, directory.SPEC)
        if spec is not None and spec["cgroup"] is not None:
            return f"{spec['cgroup']}/agent"
    return None
