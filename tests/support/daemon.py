"""Daemons in tests: a real process with private directories, and one inside the test's own loop.
Both serve a real socket.

A `Sandbox` owns every directory that the daemon, its agents and its clients touch. When it closes,
it ends every keeper and agent in it, and fails the test if a process is still alive.
"""

import asyncio
import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import psutil
from ramet.environment import METADATA, encode
from ramet.paths import Directories, directories
from ramet.v1 import (
    attention_pb2_grpc,
    daemon_pb2,
    daemon_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    landing_pb2_grpc,
    orchestration_pb2_grpc,
    plan_pb2_grpc,
    repo_pb2,
    repo_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    terminal_pb2_grpc,
    worktree_pb2,
    worktree_pb2_grpc,
)
from rametd.app import Daemon

from tests.support.agents import write_wrapper
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.zygote import Forked

IDLE = session_pb2.SESSION_STATE_IDLE
WORKING = session_pb2.SESSION_STATE_WORKING
WAITING = session_pb2.SESSION_STATE_WAITING
QUEUED = session_pb2.SESSION_STATE_QUEUED
PAUSED = session_pb2.SESSION_STATE_PAUSED
LOST = session_pb2.SESSION_STATE_LOST
FAILED = session_pb2.SESSION_STATE_FAILED
STARTING = session_pb2.SESSION_STATE_STARTING

CHANNEL = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    # Without this, a channel looks only once a second for a daemon that is not there yet, or is
    # there again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)

PORTS = 20_000 + 1_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 12)
"""The first of a thousand ports, all below those that systems give to clients."""


