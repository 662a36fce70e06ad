"""`LocalExecutor`: agents on this machine, each under its own keeper with its own directory.

This is one class because each call may meet a keeper that is starting, exiting or hanging, and
handles that in the same way.
"""

import asyncio
import os
import secrets
import shutil
import signal
import sys
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from rametd.domain.errors import (
    KeeperError,
    KeeperFencedError,
    NotFoundError,
    ReadOnlyError,
    RuntimeDirectoryError,
    WrongStateError,
)
from rametd.keeper import directory, launching, lost, segments
from rametd.keeper.attachment import LocalAttachment
from rametd.keeper.connection import Connection
from rametd.keeper.executor import (
    SESSION_VARIABLE,
    ExitRecord,
    Handle,
    JournalLine,
    LaunchSpec,
    Liveness,
    Recovered,
)
from rametd.keeper.place import Place, until
from rametd.keeper.server import LINGER
from rametd.keeper.tree import GIVE_UP, PAUSE
from rametd.platform import processes

MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
SETTLE = LINGER + 3.0
"""Seconds that a keeper may take to start or exit."""


class LocalExecutor:
    """See `executor.Executor`. ``root`` holds the keepers' directories, ``sockets`` their sockets
    (0700, checked by the caller).

    ``environment`` is the keepers' own, empty unless Python needs a variable to start
    (LD_LIBRARY_PATH); agents do not get it. ``variable`` names the environment variable with the id
    of the session or command.
    """

    def __init__(
        self,
        root: Path,
        sockets: Path,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] = MappingProxyType({}),
        variable: str = SESSION_VARIABLE,
    ) -> None:
        self._root, self.sockets, self._python, self._environment = (
            root.absolute(),
            sockets.absolute(),
            python,
            environment,
        )
        self._variable = variable
        self._tasks: set[asyncio.Task[Handle]] = set()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._going: set[str] = set()

    async def start(self, spec: LaunchSpec) -> Handle:
        # Start it in a task: a start continues if its caller is cancelled, and is never left half
        # done.
        task = asyncio.create_task(self._start(spec), name=f"start {spec.session_id}-{spec.generation}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait for the starts whose callers were cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _start(self, spec: LaunchSpec) -> Handle:
        launching.check(spec)
        place = Place(self._root, spec.session_id, spec.generation, self._variable)
        socket = self.sockets / f"{place.name}.sock"
        if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
            raise RuntimeDirectoryError(
                f"{socket} is longer than the {MAX_SOCKET_PATH} bytes that a socket's path may have",
                hint="set RAMET_RUNTIME_DIR to a shorter directory",
            )
        # One start at a time: a concurrent second one would take the first one's directory for a
        # leftover.
        async with self._lock(place):
            if await asyncio.to_thread(place.exists):
                await self._settle_start(place)
                recovered = await asyncio.to_thread(place.inspect)
                started = await asyncio.to_thread(place.run) is not None
                if recovered.liveness is not Liveness.UNKNOWN and started:
                    return place.handle
                if await asyncio.to_thread(place.is_locked):
                    raise KeeperError(
                        f"a keeper of {place.name} hangs while it starts", hint="is a network mount dead?"
                    )
                await launching.undo(place)
            await asyncio.to_thread(launching.prepare, place, spec, socket)
            await launching.launch(place, spec, self._python, self._environment)
        return place.handle

    async def recover(self, handle: Handle) -> Recovered:
        try:
            place = Place.from_handle(handle)
        except NotFoundError:
            return Recovered(Liveness.UNKNOWN)

        def look() -> Recovered | None:
            return None if place.is_starting() else place.inspect()

        recovered = await asyncio.to_thread(look)
        if recovered is None:
            await self._settle_start(place)
            recovered = await asyncio.to_thread(place.inspect)
        return recovered

    async def attach(self, handle: Handle, *, epoch: int, offset: int) -> LocalAttachment:
        place = Place.from_handle(handle)
        recovered = await self.recover(handle)
        if recovered.liveness is Liveness.UNKNOWN:
            raise NotFoundError(f"{place.path} holds no agent")
        alive = recovered.liveness is Liveness.ALIVE
        connection = await self._controlling(place, epoch, offset) if alive else None
        return LocalAttachment(place.path, offset, connection, lambda: self._settle(place))

    async def _controlling(self, place: Place, epoch: int, offset: int) -> Connection | None:
        """Return a controlling connection; None if the keeper has exited meanwhile: its directory
        then has everything."""
        async with AsyncExitStack() as undo:
            try:
                connection = await self._connect(place)
                undo.push_async_callback(connection.close)
                await connection.attach(epoch, offset)
            except KeeperFencedError:
                raise
            except (KeeperError, WrongStateError):
                await undo.aclose()
                if (await self._settle(place)).liveness is Liveness.ALIVE:
                    raise
                return None
            undo.pop_all()
        return connection

    async def wait(self, handle: Handle) -> ExitRecord | None:
        while (recovered := await self.recover(handle)).liveness is Liveness.ALIVE:
            try:
                async with self._connected(Place.from_handle(handle)) as connection:
                    await connection.ended()
                    if connection.exit is not None:
                        return connection.exit
            except (KeeperError, WrongStateError):
                pass  # it is exiting or hangs: look again
            await asyncio.sleep(PAUSE)
        return recovered.exit

    async def written(self, handle: Handle) -> int:
        place = Place.from_handle(handle)
        if not await asyncio.to_thread(place.exists):
            raise NotFoundError(f"{place.path} holds nothing")
        return await asyncio.to_thread(segments.end, place.path, directory.JOURNAL)

    async def read(self, handle: Handle, offset: int, size: int) -> JournalLine:
        place = Place.from_handle(handle)
        if not await asyncio.to_thread(place.exists):
            raise NotFoundError(f"{place.path} holds nothing")
        return await asyncio.to_thread(_read, place.path, offset, size)

    async def signal(self, handle: Handle, signal_name: str, *, epoch: int | None = None) -> None:
        place = Place.from_handle(handle)
        recovered = await self.recover(handle)
        if recovered.liveness is Liveness.ALIVE:
            try:
                async with self._connected(place) as connection:
                    await connection.signal(signal_name, epoch)
                return
            except KeeperError:
                # The agent ended between the check and the connection, and its keeper is exiting.
                recovered = await self._settle(place)
                if recovered.liveness is Liveness.ALIVE:
                    raise
        agent = await asyncio.to_thread(place.agent) if recovered.agent_alive else None
        if agent is None or not await asyncio.to_thread(
            processes.send_signal, agent.pid, agent.start, signal.Signals[signal_name]
        ):
            raise WrongStateError(f"the agent of {place.name} has ended")

    async def end(self, handle: Handle, grace: float, *, epoch: int | None = None) -> ExitRecord | None:
        place = Place.from_handle(handle)
        if (await self.recover(handle)).liveness is Liveness.ALIVE:
            try:
                # stdin, SIGTERM, SIGKILL, then the descendants
                async with asyncio.timeout(3 * grace + GIVE_UP + SETTLE), self._connected(place) as connection:
                    await connection.end(grace, epoch)
                    await connection.ended()
            except KeeperFencedError:
                raise
            except (KeeperError, WrongStateError, TimeoutError):
                await self._ensure_ending(place)
        recovered = await self._settle(place)
        if recovered.liveness is not Liveness.EXITED:
            await lost.end_agent(place, grace)
        return recovered.exit

    async def _ensure_ending(self, place: Place) -> None:
        """Finish an END without an EXIT: the keeper was exiting, is gone, or hangs and is killed.
        Raise ReadOnlyError for a keeper that waits for room on the disk: killing it would lose
        unwritten output."""
        if (await self._settle(place)).liveness is not Liveness.ALIVE:
            return
        try:
            async with self._connected(place) as connection:
                status = await connection.status()
        except (KeeperError, WrongStateError):
            await lost.kill_keeper(place)
            return
        if status["blocked"]:
            raise ReadOnlyError(f"the end of {place.name} cannot be recorded: {status['blocked']}", hint="make room")
        raise KeeperError(f"the keeper of {place.name} has not ended yet", hint="try again")

    async def destroy(self, handle: Handle) -> None:
        place = Place.from_handle(handle)
        # One removal at a time: two of the same directory would disturb each other.
        async with self._lock(place):
            recovered = await self._settle(place)
            if recovered.liveness is Liveness.EXITED:  # the keeper may wait for a controller to read the end
                await until(lambda: not place.is_locked(), within=SETTLE)
            if recovered.agent_alive or await asyncio.to_thread(place.is_locked):
                raise WrongStateError(f"the agent or the keeper of {place.name} still runs", hint="end it first")
            await asyncio.to_thread(self._remove, place)

    def _remove(self, place: Place) -> None:
        """Rename the directory before deleting it, so that `discover` never finds a partial one."""
        if not place.exists():
            return
        spec = directory.read_record(place.path, directory.SPEC)
        if spec is not None:
            Path(spec["socket"]).unlink(missing_ok=True)
        gone = place.root / f".{place.name}.{secrets.token_hex(4)}.gone"
        self._going.add(gone.name)
        try:
            Path(place.path).rename(gone)
            shutil.rmtree(gone)
        finally:
            self._going.discard(gone.name)

    def discover(self) -> list[Handle]:
        if not self._root.is_dir():
            return []
        for gone in self._root.glob(".*.gone"):
            if gone.name not in self._going:  # an interrupted removal
                shutil.rmtree(gone, ignore_errors=True)
        names = [entry.name for entry in self._root.iterdir() if entry.is_dir()]
        places = (Place.from_name(self._root, name, self._variable) for name in names)
        found = sorted(
            (place for place in places if place is not None), key=lambda place: (place.session, place.generation)
        )
        return [place.handle for place in found]

    def _lock(self, place: Place) -> asyncio.Lock:
        return self._locks.setdefault(place.name, asyncio.Lock())

    async def _settle_start(self, place: Place) -> None:
        await until(lambda: not place.is_starting(), within=SETTLE)

    async def _settle(self, place: Place) -> Recovered:
        """Return the state of the agent, after waiting for a keeper that is exiting; a healthy
        keeper answers at once."""
        deadline = time.monotonic() + SETTLE
        while True:
            recovered = await self.recover(place.handle)
            if recovered.liveness is not Liveness.ALIVE or time.monotonic() > deadline:
                return recovered
            try:
                async with self._connected(place):
                    return recovered
            except KeeperError:
                await asyncio.sleep(PAUSE)

    @asynccontextmanager
    async def _connected(self, place: Place) -> AsyncIterator[Connection]:
        connection = await self._connect(place)
        try:
            yield connection
        finally:
            await connection.close()

    async def _connect(self, place: Place) -> Connection:
        """Connect to the keeper that run.json names, and to no other. Raise KeeperError."""
        run = await asyncio.to_thread(place.run)
        if run is None:
            raise KeeperError(f"{place.path} names no keeper")
        deadline = time.monotonic() + SETTLE
        while True:
            try:
                connection = await Connection.open(Path(run["socket"]))
                break
            except TimeoutError:
                raise KeeperError(f"the keeper {run['keeper_pid']} does not answer", hint="is it stopped?") from None
            except OSError as error:
                # The runtime directory may have been emptied under a keeper that lives: ask it to
                # listen there again.
                if time.monotonic() > deadline or not await asyncio.to_thread(_ask_to_listen, place):
                    raise KeeperError(f"the keeper of {place.name} cannot be reached: {error}") from error
                await asyncio.sleep(PAUSE)
        if any(connection.hello.get(key) != run[key] for key in ("keeper_pid", "keeper_start", "boot_id")):
            await connection.close()
            raise KeeperError(f"another keeper listens at {run['socket']}")
        return connection


def _read(path: str, offset: int, size: int) -> JournalLine:
    while True:
        starts = segments.scan(path, directory.JOURNAL) or [0]
        start = max(offset, starts[0])
        reader = segments.Reader(path, directory.JOURNAL, starts)
        try:
            data = reader.read(start, size)
        except FileNotFoundError:
            if segments.scan(path, directory.JOURNAL) != starts:
                continue  # its keeper deleted the segment between the two reads
            data = b""  # nothing was ever written
        finally:
            reader.close()
        return JournalLine(start, start + len(data), data)


def _ask_to_listen(place: Place) -> bool:
    run = place.run()
    if run is None or not place.is_locked():
        return False
    Path(run["socket"]).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return processes.send_signal(run["keeper_pid"], run["keeper_start"], signal.SIGUSR1)
