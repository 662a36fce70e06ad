"""Creation of a session, cold and with a prepared spare: the call, the command, and the agent's
first request to its model."""

import asyncio
import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

from ramet.v1 import worktree_pb2

from tests.bench.figures import Figure, Scale, paired, progress, run_time
from tests.support.agents import CLAUDE, scripted_model
from tests.support.daemon import IDLE, Client, Sandbox, connected, daemon_process, git, make_sandbox
from tests.support.eventually import eventually_sync


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    with make_sandbox() as sandbox, daemon_process(sandbox, forked=False):
        repository = sandbox.repository(files=scale.files)
        progress(f"making sessions on {scale.files} files")
        yield await the_call(scale, sandbox, repository)
        yield the_command(scale, sandbox, repository)
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox, daemon_process(sandbox, forked=False):
        repository = sandbox.repository(files=scale.monorepo)
        progress(f"making sessions of spares on {scale.monorepo} files")
        yield await the_call(scale, sandbox, repository, spare=True)
        yield await the_command_with_spares(scale, sandbox, repository)
        yield await refilling(scale, sandbox, repository)
    if CLAUDE.exists():
        async for figure in first_requests(scale):
            yield figure
    else:
        progress("the SDK brings no Claude Code here: the time to the first model request is left out")


async def fill(client: Client, repository: Path) -> None:
    """Wait until the pool is full."""
    await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(repository)))


async def disk_at_rest() -> None:
    """Sync the disk: writing tens of thousands of files takes seconds, which would distort the next
    measurement."""
    await asyncio.to_thread(os.sync)


async def the_call(scale: Scale, sandbox: Sandbox, repository: Path, *, spare: bool = False) -> Figure:
    """Measure the call and git's own part of it, alternately."""
    calls, trees = [], []
    runs = scale.creations
    async with connected(sandbox) as client:
        if spare:
            await client.create(repository)
        for number in range(runs + (runs > 1)):
            began = time.perf_counter()
            git(repository, "worktree", "add", "-q", "-b", f"plain-{number}", str(sandbox.root / f"tree-{number}"))
            trees.append(time.perf_counter() - began)
            if spare:
                await fill(client, repository)
            await disk_at_rest()
            began = time.perf_counter()
            session = await client.create(repository, "hello")
            calls.append(time.perf_counter() - began)
            await client.reach(session.id, IDLE)
    tree, call = statistics.median(trees[-runs:]), statistics.median(calls[-runs:])
    files = scale.monorepo if spare else scale.files
    how = f"CreateSession with a prompt, {files} files, {'a' if spare else 'no'} spare; median of {scale.creations}"
    name = "creating a session with a warm pool" if spare else "creating a session"
    yardstick = f"git worktree add ({tree * 1000:.0f} ms)"
    return Figure(name, call * 1000, "ms", how, 30 if spare else None, call / tree, yardstick)


async def the_command_with_spares(scale: Scale, sandbox: Sandbox, repository: Path) -> Figure:
    """Measure `rametctl new` with a spare, as `the_command`."""
    start = [sys.executable, "-m", "rametctl", "version"]
    plain, measured = [], []
    async with connected(sandbox) as client:
        for number in range(scale.creations):
            await fill(client, repository)
            await disk_at_rest()
            command = [sys.executable, "-m", "rametctl", "new", "--name", f"warm-{number}", "hello"]
            plain.append(run_time(start, environ=sandbox.environ, cwd=repository))
            measured.append(run_time(command, environ=sandbox.environ, cwd=repository))
            await client.reach(f"warm-{number}", IDLE)
    more = statistics.median(second - first for first, second in zip(plain, measured, strict=True))
    how = (
        f"`rametctl new` ({statistics.median(measured) * 1000:.0f} ms) less `rametctl version`"
        f" ({statistics.median(plain) * 1000:.0f} ms), in turns, {scale.monorepo} files, a spare; median of {scale.creations}"
    )
    name = "rametctl new with a warm pool, beyond the client's start"
    return Figure(
        name, more * 1000, "ms", how, 60, statistics.median(measured) / statistics.median(plain), "rametctl version"
    )


async def refilling(scale: Scale, sandbox: Sandbox, repository: Path) -> Figure:
    """Measure git over a session's complete tree while a spare is created, and without."""
    alone, beside = [], []
    async with connected(sandbox) as client:
        tree = Path((await client.create(repository, name="at-work")).worktree)

        async def work() -> float:
            began = time.perf_counter()
            await asyncio.to_thread(git, tree, "status", "--porcelain")
            return time.perf_counter() - began

        await fill(client, repository)
        await disk_at_rest()
        await work()
        for _ in range(max(scale.creations // 2, 1)):
            alone += [await work() for _ in range(3)]
            await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(repository)))
            filling = asyncio.create_task(fill(client, repository))
            while not filling.done():
                beside.append(await work())
            await filling
    quiet, busy = statistics.median(alone), statistics.median(beside)
    how = (
        f"git status in a session ({quiet * 1000:.0f} ms, {busy * 1000:.0f} ms beside) while a spare of {scale.monorepo} files is made;"
        f" medians of {len(alone)} and {len(beside)}"
    )
    return Figure(
        "work beside a refill of the pool", (busy / quiet - 1) * 100, "% slower", how, 10, busy / quiet, "alone"
    )