@dataclass
class Sandbox:
    """Private directories, an environment that points only to them, and the configuration in it."""

    root: Path
    model_port: int = 0
    settings: dict[str, object] = field(default_factory=dict)
    forked: list[int] = field(default_factory=list)
    """Pids of daemons whose environment in /proc is not the sandbox's (see `zygote`)."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of this sandbox's daemon, agents and clients."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "RAMET_HOME": str(self.root / "state"),
            "RAMET_RUNTIME_DIR": str(self.root / "run"),
            "CLAUDE_CONFIG_DIR": str(self.root / "claude"),
            "CLAUDE_CODE_TMPDIR": str(self.root / "tmp"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.model_port}",
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
            "GIT_CONFIG_GLOBAL": str(self.root / "home" / ".gitconfig"),
        }

    @property
    def directories(self) -> Directories:
        return directories(self.environ)

    @property
    def socket(self) -> Path:
        return self.root / "run" / "rametd.sock"

    def configure(self, text: str) -> None:
        """Replace the owner's configuration. Spares are created only if it has a table `pool`,
        since tests count worktrees.

        Sessions get ports of a range that no other process of the test run uses.
        """
        if "[pool]" not in text:
            text += "\n[pool]\nsize = 0\n"
        if "[ports]" not in text:
            text += "\n[ports]\n"
        if "[ports]\nbase = " not in text:  # it may contain the previous configuration
            text = text.replace("[ports]\n", f"[ports]\nbase = {PORTS}\n")
        path = self.root / "config" / "ramet" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def processes(self) -> list[psutil.Process]:
        """List every living process with this sandbox's environment: daemons, keepers, agents and
        their descendants."""
        mark = f"RAMET_HOME={self.root / 'state'}".encode()
        keepers = [str(self.root / "state" / kind).encode() for kind in ("agents", "commands")]
        found = []
        # Not by psutil.process_iter, which takes 0.2 ms a process: each test looks at all of the
        # machine's.
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                if pid == os.getpid() or not environment:  # a zombie has none
                    continue
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
                if mark in environment.split(b"\0") or pid in self.forked or any(each in arguments for each in keepers):
                    found.append(psutil.Process(pid))
        return found

    def keepers(self) -> list[psutil.Process]:
        return [each for each in self.processes() if any("keeper" in part for part in command_of(each))]

    def agents(self) -> list[psutil.Process]:
        """The agents' own processes: direct children of keepers."""
        return [
            child
            for keeper in self.keepers()
            for child in children_of(keeper)
            if child.status() != psutil.STATUS_ZOMBIE
        ]

    def kill_everything(self) -> None:
        """Kill all processes, as a power cut does, also those that start meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while found := self.processes():
            assert time.monotonic() < deadline, f"these do not end: {found}"
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for process in found:
                _wait_dead(process.pid)

    def ctl(self, *arguments: str, cwd: Path | None = None, stdin: str | None = None, **more: str) -> "Ran":
        """Run ``rametctl`` as a person would, without a terminal; ``more`` are further
        variables."""
        with (
            Path(os.devnull).open("w+b") if stdin is None else tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write((stdin or "").encode())
            given.seek(0)
            environ = {**self.environ, **more}
            command = Forked("rametctl", arguments, environ=environ, cwd=cwd or self.root, streams=(given, out, err))
            try:
                status = command.wait(timeout=90)
            except subprocess.TimeoutExpired:
                command.kill()
                raise
            out.seek(0)
            err.seek(0)
            return Ran(status, out.read().decode(), err.read().decode())

    def repository(self, name: str = "repo", files: int = 3) -> Path:
        """Create a repository with one commit, on ``main``."""
        path = self.root / name
        shutil.copytree(_template(files), path, symlinks=True)
        git(path, "update-index", "--refresh")  # the copies are other inodes than the index knows
        return path


@cache
def _template(files: int) -> Path:
    """The repository that `Sandbox.repository` copies: created once in each process, and removed
    with it."""
    path = Path(tempfile.mkdtemp(prefix="rmt-"))
    atexit.register(shutil.rmtree, path)
    git(path, "init", "-q", "-b", "main")
    for number in range(files):
        file = path / f"dir{number % 20}" / f"file{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"line one of {number}\nline two\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def git(path: Path, *arguments: str) -> str:
    """Run git as a named person, without the machine's configuration; commands that only read write
    nothing."""
    environment = {
        **os.environ,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in PERSON},
    }
    return subprocess.run(
        ["git", *QUICK, "-C", str(path), *arguments], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


PERSON = (("NAME", "A Person"), ("EMAIL", "person@example.org"))
QUICK = ("-c", "core.fsync=none", "-c", "maintenance.auto=false")
"""Settings that make the test person's git faster: no fsync, and no packing."""


def _wait_dead(pid: int, within: float = PATIENCE_S) -> None:
    """Wait until a killed process, which need not be a child, no longer runs or holds a resource.

    Do not wait until it is reaped, as psutil would: its parent or init may take long.
    """
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            assert poller.poll(within * 1000), f"process {pid} does not die"
        finally:
            os.close(descriptor)


def command_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children())
    except psutil.Error:
        return []


