"""The connection to the daemon: a channel over its unix socket, opened on demand and again after it
breaks."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

# Otherwise gRPC's core writes log lines to standard error.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click
import grpc
from ramet.environment import for_daemon
from ramet.paths import Directories

from rametctl.connection import start
from rametctl.connection.environment import CallerEnvironment
from rametctl.connection.listener import Listener, listens
from rametctl.errors import (
    ClientError,
    ConnectionLostError,
    TimedOutError,
    UnreachableError,
    from_rpc_error,
    no_answer_in_time,
)

if TYPE_CHECKING:
    from ramet.v1 import (
        attention_pb2_grpc,
        daemon_pb2,
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

CONTRACT_VERSION = 1
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
PAGE = 1000
"""Page size of lists: the daemon's maximum."""
RETRY_DEADLINE = 30.0
"""Seconds to retry a call after the daemon stopped during it."""
HEALTH_TIMEOUT = 5.0
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The headers carry the details of an error.
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
ANSWER_GRACE = 1.0
"""Seconds after a person's time limit in which the daemon, which enforces it, may still answer."""

Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)
Request = TypeVar("Request")
Response = TypeVar("Response")


class Method(Protocol[Request_contra, Response_co]):
    """A unary call of a generated stub."""

    def __call__(
        self,
        request: Request_contra,
        timeout: float | None = None,
        metadata: tuple[tuple[str, str | bytes], ...] | None = None,
    ) -> Response_co: ...


class PageRequest(Protocol):
    page_size: int
    page_token: str


class Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


ListRequest = TypeVar("ListRequest", bound=PageRequest)
ListResponse = TypeVar("ListResponse", bound=Page)


class Cancellable(Protocol[Response_co]):
    """A stream of answers."""

    def __iter__(self) -> Iterator[Response_co]: ...
    def cancel(self) -> bool: ...


