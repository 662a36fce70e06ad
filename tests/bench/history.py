"""A daemon with a long history: time until it serves, and until a client has listed its
sessions."""

import asyncio
import statistics
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from ramet.v1 import event_pb2
from rametd.domain.models import AgentState, NewEvent
from rametd.domain.states import State
from rametd.services import events
from rametd.store import Store, Unit

from tests.bench.dashboard import first_screen
from tests.bench.figures import Figure, Scale, paired, progress, run_time
from tests.bench.ready import start_time_of
from tests.bench.web import first_page, interactive
from tests.support.daemon import DaemonProcess, Sandbox, git, make_sandbox
from tests.support.rows import a_repo, a_session, an_agent

PORTION = 10_000
"""Events in one transaction when the history is written."""

PARTS = """
import asyncio, pathlib, sys, time
began = time.perf_counter()
import rametd.__main__
with rametd.__main__.loading.quickly():
    import rametd.app
    from rametd.store import Store
imported = time.perf_counter()
async def main():
    store = await Store.open(pathlib.Path(sys.argv[1]))
    print(imported - began, time.perf_counter() - imported)
    await store.aclose()
asyncio.run(main())
"""


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    with make_sandbox() as sandbox:
        progress(f"storing {scale.sessions} sessions and {scale.events} events")
        await store_history(sandbox, scale)
        what = f"{scale.sessions} sessions and {scale.events} events stored"
        daemon = DaemonProcess(sandbox, forked=False)
        python = [sys.executable, "-c", "import grpc"]
        environ = {**sandbox.environ, "RAMET_AUTOSTART": "0"}

        def yardstick() -> float:
            return run_time(python, environ=environ, cwd=sandbox.root)

        def start() -> float:
            seconds = start_time_of(daemon)
            daemon.stop()
            return seconds

        progress(f"starting a daemon {scale.starts + 1} times")
        starts = paired(yardstick, start, scale.starts)
        parts = [parts_of_start(sandbox) for _ in range(scale.starts)]
        imports, opening = (statistics.median(each) for each in zip(*parts, strict=True))
        bare = statistics.median(
            run_time([sys.executable, "-c", "pass"], environ=environ, cwd=sandbox.root) for _ in range(scale.starts)
        )
        yield Figure(
            "daemon start",
            starts.measured,
            "s",
            f"spawn to READY=1 with {what}; median of {scale.starts} starts after a clean stop",
            0.5,
            starts.measured / starts.yardstick,
            "python -c 'import grpc'",
        )
        rest = starts.measured - bare - imports - opening
        yield Figure("daemon start: interpreter", bare, "s", "python -c pass; median")
        yield Figure("daemon start: imports", imports, "s", "what the daemon imports, in a process of its own; median")
        yield Figure("daemon start: store", opening, "s", "Store.open on the same database; median")
        yield Figure(
            "daemon start: recovery and the rest",
            rest,
            "s",
            "what is left: git, server, recovery; negative where the machine was slower for the parts than for the whole",
        )

        daemon.start()
        progress(f"listing {scale.sessions} sessions {scale.lists + 1} times")
        command = [sys.executable, "-m", "rametctl", "ls"]
        lists = paired(yardstick, lambda: run_time(command, environ=environ, cwd=sandbox.root), scale.lists)
        progress("opening the dashboard")
        screens = paired(yardstick, lambda: first_screen(sandbox, "task-1 "), scale.lists)
        progress("opening the web page")
        page = first_page(sandbox, "task-1<", scale.lists)
        ready = await asyncio.to_thread(interactive, sandbox, "task-1<", scale.lists)
        daemon.stop()
    how = (
        f"GET / of `rametctl web` to the last byte, {scale.sessions} sessions; median of {scale.lists}; wanted: 150 ms"
    )
    yield Figure("web page, first page at the server", page, "ms", how)
    how = f"navigation in Chromium until keys and forms work, {scale.sessions} sessions; median of {scale.lists}; wanted: 1 s"
    yield Figure("web page, time to interactive", ready, "ms", how)
    yield Figure(
        "dashboard, first full screen",
        screens.measured,
        "s",
        f"spawn of `rametctl top` to rows on the screen, {scale.sessions} sessions; median of {scale.lists}",
        0.8,
        screens.measured / screens.yardstick,
        "python -c 'import grpc'",
    )
    yield Figure(
        "rametctl ls, beyond import grpc",
        lists.more * 1000,
        "ms",
        f"`rametctl ls` of {scale.sessions} sessions ({lists.measured * 1000:.0f} ms) less `python -c 'import grpc'`, in turns;"
        f" median of {scale.lists} differences",
        60,
        lists.measured / lists.yardstick,
        "python -c 'import grpc'",
    )


def parts_of_start(sandbox: Sandbox) -> tuple[float, float]:
    """Return the seconds for a daemon's imports, and for opening its store."""
    command = [sys.executable, "-c", PARTS, str(sandbox.root / "state" / "ramet.db")]
    done = subprocess.run(command, env=sandbox.environ, capture_output=True, text=True, check=True)
    imported, opened = map(float, done.stdout.split())
    return imported, opened


async def store_history(sandbox: Sandbox, scale: Scale) -> None:
    """Fill the database with the daemon's own store."""
    root = sandbox.repository()
    tip = git(root, "rev-parse", "HEAD")
    sandbox.directories.home.mkdir(mode=0o700)
    store = await Store.open(sandbox.directories.home / "ramet.db")
    try:
        await store.write(lambda unit: add_sessions(unit, root, tip, scale.sessions))
        for first in range(0, scale.events, PORTION):
            count = min(PORTION, scale.events - first)
            await store.write(lambda unit, first=first, count=count: add_events(unit, first, count, scale.sessions))  # type: ignore[misc]
    finally:
        await store.aclose()


def add_sessions(unit: Unit, root: Path, tip: str, count: int) -> None:
    repo = unit.repos.upsert(a_repo("repo", root=root, common_dir=root / ".git", create_time=unit.now))
    for number in range(count):
        session_id = f"{number:08x}"
        session = unit.sessions.insert(
            a_session(
                session_id,
                repo_id=repo.id,
                name=f"task-{number}",
                branch=f"ramet/task-{number}",
                base_commit=tip,
                worktree=root.parent / "state" / "worktrees" / session_id,
                conversation_id=str(uuid.UUID(int=number)),
                conversation_begun=True,
                worktree_ready=True,
                state=State.IDLE,
                turns=3,
                checkpointed_turns=3,
                cost_usd=0.25,
                generation=1,
                create_time=unit.now + number,
            )
        )
        unit.agents.insert(an_agent(session.id, state=AgentState.EXITED, exit_status="code 0", end_time=unit.now))


def add_events(unit: Unit, first: int, count: int, sessions: int) -> None:
    said = event_pb2.AssistantMessage(message_id="msg", model="scripted")
    said.blocks.add(text="The tests pass now; the fault was in the parser. " * 4)
    line = b'{"type":"assistant","message":{"content":[{"type":"text","text":"' + b"x" * 200 + b'"}]}}'
    made: NewEvent = events.make(said, repo_id="repo")._replace(frame=line)
    unit.events.append(*(made._replace(session_id=f"{(first + n) % sessions:08x}") for n in range(count)))
