import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from rametd.platform.notify import Notifier, watchdog_interval


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """A service manager's end: a datagram socket with a path."""
    base = Path(tempfile.mkdtemp(prefix="rmt-"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(base / "notify"))
        bound.settimeout(10)
        yield bound
    shutil.rmtree(base)


def test_each_message_arrives_as_one_datagram(manager: socket.socket) -> None:
    notifier = Notifier.from_environ({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready("3 agents\nat work")
    notifier.watchdog()
    notifier.status("all is well")
    notifier.stopping()
    expected = [b"READY=1\nSTATUS=3 agents at work", b"WATCHDOG=1", b"STATUS=all is well", b"STOPPING=1"]
    assert [manager.recv(4096) for _ in expected] == expected


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_an_abstract_socket_is_written_with_an_at_sign() -> None:
    name = f"ramet-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{name}")
        bound.settimeout(10)
        Notifier(f"@{name}").ready()
        assert bound.recv(4096) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_manager_nothing_happens(environ: dict[str, str]) -> None:
    with structlog.testing.capture_logs() as lines:
        Notifier.from_environ(environ).ready()
    assert lines == []


def test_a_manager_that_is_gone_is_a_line_in_the_log_and_no_error(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        Notifier(str(tmp_path / "gone")).ready()
    assert [line["event"] for line in lines] == ["service manager not reached"]


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),  # meant for another process
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked(environ: dict[str, str], seconds: float | None) -> None:
    assert watchdog_interval(environ, pid=os.getpid()) == seconds
