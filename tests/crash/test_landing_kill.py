"""Kill the daemon at every step of landing: a target moves once or not at all, and no entry is
lost."""

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from ramet.v1 import attention_pb2

from tests.crash.scene import rows
from tests.crash.test_failpoints import start_to_die, wait_for_death
from tests.support.daemon import DaemonProcess, Sandbox, connected, git
from tests.support.eventually import eventually
from tests.support.landing import HELD, LANDED, WAITING, Landings, break_filter, moves, subjects, with_work

pytestmark = pytest.mark.crash

POINTS = ("queued", "composed", "checked", "intended", "moved", "recorded")
Untouched = Callable[[Path], None]


@pytest.fixture
def killed(sandbox: Sandbox) -> DaemonProcess:
    """Yield a daemon that is not started: every test arms it first."""
    return DaemonProcess(sandbox)


def on_a_branch_of_their_own(repository: Path) -> None:
    git(repository, "checkout", "-qb", "mine")
    (repository / "dir0" / "file0.txt").write_text("changed\n")


@pytest.mark.own_changes("one.txt", "two.txt", "index", "what the index says", "HEAD at", "reflog")
async def test_a_batch_onto_a_checked_out_target_moves_it_once_over_kills_at_each_step(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    killed.start(RAMET_FAILPOINT="land.queued")
    async with connected(sandbox) as client:
        for name in ("one", "two"):
            await with_work(client, repository, name, base_ref="main")
        with pytest.raises(grpc.aio.AioRpcError):
            await Landings(client).land("one", "two", check=["test -e one.txt"], request_id="the one")
    wait_for_death(killed)
    assert rows(sandbox, "SELECT count(*) FROM landings") == [(2,)]
    for point in POINTS[1:]:
        start_to_die(killed, f"land.{point}")
    killed.start()

    async with connected(sandbox) as client:
        again = await Landings(client).land("one", "two", check=["test -e one.txt"], request_id="the one")
        landed = await Landings(client).wait("one", "two")
        assert {each.id for each in again} == {each.id for each in landed.values()}
        assert {each.state for each in landed.values()} == {LANDED}
        moved = [event.target_moved for event in await client.log() if event.HasField("target_moved")]
    assert subjects(repository) == ["Merge branch 'ramet/two' into main", "Merge branch 'ramet/one' into main", "first"]
    assert moves(repository) == 1
    assert [(each.old_commit, each.new_commit) for each in moved] == [
        (git(repository, "rev-parse", "main~2"), git(repository, "rev-parse", "main"))
    ]
    assert rows(sandbox, "SELECT count(*) FROM operations") == [(0,)]
    assert (repository / "two.txt").exists()
    killed.kill()


@pytest.mark.parametrize("point", [pytest.param("returned", marks=pytest.mark.smoke), "held", "recorded"])
async def test_what_becomes_of_an_entry_is_written_down_once(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, untouched: Untouched, point: str
) -> None:
    on_a_branch_of_their_own(repository)
    untouched(repository)
    killed.start(RAMET_FAILPOINT=f"land.{point}")
    async with connected(sandbox) as client:
        for name in ("one", "two"):
            await with_work(client, repository, name, "shared.txt", base_ref="main")
        await Landings(client).land("one", "two")
    wait_for_death(killed)
    killed.start()

    async with connected(sandbox) as client:
        landings = Landings(client)
        settled = await landings.wait("one", "two")
        assert {name: each.state for name, each in settled.items()} == {"one": LANDED, "two": HELD}
        prompts = [event for event in await client.log("two") if event.HasField("prompt_queued")]
        assert len(prompts) == settled["two"].returns == 2
        opened = [event.request_opened.request for event in await client.log("two") if event.HasField("request_opened")]
        assert len([each for each in opened if each.kind == attention_pb2.ATTENTION_KIND_LANDING]) == 1
    assert moves(repository) == 1
    killed.kill()


async def test_a_check_ends_with_the_daemon_that_was_killed_and_is_run_again(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, untouched: Untouched
) -> None:
    on_a_branch_of_their_own(repository)
    untouched(repository)
    gate, pids = sandbox.root / "gate", sandbox.root / "pids"
    gate.touch()
    killed.start()
    async with connected(sandbox) as client:
        await with_work(client, repository, "one", base_ref="main")
        await Landings(client).land("one", check=[f"echo $$ >> {pids}; while [ -e {gate} ]; do sleep 0.05; done"])
        await eventually(lambda: pids.exists() and pids.read_text().split())
    killed.restart()

    async with connected(sandbox) as client:
        await eventually(lambda: len(pids.read_text().split()) == 2)
        first, _ = pids.read_text().split()
        assert not Path(f"/proc/{first}").exists()
        gate.unlink()
        assert (await Landings(client).wait("one"))["one"].state == LANDED
    assert moves(repository) == 1
    killed.kill()


def wrapped_git(folder: Path, case: str, code: str) -> Path:
    """Put a `git` into a new folder that runs ``code`` after a command that matches ``case``."""
    folder.mkdir()
    program = folder / "git"
    program.write_text(
        f'#!/bin/sh\n{shutil.which("git")} "$@"\ncode=$?\ncase "$*" in {case}) {code};; esac\nexit $code\n'
    )
    program.chmod(0o755)
    return folder


@pytest.mark.own_changes
@pytest.mark.parametrize("back", [True, False])
async def test_an_incomplete_checkout_of_a_killed_daemon_is_taken_back_or_named(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, tmp_path: Path, back: bool
) -> None:
    broken = break_filter(repository, "one.txt")
    kills = wrapped_git(tmp_path / "kills", "*--ff-only*", "kill -9 $PPID")
    fails = wrapped_git(tmp_path / "fails", "*checkout-index*", "echo 'error: unable to write file' >&2; code=1")
    killed.start(PATH=f"{kills}:{sandbox.environ['PATH']}")
    async with connected(sandbox) as client:
        await with_work(client, repository, "one", "a.txt", "dir0/file0.txt", "one.txt", base_ref="main")
        with contextlib.suppress(grpc.aio.AioRpcError):
            await Landings(client).land("one")
    wait_for_death(killed)
    assert (repository / "a.txt").exists()
    killed.start(PATH=sandbox.environ["PATH"] if back else f"{fails}:{sandbox.environ['PATH']}")

    async with connected(sandbox) as client:
        landings = Landings(client)
        if back:
            await landings.reach("one", WAITING, "smudge filter picky failed")
            broken.unlink()
        else:
            held = await landings.reach("one", HELD, "unable to write file")
            assert "rametctl queue retry one" in held.reason
            broken.unlink()
            git(repository, "checkout", "-q", "--", ".")
            await landings.retry("one")
        assert (await landings.wait("one"))["one"].state == LANDED
    assert moves(repository) == 1
    assert git(repository, "status", "--porcelain") == ""
    killed.kill()


async def test_round_after_round_no_entry_is_lost_and_none_lands_twice(
    killed: DaemonProcess, sandbox: Sandbox, repository: Path, untouched: Untouched, request: pytest.FixtureRequest
) -> None:
    on_a_branch_of_their_own(repository)
    untouched(repository)
    chance = random.Random(7)  # noqa: S311 - which instants are tried is no secret
    rounds = request.config.getoption("--crash-rounds") or 4
    for number in range(rounds):
        method = chance.choice(["merge", "squash", "rebase"])
        killed.start(RAMET_FAILPOINT=f"land.{chance.choice(POINTS)}")
        async with connected(sandbox) as client:
            await with_work(client, repository, f"s{number}", base_ref="main")
            with contextlib.suppress(grpc.aio.AioRpcError):
                await Landings(client).land(f"s{number}", method=method, check=["true"])
        wait_for_death(killed)
        killed.start()
        async with connected(sandbox) as client:
            assert (await Landings(client).wait(f"s{number}"))[f"s{number}"].state == LANDED
        killed.kill()

    assert moves(repository) == rounds
    assert rows(sandbox, "SELECT state, count(*) FROM landings GROUP BY state") == [("landed", rounds)]
    for number in range(rounds):
        made = git(
            repository,
            "log",
            "--first-parent",
            "--diff-merges=first-parent",
            "--no-patch",
            "--format=%H",
            "main",
            "--",
            f"s{number}.txt",
        )
        assert len(made.splitlines()) == 1