def the_command(scale: Scale, sandbox: Sandbox, repository: Path) -> Figure:
    """Measure `rametctl new`, and a command that only calls GetInfo."""
    numbers = count()
    start = [sys.executable, "-m", "rametctl", "version"]

    def new() -> float:
        command = [sys.executable, "-m", "rametctl", "new", "--name", f"new-{next(numbers)}", "hello"]
        return run_time(command, environ=sandbox.environ, cwd=repository)

    times = paired(lambda: run_time(start, environ=sandbox.environ, cwd=repository), new, scale.creations)
    how = (
        f"`rametctl new` ({times.measured * 1000:.0f} ms) less `rametctl version` ({times.yardstick * 1000:.0f} ms), in turns,"
        f" {scale.files} files, no spare; median of {scale.creations} differences"
    )
    ratio = times.measured / times.yardstick
    return Figure(
        "rametctl new, beyond the client's start", times.more * 1000, "ms", how, None, ratio, "rametctl version"
    )


async def first_requests(scale: Scale) -> AsyncIterator[Figure]:
    """Measure the real program by itself, and through Ramet, cold and with a warm agent,
    alternately."""
    words = (f"hello {number}." for number in count())
    async with scripted_model() as port:
        for warm in (False, True):
            progress(f"waiting for first model requests of the real program, {'warm' if warm else 'cold'}")
            config = f"[pool]\nsize = 1\nwarm_agents = {int(warm)}\n"
            with (
                make_sandbox(model_port=port, real_cli=True, config=config) as sandbox,
                daemon_process(sandbox, forked=False),
            ):
                repository = sandbox.repository(files=scale.monorepo)
                sandbox.ctl("new", "--name", "first", cwd=repository)
                bare, trees, ours = [], [], []
                for number in range(scale.first_requests + (scale.first_requests > 1)):
                    began = time.perf_counter()
                    git(repository, "worktree", "add", "-q", "-b", f"plain-{number}", str(sandbox.root / f"t-{number}"))
                    trees.append(time.perf_counter() - began)
                    await disk_at_rest()
                    bare.append(bare_request(sandbox, repository, next(words)))
                    sandbox.ctl("pool", "fill", cwd=repository)
                    await disk_at_rest()
                    ours.append(request_of_new(sandbox, repository, next(words)))
            yield first_request(scale, bare[-scale.first_requests :], trees, ours[-scale.first_requests :], warm=warm)


def first_request(scale: Scale, bare: list[float], trees: list[float], ours: list[float], *, warm: bool) -> Figure:
    alone, seconds = statistics.median(bare), statistics.median(ours)
    how = (
        f"spawn of `rametctl new` to the first request at the model: real Claude Code, scripted model, {scale.monorepo} files, a spare"
        f" {'with an agent' if warm else 'without an agent'}; median of {scale.first_requests};"
        f" git worktree add took {statistics.median(trees):.2f} s beside"
    )
    name = f"new to the first model request, {'with a warm agent' if warm else 'cold'}"
    yardstick = f"claude -p to its first request ({alone:.2f} s)"
    return Figure(name, seconds, "s", how, 0.4 if warm else 1.2, seconds / alone, yardstick)


def request_of_new(sandbox: Sandbox, repository: Path, prompt: str) -> float:
    began = time.time()
    run_time([sys.executable, "-m", "rametctl", "new", prompt], environ=sandbox.environ, cwd=repository)
    seconds = arrival(sandbox.model_port, prompt) - began
    for each in sandbox.ctl("ls", "--all", "--json").json:
        sandbox.ctl("wait", each["id"])
        sandbox.ctl("stop", each["id"])  # an idle agent would slow the next one down
    return seconds


def bare_request(sandbox: Sandbox, repository: Path, prompt: str) -> float:
    began = time.time()
    command = [str(CLAUDE), "-p", "--setting-sources", "user", prompt]
    run_time(command, environ={**sandbox.environ, "DISABLE_AUTOUPDATER": "1"}, cwd=repository)
    return arrival(sandbox.model_port, prompt) - began


def arrival(port: int, prompt: str) -> float:
    """Return the time of the model's first request with a prompt."""

    def look() -> float | None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/requests", timeout=5) as answer:
            requests = json.load(answer)
        return next((float(each["time"]) for each in requests if prompt in each["last_user"]), None)

    return eventually_sync(look) or 0.0
