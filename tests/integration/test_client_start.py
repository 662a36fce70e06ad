"""Start of the daemon: once, in the background, by the first command that needs it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from rametctl.connection.start import daemon_python

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually_sync
from tests.support.fake_daemon import stand_in
from tests.support.fake_state import State


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Yield a world without a daemon; commands start the fake one."""
    with make_world(tmp_path, serve=False) as made, stand_in(made.home) as variables:
        made.extra = {**variables, "RAMET_AUTOSTART": "1"}
        yield made
        for pid in starts(made):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            eventually_sync(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def starts(world: World) -> list[int]:
    """Return the pids of the daemons that got the lock."""
    file = world.home / "state" / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run(world: World, *args: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    process = world.popen(*args, env=env)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_command_of_a_session_that_has_lost_its_token_does_not_act_as_the_person(world: World) -> None:
    code, out, err = run(world, "set", "s1", "--budget", "7", env={"RAMET_SESSION": "s1"})
    assert (code, out) == (2, "")
    assert "RAMET_TOKEN is missing" in err
    assert starts(world) == []


def test_the_first_command_starts_a_daemon_that_stays(world: World) -> None:
    code, out, err = run(world, "ls", env={"RAMET_TOKEN": "secret", "RAMET_SESSION": "s1"})
    assert (code, err) == (0, "")
    assert "canned" in out
    (pid,) = starts(world)
    assert alive(pid)
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    environment = (world.home / "state" / "environment").read_text()
    assert "RAMET_TOKEN" not in environment
    assert "RAMET_SESSION" not in environment


def test_of_many_commands_at_once_one_starts_it_and_all_are_served(world: World) -> None:
    processes = [world.popen("ls", env={"RAMET_FAKE_RECOVERY": "0.3"}) for _ in range(8)]
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, answers
    assert all("canned" in out for out, _ in answers)
    assert len(starts(world)) == 1


def test_autostart_can_be_forbidden(world: World) -> None:
    code, out, err = run(world, "ls", "--json", env={"RAMET_AUTOSTART": "0"})
    assert (code, err) == (5, "rametctl: no daemon is running; run: rametctl daemon start\n")
    assert json.loads(out)["error"]["reason"] == "NO_DAEMON"
    assert starts(world) == []


def test_why_a_start_failed_is_said_at_once(world: World) -> None:
    code, _, err = run(world, "ls", env={"RAMET_FAKE_FAIL": "config.toml: max_working\nmust be a number"})
    log = world.home / "state" / "logs" / "start.log"
    assert code == 5
    assert err == (
        "rametctl: the daemon could not be started (status 78): config.toml: max_working | must be a number; "
        f"see {log}\n"
    )


def test_a_daemon_that_another_is_starting_in_this_moment_is_waited_for(world: World) -> None:
    world.daemon.start(serving=False)
    slow = world.popen("daemon", "start")
    eventually_sync((world.runtime / "start.lock").exists)
    world.daemon.set_serving(True)
    out, err = slow.communicate(timeout=30)
    assert (slow.returncode, err) == (0, "")
    assert out.startswith("already running: rametd")
    assert starts(world) == []


def test_a_stale_socket_is_no_daemon(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(world.daemon.socket))
    assert world.run("daemon", "status").code == 5
    assert run(world, "ls")[0] == 0


@pytest.mark.parametrize("verb", [["ls"], ["daemon", "status"], ["daemon", "stop"]])
def test_a_directory_in_the_sockets_place_is_a_clear_error_or_no_daemon(world: World, verb: list[str]) -> None:
    world.daemon.socket.mkdir()
    result = world.run(*verb, env={"RAMET_AUTOSTART": "0"})
    assert result.code in {0, 5}
    assert len((result.out + result.err).splitlines()) == 1


def test_a_runtime_directory_that_others_can_enter_is_refused(world: World) -> None:
    world.runtime.chmod(0o755)
    code, _, err = run(world, "ls")
    assert code == 5
    assert err == f"rametctl: {world.runtime} is open to others (mode 0755); run: chmod 700 {world.runtime}\n"
    assert starts(world) == []


def test_a_socket_path_that_is_too_long_is_refused(world: World) -> None:
    result = world.run("ls", env={"RAMET_RUNTIME_DIR": f"/tmp/{'x' * 120}"})
    assert result.code == 5
    assert "107 are the most" in result.err


@pytest.mark.parametrize("name", ["with space", "per%20cent", "ha#sh?", "ünï"])
def test_a_socket_path_may_hold_any_characters(world: World, name: str) -> None:
    directory = world.runtime / name
    directory.mkdir(mode=0o700)
    world.extra["RAMET_RUNTIME_DIR"] = str(directory)
    other = type(world.daemon)(State(), directory / "rametd.sock")
    other.start()
    try:
        assert world.run("ls").code == 0
    finally:
        other.stop()


def test_stop_ends_the_daemon_and_is_no_error_without_one(world: World) -> None:
    run(world, "daemon", "start")
    (pid,) = starts(world)
    code, out, err = run(world, "daemon", "stop")
    assert (code, err) == (0, "")
    assert out == f"stopped rametd (pid {pid}); 2 agents keep running\n"
    assert not alive(pid)
    assert run(world, "daemon", "stop") == (0, "no daemon is running\n", "")


def test_stop_never_signals_a_process_that_a_stale_lock_file_names(world: World) -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        (world.runtime / "rametd.lock").write_text(json.dumps({"pid": innocent.pid}))
        assert world.run("daemon", "stop").out == "no daemon is running\n"
        assert innocent.poll() is None
        innocent.kill()


def test_restart_brings_another_one(world: World) -> None:
    run(world, "daemon", "start")
    code, out, _ = run(world, "daemon", "restart")
    first, second = starts(world)
    assert code == 0
    assert f"restarted: rametd 0.1.0 (pid {second})" in out
    assert first != second


def test_a_daemon_that_takes_its_time_to_end_is_followed_by_another(world: World) -> None:
    lingering = {"RAMET_FAKE_LINGER": "0.6"}
    run(world, "daemon", "start", env=lingering)
    code, _, err = run(world, "daemon", "restart")
    assert (code, err) == (0, "")
    assert len(starts(world)) == 2


def test_a_stopped_daemon_is_waited_for_and_no_second_one_is_started(world: World) -> None:
    run(world, "daemon", "start")
    (pid,) = starts(world)
    os.kill(pid, signal.SIGSTOP)
    try:
        process = world.popen("ls")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.7)
    finally:
        os.kill(pid, signal.SIGCONT)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert starts(world) == [pid]


def test_logs_are_readable_whether_the_daemon_runs_or_not(world: World) -> None:
    assert world.run("daemon", "logs").code == 1
    file = world.home / "state" / "logs" / "rametd.log"
    file.parent.mkdir(parents=True)
    file.write_text('{"timestamp": "2026-11-27T21:05:09.1Z", "level": "info", "event": "serving", "pid": 7}\n')
    assert world.run("daemon", "logs").out.endswith("info     serving  pid=7\n")
    assert json.loads(world.run("daemon", "logs", "--json").out)["pid"] == 7


def test_run_becomes_the_daemon(world: World) -> None:
    process = world.popen("daemon", "run")
    eventually_sync(lambda: starts(world) == [process.pid])
    eventually_sync(lambda: world.run("daemon", "status").code == 0)
    process.terminate()
    process.communicate(timeout=30)


def test_without_a_daemon_installed_it_is_said_how_to_install_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rametctl.connection.start.find_spec", lambda name: None)
    for verb in (["ls"], ["demo"], ["daemon", "run"]):
        result = world.run(*verb, env={"PATH": "/nowhere"})
        assert result.code == 5
        assert 'pip install "ramet[daemon]"' in result.err


def test_the_daemons_python_is_that_of_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "rametd"
    script.write_text("#!/opt/ramet/bin/python3\n")
    script.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rametctl.connection.start.find_spec", lambda name: None)
    assert daemon_python() == "/opt/ramet/bin/python3"


def test_the_first_list_imports_nothing_that_it_does_not_need(world: World) -> None:
    world.daemon.start()
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rametctl", "ls"],
        env=world.environ, cwd=world.cwd, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert "ramet.v1.session_pb2" in imported
    others = {name for name in imported if name.startswith("ramet.v1.") and "session" not in name}
    assert others <= {"ramet.v1.attention_pb2", "ramet.v1.common_pb2"}
    for heavy in (
        "rich",
        "grpc_status",
        "google.rpc",
        "grpc_health.v1.health_pb2",
        "rametd",
        "tomllib",
        "rametctl.commands.new",
    ):
        assert heavy not in imported
