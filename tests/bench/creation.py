"""Making a session, cold: the call, the command, and the first thing that the agent asks its model."""

import json
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

from tests.bench.figures import Figure, Scale, paired, progress, run_time
from tests.support.agents import CLAUDE, scripted_model
from tests.support.daemon import IDLE, Sandbox, connected, daemon_process, git, make_sandbox
from tests.support.eventually import eventually_sync


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    with make_sandbox() as sandbox, daemon_process(sandbox):
        repository = sandbox.repository(files=scale.files)
        progress(f"making sessions on {scale.files} files")
        yield await the_call(scale, sandbox, repository)
        yield the_command(scale, sandbox, repository)
    if CLAUDE.exists():
        yield await first_request(scale)
    else:
        progress("the SDK brings no Claude Code here: the time to the first model request is left out")


async def the_call(scale: Scale, sandbox: Sandbox, repository: Path) -> Figure:
    """The call against git's own part of it, in turns."""
    calls, trees = [], []
    runs = scale.creations
    async with connected(sandbox) as client:
        for number in range(runs + (runs > 1)):
            began = time.perf_counter()
            git(repository, "worktree", "add", "-q", "-b", f"plain-{number}", str(sandbox.root / f"tree-{number}"))
            trees.append(time.perf_counter() - began)
            began = time.perf_counter()
            session = await client.create(repository, "hello")
            calls.append(time.perf_counter() - began)
            await client.reach(session.id, IDLE)
    tree, call = statistics.median(trees[-runs:]), statistics.median(calls[-runs:])
    how = f"CreateSession with a prompt, {scale.files} files, no spare; median of {scale.creations}"
    return Figure(
        "creating a session", call * 1000, "ms", how, None, call / tree, f"git worktree add ({tree * 1000:.0f} ms)"
    )


def the_command(scale: Scale, sandbox: Sandbox, repository: Path) -> Figure:
    """`rametctl new` against a command that only asks the daemon who it is."""
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
        "rametctl new, beyond the client's start", times.more * 1000, "ms", how, 60, ratio, "rametctl version"
    )


async def first_request(scale: Scale) -> Figure:
    """With the real program: what it takes by itself, and what it takes through us, in turns."""
    progress("waiting for first model requests of the real program")
    async with scripted_model() as port:
        with make_sandbox(model_port=port, real_cli=True) as sandbox, daemon_process(sandbox):
            repository = sandbox.repository(files=scale.files)
            words = (f"hello {number}." for number in count())
            times = paired(
                lambda: bare_request(sandbox, repository, next(words)),
                lambda: request_of_new(sandbox, repository, next(words)),
                scale.first_requests,
            )
    how = (
        f"spawn of `rametctl new` to the first request at the model: real Claude Code, scripted model, {scale.files} files, no spare;"
        f" median of {scale.first_requests}"
    )
    ratio = times.measured / times.yardstick
    yardstick = f"claude -p to its first request ({times.yardstick:.2f} s)"
    return Figure("new to the first model request", times.measured, "s", how, 1.2, ratio, yardstick)


def request_of_new(sandbox: Sandbox, repository: Path, prompt: str) -> float:
    began = time.time()
    run_time([sys.executable, "-m", "rametctl", "new", prompt], environ=sandbox.environ, cwd=repository)
    seconds = arrival(sandbox.model_port, prompt) - began
    for each in sandbox.ctl("ls", "--all", "--json").json:
        sandbox.ctl("wait", each["id"])
        sandbox.ctl("stop", each["id"])  # an agent at rest would slow the next one down
    return seconds


def bare_request(sandbox: Sandbox, repository: Path, prompt: str) -> float:
    began = time.time()
    command = [str(CLAUDE), "-p", "--setting-sources", "user", prompt]
    run_time(command, environ={**sandbox.environ, "DISABLE_AUTOUPDATER": "1"}, cwd=repository)
    return arrival(sandbox.model_port, prompt) - began


def arrival(port: int, prompt: str) -> float:
    """When the model was first asked with a prompt."""

    def look() -> float | None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/requests", timeout=5) as answer:
            requests = json.load(answer)
        return next((float(each["time"]) for each in requests if prompt in each["last_user"]), None)

    return eventually_sync(look, within=30) or 0.0
