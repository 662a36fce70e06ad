"""One state has one daemon, whatever directory a shell looks for its socket in."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess


@pytest.fixture
def elsewhere(daemon: DaemonProcess) -> Path:
    """Another runtime directory, as a shell without XDG_RUNTIME_DIR has one."""
    path = daemon.sandbox.root / "elsewhere"
    path.mkdir(mode=0o700)
    return path


def test_a_second_daemon_on_the_same_state_leaves_and_says_where_the_first_serves(
    daemon: DaemonProcess, elsewhere: Path
) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "rametd"],
        env={**daemon.sandbox.environ, "RAMET_RUNTIME_DIR": str(elsewhere)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 75
    assert f"pid {daemon.pid}" in second.stderr
    assert str(daemon.sandbox.socket) in second.stderr


def test_a_client_finds_the_daemon_that_has_the_state(daemon: DaemonProcess, elsewhere: Path) -> None:
    status = daemon.sandbox.ctl("daemon", "status", "--json", RAMET_RUNTIME_DIR=str(elsewhere))
    assert status.json["pid"] == daemon.pid
    assert status.json["socket"] == str(daemon.sandbox.socket)


def test_the_lock_dies_with_its_holder(daemon: DaemonProcess, elsewhere: Path) -> None:
    daemon.kill()
    (daemon.sandbox.socket).unlink()
    status = daemon.sandbox.ctl("daemon", "start", RAMET_RUNTIME_DIR=str(elsewhere))
    assert status.code == 0, status.stderr
    stopped = daemon.sandbox.ctl("daemon", "stop", RAMET_RUNTIME_DIR=str(elsewhere))
    assert stopped.code == 0, stopped.stderr