def call_metadata(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata of every call: the contract's version, and inside a session its token.
    Raise click.UsageError."""
    metadata = [("ramet-contract", str(CONTRACT_VERSION))]
    if token := environ.get("RAMET_TOKEN"):
        metadata.append(("ramet-token", token))
    elif session := environ.get("RAMET_SESSION"):
        # The token was lost, or removed to act as the person; either way the caller is not the
        # person.
        raise click.UsageError(
            f"RAMET_SESSION says that this is session {session}, and RAMET_TOKEN is missing: unset both to act as yourself"
        )
    return tuple(metadata)


SERVICES = {
    "attention": "Attention",
    "daemon": "Daemon",
    "events": "Event",
    "landing": "Landing",
    "orchestration": "Orchestration",
    "plans": "Plan",
    "repos": "Repo",
    "sessions": "Session",
    "terminals": "Terminal",
    "worktrees": "Worktree",
}
"""Services of the contract, by the attribute of `Connection` with their stub."""


def stub_of(name: str, channel: "grpc.Channel | grpc.aio.Channel") -> Any:
    """Return the stub of a service, whose module is imported on its first use."""
    if name not in SERVICES:
        raise AttributeError(name)
    service = SERVICES[name]
    module = import_module(f"ramet.v1.{service.lower()}_pb2")
    return Stub(module.DESCRIPTOR.services_by_name[f"{service}Service"], channel)


class Stub:
    """The calls of a service, each made on its first use; the generated module, with all calls of
    client and server, takes longer to import than a call."""

    def __init__(self, service: Any, channel: "grpc.Channel | grpc.aio.Channel") -> None:
        self._service = service
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        method = self._service.methods_by_name.get(name)
        if method is None:
            raise AttributeError(name)
        begin = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        call = begin(
            f"/{self._service.full_name}/{name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        setattr(self, name, call)
        return call


class Connection:
    """One command's connection.

    ``autostart``: whether to start a daemon if none runs. ``tell`` gets messages for the person
    while the connection waits for a daemon that it may not start. ``lasting``: see
    `CallerEnvironment`. ``directory`` is the caller's: the daemon resolves a session name that
    several repositories have to the session of the repository around it.
    """

    attention: "attention_pb2_grpc.AttentionServiceStub"
    daemon: "daemon_pb2_grpc.DaemonServiceStub"
    events: "event_pb2_grpc.EventServiceStub"
    landing: "landing_pb2_grpc.LandingServiceStub"
    orchestration: "orchestration_pb2_grpc.OrchestrationServiceStub"
    plans: "plan_pb2_grpc.PlanServiceStub"
    repos: "repo_pb2_grpc.RepoServiceStub"
    sessions: "session_pb2_grpc.SessionServiceStub"
    terminals: "terminal_pb2_grpc.TerminalServiceStub"
    worktrees: "worktree_pb2_grpc.WorktreeServiceStub"

    def __init__(
        self,
        directories: Directories,
        environ: Mapping[str, str],
        *,
        autostart: bool,
        tell: Callable[[str], None],
        lasting: bool = False,
        directory: str = "",
    ) -> None:
        self.directories = directories
        self.autostart = autostart
        self._environ = environ
        self._tell = tell
        self._channel: grpc.Channel | None = None
        self._listener: Listener | None = None  # of the channel
        self._end: float | None = None  # see `within`
        self._metadata: tuple[tuple[str, str | bytes], ...] = call_metadata(environ)
        if directory:
            self._metadata += (("ramet-directory-bin", os.fsencode(directory)),)
        self._environment = CallerEnvironment(environ, directories.config_file, lasting=lasting)

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Within the block, calls and waiting for a daemon raise TimedOutError after this many
        seconds; None: no limit."""
        before = self._end
        if seconds is not None:
            end = time.monotonic() + seconds
            self._end = end if before is None else min(before, end)
        try:
            yield
        finally:
            self._end = before

    def left(self) -> float | None:
        """Return the seconds left within `within`, None without a limit. Raise TimedOutError after
        it."""
        left = None if self._end is None else self._end - time.monotonic()
        if left is not None and left <= 0:
            raise no_answer_in_time()
        return left

    def rest(self, seconds: float) -> None:
        """Sleep, but no longer than `within` allows."""
        left = self.left()
        time.sleep(seconds if left is None else min(seconds, left))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Return the stub of a service on the present channel."""
            return stub_of(name, self._connect())

    def call(
        self,
        method: Callable[["Connection"], Method[Request, Response]],
        request: Request,
        *,
        timeout: float | None = None,
        retry: bool = True,
    ) -> Response:
        """Call ``method``, as in ``lambda daemon: daemon.sessions.GetSession``; raises a
        ClientError.

        If the daemon stops during the call, repeat it once a daemon serves: every mutating request
        has a request id, so that the repetition counts as the same request. ``timeout`` is in
        seconds, for all attempts. If no daemon serves again, the error of such a request says that
        it may have been carried out.
        """
        identify(request)
        with self.within(timeout):
            try:
                return self._call(method, request, retry=retry)
            except TimedOutError as error:
                raise unanswered(request, error) from error

    def _call(
        self, method: Callable[["Connection"], Method[Request, Response]], request: Request, *, retry: bool
    ) -> Response:
        failing_since: float | None = None
        pause, noted = 0.05, False
        while True:
            attempt = time.monotonic()
            try:
                call = method(self)  # which may start a daemon
                return call(
                    request, timeout=self.left(), metadata=(*self._metadata, *self._environment.metadata(request))
                )
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
                if not retry or not is_retryable(failure):
                    raise failure from error
            except UnreachableError as error:
                # No daemon runs, and this connection must not start one: give up, unless one ran a
                # moment ago.
                if failing_since is None or error.reason != UnreachableError.reason:
                    raise
                failure = error
                if not noted:
                    self._tell("the daemon stopped before it answered; waiting for another: rametctl daemon start")
                    noted = True
            now = time.monotonic()
            # A call that ran for a while reached a daemon, so its end is a new failure.
            if failing_since is None or now - attempt > 5.0:
                failing_since, pause = now, 0.05
            if now - failing_since > RETRY_DEADLINE:
                raise unanswered(request, failure)
            if isinstance(failure, UnreachableError):
                self.close()
            self.rest(pause)
            pause = min(pause * 2, 1.0)

    def pages(
        self, method: Callable[["Connection"], Method[ListRequest, ListResponse]], request: ListRequest
    ) -> Iterator[ListResponse]:
        """Call once for each page of a list; sets the page in ``request``."""
        request.page_size = PAGE
        while True:
            page = self.call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def stream(
        self,
        method: Callable[["Connection"], Method[Request, Cancellable[Response]]],
        request: Request,
        *,
        timeout: float | None = None,
    ) -> Iterator[Response]:
        """Call a server-streaming method; its iteration raises a ClientError when it breaks, and
        TimedOutError after ``timeout`` seconds."""
        with self.within(timeout):
            begin = method(self)  # which may start a daemon
            call = begin(request, timeout=self.left(), metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    def info(self, *, timeout: float | None = None, retry: bool = True) -> "daemon_pb2.GetInfoResponse":
        """Ask the daemon for its info, also during recovery. Without ``retry``, a daemon that stops
        meanwhile is an error at once."""
        from ramet.v1 import daemon_pb2

        request = daemon_pb2.GetInfoRequest()
        return self.call(lambda daemon: daemon.daemon.GetInfo, request, timeout=timeout, retry=retry)

    def ensure_running(self, *, asked: bool = True) -> bool:
        """Start a daemon unless one serves; return whether it was started here. Without ``asked``
        it gets no credentials."""
        environ = self._environ if asked else for_daemon(self._environ)
        self.close()
        left = self.left()
        deadline = start.START_DEADLINE if left is None else min(left, start.START_DEADLINE)
        try:
            return start.ensure_running(self.directories, environ, serving=self._serving, deadline=deadline)
        except UnreachableError:
            self.left()  # report this connection's own time limit first
            raise

    def running(self) -> bool:
        """Return whether a daemon listens; never starts one. Raise UnreachableError if the listener
        is another user's."""
        return listens(self.directories.socket)

    def find_listener(self) -> Listener:
        """Return the daemon's listener; start a daemon if none listens and that is allowed. Raise
        UnreachableError."""
        found = Listener.find(self.directories.socket)
        if found is None and not self.autostart:
            raise UnreachableError("no daemon is running", hint="run: rametctl daemon start")
        if found is None:
            self.ensure_running(asked=False)
            found = Listener.find(self.directories.socket)
        if found is None:
            raise ConnectionLostError("the daemon stopped as soon as it served", hint="see: rametctl daemon logs")
        return found

    def close(self) -> None:
        channel, listener = self._channel, self._listener
        self._channel = self._listener = None
        if channel is not None:
            channel.close()
        if listener is not None:
            listener.close()

    def _connect(self) -> grpc.Channel:
        if self._listener is not None:
            self._listener.check()  # a call on an old channel may make gRPC reconnect
        if self._channel is None:
            # Check the socket first, as a channel that fails to connect waits for a second.
            self._listener = self.find_listener()
            self._channel = _open(self._listener)
        return self._channel

    def _serving(self) -> bool:
        """Return whether the daemon serves, by the standard health service. Needs a channel of its
        own: see _connect."""
        listener = Listener.find(self.directories.socket)
        if listener is None:
            return False
        from grpc_health.v1 import health_pb2

        with closing(listener), _open(listener) as channel:
            check: Method[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse] = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            try:
                left = self.left()
                timeout = HEALTH_TIMEOUT if left is None else min(left, HEALTH_TIMEOUT)
                answer = check(health_pb2.HealthCheckRequest(), timeout=timeout, metadata=self._metadata)
            except grpc.RpcError:
                return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING


def _open(listener: Listener) -> grpc.Channel:
    return grpc.insecure_channel(listener.address, options=CHANNEL_OPTIONS)


def identify(request: Any) -> None:
    """Give a mutating request an id, by which the daemon knows its repetition."""
    if getattr(request, "request_id", None) == "":
        request.request_id = str(uuid.uuid4())


def is_retryable(failure: ClientError) -> bool:
    """Return whether the same call may succeed soon: the daemon is gone, or still recovers."""
    return isinstance(failure, ConnectionLostError) or failure.reason == "RECOVERING"


def unanswered(request: object, failure: ClientError) -> ClientError:
    """Return the error for a call that a daemon may have carried out without answering.
    ``failure`` is that of the last attempt."""
    if not getattr(request, "request_id", "") or not isinstance(failure, UnreachableError | TimedOutError):
        return failure
    # Repeated by hand it would be another request, which would create a second object.
    if isinstance(failure, TimedOutError):
        return TimedOutError(
            f"{failure.message}; the daemon may carry the command out all the same",
            hint="before you repeat it, see: rametctl ls",
        )
    return ConnectionLostError(
        f"the daemon stopped before it answered, and may have carried the command out ({failure.message})",
        hint="run: rametctl daemon start; before you repeat the command, see: rametctl ls",
    )
