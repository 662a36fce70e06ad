"""Preparation of worktrees: setup, carried files, trust, ports, teardown; and ten sessions with dev
servers at once."""

import asyncio
import socket
import stat
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from ramet.v1 import session_pb2, terminal_pb2
from rametctl.render.session import details, doing

from tests.support.agents import script
from tests.support.blocking import no_blocking_calls
from tests.support.daemon import (
    IDLE,
    Client,
    DaemonProcess,
    Sandbox,
    command_of,
    connected,
    daemon_here,
    git,
    make_sandbox,
    reason_of,
)
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.shared import client, daemon, repository, sandbox

__all__ = ["client", "daemon", "repository", "sandbox"]

DONE = session_pb2.SETUP_STATE_DONE
FAILED = session_pb2.SETUP_STATE_FAILED
SETTING_UP = session_pb2.SETUP_STATE_RUNNING
UNTRUSTED = session_pb2.SETUP_STATE_UNTRUSTED

NPM = """#!/bin/sh -e
# What `npm ci` does, as far as a worktree can tell: reads the lock file, fills node_modules.
[ "$1" = ci ]
for package in $(cat package-lock.json); do
    mkdir -p node_modules/$package
    echo "$PWD" > node_modules/$package/index.js
done
echo "added $(ls node_modules | wc -l) packages"
"""
SERVER = """
import http.server, os, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *ignored): pass
assert os.path.exists("node_modules/left-pad")
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
SETTINGS = """
setup = ["./npm ci"]
teardown = ["echo $RAMET_SESSION_NAME >> $RAMET_REPO_ROOT/torn-down"]
carry = [".env*"]
[run]
web = "setsid python3 server.py & wait"
"""


@pytest.fixture
def project(repository: Path) -> Path:
    """Create a repository like one with npm, with a dev server."""
    path = repository
    (path / "npm").write_text(NPM)
    (path / "npm").chmod(0o755)
    (path / "server.py").write_text(SERVER)
    (path / "package-lock.json").write_text("left-pad\nis-odd\n")
    (path / ".gitignore").write_text("node_modules/\n.env*\ntorn-down\n")
    commit(path, SETTINGS)
    return path


def commit(path: Path, settings: str) -> None:
    (path / ".ramet.toml").write_text(settings)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "settings")


async def reach_setup(client: Client, name: str, state: int, within: float = PATIENCE_S) -> session_pb2.Session:
    async def look() -> session_pb2.Session | None:
        session = await client.get(name)
        assert session.setup == state, session_pb2.SetupState.Name(session.setup)
        return session

    found = await eventually(look, within=within)
    assert found is not None
    return found


async def start(client: Client, session: str, *argv: str, **fields: Any) -> terminal_pb2.Command:
    request = terminal_pb2.StartCommandRequest(session=session, argv=argv, request_id=str(uuid.uuid4()), **fields)
    return (await client.terminals.StartCommand(request)).command


async def listening(client: Client, session: str = "") -> list[terminal_pb2.Port]:
    listed = await client.terminals.ListPorts(terminal_pb2.ListPortsRequest(session=session))
    return [port for each in listed.sessions for port in each.ports if port.listening]


async def remove(client: Client, session: str) -> None:
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session, force=True))


async def payloads_of(client: Client, session: str, kind: str) -> list[Any]:
    return [getattr(event, kind) for event in await client.log(session) if event.WhichOneof("payload") == kind]


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.mark.full
async def test_ten_sessions_set_up_at_once_serve_at_once_and_leave_nothing(
    client: Client, sandbox: Sandbox, project: Path
) -> None:
    await client.trust(project)
    names = [f"s{number}" for number in range(10)]
    made = await asyncio.gather(*(client.create(project, name=name) for name in names))
    ports = [port for session in made for port in session.ports]
    assert len(ports) == len(set(ports)) == 100

    for session in made:
        await reach_setup(client, session.id, DONE, within=60)
        assert Path(session.worktree, "node_modules/is-odd/index.js").read_text() == f"{session.worktree}\n"
    await asyncio.gather(*(start(client, session.id, name="web") for session in made))
    first = [session.ports[0] for session in made]
    await eventually(lambda: all(map(answers, first)), within=60)
    shown = await listening(client)
    assert sorted(port.number for port in shown) == sorted(first)
    assert {(port.variable, port.name, port.own) for port in shown} == {("RAMET_PORT_0", "web", True)}
    assert all(port.pid and port.program.startswith("python") for port in shown)

    await asyncio.gather(*(remove(client, session.id) for session in made))
    assert not any(map(answers, first))
    assert [command for command in map(command_of, sandbox.processes()) if "server.py" in command] == []
    await eventually(lambda: not list((sandbox.root / "state" / "commands").iterdir()))
    assert sorted((project / "torn-down").read_text().split()) == names


async def test_an_agent_starts_once_its_worktree_is_prepared(client: Client, project: Path) -> None:
    commit(project, 'setup = ["until [ -e gate ]; do sleep 0.05; done", "echo prepared > prepared"]')
    await client.trust(project)
    session = await client.create(project, script({"text": "hello"}), name="waits")
    await reach_setup(client, "waits", SETTING_UP)
    assert not await payloads_of(client, "waits", "agent_started")
    Path(session.worktree, "gate").touch()
    await client.reach("waits", IDLE)
    kinds = [event.WhichOneof("payload") for event in await client.log("waits")]
    assert kinds.index("setup_changed") < kinds.index("command_ended") < kinds.index("agent_started")
    output = "".join(each.text for each in await payloads_of(client, "waits", "command_output"))
    assert output.splitlines() == ["$ until [ -e gate ]; do sleep 0.05; done", "$ echo prepared > prepared"]
    assert [each.state for each in await payloads_of(client, "waits", "setup_changed")] == [SETTING_UP, DONE]
    prompts = await payloads_of(client, "waits", "prompt_queued")
    assert prompts[0].prompt.text == script({"text": "hello"})


async def test_a_setup_that_fails_says_so_and_the_agent_works_all_the_same(client: Client, project: Path) -> None:
    commit(project, 'setup = ["echo not here >&2; exit 4", "touch never"]')
    await client.trust(project)
    session = await client.create(project, script({"text": "hello"}), name="bad")
    assert (await client.reach("bad", IDLE)).setup == FAILED
    changes = await payloads_of(client, "bad", "setup_changed")
    assert changes[-1].reason == "code 4: not here"
    shown = await client.sessions.GetSession(session_pb2.GetSessionRequest(session="bad"), metadata=client.metadata)
    assert shown.setup_failure == "code 4: not here"
    assert "failed: code 4: not here" in str(details(shown))
    assert doing(shown.session, 0.0) == "setup failed"
    assert not Path(session.worktree, "never").exists()


async def test_a_setup_runs_again_when_what_it_depends_on_changed_and_only_then(client: Client, project: Path) -> None:
    await client.trust(project)
    session = await client.create(project, name="one")
    await reach_setup(client, "one", DONE)
    await client.send("one", script({"text": "first"}))
    await client.reach("one", IDLE)
    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="one"))
    assert len(await payloads_of(client, "one", "setup_changed")) == 2

    Path(session.worktree, "package-lock.json").write_text("left-pad\nis-odd\nis-even\n")
    await client.send("one", script({"text": "second"}))
    await client.reach("one", IDLE)
    assert len(await payloads_of(client, "one", "setup_changed")) == 4
    assert Path(session.worktree, "node_modules/is-even").is_dir()


async def test_commands_of_a_repository_wait_for_trust(client: Client, sandbox: Sandbox, project: Path) -> None:
    request = session_pb2.CreateSessionRequest(path=str(project), name="one")
    made = await client.sessions.CreateSession(request)
    assert any("./npm ci" in warning and "repo trust" in warning for warning in made.warnings)
    await reach_setup(client, "one", UNTRUSTED)
    for refused in (start(client, "one", name="web"), set_up(client, "one")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await refused
        assert reason_of(caught.value) == "REPO_NOT_TRUSTED"
    assert not Path(made.session.worktree, "node_modules").exists()

    await client.trust(project)
    await reach_setup(client, "one", DONE)
    assert Path(made.session.worktree, "node_modules/left-pad").is_dir()


async def set_up(client: Client, session: str) -> terminal_pb2.SetUpSessionResponse:
    return await client.terminals.SetUpSession(terminal_pb2.SetUpSessionRequest(session=session))


async def test_what_an_agent_writes_into_the_settings_of_its_worktree_does_not_run(
    client: Client, project: Path
) -> None:
    await client.trust(project)
    session = await client.create(project, name="one")
    await reach_setup(client, "one", DONE)
    evil = 'setup = ["touch evil"]\nteardown = ["touch $RAMET_REPO_ROOT/evil"]\nrun.evil = "touch evil"\n'
    Path(session.worktree, ".ramet.toml").write_text(evil)
    await set_up(client, "one")
    await reach_setup(client, "one", DONE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await start(client, "one", name="evil")
    assert reason_of(caught.value) == "COMMAND_NOT_FOUND"
    assert not Path(session.worktree, "evil").exists()
    await remove(client, "one")
    assert not (project / "evil").exists()


async def test_a_setup_is_offered_once_where_none_is_configured(client: Client, project: Path) -> None:
    commit(project, "")
    made = [
        await client.sessions.CreateSession(session_pb2.CreateSessionRequest(path=str(project), name=name))
        for name in ("one", "two")
    ]
    offers = [[warning for warning in each.warnings if "rametctl setup" in warning] for each in made]
    assert [len(offer) for offer in offers] == [1, 0]
    asked = await set_up(client, "two")
    assert (list(asked.suggestion), asked.project_kind) == (["npm ci"], "npm")
    assert not asked.HasField("command")


async def test_ignored_files_that_are_named_are_in_the_new_worktree(client: Client, project: Path) -> None:
    (project / ".env").write_text("SECRET=1\n")
    (project / ".env").chmod(0o600)
    (project / ".worktreeinclude").write_text("torn-down\n")
    (project / "torn-down").write_text("kept\n")
    await client.trust(project)
    session = await client.create(project, name="one")
    await reach_setup(client, "one", DONE)
    carried = Path(session.worktree, ".env")
    assert carried.read_text() == "SECRET=1\n"
    assert stat.S_IMODE(carried.stat().st_mode) == 0o600
    assert Path(session.worktree, "torn-down").read_text() == "kept\n"


async def test_setups_and_servers_survive_a_kill_and_are_reattached(
    daemon: DaemonProcess, client: Client, sandbox: Sandbox, project: Path
) -> None:
    wait = "until [ -e gate ]; do sleep 0.05; done"
    commit(project, f'setup = ["echo begun; {wait}; echo once >> ran"]\nrun.web = "exec python3 server.py"')
    await client.trust(project)
    session = await client.create(project, script({"text": "hello"}), name="one")
    tree = Path(session.worktree)
    (tree / "node_modules/left-pad").mkdir(parents=True)
    await reach_setup(client, "one", SETTING_UP)
    server = await start(client, "one", name="web")
    await eventually(lambda: answers(session.ports[0]))

    daemon.restart()  # serves, although the setup runs until its gate is open

    assert answers(session.ports[0])
    async with connected(sandbox) as later:
        await reach_setup(later, "one", SETTING_UP)
        (tree / "gate").touch()
        await later.reach("one", IDLE)
        assert (await later.get("one")).setup == DONE
        assert (tree / "ran").read_text() == "once\n"
        output = "".join(each.text for each in await payloads_of(later, "one", "command_output"))
        assert output.count("begun\n") == 1
        found = await later.terminals.GetCommand(terminal_pb2.GetCommandRequest(command=server.id))
        assert (found.command.pid, found.command.state) == (server.pid, terminal_pb2.COMMAND_STATE_RUNNING)
        await remove(later, "one")
    assert not answers(session.ports[0])


@pytest.mark.parametrize("prompt", ["", script({"text": "hello"})], ids=["idle", "with a prompt"])
async def test_a_removal_ends_a_setup_that_runs(client: Client, sandbox: Sandbox, project: Path, prompt: str) -> None:
    commit(project, 'setup = ["setsid sleep 611 & wait"]')
    await client.trust(project)
    await client.create(project, prompt, name="one")
    await reach_setup(client, "one", SETTING_UP)
    await remove(client, "one")  # not after the 611 seconds
    assert [command for command in map(command_of, sandbox.processes()) if command[:1] == ["sleep"]] == []


async def test_ports_are_free_when_given_and_free_again_after_rm(client: Client, project: Path) -> None:
    first = await client.create(project, name="one")
    with socket.create_server(("127.0.0.1", first.ports[-1] + 3)):
        second = await client.create(project, name="two")
    assert first.ports[-1] + 3 not in second.ports
    await remove(client, "one")
    third = await client.create(project, name="three")
    assert list(third.ports) == list(first.ports)
    with socket.create_server(("127.0.0.1", third.ports[2])):
        (foreign,) = await listening(client, "three")
        assert (foreign.number, foreign.own) == (third.ports[2], False)
        assert foreign.pid


async def test_nothing_of_it_blocks_the_daemon_s_loop() -> None:
    with make_sandbox() as apart:
        path = apart.repository()
        (path / ".worktreeinclude").write_text(".env\n")
        (path / ".gitignore").write_text(".env\n")
        commit(path, 'setup = ["echo begun; cat .env"]\nteardown = "true"\nrun.web = "exec sleep 612"')
        (path / ".env").write_text("carried\n")
        async with daemon_here(apart), connected(apart) as here:
            with no_blocking_calls(), structlog.testing.capture_logs() as logged:
                await here.trust(path)
                await here.create(path, script({"text": "hello"}), name="one")
                await here.reach("one", IDLE)
                assert (await here.get("one")).setup == DONE
                command = await start(here, "one", name="web")
                await listening(here, "one")
                await here.terminals.GetShell(terminal_pb2.GetShellRequest(session="one"))
                await set_up(here, "one")
                await here.terminals.StopCommand(terminal_pb2.StopCommandRequest(command=command.id))
                output = "".join(each.text for each in await payloads_of(here, "one", "command_output"))
                assert "begun\ncarried\n" in output
                await remove(here, "one")
            assert [entry for entry in logged if entry["log_level"] in {"error", "critical"}] == []
