"""``python -m tests.bench.gate [--write]``: fail if a figure has become worse. Runs for every
change (`.ci/run`), also on a busy machine.

Each figure is processor time, which load changes little, as a ratio to a yardstick of the same run,
which load changes alike: the daemon's time for an event to a row of plain SQLite, a start to
``import grpc``. A figure fails if it is 50 % worse than in `gate.json` in each of three rounds.
``--write`` stores the figures of this run there; use it only for a change that costs more on
purpose.
"""

import argparse
import asyncio
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ramet.v1 import common_pb2, daemon_pb2

from tests.bench.figures import QUICK, cpu_time, progress, resident
from tests.bench.herd import CONFIG, all_idle, gather_herd
from tests.bench.history import store_history
from tests.bench.ready import start_time_of
from tests.bench.stream import Heard
from tests.support.agents import script
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_process, git, make_sandbox
from tests.support.eventually import eventually

BASELINE = Path(__file__).with_name("gate.json")
WORSE = 1.5
ROUNDS = 3
STARTS = 3
AGENTS, PER_SECOND, EVENTS = 8, 50, 300
"""Number of agents, and events of each. The first and the last fifth are not measured: turns begin
and end there."""
CREATIONS = 4
TURNS = 5
LISTS = 8
PY_SPY = "py-spy record --gil --threads --rate 400 --format raw --output profile.txt"
PROFILES = {
    "imports": f"{sys.executable} -X importtime -c 'import rametd.app'",
    "command": f"{sys.executable} -X importtime -m rametctl version",
    "start": f"{PY_SPY} -- {sys.executable} -m rametd",
    "event": f"{PY_SPY} --duration 10 --pid DAEMON    # while `make bench ARGS=stream` runs",
    "creation": f"{PY_SPY} --duration 10 --pid DAEMON    # while `make bench ARGS=creation` runs",
    "turn": f"{PY_SPY} --duration 10 --pid DAEMON    # while `make bench-gate` runs",
    "list": f"{sys.executable} -m cProfile -s cumtime -m rametctl ls    # and py-spy with the daemon's pid",
    "memory": f"{sys.executable} -X importtime -c 'import rametd.app'    # imports, some of them unnecessary",
}
"""Where to look if a figure has become worse, by the first word of its name."""


@dataclass(frozen=True, slots=True)
class Ratio:
    name: str
    value: float
    of: str

    def worse_than(self, before: float) -> bool:
        return self.value > before * WORSE


async def measure() -> AsyncIterator[Ratio]:
    with make_sandbox(config=CONFIG) as sandbox:
        grpc = least(lambda: cpu_of_command(sandbox, "-c", "import grpc"))
        imports = least(lambda: cpu_of_command(sandbox, "-c", "import rametd.app"))
        yield Ratio("imports of the daemon", imports / grpc, "processor time of `import grpc`")
        command = least(lambda: cpu_of_command(sandbox, "-m", "rametctl", "--version"))
        yield Ratio("command", command / grpc, "processor time of `import grpc`")
        with daemon_process(sandbox, forked=False) as daemon:
            repository = sandbox.repository(files=1000)
            async with connected(sandbox) as client:
                creation = await creations(client, daemon, repository)
            tree = least(lambda: cpu_of_children(lambda: plain_tree(sandbox, repository)))
            yield Ratio("creation of a session", creation / tree, "processor time of `git worktree add`")
            async with connected(sandbox) as client:
                ids = await gather_herd(client, repository, AGENTS)
                event = await stream(client, daemon, ids)
                turn = await turns(client, daemon, ids)
            yield Ratio("turn of an agent", turn / tree, "processor time of `git worktree add`")
            yield Ratio("event of an agent", event / (row() + echo()), "a row of plain SQLite and a socket's echo")
            yield Ratio("memory of the daemon", resident(daemon.pid) / memory_of_grpc(), "that of `import grpc`")
    with make_sandbox() as sandbox:
        await store_history(sandbox, replace(QUICK, sessions=500, events=5_000))
        start = least(lambda: start_of(sandbox))
        yield Ratio("start with 500 stored sessions", start / grpc, "processor time of `import grpc`")
        with daemon_process(sandbox, forked=False) as daemon:
            cpu_of_command(sandbox, "-m", "rametctl", "ls")  # afterwards the daemon has built all messages once
            lists = least(lambda: list_of(sandbox, daemon), LISTS)
        yield Ratio("list of 500 sessions", lists / grpc, "processor time of `import grpc`")


def least(measured: Callable[[], float], times: int = STARTS) -> float:
    """Return the least of several measurements: load can only add."""
    return min(measured() for _ in range(times))


def cpu_of_children(work: Callable[[], object]) -> float:
    """Return the processor time of the processes that ``work`` starts and waits for, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cpu_of_command(sandbox: Sandbox, *arguments: str) -> float:
    command = [sys.executable, *arguments]
    return cpu_of_children(
        lambda: subprocess.run(command, env=sandbox.environ, cwd=sandbox.root, capture_output=True, check=True)
    )


def list_of(sandbox: Sandbox, daemon: DaemonProcess) -> float:
    """Return the processor time of `rametctl ls`, and of the daemon meanwhile, in seconds."""
    before = cpu_time(daemon.pid)
    return cpu_of_command(sandbox, "-m", "rametctl", "ls") + cpu_time(daemon.pid) - before


def plain_tree(sandbox: Sandbox, repository: Path) -> None:
    name = f"plain-{time.monotonic_ns()}"
    git(repository, "worktree", "add", "-q", "-b", name, str(sandbox.root / name))


async def creations(client: Client, daemon: DaemonProcess, repository: Path) -> float:
    """Return the processor time for a session without a prompt, of the daemon and its children, in
    seconds."""
    await client.create(repository, name="first")
    before = cpu_with_children(daemon.pid)
    for number in range(CREATIONS):
        await client.create(repository, name=f"made-{number}")
    return (cpu_with_children(daemon.pid) - before) / CREATIONS


def cpu_with_children(pid: int) -> float:
    """Return the processor time including ended children that were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return cpu_time(pid) + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


