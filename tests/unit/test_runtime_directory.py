import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError
from rametd.platform.runtime import LOCK, SOCKET, RuntimeLock, socket_umask

HOLDER = """
import sys
from pathlib import Path
from rametd.domain.errors import AlreadyRunningError
from rametd.platform.runtime import RuntimeLock
print("ready", flush=True)
sys.stdin.readline()
try:
    RuntimeLock.acquire(Path(sys.argv[1]), start_time=0.0)
except AlreadyRunningError as error:
    print("refused", flush=True)
else:
    print("holds", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="rmt-"))
    yield base / "run"
    shutil.rmtree(base)


def start_holder(directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{HOLDER}", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    return bound


def test_the_directory_is_made_0700_and_the_lock_file_tells_people_who_holds_it(directory: Path) -> None:
    with RuntimeLock.acquire(directory, start_time=12.5) as lock:
        assert lock.socket == directory / SOCKET
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / LOCK).stat().st_mode) == 0o600
        assert json.loads((directory / LOCK).read_text()) == {"pid": os.getpid(), "start_time": 12.5}


def test_a_second_daemon_is_told_the_pid_of_the_first(directory: Path) -> None:
    with RuntimeLock.acquire(directory, start_time=0.0):
        with pytest.raises(AlreadyRunningError, match=str(os.getpid())) as caught:
            RuntimeLock.acquire(directory, start_time=1.0)
        assert caught.value.data["pid"] == str(os.getpid())


def test_the_lock_is_free_again_after_release_and_release_may_come_twice(directory: Path) -> None:
    lock = RuntimeLock.acquire(directory, start_time=0.0)
    lock.release()
    lock.release()
    RuntimeLock.acquire(directory, start_time=0.0).release()


def test_a_lock_file_that_names_a_foreign_living_process_hinders_nobody(directory: Path) -> None:
    RuntimeLock.acquire(directory, start_time=0.0).release()
    (directory / LOCK).write_text(json.dumps({"pid": os.getppid(), "start_time": 0}))
    RuntimeLock.acquire(directory, start_time=0.0).release()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\xff"])
def test_an_unreadable_lock_file_costs_only_the_pid_in_the_message(directory: Path, content: str) -> None:
    with RuntimeLock.acquire(directory, start_time=0.0):
        (directory / LOCK).write_text(content, encoding="latin-1")
        with pytest.raises(AlreadyRunningError) as caught:
            RuntimeLock.acquire(directory, start_time=0.0)
        assert caught.value.data["pid"] == ""


def test_of_twenty_processes_at_once_exactly_one_gets_the_lock(directory: Path) -> None:
    processes = [start_holder(directory) for _ in range(20)]
    try:
        assert [answer(process) for process in processes] == ["ready"] * 20
        for process in processes:
            tell(process)
        assert sorted(answer(process) for process in processes) == ["holds"] + ["refused"] * 19
    finally:
        for process in processes:
            process.communicate("\n")


def test_the_lock_of_a_killed_holder_is_free(directory: Path) -> None:
    process = start_holder(directory)
    try:
        tell(process)
        assert [answer(process), answer(process)] == ["ready", "holds"]
        with pytest.raises(AlreadyRunningError, match=str(process.pid)):
            RuntimeLock.acquire(directory, start_time=0.0)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    RuntimeLock.acquire(directory, start_time=0.0).release()


def test_a_deleted_lock_file_does_not_give_two_daemons_a_lock_each(directory: Path) -> None:
    first = RuntimeLock.acquire(directory, start_time=0.0)
    (directory / LOCK).unlink()
    # The first holds a file without a name: the next one must lock the file that everybody sees, and keep it.
    with RuntimeLock.acquire(directory, start_time=0.0), pytest.raises(AlreadyRunningError):
        RuntimeLock.acquire(directory, start_time=0.0)
    first.release()


def test_the_lock_is_not_inherited_by_programs_that_are_started(directory: Path) -> None:
    lock = RuntimeLock.acquire(directory, start_time=0.0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        RuntimeLock.acquire(directory, start_time=0.0).release()
        child.communicate()


def test_a_stale_socket_is_removed_with_the_lock_held(directory: Path) -> None:
    RuntimeLock.acquire(directory, start_time=0.0).release()
    bind(directory / SOCKET).close()
    with RuntimeLock.acquire(directory, start_time=0.0):
        assert not (directory / SOCKET).exists()


def test_the_socket_of_a_living_daemon_is_left_alone(directory: Path) -> None:
    with RuntimeLock.acquire(directory, start_time=0.0), bind(directory / SOCKET):
        with pytest.raises(AlreadyRunningError):
            RuntimeLock.acquire(directory, start_time=0.0)
        assert (directory / SOCKET).is_socket()


@pytest.mark.parametrize(("kind", "words"), [("directory", "is a directory"), ("file", "is not a socket")])
def test_what_is_not_a_socket_in_its_place_is_kept_and_named(directory: Path, kind: str, words: str) -> None:
    directory.mkdir(mode=0o700)
    if kind == "directory":
        (directory / SOCKET).mkdir()
    else:
        (directory / SOCKET).write_text("precious")
    with pytest.raises(RuntimeDirectoryError, match=words):
        RuntimeLock.acquire(directory, start_time=0.0)
    assert (directory / SOCKET).exists()
    with pytest.raises(RuntimeDirectoryError, match=words):  # not "already running": nothing half started is left
        RuntimeLock.acquire(directory, start_time=0.0)


def test_a_directory_that_others_may_enter_is_refused_with_the_command_that_helps(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o750)
    with pytest.raises(RuntimeDirectoryError, match="0750") as caught:
        RuntimeLock.acquire(directory, start_time=0.0)
    assert caught.value.hint == f"run: chmod 700 {directory}"


def test_a_symlink_is_refused_even_to_a_good_directory(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "good").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "good")
    with pytest.raises(RuntimeDirectoryError, match="symbolic link"):
        RuntimeLock.acquire(directory, start_time=0.0)
    assert list((tmp_path / "good").iterdir()) == []


def test_a_file_in_the_directorys_place_is_refused(directory: Path) -> None:
    directory.write_text("")
    with pytest.raises(RuntimeDirectoryError, match="not a directory"):
        RuntimeLock.acquire(directory, start_time=0.0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    with pytest.raises(RuntimeDirectoryError, match="belongs to user 12345"):
        RuntimeLock.acquire(directory, start_time=0.0)


def test_a_lock_file_that_is_a_symlink_is_not_followed(directory: Path, tmp_path: Path) -> None:
    directory.mkdir(mode=0o700)
    (tmp_path / "precious").write_text("precious")
    (directory / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(RuntimeDirectoryError, match="cannot be opened"):
        RuntimeLock.acquire(directory, start_time=0.0)
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_socket_path_that_is_too_long_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(RuntimeDirectoryError, match="bytes") as caught:
        RuntimeLock.acquire(tmp_path / ("x" * 100), start_time=0.0)
    assert "RAMET_RUNTIME_DIR" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_socket_bound_under_the_umask_is_0600_and_passes_the_check(directory: Path) -> None:
    with RuntimeLock.acquire(directory, start_time=0.0) as lock:
        before = os.umask(0o022)
        try:
            with socket_umask():
                bound = bind(lock.socket)
            assert os.umask(0o022) == 0o022
        finally:
            os.umask(before)
        with bound:
            assert stat.S_IMODE(lock.socket.stat().st_mode) == 0o600
            lock.check_socket()
            lock.socket.chmod(0o666)
            with pytest.raises(RuntimeDirectoryError, match="not a private socket"):
                lock.check_socket()
    assert not lock.socket.exists()


def test_a_socket_that_vanished_is_noticed(directory: Path) -> None:
    with RuntimeLock.acquire(directory, start_time=0.0) as lock, pytest.raises(RuntimeDirectoryError, match="is gone"):
        lock.check_socket()
