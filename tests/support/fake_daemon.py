"""A daemon with canned answers that serves the complete contract, to test the client without a real
one.

`FakeDaemon` serves in this process; its `State` outlives it, so that a test can replace the daemon.
Run as a program (``main``) it stands in for ``rametd run``, in the directories of its environment.
"""

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from ramet.paths import directories
from ramet.v1 import (
    attention_pb2_grpc,
    daemon_pb2_grpc,
    event_pb2_grpc,
    landing_pb2_grpc,
    orchestration_pb2_grpc,
    repo_pb2_grpc,
    session_pb2_grpc,
    worktree_pb2_grpc,
)
from rametctl.connection.listener import listens

from tests.support import fake_services as services
from tests.support.fake_state import State

MAX_BYTES = 64 * 1024 * 1024


class FakeDaemon:
    """Serves a `State` on a socket. ``start`` and ``stop`` may alternate; each start is a new
    daemon."""

    def __init__(self, state: State, socket: Path, *, home: Path = Path("/state")) -> None:
        self.state = state
        self.socket = socket
        self.home = home
        self.instance = 0
        self.stopping = threading.Event()
        self.shutdown_asked = threading.Event()
        self._server: grpc.Server | None = None
        self.health = health.HealthServicer()

    def start(self, *, serving: bool = True) -> None:
        self.instance += 1
        self.stopping.clear()
        self.health = health.HealthServicer()
        server = grpc.server(
            ThreadPoolExecutor(max_workers=16),
            options=[("grpc.max_receive_message_length", MAX_BYTES), ("grpc.max_send_message_length", MAX_BYTES)],
        )
        daemon_pb2_grpc.add_DaemonServiceServicer_to_server(services.Daemon(self), server)
        repo_pb2_grpc.add_RepoServiceServicer_to_server(services.Repos(self), server)
        # Missing methods are answered UNIMPLEMENTED, as by an older daemon.
        session_pb2_grpc.add_SessionServiceServicer_to_server(services.Sessions(self), server)
        event_pb2_grpc.add_EventServiceServicer_to_server(services.Events(self), server)
        landing_pb2_grpc.add_LandingServiceServicer_to_server(services.Landings(self), server)  # type: ignore[abstract]
        attention_pb2_grpc.add_AttentionServiceServicer_to_server(services.Attention(self), server)
        orchestration_pb2_grpc.add_OrchestrationServiceServicer_to_server(services.Orchestration(self), server)  # type: ignore[abstract]
        worktree_pb2_grpc.add_WorktreeServiceServicer_to_server(services.Worktrees(self), server)  # type: ignore[abstract]
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)
        self.set_serving(serving)
        before = os.umask(0o177)  # the client refuses an open socket
        try:
            server.add_insecure_port(f"unix:{quote(str(self.socket))}")
            server.start()
        finally:
            os.umask(before)
        self._server = server

    def set_serving(self, serving: bool) -> None:
        answer = health_pb2.HealthCheckResponse
        self.health.set("", answer.SERVING if serving else answer.NOT_SERVING)

    def stop(self, *, grace: float | None = None) -> None:
        """End as a killed daemon does: streams break, the socket is dead. ``grace``: seconds for
        calls to end."""
        if self._server is None:
            return
        self.stopping.set()
        with self.state.changed:
            self.state.changed.notify_all()
        self._server.stop(grace=grace).wait()
        self._server = None
        self.socket.unlink(missing_ok=True)


@contextmanager
def stand_in(directory: Path) -> Iterator[dict[str, str]]:
    """Return environment variables that make the client start this program as its daemon, by a
    package ``rametd`` first on the path."""
    package = directory / "rametd"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from tests.support.fake_daemon import main\nmain()\n")
    root = Path(__file__).parents[2]
    yield {"PYTHONPATH": f"{directory}{os.pathsep}{root}"}


def main() -> None:
    """Serve in the directories of the environment until SIGTERM or Shutdown.

    RAMET_FAKE_FAIL: exit at once with this message. RAMET_FAKE_RECOVERY: seconds before it serves.
    RAMET_FAKE_LINGER: seconds for which it holds its lock after it closed its socket. Each start
    adds its pid to ``starts`` in the state directory.
    """
    places = directories(os.environ)
    places.home.mkdir(parents=True, exist_ok=True)
    if words := os.environ.get("RAMET_FAKE_FAIL"):
        print(words, file=sys.stderr)
        sys.exit(os.EX_CONFIG)
    lock = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + float(sys.argv[-1].partition("--patience=")[2] or 0)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if listens(places.socket) or time.monotonic() > end:
                print("another daemon holds the lock", file=sys.stderr)
                sys.exit(os.EX_TEMPFAIL)
            time.sleep(0.05)
    places.socket.unlink(missing_ok=True)
    with (places.home / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    (places.home / "environment").write_text("\n".join(f"{key}={value}" for key, value in sorted(os.environ.items())))
    state = State()
    state.session("canned")
    daemon = FakeDaemon(state, places.socket, home=places.home)
    signal.signal(signal.SIGTERM, lambda *_: daemon.shutdown_asked.set())
    daemon.start(serving=False)
    time.sleep(float(os.environ.get("RAMET_FAKE_RECOVERY", "0")))
    daemon.set_serving(True)
    daemon.shutdown_asked.wait()
    daemon.stop(grace=2)
    time.sleep(float(os.environ.get("RAMET_FAKE_LINGER", "0")))


if __name__ == "__main__":
    main()
