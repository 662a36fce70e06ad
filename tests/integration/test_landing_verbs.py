"""`land` and `queue`, as a person types them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ramet.v1 import landing_pb2

from tests.support.daemon import Client, DaemonProcess, Ran, Sandbox, connected, git
from tests.support.landing import Landings, commit, with_work


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
    assert lines[0] == "one  queued for main, position 1"
    assert sorted(line.split(" as ")[0] for line in lines[-2:]) == ["one  landed on main", "two  landed on main"]

    held = await typed(sandbox, "land", "three", "--check", "exit 3")
    assert held.code == 4
    assert "three needs you; fix it (rametctl shell three), then: rametctl queue retry three" in held.stderr
    assert "the check fails (and on main without this work): code 3" in held.stdout
    listed = await typed(sandbox, "queue")
    assert [line.split()[:4] for line in listed.stdout.splitlines()][1] == ["1", "three", "main", "held"]
    again = await typed(sandbox, "land", "three", "--check", "true", "--json")
    assert (again.code, [each["state"] for each in again.json]) == (0, ["landed"])
    assert [line.split()[2] for line in (await typed(sandbox, "queue", "ls", "--all")).stdout.splitlines()] == [
        "TARGET", "main", "main", "main",
    ]  # fmt: skip
    assert (await typed(sandbox, "queue")).stdout == "nothing is queued; to queue work: rametctl land SESSION\n"
    assert git(repository, "status", "--porcelain") == ""


async def test_what_is_refused_or_taken_out_is_no_success(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, name="empty")
    refused = await typed(sandbox, "land", "empty")
    assert (refused.code, refused.stdout) == (1, "")
    assert "has nothing to land" in refused.stderr
    assert (await typed(sandbox, "land", "nobody")).code == 3
    assert (await typed(sandbox, "land", "one", "--detach", "--timeout", "3")).code == 2

    detached = await typed(sandbox, "land", "one", "--check", "sleep 600", "--detach")
    assert (detached.code, detached.stdout) == (0, "one  queued for main, position 1\n")
    late = await typed(sandbox, "land", "one", "--check", "sleep 600", "--timeout", "0.3")
    assert (late.code, late.stdout.splitlines()[-1]) == (124, "one  its check runs")
    assert "timed out: one its check runs" in late.stderr
    waiting = asyncio.create_task(typed(sandbox, "land", "two", "--check", "sleep 600"))
    await Landings(client).reach("two", 1)
    removed = await typed(sandbox, "queue", "rm", "two", "--json")
    assert removed.json["state"] == "removed"
    ended = await waiting
    assert ended.code == 1
    assert "two did not land: removed, on request" in ended.stderr
    assert (await typed(sandbox, "queue", "retry", "two")).code == 1
    assert (await typed(sandbox, "queue", "rm", "one")).stdout == "one  removed: on request\n"


async def test_the_queue_shows_a_failed_checks_last_line_and_rm_names_what_it_withdrew(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    failed = await typed(sandbox, "land", "one", "--check", "echo noise; echo the last of it; exit 3")
    assert failed.code == 4
    (row,) = [line for line in (await typed(sandbox, "queue")).stdout.splitlines() if " one " in line]
    assert "code 3: the last of it; its agent made no new commit; asked its agent 2 times" in row
    assert "noise" not in row

    removed = await typed(sandbox, "rm", "--force", "one")
    assert removed.code == 0
    assert "removed from the queue of main; it will not land" in removed.stdout.splitlines()


@pytest.mark.own_changes("one.txt", "index", "what the index says", "HEAD at", "reflog")
async def test_landing_within_a_time_shows_each_step_and_what_has_landed_when_it_is_over(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="last", after=["two"])
    commit(await client.get("last"), **{"last.txt": "last\n"})
    late = await typed(sandbox, "land", "one", "last", "--timeout", "3")

    assert late.code == 124
    assert late.stdout.splitlines()[0] == "one  queued for main, position 1"
    assert any(line.startswith("one  landed on main as ") for line in late.stdout.splitlines())
    assert "timed out: one landed on main as " in late.stderr
    assert "last waiting: waits for two to land" in late.stderr


@pytest.mark.own_changes("one.txt", "index", "what the index says", "HEAD at", "reflog")
async def test_landing_within_a_time_ends_in_time_when_the_daemon_goes_away(
    daemon: DaemonProcess, client: Client, sandbox: Sandbox, repository: Path
) -> None:
    arguments = ("land", "one", "--check", "sleep 600", "--timeout", "3")
    land = asyncio.create_task(asyncio.to_thread(sandbox.ctl, *arguments, cwd=repository, RAMET_AUTOSTART="0"))
    await Landings(client).reach("one", landing_pb2.LANDING_STATE_CHECKING)
    daemon.kill()

    late = await land
    assert late.code == 124
    assert "timed out: one " in late.stderr  # its last event: the previous step, if the kill was faster than the event
    daemon.start()
    assert (await typed(sandbox, "queue", "rm", "one")).code == 0
