"""A daemon that may die at any moment, and a caller that restarts it and repeats the call, any
number of times."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from ramet.v1 import daemon_pb2

from tests.support.daemon import Client, DaemonProcess, Sandbox, reason_of
from tests.support.eventually import eventually

T = TypeVar("T")

PATIENCE_S = 45.0
FAILPOINTS = tuple(
    f"{name}.{step}"
    for name, steps in {
        "archive": "intended agent-ended kept tree-removed",
        "checkpoint": "start-kept turn-kept turn-kept manual-kept rewind-kept fork-kept",
        "create": "intended worktree-made files-written inserted",
        "fork": "kept dropped",
        "launch": "started stored",
        "prompt": "committed written",
        "remove": "intended agent-ended trashed worktree-removed processes-destroyed forgotten",
        "restore": "intended tree-made stored dropped",
        "rewind": "intended agent-ended kept files-written branch-moved recorded",
        "sync": "intended kept synced",
    }.items()
    for step in steps.split()
)


class FaultError(Exception):
    """A failure that polling must not wait out, and so no assertion."""


class Mortal:
    """``kills`` counts the deaths, ``refused`` the refusals by call and reason; ``armed`` is the
    failpoint at which the present one dies.

    ``meanwhile`` runs after each death, before the next start.
    """

    def __init__(self, sandbox: Sandbox, client: Client, chance: random.Random) -> None:
        self.kills = 0
        self.refused: Counter[str] = Counter()
        self.armed = ""
        self._sandbox = sandbox
        self._client = client
        self._chance = chance
        self._daemon = DaemonProcess(sandbox)
        self._calls = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def start(self, arm: float = 0.3) -> None:
        """Start a daemon that serves. Armed ones (the first with probability ``arm``) may die in
        recovery before."""
        while True:
            self.meanwhile()
            self.armed = self._chance.choice(FAILPOINTS) if self._chance.random() < arm else ""
            arm /= 2
            self._daemon.start(wait=False, **({"RAMET_FAILPOINT": self.armed} if self.armed else {}))
            if await self._serves():
                return
            self.kills += 1

    async def _serves(self) -> bool:
        process = self._daemon.process
        assert process is not None

        async def serves_or_ended() -> bool:
            if process.poll() is not None:
                return True
            try:
                info = await self._client.daemon.GetInfo(daemon_pb2.GetInfoRequest(), timeout=2, wait_for_ready=True)
            except grpc.aio.AioRpcError:
                return False
            return info.serving and info.pid == process.pid

        await self.patiently(serves_or_ended)
        if process.poll() is None:
            return True
        self._was_killed(process.wait(timeout=0))
        return False

    def kill(self) -> None:
        if self._daemon.process is not None and self._daemon.process.poll() is None:
            self._daemon.kill()
            self.kills += 1

    async def strike(self, after: float) -> None:
        """Kill it after these seconds, at a random time."""
        await asyncio.sleep(after)
        self.kill()

    def stop(self) -> None:
        self._daemon.stop()

    async def call(self, method: Callable[..., Any], request: Any, *reasons: str) -> Any:
        """Repeat a call until it is answered; return None if it is refused for an allowed
        reason."""
        if hasattr(request, "request_id"):
            self._calls += 1
            request.request_id = f"call-{self._calls}"
        while True:
            try:
                return await method(request, metadata=self._client.metadata, timeout=PATIENCE_S)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    reason, name = reason_of(error), type(request).__name__
                    if reason not in reasons:
                        words = self.words(f"{name}: {error.code()} {reason}: {error.details()}")
                        raise FaultError(words) from error
                    self.refused[f"{name} {reason}"] += 1
                    return None
            await self._revive()

    async def _revive(self) -> None:
        """Check that it does not answer only because it was killed."""
        process = self._daemon.process
        assert process is not None
        self._was_killed(await asyncio.to_thread(process.wait, PATIENCE_S))
        self.kills += 1
        await self.start()

    async def patiently(self, probe: Callable[[], Awaitable[T]]) -> T:
        """`eventually`, whose failure includes the daemon's log."""
        try:
            return await eventually(probe, within=PATIENCE_S)
        except AssertionError as error:
            raise FaultError(self.words(str(error))) from error

    def _was_killed(self, returncode: int) -> None:
        if returncode != -9:
            raise FaultError(self.words(f"the daemon ended by itself, with {returncode}"))

    def words(self, what: str) -> str:
        """Return ``what`` with the daemon's log."""
        log = self._sandbox.root / "state" / "logs" / "rametd.log"
        said = [path.read_text()[-2000:] for path in (self._sandbox.root / "rametd.out", log) if path.exists()]
        return f"{what} (failpoint {self.armed!r}): {' | '.join(said)}"