async def stream(client: Client, daemon: DaemonProcess, ids: Sequence[str]) -> float:
    """Return the daemon's processor time per event, from the agents to one watching client, in
    seconds."""
    info = await client.daemon.GetInfo(daemon_pb2.GetInfoRequest(), metadata=client.metadata)
    heard = Heard(common_pb2.Cursor(epoch=info.cursor.epoch, seq=info.cursor.seq))
    total = len(ids) * EVENTS

    async def reached(count: int) -> tuple[int, float]:
        await eventually(lambda: len(heard.texts) >= count, within=120, every=0.02)
        return len(heard.texts), cpu_time(daemon.pid)

    async with heard.listening(client):
        prompt = script({"events": EVENTS, "per_second": PER_SECOND, "bytes": 300})
        for each in ids:
            await client.send(each, prompt)
        first, before = await reached(total // 5)
        last, after = await reached(total * 4 // 5)
    return (after - before) / (last - first)


async def turns(client: Client, daemon: DaemonProcess, ids: Sequence[str]) -> float:
    """Return the processor time for an empty turn, of the daemon and its children, in seconds: the
    prompt, the checkpoint, the watchers."""
    await all_idle(client, len(ids))
    before = cpu_with_children(daemon.pid)
    for _ in range(TURNS):
        for each in ids:
            await client.send(each, script({"text": "done"}))
        await all_idle(client, len(ids))
    return (cpu_with_children(daemon.pid) - before) / (TURNS * len(ids))


def start_of(sandbox: Sandbox) -> float:
    """Return the processor time of a daemon until it serves, in seconds."""
    daemon = DaemonProcess(sandbox, forked=False)
    start_time_of(daemon)
    seconds = cpu_time(daemon.pid)
    daemon.stop()
    return seconds


def row(count: int = 20_000) -> float:
    """Return the processor time of a row of plain SQLite, fifty in a transaction, in seconds."""

    def fill() -> float:
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, kind TEXT, payload BLOB)")
        began = time.process_time()
        for _ in range(count // 50):
            db.execute("BEGIN")
            db.executemany("INSERT INTO events (kind, payload) VALUES (?, ?)", [("event", b"x" * 600)] * 50)
            db.execute("COMMIT")
        return (time.process_time() - began) / count

    return least(fill)


def echo(count: int = 20_000) -> float:
    """Return the processor time to send and receive 600 bytes through a socket in this process, in
    seconds."""

    def bounce() -> float:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            began = time.process_time()
            for _ in range(count):
                ours.send(b"x" * 600)
                theirs.send(theirs.recv(1024))
                ours.recv(1024)
            return (time.process_time() - began) / count

    return least(bounce)


def memory_of_grpc() -> float:
    """Return the memory of a process that has imported grpc, in MB."""
    program = "import grpc, sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        size = resident(process.pid)
        process.communicate()
    return size


async def judge(before: dict[str, float]) -> dict[str, Ratio]:
    """Return the least of each figure. Measure in rounds until none is worse than ``before``, at
    most `ROUNDS`."""
    best: dict[str, Ratio] = {}
    for number in range(ROUNDS):
        async for ratio in measure():
            known = best.get(ratio.name)
            best[ratio.name] = ratio if known is None or ratio.value < known.value else known
            progress(f"  {ratio.name}: {ratio.value:.2f} x {ratio.of}")
        if not worse(best, before):
            break
        progress(f"round {number + 1}: worse than before: {', '.join(each.name for each in worse(best, before))}")
    return best


def worse(found: dict[str, Ratio], before: dict[str, float]) -> list[Ratio]:
    return [each for each in found.values() if each.worse_than(before.get(each.name, each.value))]


def complaint(ratio: Ratio, before: float) -> str:
    profile = PROFILES[ratio.name.split()[0]]
    return (
        f"{ratio.name}: {ratio.value:.2f} x {ratio.of}, was {before:.2f} (limit {before * WORSE:.2f})\n"
        f"    profile it: {profile}\n"
        f"    meant to cost more? `python -m tests.bench.gate --write`, and say why in the commit"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate", description="Fail when a figure has gone back.")
    parser.add_argument("--write", action="store_true", help="store the figures of this run as those to compare with")
    write = parser.parse_args().write
    before: dict[str, float] = {} if write else json.loads(BASELINE.read_text())
    found = asyncio.run(judge(before))
    if write:
        values = {each.name: round(each.value, 2) for each in found.values()}
        BASELINE.write_text(json.dumps(values, indent=2) + "\n")
    if gone := before.keys() - found.keys():
        sys.exit(f"not measured any more: {', '.join(sorted(gone))}: `python -m tests.bench.gate --write`")
    if back := worse(found, before):
        sys.exit("\n".join(["figures went back:", *(complaint(each, before[each.name]) for each in back)]))


if __name__ == "__main__":
    main()
