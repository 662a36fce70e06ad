"""An asyncio connection that survives restarts of the daemon: calls wait for the next daemon,
streams raise an error."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from ramet.paths import Directories

from rametctl.connection.channel import (
    CHANNEL_OPTIONS,
    PAGE,
    RETRY_DEADLINE,
    Connection,
    ListRequest,
    ListResponse,
    call_metadata,
    identify,
    is_retryable,
    stub_of,
    unanswered,
)
from rametctl.connection.environment import CallerEnvironment
from rametctl.connection.follow import RESTART_GRACE
from rametctl.connection.listener import Listener, listens
from rametctl.errors import ConnectionLostError, UnreachableError, from_rpc_error

import grpc  # isort: skip  after `connection`, which silences its core

if TYPE_CHECKING:
    from ramet.v1 import (
        attention_pb2_grpc,
        daemon_pb2_grpc,
        event_pb2_grpc,
        landing_pb2_grpc,
        orchestration_pb2_grpc,
        plan_pb2_grpc,
        repo_pb2_grpc,
        session_pb2_grpc,
        terminal_pb2_grpc,
        worktree_pb2_grpc,
    )

OWN_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
"""Options that give a new channel no state of the closed one, which may be in back-off after a
failed connect."""

Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)
Request = TypeVar("Request")
Response = TypeVar("Response")
Metadata = tuple[tuple[str, str | bytes], ...]


class AsyncMethod(Protocol[Request_contra, Response_co]):
    """A unary call of a generated asyncio stub."""

    def __call__(self, request: Request_contra, /, *, metadata: Metadata | None = None) -> Awaitable[Response_co]: ...


class AsyncCall(Protocol[Response_co]):
    """A stream of answers."""

    def __aiter__(self) -> AsyncIterator[Response_co]: ...
    def cancel(self) -> bool: ...


class AsyncStream(Protocol[Request_contra, Response_co]):
    """A server-streaming call of a generated asyncio stub."""

    def __call__(self, request: Request_contra, /, *, metadata: Metadata | None = None) -> AsyncCall[Response_co]: ...


class Stubs:
    """The services' stubs on one channel; each is created on its first use."""

    attention: "attention_pb2_grpc.AttentionServiceAsyncStub"
    daemon: "daemon_pb2_grpc.DaemonServiceAsyncStub"
    events: "event_pb2_grpc.EventServiceAsyncStub"
    landing: "landing_pb2_grpc.LandingServiceAsyncStub"
    orchestration: "orchestration_pb2_grpc.OrchestrationServiceAsyncStub"
    plans: "plan_pb2_grpc.PlanServiceAsyncStub"
    repos: "repo_pb2_grpc.RepoServiceAsyncStub"
    sessions: "session_pb2_grpc.SessionServiceAsyncStub"
    terminals: "terminal_pb2_grpc.TerminalServiceAsyncStub"
    worktrees: "worktree_pb2_grpc.WorktreeServiceAsyncStub"

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            stub = stub_of(name, self.channel)
            setattr(self, name, stub)
            return stub


class Link:
    """One client's connection. A channel belongs to the loop that runs when it opens: the first
    call opens it."""

    def __init__(self, directories: Directories, environ: Mapping[str, str], *, autostart: bool) -> None:
        self._socket = directories.socket
        self._autostart = autostart
        self._metadata = call_metadata(environ)
        self._environment = CallerEnvironment(environ, directories.config_file, lasting=True)
        self._starter = Connection(directories, environ, autostart=autostart, tell=lambda words: None)
        self._opening = asyncio.Lock()
        self._listener: Listener | None = None
        self._stubs: Stubs | None = None

    async def call(self, method: Callable[[Stubs], AsyncMethod[Request, Response]], request: Request) -> Response:
        """Call ``method``, as in ``lambda daemon: daemon.sessions.GetSession``; raises a
        ClientError.

        If the daemon stops during a call, the call is repeated with the next daemon for
        `RETRY_DEADLINE` seconds. A mutating request has a request id, so that the repetition counts
        as the same request.
        """
        identify(request)
        failing_since: float | None = None
        pause = 0.05
        while True:
            stubs: Stubs | None = None
            try:
                stubs = await self._open()
                return await method(stubs)(request, metadata=(*self._metadata, *self._environment.metadata(request)))
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
                if not is_retryable(failure):
                    raise failure from error
            except asyncio.CancelledError:
                failure = self._closed_under(stubs)
            except UnreachableError as error:
                if failing_since is None and not self._autostart:
                    raise
                failure = error
            now = time.monotonic()
            failing_since = now if failing_since is None else failing_since
            if now - failing_since > RETRY_DEADLINE:
                raise unanswered(request, failure)
            if isinstance(failure, ConnectionLostError):
                await self.drop(stubs)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def stream(
        self, method: Callable[[Stubs], AsyncStream[Request, Response]], request: Request
    ) -> AsyncIterator[Response]:
        """Call a server-streaming method. The iteration raises a ClientError when it breaks."""
        stubs = await self._open()
        call = method(stubs)(request, metadata=self._metadata)
        try:
            async for answer in call:
                yield answer
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            if isinstance(failure, ConnectionLostError):
                await self.drop(stubs)
            raise failure from error
        except asyncio.CancelledError:
            raise self._closed_under(stubs) from None
        finally:
            call.cancel()

    async def wait_for_daemon(self, pause: float) -> None:
        """Return once a daemon listens, or after `RESTART_GRACE` (``pause`` without autostart)
        seconds; then the next call starts one."""
        end = time.monotonic() + (RESTART_GRACE if self._autostart else pause)
        while time.monotonic() < end:
            if await asyncio.to_thread(listens, self._socket):
                break
            await asyncio.sleep(min(pause, 0.1))
        await asyncio.sleep(pause)

    async def drop(self, stubs: Stubs | None) -> None:
        """Close the channel of ``stubs``, unless another one has taken its place."""
        if stubs is not None and stubs is self._stubs:
            await self.close()

    def _closed_under(self, stubs: Stubs | None) -> ConnectionLostError:
        """Return the error for a cancelled call: another call found the daemon gone and closed the
        channel, which cancels all its calls.

        Raise CancelledError if the task itself is cancelled.
        """
        task = asyncio.current_task()
        if stubs is None or stubs is self._stubs or (task is not None and task.cancelling()):
            raise asyncio.CancelledError
        return ConnectionLostError("the connection to the daemon is lost", hint="run: rametctl daemon status")

    async def close(self) -> None:
        stubs, listener = self._stubs, self._listener
        self._stubs = self._listener = None
        if stubs is not None:
            await stubs.channel.close()
        if listener is not None:
            listener.close()

    async def _open(self) -> Stubs:
        """Return the stubs on a channel to a listening daemon, after starting one if allowed. Raise
        UnreachableError."""
        async with self._opening:
            if self._listener is not None:
                self._listener.check()  # a call on an open channel may make gRPC connect again
            if self._stubs is None:
                listener = await asyncio.to_thread(self._starter.find_listener)
                channel = grpc.aio.insecure_channel(listener.address, options=OWN_OPTIONS)
                self._listener, self._stubs = listener, Stubs(channel)
            return self._stubs


async def pages(
    link: Link, method: "Callable[[Stubs], AsyncMethod[ListRequest, ListResponse]]", request: "ListRequest"
) -> AsyncIterator["ListResponse"]:
    """Call once for each page of a list; sets the page in ``request``."""
    request.page_size = PAGE
    while True:
        page = await link.call(method, request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
