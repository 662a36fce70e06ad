import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rametd.domain.errors import AlreadyRunningError, RuntimeDirectoryError
from rametd.platform.runtime import BINDING, LOCK, SOCKET, Runtime

HOLDER = """
import sys
from pathlib import Path
from rametd.domain.errors import AlreadyRunningError
from rametd.platform.runtime import Runtime
print("ready", flush=True)
sys.stdin.readline()
try:
    held = Runtime.acquire(Path(sys.argv[1]), start_time=0.0)
except AlreadyRunningError as error:
    print("refused", flush=True)
else:
    print("holds", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="rmt-"))
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


def test_the_directory_is_0700_and_the_lock_file_names_its_holder(directory: Path) -> None:
    with Runtime.acquire(directory, start_time=12.5) as runtime:
        assert runtime.socket == directory / SOCKET
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / LOCK).stat().st_mode) == 0o600
        assert json.loads((directory / LOCK).read_text()) == {"pid": os.getpid(), "start_time": 12.5}


def test_a_second_daemon_names_the_pid_of_the_first(directory: Path) -> None:
    with Runtime.acquire(directory, start_time=0.0):
        with pytest.raises(AlreadyRunningError, match=str(os.getpid())) as caught:
            Runtime.acquire(directory, start_time=1.0)
        assert caught.value.data["pid"] == str(os.getpid())


def test_the_lock_is_free_again_after_release_and_release_may_come_twice(directory: Path) -> None:
    lock = Runtime.acquire(directory, start_time=0.0)
    lock.release()
    lock.release()
    Runtime.acquire(directory, start_time=0.0).release()


def test_a_lock_file_that_names_a_foreign_process_does_not_block(directory: Path) -> None:
    Runtime.acquire(directory, start_time=0.0).release()
    (directory / LOCK).write_text(json.dumps({"pid": os.getppid(), "start_time": 0}))
    Runtime.acquire(directory, start_time=0.0).release()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\xff"])
def test_an_unreadable_lock_file_costs_only_the_pid_in_the_message(directory: Path, content: str) -> None:
    with Runtime.acquire(directory, start_time=0.0):
        (directory / LOCK).write_text(content, encoding="latin-1")
        with pytest.raises(AlreadyRunningError) as caught:
            Runtime.acquire(directory, start_time=0.0)
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
            Runtime.acquire(directory, start_time=0.0)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    Runtime.acquire(directory, start_time=0.0).release()


def test_a_deleted_lock_file_gives_no_second_daemon_the_lock(directory: Path) -> None:
    with Runtime.acquire(directory, start_time=0.0):
        (directory / LOCK).unlink()
        with pytest.raises(AlreadyRunningError):
            Runtime.acquire(directory, start_time=0.0)
        assert not (directory / LOCK).exists()


def test_where_directories_cannot_be_locked_the_file_decides(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "as NFS says")
        real(descriptor, how)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    first = Runtime.acquire(directory, start_time=0.0)
    with pytest.raises(AlreadyRunningError):
        Runtime.acquire(directory, start_time=0.0)
    # The first holds a file without a name: the next one must lock the visible file, and leave it
    # there.
    (directory / LOCK).unlink()
    with Runtime.acquire(directory, start_time=0.0), pytest.raises(AlreadyRunningError):
        Runtime.acquire(directory, start_time=0.0)
    first.release()


def test_the_lock_is_not_inherited_by_programs_that_are_started(directory: Path) -> None:
    lock = Runtime.acquire(directory, start_time=0.0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        Runtime.acquire(directory, start_time=0.0).release()
        child.communicate()


def publish(runtime: Runtime) -> socket.socket:
    with ExitStack() as undo:
        bound = undo.enter_context(bind(runtime.binding))
        runtime.publish()
        undo.pop_all()
    return bound


def test_a_stale_socket_is_replaced_in_one_step(directory: Path) -> None:
    Runtime.acquire(directory, start_time=0.0).release()
    bind(directory / SOCKET).close()
    with Runtime.acquire(directory, start_time=0.0) as runtime:
        assert (directory / SOCKET).exists()
        with publish(runtime) as bound, socket.socket(socket.AF_UNIX) as client:
            bound.listen()
            client.connect(str(runtime.socket))
    assert not (directory / SOCKET).exists()


def test_acquiring_and_giving_up_touches_no_socket(directory: Path) -> None:
    Runtime.acquire(directory, start_time=0.0).release()
    with bind(directory / SOCKET):
        Runtime.acquire(directory, start_time=0.0).release()
        assert (directory / SOCKET).is_socket()


@pytest.mark.parametrize(("kind", "words"), [("directory", "is a directory"), ("file", "is not a socket")])
def test_a_file_in_place_of_the_socket_is_named_and_unchanged(directory: Path, kind: str, words: str) -> None:
    directory.mkdir(mode=0o700)
    if kind == "directory":
        (directory / SOCKET).mkdir()
    else:
        (directory / SOCKET).write_text("precious")
    with pytest.raises(RuntimeDirectoryError, match=words):
        Runtime.acquire(directory, start_time=0.0)
    assert (directory / SOCKET).exists()


def remove(socket_path: Path) -> None:
    socket_path.unlink()


def replace(socket_path: Path) -> None:
    socket_path.unlink()
    bind(socket_path).close()


def replace_directory(socket_path: Path) -> None:
    socket_path.parent.rename(socket_path.parent.with_name("moved"))
    socket_path.parent.mkdir(mode=0o700)


def remove_directory(socket_path: Path) -> None:
    shutil.rmtree(socket_path.parent)


@pytest.mark.parametrize("harm", [remove, replace, replace_directory, remove_directory])
def test_a_socket_that_is_lost_is_noticed_and_published_again(directory: Path, harm: Callable[[Path], None]) -> None:
    with Runtime.acquire(directory, start_time=0.0) as runtime, publish(runtime):
        assert not runtime.lost()
        harm(runtime.socket)
        assert runtime.lost()
        runtime.reopen()
        with publish(runtime):
            assert not runtime.lost()
            with pytest.raises(AlreadyRunningError):
                Runtime.acquire(directory, start_time=0.0)
    assert not (directory / SOCKET).exists()


def test_release_leaves_the_socket_of_another_daemon(directory: Path) -> None:
    runtime = Runtime.acquire(directory, start_time=0.0)
    with publish(runtime):
        replace(runtime.socket)
        runtime.release()
    assert (directory / SOCKET).is_socket()


def test_a_directory_that_others_may_enter_is_refused_with_the_command_that_helps(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o750)
    with pytest.raises(RuntimeDirectoryError, match="0750") as caught:
        Runtime.acquire(directory, start_time=0.0)
    assert caught.value.hint == f"run: chmod 700 {directory}"


def test_a_symlink_is_refused_even_to_a_good_directory(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "good").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "good")
    with pytest.raises(RuntimeDirectoryError, match="symbolic link"):
        Runtime.acquire(directory, start_time=0.0)
    assert list((tmp_path / "good").iterdir()) == []


def test_a_file_in_the_directorys_place_is_refused(directory: Path) -> None:
    directory.write_text("")
    with pytest.raises(RuntimeDirectoryError, match="not a directory"):
        Runtime.acquire(directory, start_time=0.0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    with pytest.raises(RuntimeDirectoryError, match="belongs to user 12345"):
        Runtime.acquire(directory, start_time=0.0)


def test_a_lock_file_that_is_a_symlink_is_not_followed(directory: Path, tmp_path: Path) -> None:
    directory.mkdir(mode=0o700)
    (tmp_path / "precious").write_text("precious")
    (directory / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(RuntimeDirectoryError, match="cannot be opened"):
        Runtime.acquire(directory, start_time=0.0)
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_socket_path_that_is_too_long_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(RuntimeDirectoryError, match="bytes") as caught:
        Runtime.acquire(tmp_path / ("x" * 100), start_time=0.0)
    assert "RAMET_RUNTIME_DIR" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_socket_is_0600_whatever_the_umask(directory: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Runtime.acquire(directory, start_time=0.0) as runtime, publish(runtime):
            assert stat.S_IMODE(runtime.socket.stat().st_mode) == 0o600
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            assert not (directory / BINDING).exists()
    finally:
        os.umask(before)


def test_a_socket_that_vanished_before_it_got_its_name_is_noticed(directory: Path) -> None:
    with Runtime.acquire(directory, start_time=0.0) as runtime, pytest.raises(RuntimeDirectoryError, match="is gone"):
        runtime.publish()
