"""Many sessions, clients and repositories at once; and the order for few slots."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    QUEUED,
    STARTING,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    command_of,
    connected,
    daemon_process,
    git,
    make_sandbox,
)

pytestmark = pytest.mark.full

EDITS = "acceptEdits"


def at_once(box: Sandbox, commands: Sequence[Sequence[str]], cwd: Path) -> list[tuple[int, str, str]]:
    """Run all ``rametctl`` commands at the same moment; return their exit codes and output."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "rametctl", *command],
            cwd=cwd, env=box.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for command in commands
    ]  # fmt: skip
    said = [process.communicate(timeout=90) for process in started]
    return [(process.returncode, *words) for process, words in zip(started, said, strict=True)]


def test_ten_sessions_created_at_the_same_moment_all_work(sandbox: Sandbox) -> None:
    repo = sandbox.repository(files=1000)
    names = [f"worker-{number}" for number in range(10)]

    def prompt(name: str) -> str:
        return script({"tool": "Write", "input": {"file_path": "$CWD/mine.txt", "content": name}}, {"text": "done"})

    with daemon_process(sandbox):
        made = at_once(sandbox, [["new", "--name", name, "--mode", EDITS, prompt(name)] for name in names], repo)
        assert [(code, err) for code, _, err in made] == [(0, "")] * 10

        waited = sandbox.ctl("wait", *names, "--timeout", "60", cwd=repo)
        assert waited.code == 0, waited.stderr
        sessions = sandbox.ctl("ls", "--json", cwd=repo).json
        assert sorted(session["name"] for session in sessions) == names
        assert {(session["state"], session["turns"]) for session in sessions} == {("idle", 1)}
        for session in sessions:
            tree = Path(session["worktree"])
            assert (tree / "mine.txt").read_text() == session["name"]
            assert git(tree, "status", "--porcelain") == "?? mine.txt"
            assert git(tree, "rev-parse", "--abbrev-ref", "HEAD") == session["branch"]
            assert len(git(tree, "ls-files").splitlines()) == 1000
        branches = git(repo, "branch", "--format=%(refname:short)").split()
        assert sorted(branches) == sorted(["main", *(session["branch"] for session in sessions)])
        assert git(repo, "status", "--porcelain") == ""


def test_twenty_clients_that_start_the_daemon_at_once_make_one(sandbox: Sandbox) -> None:
    said = at_once(sandbox, [["daemon", "start", "--json"]] * 4 + [["ls", "--all", "--json"]] * 16, sandbox.root)
    assert [(code, err) for code, _, err in said] == [(0, "")] * 20
    daemons = [process for process in sandbox.processes() if "rametd" in command_of(process)]
    assert [process.pid for process in daemons] == [sandbox.ctl("daemon", "status", "--json").json["pid"]]
    log = (sandbox.root / "state" / "logs" / "rametd.log").read_text()
    assert log.count('"serving"') == 1
    assert sandbox.ctl("daemon", "stop").code == 0


def test_sessions_of_several_repositories_do_not_meet(sandbox: Sandbox) -> None:
    repos = [sandbox.repository(name) for name in ("one", "two", "three")]
    with daemon_process(sandbox):
        for repo in repos:
            assert sandbox.ctl("new", "--name", "same", cwd=repo).code == 0
        for repo in repos:
            (session,) = sandbox.ctl("ls", "--json", cwd=repo).json
            assert session["repo"] == repo.name
            assert sandbox.ctl("show", "same", "--json", cwd=repo).json["id"] == session["id"]
            assert git(repo, "branch", "--format=%(refname:short)").split() == ["main", "ramet/same"]
        assert len(sandbox.ctl("ls", "--all", "--json", cwd=repos[0]).json) == 3
        assert sandbox.ctl("rm", "two/same").code == 0
        assert [len(sandbox.ctl("ls", "--json", cwd=repo).json) for repo in repos] == [1, 0, 1]


# ── slots ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def narrow() -> Iterator[DaemonProcess]:
    """Yield a daemon with two slots, and repositories ``repo`` and ``other``."""
    with make_sandbox(config="max_working = 2\n") as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        sandbox.repository("other")
        yield daemon


@pytest.fixture
async def client(narrow: DaemonProcess) -> AsyncIterator[Client]:
    """Remove all sessions of the daemon."""
    async with connected(narrow.sandbox) as connection:
        yield connection
        for session in (await connection.sessions.ListSessions(session_pb2.ListSessionsRequest())).sessions:
            await connection.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session.id, force=True))


async def changes(client: Client) -> list[tuple[str, int]]:
    """Return every change of state so far, as (name of the session, new state)."""
    names: dict[str, str] = {}
    found: list[tuple[str, int]] = []
    for event in await client.log():
        if event.HasField("session_created"):
            names[event.session_id] = event.session_created.session.name
        if event.HasField("state_changed"):
            found.append((names[event.session_id], event.state_changed.new_state))
    return found


async def begun(client: Client, last: int) -> list[str]:
    """Return the sessions in the order in which they got a slot, of those created last."""
    return [name for name, state in await changes(client) if state == STARTING][-last:]


async def test_no_more_sessions_work_than_there_are_slots_and_all_get_their_turn(
    narrow: DaemonProcess, client: Client
) -> None:
    repo = narrow.sandbox.root / "repo"
    names = [f"s{number}" for number in range(6)]
    for name in names:
        await client.create(repo, script({"sleep": 0.2, "text": "done"}), name=name)
    for name in names:
        await client.reach(name, IDLE)

    taken: set[str] = set()
    most = 0
    for name, state in await changes(client):
        (taken.add if state in {STARTING, WORKING} else taken.discard)(name)
        most = max(most, len(taken))
    assert most == 2
    assert await begun(client, 6) == names, "the oldest goes first"


async def hold(client: Client, repo: Path) -> Callable[[], Awaitable[None]]:
    """Fill both slots; return the function that frees them."""
    for number in range(2):
        await client.create(repo, script({"hang": True}), name=f"holder-{number}")
        await client.reach(f"holder-{number}", WORKING)

    async def free() -> None:
        for number in range(2):
            await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session=f"holder-{number}"))

    return free


async def test_the_higher_priority_goes_first_and_a_predecessor_before_its_successor(
    narrow: DaemonProcess, client: Client
) -> None:
    repo = narrow.sandbox.root / "repo"
    free = await hold(client, repo)
    await client.create(repo, "work", name="low", priority=-1)
    await client.create(repo, "work", name="middle")
    await client.create(repo, "work", name="high", priority=5)
    await client.create(repo, "work", name="late", priority=9, after=["low"])
    late = await client.reach("late", QUEUED)
    assert late.state_reason == "waits for low"
    await free()
    for name in ("low", "middle", "high", "late"):
        await client.reach(name, IDLE)

    assert await begun(client, 4) == ["high", "middle", "low", "late"]
    assert (await client.get("late")).state_reason == ""


async def test_repositories_take_turns(narrow: DaemonProcess, client: Client) -> None:
    repo, other = narrow.sandbox.root / "repo", narrow.sandbox.root / "other"
    free = await hold(client, repo)
    for number in range(3):
        await client.create(repo, "work", name=f"many-{number}")
    await client.create(other, "work", name="single")
    await free()
    for name in ("many-0", "many-1", "many-2", "single"):
        await client.reach(name, IDLE)

    assert (await begun(client, 4)).index("single") <= 1, (
        "it does not wait for all queued sessions of the other repository"
    )
