"""Spares with warm agents, for a person, gc and doctor."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ramet.v1 import worktree_pb2
from rametd import app, parts
from rametd.keeper.executor import Executor
from rametd.parts import Parts
from rametd.services.core import Core

from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, connected, daemon_here, make_sandbox
from tests.support.eventually import eventually


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\nwarm_agents = 1\n") as sandbox:
        yield sandbox


async def warm(client: Client, repository: Path) -> worktree_pb2.Spare:
    async def look() -> worktree_pb2.Spare:
        pool = await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(repository)))
        assert [spare.warm_agent for spare in pool.spares] == [True], pool
        return pool.spares[0]

    return await eventually(look)


def agents(sandbox: Sandbox, spare_id: str) -> list[psutil.Process]:
    found = []
    for process in sandbox.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.environ().get("RAMET_SESSION") == spare_id:
                found.append(process)
    return found


async def findings(client: Client) -> dict[str, str]:
    answer = await client.worktrees.Diagnose(worktree_pb2.DiagnoseRequest())
    return {found.code: found.subject for found in answer.findings}


async def garbage(client: Client) -> dict[str, str]:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=True))
    return {item.name: item.verdict for item in answer.items}


async def test_a_warm_spare_is_nothing_to_tidy_up_and_one_without_a_row_is_named(sandbox: Sandbox) -> None:
    running, repository = DaemonProcess(sandbox), sandbox.repository()
    running.start()
    async with connected(sandbox) as client:
        await client.create(repository, name="one")
        spare = await warm(client, repository)
        shown = sandbox.ctl("pool", "status", cwd=repository).stdout.splitlines()
        assert [line.split()[:3] for line in shown[:2]] == [["SPARE", "STATE", "AGENT"], [spare.id, "ready", "live"]]
        assert await findings(client) == {}
        assert not {spare.path, spare.id, f"{spare.id}-0"} & (await garbage(client)).keys()
    running.stop()
    with sqlite3.connect(sandbox.root / "state" / "ramet.db") as database:
        database.execute("DELETE FROM spares")
    database.close()

    running.start()
    async with connected(sandbox) as client:
        assert (await findings(client))["worktree-unknown"] == spare.path
        assert spare.path in await garbage(client)
    running.kill()


async def test_an_agent_for_another_environment_is_not_used_and_one_for_that_comes(sandbox: Sandbox) -> None:
    running, repository = DaemonProcess(sandbox), sandbox.repository()
    running.start()
    async with connected(sandbox) as client:
        await client.create(repository, name="one")
        spare = await warm(client, repository)
        two = await client.create(repository, "hello", name="two", environment={"ANTHROPIC_MODEL": "sonnet"})
        assert two.id == spare.id
        await client.reach("two", IDLE)
        assert {path.name for path in (sandbox.root / "state" / "agents").glob(f"{two.id}-*")} == {f"{two.id}-1"}
        await warm(client, repository)
        three = await client.create(repository, "hello", name="three", environment={"ANTHROPIC_MODEL": "sonnet"})
        await client.reach("three", IDLE)
        assert {path.name for path in (sandbox.root / "state" / "agents").glob(f"{three.id}-*")} == {f"{three.id}-0"}
    running.kill()


async def test_an_agents_prompt_describes_its_session_once_with_ports(sandbox: Sandbox) -> None:
    running, repository = DaemonProcess(sandbox), sandbox.repository()
    running.start()
    async with connected(sandbox) as client:
        await client.create(repository, name="one")
        await warm(client, repository)
        two = await client.create(repository, "hello", name="two")
        await client.reach("two", IDLE)
    written = b"".join(
        file.read_bytes() for file in (sandbox.root / "state" / "agents" / f"{two.id}-0").glob("stdin.*")
    )
    asked = [json.loads(line).get("request", {}) for line in written.splitlines()]
    applied = [each["settings"]["env"] for each in asked if each.get("subtype") == "apply_flag_settings"]
    # Its start, and its session.
    assert [each.get("RAMET_PORT_0") for each in applied] == [None, str(two.ports[0])]
    running.kill()


async def test_a_session_takes_over_the_change_tracker_of_its_warm_spare(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = sandbox.repository()
    assembled: list[Parts] = []

    def assemble(core: Core, commands: Executor) -> Parts:
        assembled.append(parts.assemble(core, commands))
        return assembled[-1]

    monkeypatch.setattr(app, "assemble", assemble)
    async with daemon_here(sandbox), connected(sandbox) as client:
        git = assembled[0].core.git
        await client.create(repository, name="one")
        spare = await warm(client, repository)
        tracker = git.trackers.get(Path(spare.path))
        assert tracker is not None
        two = await client.create(repository, "hello", name="two")
        assert (two.worktree, git.trackers.get(Path(two.worktree))) == (spare.path, tracker)
        await client.reach("two", IDLE)
        other = await warm(client, repository)
        await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
        assert not Path(other.path).exists()
        assert git.trackers.get(Path(other.path)) is None
        await asyncio.to_thread(sandbox.ctl, "archive", "two")
        assert not Path(two.worktree).exists()
        assert git.trackers.get(Path(two.worktree)) is None


async def test_an_agent_that_dies_while_it_waits_is_replaced(sandbox: Sandbox) -> None:
    running, repository = DaemonProcess(sandbox), sandbox.repository()
    running.start()
    async with connected(sandbox) as client:
        await client.create(repository, name="one")
        spare = await warm(client, repository)
        (before,) = agents(sandbox, spare.id)
        before.kill()

        async def look() -> bool:
            await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(repository)))
            found = agents(sandbox, spare.id)
            return len(found) == 1 and found[0].pid != before.pid and (await warm(client, repository)).id == spare.id

        assert await eventually(look)
    running.kill()
