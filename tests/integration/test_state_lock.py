"""A state directory has one daemon, for any runtime directory of a shell."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil
import pytest
from ramet.v1 import daemon_pb2, daemon_pb2_grpc
from rametd.app import Daemon
from rametd.domain.errors import AlreadyRunningError
from rametd.platform.runtime import accepts

from tests.support.daemon import DaemonProcess, daemon_here, make_sandbox
from tests.support.eventually import PATIENCE_S, eventually, eventually_sync

pytestmark = pytest.mark.full


@pytest.fixture
def elsewhere(daemon: DaemonProcess) -> Path:
    """Return another runtime directory, as of a shell without XDG_RUNTIME_DIR."""
    path = daemon.sandbox.root / "elsewhere"
    path.mkdir(mode=0o700)
    return path


def second_daemon(daemon: DaemonProcess, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "rametd"],
        env={**daemon.sandbox.environ, **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_second_daemon_on_the_same_state_leaves_and_says_where_the_first_serves(
    daemon: DaemonProcess, elsewhere: Path
) -> None:
    second = second_daemon(daemon, RAMET_RUNTIME_DIR=str(elsewhere))
    assert second.returncode == 75
    assert f"pid {daemon.pid}" in second.stderr
    assert str(daemon.sandbox.socket) in second.stderr


def test_a_client_finds_the_daemon_that_has_the_state(daemon: DaemonProcess, elsewhere: Path) -> None:
    status = daemon.sandbox.ctl("daemon", "status", "--json", RAMET_RUNTIME_DIR=str(elsewhere))
    assert status.json["pid"] == daemon.pid
    assert status.json["socket"] == str(daemon.sandbox.socket)


async def test_the_lock_is_held_until_the_last_thread_has_ended() -> None:
    gate = threading.Event()
    with make_sandbox() as sandbox:
        async with daemon_here(sandbox) as daemon:
            writing = asyncio.get_running_loop().run_in_executor(None, gate.wait)
            daemon.stop()
            await eventually(lambda: not accepts(sandbox.socket))
            try:
                with pytest.raises(AlreadyRunningError):
                    await asyncio.wait_for(Daemon(sandbox.directories, sandbox.environ, patience=1.0).run(), 5)
            finally:
                gate.set()
                await writing


def test_the_lock_dies_with_its_holder(daemon: DaemonProcess, elsewhere: Path) -> None:
    daemon.kill()
    (daemon.sandbox.socket).unlink()
    status = daemon.sandbox.ctl("daemon", "start", RAMET_RUNTIME_DIR=str(elsewhere))
    assert status.code == 0, status.stderr
    stopped = daemon.sandbox.ctl("daemon", "stop", RAMET_RUNTIME_DIR=str(elsewhere))
    assert stopped.code == 0, stopped.stderr


@pytest.mark.parametrize("deleted", [("run",), ("state",), ("run", "state")], ids="+".join)
def test_deleted_lock_files_give_a_second_daemon_nothing(daemon: DaemonProcess, deleted: tuple[str, ...]) -> None:
    socket = daemon.sandbox.socket.lstat()
    for directory in deleted:
        (daemon.sandbox.root / directory / "rametd.lock").unlink()
    assert second_daemon(daemon).returncode == 75
    assert os.path.samestat(daemon.sandbox.socket.lstat(), socket)
    assert daemon.sandbox.ctl("daemon", "status", "--json").json["pid"] == daemon.pid


def remove_socket(daemon: DaemonProcess) -> None:
    daemon.sandbox.socket.unlink()


def remove_directory(daemon: DaemonProcess) -> None:
    directory = daemon.sandbox.socket.parent
    shutil.rmtree(directory.rename(directory.with_name("removed")))  # at once, or the daemon would bind meanwhile


def replace_socket(daemon: DaemonProcess) -> None:
    other = daemon.sandbox.socket.with_name("dead.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(other))
    other.replace(daemon.sandbox.socket)  # at once, or the daemon would bind in between


@pytest.mark.parametrize("harm", [remove_socket, remove_directory, replace_socket])
def test_a_lost_socket_is_bound_again_and_open_connections_stay(
    daemon: DaemonProcess, harm: Callable[[DaemonProcess], None]
) -> None:
    path = daemon.sandbox.socket
    with grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = daemon_pb2_grpc.DaemonServiceStub(channel)
        metadata = (("ramet-contract", "1"),)
        stub.GetInfo(daemon_pb2.GetInfoRequest(), metadata=metadata)
        before = path.lstat()
        connected = open_sockets(daemon.pid)
        harm(daemon)
        # The test itself may have put another file there; the daemon must answer again.
        eventually_sync(lambda: daemon.sandbox.ctl("daemon", "status", "--json").json.get("pid") == daemon.pid)
        assert not os.path.samestat(path.lstat(), before)
        assert stub.GetInfo(daemon_pb2.GetInfoRequest(), metadata=metadata).pid == daemon.pid
        assert connected <= open_sockets(daemon.pid)
    daemon.stop()
    assert not path.exists()


def open_sockets(pid: int) -> set[str]:
    """Return the sockets of a process, by inode; a broken connection is not among them."""
    links = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    return {link for link in links if link.startswith("socket:")}


def test_a_command_starts_one_daemon_at_most_and_waits_for_the_one_that_is_there(daemon: DaemonProcess) -> None:
    """The socket is deleted, and the daemon cannot bind another one yet, as if it were suspended or
    the machine too busy."""
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        daemon.sandbox.socket.unlink()
        used = psutil.Process().children()
        with subprocess.Popen(
            [sys.executable, "-m", "rametctl", "ls"], env=daemon.sandbox.environ, stdout=subprocess.DEVNULL
        ) as command:
            waiting = psutil.Process(command.pid)
            (started,) = eventually_sync(waiting.children)
            eventually_sync(lambda: "rametd" in " ".join(started.cmdline()))
            os.kill(daemon.pid, signal.SIGCONT)
            assert command.wait(timeout=PATIENCE_S) == 0
        assert daemon.sandbox.ctl("daemon", "status", "--json").json["pid"] == daemon.pid
        assert psutil.Process().children() == used
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_nothing_of_the_daemons_own_is_open_to_others_whatever_the_umask(umask: int) -> None:
    with make_sandbox() as sandbox:
        repository = sandbox.repository()
        made = subprocess.run(  # not `ctl`, whose zygote has another umask
            [sys.executable, "-m", "rametctl", "new", "--name", "one", "say hi"],
            cwd=repository,
            env=sandbox.environ,
            umask=umask,
            capture_output=True,
            check=False,
            timeout=90,
        )
        assert made.returncode == 0, made.stderr
        state = sandbox.root / "state"
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        # Files of an agent have the permissions that its own shell would give them, inside the
        # private directory.
        (tree,) = [path for path in (state / "worktrees").rglob("dir0") if path.is_dir()]
        assert stat.S_IMODE((tree / "file0.txt").stat().st_mode) == 0o666 & ~umask
        found = {
            str(path.relative_to(state)): oct(path.lstat().st_mode)
            for path in [*state.rglob("*"), *(sandbox.root / "run").rglob("*")]
            if path.is_relative_to(state)
            and path.relative_to(state).parts[0] != "worktrees"
            and not path.is_symlink()
            and path.lstat().st_mode & 0o077
        }
        assert found == {}
        sandbox.ctl("daemon", "stop")


@pytest.mark.parametrize("name", ["", "secrets", "agents", "commands"])
def test_an_open_directory_of_the_state_is_closed_at_the_next_start(name: str) -> None:
    with make_sandbox() as sandbox:
        opened = sandbox.root / "state" / name
        opened.mkdir(parents=True)
        opened.chmod(0o777)
        assert sandbox.ctl("daemon", "start").code == 0
        assert stat.S_IMODE(opened.stat().st_mode) == 0o700
        sandbox.ctl("daemon", "stop")
