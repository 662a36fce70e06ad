"""`land` and `queue`, as they are typed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.daemon import Client, DaemonProcess, Ran, Sandbox, connected, git
from tests.support.landing import Landings, with_work


@pytest.fixture
async def client(daemon: DaemonProcess, repository: Path) -> AsyncIterator[Client]:
    async with connected(daemon.sandbox) as client:
        for name in ("one", "two", "three"):
            await with_work(client, repository, name)
        yield client


async def typed(sandbox: Sandbox, *words: str) -> Ran:
    return await asyncio.to_thread(sandbox.ctl, *words, cwd=sandbox.root / "repo")


@pytest.mark.own_changes("one.txt", "two.txt", "three.txt", "index", "what the index says", "HEAD at", "reflog")
async def test_landing_shows_how_it_goes_and_ends_with_what_came_of_it(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    landed = await typed(sandbox, "land", "one", "two", "--check", "true")
    assert (landed.code, landed.stderr) == (0, "")
    lines = landed.stdout.splitlines()
    assert lines[0] == "one  queued for main, place 1"
    assert sorted(line.split(" as ")[0] for line in lines[-2:]) == ["one  landed on main", "two  landed on main"]

    held = await typed(sandbox, "land", "three", "--check", "exit 3")
    assert held.code == 4
    assert "three needs you: the check fails on main itself" in held.stderr
    listed = await typed(sandbox, "queue")
    assert [line.split()[:4] for line in listed.stdout.splitlines()][1] == ["1", "three", "main", "held"]
    again = await typed(sandbox, "land", "three", "--check", "true", "--json")
    assert (again.code, [each["state"] for each in again.json]) == (0, ["landed"])
    assert [line.split()[2] for line in (await typed(sandbox, "queue", "ls", "--all")).stdout.splitlines()] == [
        "TARGET", "main", "main", "main",
    ]  # fmt: skip
    assert (await typed(sandbox, "queue")).stdout == "nothing is queued; put something in: rametctl land S\n"
    assert git(repository, "status", "--porcelain") == ""


async def test_what_is_refused_or_taken_out_is_no_success(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, name="empty")
    refused = await typed(sandbox, "land", "empty")
    assert (refused.code, refused.stdout) == (1, "")
    assert "has nothing to land" in refused.stderr
    assert (await typed(sandbox, "land", "nobody")).code == 3
    assert (await typed(sandbox, "land", "one", "--detach", "--timeout", "3")).code == 2

    detached = await typed(sandbox, "land", "one", "--check", "sleep 600", "--detach")
    assert (detached.code, detached.stdout) == (0, "one  queued for main, place 1\n")
    late = await typed(sandbox, "land", "one", "--check", "sleep 600", "--timeout", "0.3")
    assert late.code == 124
    waiting = asyncio.create_task(typed(sandbox, "land", "two", "--check", "sleep 600"))
    await Landings(client).reach("two", 1)
    removed = await typed(sandbox, "queue", "rm", "two", "--json")
    assert removed.json["state"] == "removed"
    ended = await waiting
    assert ended.code == 1
    assert "two did not land: removed, taken out" in ended.stderr
    assert (await typed(sandbox, "queue", "retry", "two")).code == 1
    assert (await typed(sandbox, "queue", "rm", "one")).stdout == "one  removed: taken out\n"
