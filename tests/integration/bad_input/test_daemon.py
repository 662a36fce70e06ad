"""A daemon that cannot be reached or started: one line that says what to do, the right exit code,
and nothing half created."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from ramet.paths import SOCKET_PATH_LIMIT

from tests.support.daemon import DaemonProcess, Sandbox, command_of, daemon_process
from tests.support.eventually import eventually_sync
from tests.support.refusals import World, refused, unsettled

ROOT = os.geteuid() == 0


def no_daemon(box: Sandbox) -> None:
    assert [process for process in box.processes() if "rametd" in command_of(process)] == []


def test_without_a_daemon_and_without_leave_to_start_one_there_is_a_hint(sandbox: Sandbox) -> None:
    refused(sandbox.ctl("ls", RAMET_AUTOSTART="0"), 5, "no daemon", "rametctl daemon start")
    no_daemon(sandbox)
    assert not (sandbox.root / "state").exists()


def test_a_socket_path_that_is_too_long_is_refused_by_both_sides(sandbox: Sandbox) -> None:
    deep = sandbox.root / ("d" * SOCKET_PATH_LIMIT)
    refused(sandbox.ctl("ls", RAMET_RUNTIME_DIR=str(deep)), 5, "RAMET_RUNTIME_DIR", "bytes")
    assert daemon_says(sandbox, 78, RAMET_RUNTIME_DIR=str(deep)).count("RAMET_RUNTIME_DIR") == 1
    assert not deep.exists()
    no_daemon(sandbox)


def daemon_says(sandbox: Sandbox, code: int, **more: str) -> str:
    """Run the daemon, which exits with ``code`` at once; return its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "rametd"],
        env={**sandbox.environ, **more}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == code, done
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("rametd: ")
    return lines[0]


@pytest.mark.parametrize("kind", ["open", "symlink", "file", "foreign", "socket is a directory"])
def test_a_runtime_directory_that_is_not_ours_alone_is_refused(sandbox: Sandbox, kind: str) -> None:
    run = sandbox.root / "run"
    word = ""
    match kind:
        case "open":
            run.chmod(0o755)
            word = "chmod 700"
        case "symlink":
            run.rename(sandbox.root / "elsewhere")
            run.symlink_to(sandbox.root / "elsewhere")
            word = "symbolic link"
        case "file":
            run.rmdir()
            run.write_text("")
            word = "not a directory"
        case "foreign":
            if not ROOT:
                pytest.skip("only root can give a directory away")
            os.chown(run, 1, 1)
            word = "belongs to user 1"
        case "socket is a directory":
            (run / "rametd.sock").mkdir()
            word = "rametd.sock"
    assert word in daemon_says(sandbox, 78)
    refused(sandbox.ctl("ls"), 5, word)
    no_daemon(sandbox)
    assert not (sandbox.root / "state" / "ramet.db").exists()


def test_a_second_daemon_leaves_at_once_and_the_first_serves_on(running: DaemonProcess, box: Sandbox) -> None:
    assert str(running.pid) in daemon_says(box, 75)
    assert box.ctl("daemon", "status", "--json").json["pid"] == running.pid


def test_daemon_and_client_report_a_broken_configuration(sandbox: Sandbox) -> None:
    sandbox.configure("max_workers = 3\n")
    said = daemon_says(sandbox, 78)
    assert "max_workers" in said
    assert "max_working" in said
    refused(sandbox.ctl("ls"), 5, "max_workers", "config.toml")
    sandbox.configure("max_working = [")
    refused(sandbox.ctl("ls"), 5, "config.toml", "not TOML")
    no_daemon(sandbox)


def test_a_configuration_that_is_broken_while_the_daemon_runs_disturbs_nothing(
    running: DaemonProcess, box: Sandbox, repo: Path
) -> None:
    file = box.directories.config_file
    right = file.read_text()
    (repo / ".ramet.toml").write_text('carry = ["x"]\n')
    try:
        assert box.ctl("repo", "trust", "--yes", cwd=repo).code == 0
        file.write_text("[land")
        made = box.ctl("new", "hello", "--name", "undisturbed", "--wait", cwd=repo)
        assert (made.code, "TOML" in made.stderr) == (0, False), made
        assert "TOML" not in box.ctl("pool", cwd=repo).stdout
        refused(box.ctl("config", "check", cwd=repo), 1, "not TOML")
    finally:
        file.write_text(right)
        (repo / ".ramet.toml").unlink()


@pytest.mark.full
def test_a_bare_environment_is_enough(sandbox: Sandbox) -> None:
    repo = sandbox.repository()
    inherited = ("RAMET_HOME", "RAMET_RUNTIME_DIR", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "GIT_CONFIG_GLOBAL")
    bare = {name: sandbox.environ[name] for name in inherited}
    done = subprocess.run(
        [sys.executable, "-m", "rametctl", "new", "--wait", "--json", "work"],
        cwd=repo, env=bare, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["turns"] == 1
    assert sandbox.ctl("daemon", "stop").code == 0


@contextmanager
def small_disk(path: Path, size: str, *options: str) -> Iterator[None]:
    if not ROOT or not sys.platform.startswith("linux"):
        pytest.skip("only root on Linux can mount a small file system")
    path.mkdir(parents=True, exist_ok=True)
    words = ",".join([f"size={size}", "mode=0700", *options])
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", words, "none", str(path)], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_state_directory_on_a_read_only_disk_is_named(sandbox: Sandbox) -> None:
    with small_disk(sandbox.root / "state", "1m", "ro"):
        refused(sandbox.ctl("ls"), 5, str(sandbox.root / "state"), "read-only")
        no_daemon(sandbox)


@pytest.mark.full
def test_a_full_disk_makes_the_daemon_read_only_until_there_is_room(sandbox: Sandbox) -> None:
    repo = sandbox.repository()
    with small_disk(sandbox.root / "state", "8m"):
        with daemon_process(sandbox) as daemon:
            assert sandbox.ctl("new", "--name", "first", cwd=repo).code == 0
            eventually_sync(lambda: not unsettled(sandbox))
            filler = sandbox.root / "state" / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"\0" * 4096)
                except OSError:
                    pass
            before = World.of(sandbox, repo)
            failed = sandbox.ctl("new", "--name", "second", cwd=repo)
            assert failed.code == 1, failed
            assert re.search("disk|space|room", failed.stderr), failed.stderr
            assert len(failed.stderr.splitlines()) == 1
            assert [session["name"] for session in sandbox.ctl("ls", "--all", "--json").json] == ["first"]
            filler.unlink()
            assert World.of(sandbox, repo).refs == before.refs
            # Writing is tried again every second.
            eventually_sync(lambda: sandbox.ctl("new", "--name", "second", cwd=repo).code == 0, every=0.2)
            assert daemon.process is not None
            assert daemon.process.poll() is None
        for process in sandbox.processes():
            process.kill()
        psutil.wait_procs(sandbox.processes(), timeout=10)
