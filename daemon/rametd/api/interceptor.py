"""The interceptor of every call: authentication, permission, version check, and error mapping."""

import os
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message
from ramet.environment import METADATA, carried, decode
from ramet.v1 import event_pb2

from rametd.api import context as calls
from rametd.api.errors import DETAILS, status_of
from rametd.api.repo import repo_id_around
from rametd.api.roles import ALWAYS, allowed
from rametd.domain.errors import (
    BrokenError,
    DeniedError,
    ExhaustedError,
    InvalidInputError,
    NotAllowedError,
    RametError,
    RecoveringError,
    SessionNotFoundError,
    UnauthenticatedError,
    VersionSkewError,
)
from rametd.domain.models import COMMAND, OWNER
from rametd.logs import bound
from rametd.services import events
from rametd.services.core import Core

log = structlog.get_logger()

CONTRACT_VERSION = 1
"""Incremented with each change of the contract that matters to a client."""
DIRECTORY = "ramet-directory-bin"
"""Metadata of a call: the caller's directory, absolute, in the bytes of its file system."""
NAMING = frozenset({"session", "session_id", "sessions", "request", "landing", "landings", "entry"})
"""Request fields that may contain the name of a session."""
OLDEST_CLIENT = 1
"""The oldest contract that this daemon serves."""

OUR_FAULTS = (
    *(OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, RuntimeError, AssertionError),
    sqlite3.Error,
)
"""Errors that count as internal errors. Others (a cancelled call, a stop) need no answer."""

Context = grpc.aio.ServicerContext[Any, Any]


PROSE = frozenset(
    {"answers", "argv", "body", "environment", "message", "prompt", "prompts", "text", "updated_input_json"}
)
"""Fields that may be long: the services that store them have limits."""
LONGEST = 64 << 10
"""Maximum length of any other text: a name, path, pattern, ref, or id."""
MOST = 10_000
"""Maximum number of entries of a list of such texts."""


class Gate(grpc.aio.ServerInterceptor):
    """The server's interceptor. ``serving`` returns whether recovery is over."""

    def __init__(self, core: Core, serving: Callable[[], bool]) -> None:
        self._core = core
        self._serving = serving

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        method = details.method
        if handler is None or not method.startswith("/ramet."):
            return handler
        metadata = dict(details.invocation_metadata)

        async def unary(request: Any, context: Context) -> Any:
            try:
                await self._admit(method, metadata, request)
                with bound(request=method, principal=calls.principal.get()):
                    return await handler.unary_unary(request, context)
            except RametError as error:
                await record_refusal(self._core, method, calls.principal.get(), error)
                await fail(context, error)
            except OUR_FAULTS as error:
                await fail(context, internal(method, error))

        async def streaming(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                await self._admit(method, metadata, request)
                async for response in handler.unary_stream(request, context):
                    yield response
            except RametError as error:
                await record_refusal(self._core, method, calls.principal.get(), error)
                await fail(context, error)
            except OUR_FAULTS as error:
                await fail(context, internal(method, error))

        make: Any = (
            grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
        )
        behavior = streaming if handler.response_streaming else unary
        return make(behavior, handler.request_deserializer, handler.response_serializer)

    async def _admit(self, method: str, metadata: dict[str, Any], request: Any) -> None:
        if method not in ALWAYS:
            check_versions(metadata.get("ramet-contract"))
            if not self._serving():
                raise RecoveringError("the daemon is recovering its sessions", hint="try again in a moment")
        token = metadata.get("ramet-token")
        calls.environment.set({})
        calls.here.set(None)
        calls.principal.set(OWNER)  # until authentication: refusals before it are recorded for the owner
        if token is not None:
            calls.principal.set(await self._principal_of(str(token)))
        who = calls.principal.get()
        if not allowed(method, who):
            noun = "a landing check, a git hook or a spare's setup" if who == COMMAND else "a session"
            raise NotAllowedError(f"{noun} may not call {method.rpartition('/')[2]}", hint="ask the person, who can")
        if request.ByteSize() > LONGEST:
            check_lengths(request)
        directory = metadata.get(DIRECTORY)
        if directory and not NAMING.isdisjoint(request.DESCRIPTOR.fields_by_name):
            with suppress(RametError):  # git cannot open the repository, so search names in all repositories
                calls.here.set(await repo_id_around(self._core, os.fsdecode(directory)))
        if who == OWNER and METADATA in metadata:
            pass_env = self._core.config.agents.claude.pass_env
            calls.environment.set(carried(decode(metadata[METADATA]), pass_env))

    async def _principal_of(self, token: str) -> str:
        session_id = self._core.tokens.check(token)
        if session_id == COMMAND:
            return COMMAND
        try:
            await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        except SessionNotFoundError:
            raise UnauthenticatedError(
                f"session {session_id} of the token in RAMET_TOKEN is gone", hint="unset RAMET_TOKEN to act as yourself"
            ) from None
        return f"session:{session_id}"


async def record_refusal(core: Core, method: str, principal: str, error: RametError) -> None:
    """Log a call that a session may not make, at most once a minute for each method and reason. Do
    not log typing errors."""
    if principal in {OWNER, COMMAND} or not isinstance(error, DeniedError | ExhaustedError):
        return
    if not core.rates.take(("refused", principal, method, error.reason), 1, core.clock()):
        return
    denied = event_pb2.CallDenied(method=method, message=error.message)
    made = events.make(denied, session_id=principal.removeprefix("session:"), principal=principal)
    await core.store.write(lambda unit: unit.events.append(made))


def check_lengths(message: Message) -> None:
    """Raise `InvalidInputError` for a name, path or the like that is too long, and for too many of
    them: searching for it in git or in patterns takes time and memory by its length."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.name in PROSE:
            continue
        if field.is_repeated and len(values) > MOST:
            raise InvalidInputError(f"{field.name} is a list of {len(values):,} (at most {MOST:,})", hint="send fewer")
        for each in values:
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                check_lengths(each)
            elif isinstance(each, str) and len(each) > LONGEST:
                words = f"{field.name} has {len(each):,} characters (at most {LONGEST:,})"
                raise InvalidInputError(words, hint="shorten it")


def check_versions(client: Any) -> None:
    """Raise `VersionSkewError` if client and daemon are incompatible."""
    try:
        version = int(client)
    except (TypeError, ValueError):
        return  # a client of another author, which knows the contract
    if version > CONTRACT_VERSION:
        raise VersionSkewError(
            f"the daemon is older (contract {CONTRACT_VERSION}) than this client (contract {version})",
            hint="`rametctl daemon restart` starts the new one; agents keep running",
        )
    if version < OLDEST_CLIENT:
        raise VersionSkewError(
            f"this client (contract {version}) is older than the daemon serves ({OLDEST_CLIENT})",
            hint="install the client of the daemon's release",
        )


def internal(method: str, error: Exception) -> BrokenError:
    """Log an internal error with its text. Return an error with an id that a person can report."""
    identity = secrets.token_hex(4)
    log.error("internal error", method=method, id=identity, exc_info=error)
    return BrokenError(
        f"internal error {identity}",
        hint=f"`rametctl daemon logs` has it under {identity}: please report it",
        id=identity,
    )


async def fail(context: Context, error: RametError) -> None:
    code, message, details = status_of(error)
    await context.abort(code, message, trailing_metadata=((DETAILS, details),))
