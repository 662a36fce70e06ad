"""Another user's program listens at the daemon's socket: no verb sends it anything."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.full

SECRETS = {"RAMET_TOKEN": "the-token", "AWS_SECRET_ACCESS_KEY": "the-key", "ANTHROPIC_API_KEY": "the-key"}

VERBS = [
    ["new", "hello"],
    ["ls"],
    ["ls", "--watch"],
    ["show", "s"],
    ["log", "s", "--follow"],
    ["watch", "s"],
    ["send", "s", "more"],
    ["wait", "s"],
    ["inbox"],
    ["run", "s", "true"],
    ["shell", "s"],
    ["adopt", "."],
    ["plan", "apply", "plan.toml"],
    ["doctor"],
    ["version"],
    ["daemon", "start"],
    ["daemon", "status"],
    ["daemon", "stop"],
    ["daemon", "restart"],
]


class Stranger:
    """Accepts connections and records their bytes."""

    def __init__(self, path: Path) -> None:
        self.received = b""
        self.connections = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        path.chmod(0o777)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connected:
                connected.settimeout(0.5)
                try:
                    while data := connected.recv(65536):
                        self.received += data
                except TimeoutError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture(params=["open", "foreign"])
def squatted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[World, Stranger]]:
    if request.param == "foreign" and os.getuid() != 0:
        pytest.skip("only root can give a directory away")
    with make_world(tmp_path, serve=False) as world:
        (world.cwd / "plan.toml").write_text('[plan]\nname = "p"\n[threads.a]\nprompt = "x"\n')
        stranger = Stranger(world.runtime / "rametd.sock")
        if request.param == "foreign":
            os.chown(world.runtime, 65534, 65534)
        else:
            world.runtime.chmod(0o777)
        yield world, stranger
        stranger.close()


@pytest.mark.parametrize("autostart", ["0", "1"])
def test_no_verb_connects_to_a_strangers_socket(squatted: tuple[World, Stranger], autostart: str) -> None:
    world, stranger = squatted
    for verb in VERBS:
        result = world.run(*verb, env={**SECRETS, "RAMET_AUTOSTART": autostart})
        assert result.code == (0 if verb == ["version"] else 5), (verb, result)
        if verb != ["version"]:
            assert result.err.count("\n") == 1, (verb, result.err)
            assert str(world.runtime) in result.err
    assert (stranger.connections, stranger.received) == (0, b"")


def test_tools_and_completion_send_a_stranger_nothing(squatted: tuple[World, Stranger]) -> None:
    world, stranger = squatted
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}\n'
    out, _ = world.popen("mcp", env=SECRETS, stdin=-1).communicate(call.decode(), timeout=60)
    assert str(world.runtime) in out
    completing = {"_RAMETCTL_COMPLETE": "bash_complete", "COMP_WORDS": "rametctl show ", "COMP_CWORD": "2"}
    out, err = world.popen(env={**SECRETS, **completing}).communicate(timeout=60)
    assert (out.strip(), err) == ("", "")
    assert (stranger.connections, stranger.received) == (0, b"")


def test_a_socket_that_the_state_directory_names_is_checked_too(squatted: tuple[World, Stranger]) -> None:
    world, stranger = squatted
    state = world.home / "state"
    state.mkdir()
    (state / "rametd.lock").write_text(f'{{"pid": 1, "socket": "{world.runtime}/rametd.sock"}}')
    result = world.run("ls", env={**SECRETS, "RAMET_RUNTIME_DIR": str(world.home / "none")})
    assert (result.code, str(world.runtime) in result.err) == (5, True)
    assert (stranger.connections, stranger.received) == (0, b"")


def test_a_reconnection_reaches_no_stranger_either(tmp_path: Path) -> None:
    """A long-lived client, such as `rametctl mcp`: its daemon ends, and another user replaces the
    directory."""
    with make_world(tmp_path) as world:
        moved = world.runtime.with_name(f"{world.runtime.name}-moved")
        with world.popen("mcp", env={**SECRETS, "RAMET_AUTOSTART": "0"}, stdin=-1) as client:
            assert client.stdin is not None
            assert client.stdout is not None

            def call(number: int) -> str:
                assert client.stdin is not None
                assert client.stdout is not None
                client.stdin.write(
                    f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call",'
                    '"params":{"name":"list_sessions","arguments":{}}}\n'
                )
                client.stdin.flush()
                return client.stdout.readline()

            assert '"isError":false' in call(1).replace(" ", "")
            world.daemon.stop()
            world.runtime.rename(moved)
            world.runtime.mkdir()
            world.runtime.chmod(0o777)
            stranger = Stranger(world.runtime / "rametd.sock")
            try:
                assert "is open to others" in call(2)
                client.stdin.close()
                eventually_sync(lambda: client.poll() is not None)
                assert (stranger.connections, stranger.received) == (0, b"")
            finally:
                stranger.close()
                moved.rmdir()


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("ANTHROPIC_API_KEY", True),
        ("NPM_TOKEN", True),
        ("GH_TOKEN", True),
        ("DATABASE_URL", False),
        ("RAMET_TOKEN", False),
        ("MY_OTHER", False),
    ],
)
def test_a_daemon_gets_what_the_person_lets_pass(name: str, sent: bool, tmp_path: Path) -> None:
    with make_world(tmp_path) as world:
        configuration = world.home / "config" / "ramet"
        configuration.mkdir(parents=True)
        (configuration / "config.toml").write_text('[agents.claude]\npass_env = ["NPM_*"]\n')
        token = {"RAMET_SESSION": "s"} if name == "RAMET_TOKEN" else {}
        assert world.run("new", "hello", env={name: "value", **token}).code == 0
        assert (name in world.state.carried("CreateSession")) is sent


@pytest.mark.parametrize("text", ["", "[agents", "agents = 1", "[agents.claude]\npass_env = 7"])
def test_a_broken_configuration_lets_nothing_more_pass(text: str, tmp_path: Path) -> None:
    with make_world(tmp_path) as world:
        configuration = world.home / "config" / "ramet"
        configuration.mkdir(parents=True)
        (configuration / "config.toml").write_text(text)
        assert world.run("new", "hello", env={"NPM_TOKEN": "value"}).code == 0
        assert "NPM_TOKEN" not in world.state.carried("CreateSession")