@contextlib.contextmanager
def make_sandbox(*, model_port: int = 0, real_cli: bool = False, config: str = "") -> Iterator[Sandbox]:
    """Yield a sandbox under a short path (sockets need one) and remove it afterwards; fail if a
    process survives its end.

    ``config`` is TOML; the scripted agent is `agents.claude.path` unless ``real_cli``.
    """
    root = Path(tempfile.mkdtemp(prefix="rmt-"))
    try:
        for name in ("home", "config", "run", "tmp"):
            (root / name).mkdir(mode=0o700)
        (root / "home" / ".gitconfig").write_text("[user]\n\tname = A Person\n\temail = person@example.org\n")
        sandbox = Sandbox(root, model_port)
        if not real_cli:
            (root / "bin").mkdir()
            config += f'\n[agents.claude]\npath = "{write_wrapper(root / "bin")}"\n'
        sandbox.configure(config)
        try:
            yield sandbox
        finally:
            sandbox.kill_everything()
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Client:
    """Async stubs for all services over one channel."""

    def __init__(self, socket: Path, token: str = "") -> None:
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL)
        self.metadata = (("ramet-contract", "1"), *((("ramet-token", token),) if token else ()))
        self.daemon = daemon_pb2_grpc.DaemonServiceStub(self.channel)
        self.repos = repo_pb2_grpc.RepoServiceStub(self.channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(self.channel)
        self.events = event_pb2_grpc.EventServiceStub(self.channel)
        self.attention = attention_pb2_grpc.AttentionServiceStub(self.channel)
        self.worktrees = worktree_pb2_grpc.WorktreeServiceStub(self.channel)
        self.terminals = terminal_pb2_grpc.TerminalServiceStub(self.channel)
        self.plans = plan_pb2_grpc.PlanServiceStub(self.channel)
        self.landing = landing_pb2_grpc.LandingServiceStub(self.channel)
        self.orchestration = orchestration_pb2_grpc.OrchestrationServiceStub(self.channel)

    async def create(self, path: Path, prompt: str = "", **fields: Any) -> session_pb2.Session:
        """Create a session in the sandbox's usual mode (all edits are allowed); the call carries
        ``environment``."""
        fields.setdefault("request_id", str(uuid.uuid4()))
        carried = ((METADATA, encode(fields.pop("environment"))),) if "environment" in fields else ()
        request = session_pb2.CreateSessionRequest(path=str(path), prompt=prompt, **fields)
        return (await self.sessions.CreateSession(request, metadata=(*self.metadata, *carried))).session

    async def trust(self, path: Path, *, trusted: bool = True) -> repo_pb2.Repo:
        """Trust a repository's present contents, as `rametctl repo trust` does, or withdraw the
        trust."""
        repo = (
            await self.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(path)), metadata=self.metadata)
        ).repo
        shown = await self.repos.GetTrust(repo_pb2.GetTrustRequest(repo=repo.id), metadata=self.metadata)
        request = repo_pb2.UpdateRepoRequest(
            repo_id=repo.id, repo=repo_pb2.Repo(trusted=trusted), trust_digest=shown.digest if trusted else ""
        )
        request.update_mask.paths.append("trusted")
        return (await self.repos.UpdateRepo(request, metadata=self.metadata)).repo

    async def get(self, name: str) -> session_pb2.Session:
        request = session_pb2.GetSessionRequest(session=name)
        return (await self.sessions.GetSession(request, metadata=self.metadata)).session

    async def send(self, name: str, prompt: str) -> session_pb2.SendPromptResponse:
        request = session_pb2.SendPromptRequest(session=name, prompt=prompt, request_id=str(uuid.uuid4()))
        return await self.sessions.SendPrompt(request, metadata=self.metadata)

    async def reach(self, name: str, *states: int, within: float = PATIENCE_S) -> session_pb2.Session:
        """Wait until a session is in one of some states; fails with the last one seen."""

        async def look() -> session_pb2.Session:
            session = await self.get(name)
            state = session_pb2.SessionState.Name(session.state)
            assert session.state in states, f"{name} is {state}: {session.state_reason}"
            return session

        return await eventually(look, within=within)

    async def log(self, name: str = "", *, frames: bool = False) -> list[event_pb2.Event]:
        """Return all events, of one session or of all."""
        found: list[event_pb2.Event] = []
        token = ""
        while True:
            page = await self.events.ListEvents(
                event_pb2.ListEventsRequest(session=name, page_size=1000, page_token=token, include_frames=frames),
                metadata=self.metadata,
            )
            found.extend(page.events)
            token = page.next_page_token
            if not token:
                return found

    async def checkpoints(self, name: str) -> list[worktree_pb2.Checkpoint]:
        """Return the newest first. The first checkpoint of a session without a prompt is created
        shortly after it."""
        request = worktree_pb2.ListCheckpointsRequest(session=name)
        return list((await self.worktrees.ListCheckpoints(request, metadata=self.metadata)).checkpoints)

    async def aclose(self) -> None:
        await self.channel.close()


