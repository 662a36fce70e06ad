"""Serve the daemon's socket, and bind it again if a program or a person has removed it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import grpc
import structlog

from rametd.domain.errors import RametError
from rametd.platform import inotify
from rametd.platform.runtime import Runtime

log = structlog.get_logger()

CHECK_S, CHECK_WATCHED_S = 3.0, 60.0
"""Seconds between checks of the socket, without and with a watch of its directory. A check is one
system call."""


class Listening:
    """Servers on the socket of ``runtime``: the newest accepts connections.

    A server whose socket was removed continues to serve its connections, so that clients are not
    interrupted.
    """

    def __init__(self, runtime: Runtime, create: Callable[[], grpc.aio.Server]) -> None:
        self._runtime = runtime
        self._create = create
        self._servers: list[grpc.aio.Server] = []

    async def bind(self) -> None:
        """Start a server at the socket's path. Raises RuntimeDirectoryError."""
        server = self._create()
        server.add_insecure_port(f"unix:{self._runtime.binding}")
        await server.start()
        self._servers.append(server)
        self._runtime.publish()

    async def stop(self, grace: float) -> None:
        await asyncio.gather(*(server.stop(grace) for server in self._servers))

    async def watch(self) -> None:
        """Bind again whenever the socket is removed or replaced. Runs until cancelled."""
        while True:
            changed = asyncio.Event()
            async with inotify.watching(str(self._runtime.path), changed.set) as watched:
                while not self._runtime.lost():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), CHECK_WATCHED_S if watched else CHECK_S)
                    changed.clear()
            await self._bind_again()

    async def _bind_again(self) -> None:
        log.warning("the socket is gone or was replaced; binding it again", socket=str(self._runtime.socket))
        try:
            self._runtime.reopen()
            await self.bind()
        except (RametError, OSError, RuntimeError) as error:  # RuntimeError: gRPC could not bind
            log.error("the socket cannot be bound", error=str(error))
            await asyncio.sleep(CHECK_S)
