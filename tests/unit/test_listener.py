"""The client connects only to sockets that only this user can have created, of a process of this
user."""

import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rametctl.connection import listener
from rametctl.connection.listener import XUCRED, Listener, listens, peer_uid
from rametctl.errors import UnreachableError

STRANGER = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")


@pytest.fixture
def runtime() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="rmt-"))
    (base / "run").mkdir(mode=0o700)
    yield base / "run"
    shutil.rmtree(base)


@pytest.fixture
def served(runtime: Path) -> Iterator[Path]:
    """Yield the path of a socket on which a process of this user listens."""
    with serve(runtime / "rametd.sock"):
        yield runtime / "rametd.sock"


def serve(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(0o600)
    made.listen()
    return made


def connections(listening: socket.socket) -> int:
    """Return how many clients have connected."""
    listening.setblocking(False)
    count = 0
    while True:
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_a_socket_of_ours_in_a_directory_of_ours_is_a_listener(served: Path) -> None:
    found = Listener.find(served)
    assert found is not None
    with closing(found):
        assert found.address.startswith("unix:/")
    assert listens(served)


def test_nothing_listens_where_there_is_no_directory_no_socket_or_a_dead_one(runtime: Path) -> None:
    assert not listens(runtime / "none" / "rametd.sock")
    assert not listens(runtime / "rametd.sock")
    serve(runtime / "rametd.sock").close()
    (runtime / "rametd.sock").chmod(0o777)
    assert not listens(runtime / "rametd.sock")


def test_a_stopped_process_with_a_full_queue_of_callers_listens(runtime: Path) -> None:
    path = runtime / "rametd.sock"
    with serve(path) as busy, socket.socket(socket.AF_UNIX) as caller:
        busy.listen(0)
        caller.connect(str(path))
        assert listens(path)


def open_directory(path: Path) -> None:
    path.parent.chmod(0o777)


def readable_directory(path: Path) -> None:
    path.parent.chmod(0o710)


def linked_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to("elsewhere")


def foreign_directory(path: Path) -> None:
    os.chown(path.parent, STRANGER, STRANGER)


def open_socket(path: Path) -> None:
    path.chmod(0o666)


def linked_socket(path: Path) -> None:
    path.rename(path.with_name("real.sock"))
    path.symlink_to("real.sock")


def foreign_socket(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (open_directory, "is open to others (mode 0777)"),
        (readable_directory, "is open to others (mode 0710)"),
        (linked_directory, "is a symbolic link"),
        (open_socket, "is open to others (mode 0666)"),
        (linked_socket, "is not a socket"),
        pytest.param(foreign_directory, "belongs to user 65534, not to you", marks=root_only),
        pytest.param(foreign_socket, "belongs to user 65534, not to you", marks=root_only),
    ],
)
def test_what_others_can_have_made_is_refused(served: Path, spoil: Callable[[Path], None], words: str) -> None:
    spoil(served)
    with pytest.raises(UnreachableError) as caught:
        Listener.find(served)
    assert words in caught.value.message
    assert (caught.value.exit_code, caught.value.reason) == (5, "RUNTIME_DIRECTORY")
    assert caught.value.hint


@root_only
def test_a_process_of_another_user_is_refused_even_behind_a_socket_of_ours(runtime: Path) -> None:
    path = runtime / "rametd.sock"
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        path.chmod(0o600)
        # The kernel remembers the user of the process that called listen().
        os.seteuid(STRANGER)
        try:
            foreign.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(UnreachableError, match=f"runs as user {STRANGER}, not as you"):
            Listener.find(path)


def test_an_exchanged_directory_gets_no_later_connection(served: Path) -> None:
    """The socket is exchanged between check and connect: at gRPC's first connection, or at a later
    reconnection."""
    found = Listener.find(served)
    assert found is not None
    with closing(found):
        served.parent.rename(served.parent.with_name("moved"))
        served.parent.mkdir(mode=0o700)
        with serve(served) as trap, socket.socket(socket.AF_UNIX) as late:
            late.connect(found.address.removeprefix("unix:"))
            assert connections(trap) == 0


def test_a_directory_opened_to_others_later_is_refused_at_the_next_call(served: Path) -> None:
    found = Listener.find(served)
    assert found is not None
    with closing(found):
        assert found.check()
        served.parent.chmod(0o777)
        with pytest.raises(UnreachableError, match="open to others"):
            found.check()


class TestWithoutDescriptorPaths:
    """Behave as on macOS, which has no paths through a descriptor."""

    @pytest.fixture(autouse=True)
    def no_proc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listener, "DESCRIPTORS", "/nonexistent")

    def test_the_path_without_links_is_used(self, served: Path) -> None:
        link = served.parent.parent / "link"
        link.symlink_to(served.parent.parent)
        found = Listener.find(link / "run" / "rametd.sock")
        assert found is not None
        with closing(found):
            assert found.address == f"unix:{served.resolve()}"

    def test_an_ancestor_in_which_others_can_exchange_entries_is_refused(self, served: Path) -> None:
        served.parent.parent.chmod(0o777)
        with pytest.raises(UnreachableError, match="others can exchange entries"):
            Listener.find(served)

    def test_a_sticky_ancestor_protects_its_entries(self, served: Path) -> None:
        served.parent.parent.chmod(0o1777)
        assert listens(served)

    def test_an_exchanged_directory_is_noticed(self, served: Path) -> None:
        found = Listener.find(served)
        assert found is not None
        with closing(found):
            served.parent.rename(served.parent.with_name("moved"))
            served.parent.mkdir(mode=0o700)
            with pytest.raises(UnreachableError, match="was exchanged"):
                _ = found.address


def test_the_peers_user_is_read_from_both_systems_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_uid(ours) == os.getuid()

    class Darwin:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (0, 1)
            return (XUCRED.pack(0, 501) + struct.pack("h2x16I", 1, *([20] * 16)))[:size]

    monkeypatch.setattr("rametctl.connection.listener.sys.platform", "darwin")
    assert peer_uid(Darwin()) == 501  # type: ignore[arg-type]