class DaemonProcess:
    """``rametd`` as a separate process, which tests kill and restart.

    ``forked`` daemons come from `zygote` and start thirty times faster; measurements, and tests of
    the command line, start a program instead.
    """

    def __init__(self, sandbox: Sandbox, *, forked: bool = True) -> None:
        self.sandbox = sandbox
        self.forked = forked
        self.process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, wait: bool = True, **more: str) -> None:
        """Start it, and wait until it serves. ``more`` are further variables."""
        output, environ = self.sandbox.root / "rametd.out", {**self.sandbox.environ, **more}
        with output.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            streams = (nothing, log, log)
            if self.forked:
                self.process = Forked("rametd", (), environ=environ, cwd=Path.cwd(), streams=streams)
                self.sandbox.forked.append(self.process.pid)
            else:
                program = [sys.executable, "-m", "rametd"]
                self.process = subprocess.Popen(
                    program, env=environ, stdin=nothing, stdout=log, stderr=log, start_new_session=True
                )
        if wait:
            self.wait_serving()

    def wait_serving(self, within: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within
        with grpc.insecure_channel(
            f"unix:{self.sandbox.socket}", options=[*CHANNEL, ("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            stub = daemon_pb2_grpc.DaemonServiceStub(channel)
            while True:
                with contextlib.suppress(grpc.RpcError):
                    info = stub.GetInfo(daemon_pb2.GetInfoRequest(), timeout=2, wait_for_ready=True)
                    if info.serving and info.pid == self.pid:
                        return
                assert self.process is not None
                words = (self.sandbox.root / "rametd.out").read_text()
                if self.process.poll() is not None:
                    raise AssertionError(f"rametd ended with {self.process.returncode}: {words}")
                if time.monotonic() > deadline:
                    raise AssertionError(f"rametd does not serve after {within} s: {words}")
                time.sleep(0.01)

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait for the end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it with SIGTERM; return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def restart(self) -> None:
        """Kill it with SIGKILL and start another."""
        self.kill()
        self.start()


@contextlib.contextmanager
def daemon_process(sandbox: Sandbox, *, forked: bool = True) -> Iterator[DaemonProcess]:
    """Yield a daemon that serves; end it afterwards if it still runs."""
    daemon = DaemonProcess(sandbox, forked=forked)
    daemon.start()
    try:
        yield daemon
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.kill()


@contextlib.asynccontextmanager
async def daemon_here(sandbox: Sandbox) -> AsyncIterator[Daemon]:
    """Run a daemon inside this loop, so that tests see its exceptions and `blockbuster` its
    blocking calls."""
    daemon = Daemon(sandbox.directories, sandbox.environ)
    task = asyncio.create_task(daemon.run())
    client = Client(sandbox.socket)
    try:

        async def serving() -> bool:
            if task.done():
                await task
            if not sandbox.socket.exists():  # a channel without a daemon waits before its next attempt
                return False
            try:
                return (await client.daemon.GetInfo(daemon_pb2.GetInfoRequest())).serving
            except grpc.aio.AioRpcError:
                return False

        await eventually(serving)
        yield daemon
    finally:
        await client.aclose()
        daemon.stop()
        await task


@contextlib.asynccontextmanager
async def connected(sandbox: Sandbox, token: str = "") -> AsyncIterator[Client]:
    client = Client(sandbox.socket, token)
    try:
        yield client
    finally:
        await client.aclose()


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the stable reason in an error's details."""
    return _info_of(error)[0]


def hint_of(error: grpc.aio.AioRpcError) -> str:
    """Return an error's hint."""
    return _info_of(error)[1].get("hint", "")


def _info_of(error: grpc.aio.AioRpcError) -> tuple[str, dict[str, str]]:
    from google.rpc.error_details_pb2 import ErrorInfo
    from google.rpc.status_pb2 import Status

    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = Status.FromString(value if isinstance(value, bytes) else value.encode())
            info = ErrorInfo()
            if status.details and status.details[0].Unpack(info):
                return str(info.reason), dict(info.metadata)
    return "", {}
