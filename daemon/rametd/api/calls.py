"""Idempotency: the daemon stores the answer of a mutating call, and returns it for a repeated
request id."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Protocol, TypeVar, cast

from google.protobuf.message import Message

from rametd.api.context import principal
from rametd.api.contract import method_of
from rametd.domain.errors import RequestIdReusedError
from rametd.domain.models import OWNER
from rametd.domain.operations import Caller
from rametd.services.core import Core
from rametd.store import Unit

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
S = TypeVar("S", bound="Servicer")


def scoped_request_id(who: str, request_id: str) -> str:
    """Return a request id in its caller's namespace, so that no caller can read or use up
    another's; empty stays empty.

    The owner's ids stay unchanged; a session's id begins with its principal, which the session
    cannot choose.
    """
    return request_id if who == OWNER or not request_id else f"{who}/{request_id}"


@dataclass(slots=True)
class Call:
    """One mutating call, stored in the unit of work that does its work. ``request_id`` is scoped to
    the caller."""

    request_id: str
    method: str
    digest: bytes
    principal: str = OWNER
    stored: bytes | None = None  # answer that its unit of work stored

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, self.request_id, self.method, self.digest)

    def remember(self, unit: Unit, response: Response, *, given: bool = False) -> Response:
        """Store the answer in the unit of work that it reports on, and return it. ``given``: the
        caller receives exactly this answer."""
        if self.request_id:
            answer = response.SerializeToString()
            self.stored = unit.calls.put(self.request_id, self.method, self.digest, answer, given=given).response
        return response


class Calls:
    """Running and stored calls."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._running: dict[str, asyncio.Future[None]] = {}

    async def once(self, request: Message, work: Callable[[Call], Awaitable[Response]]) -> Response:
        """Do ``work`` for a mutating request, or return its stored answer. A second call with its
        request id waits for the first.

        An answer is stored only for its caller, after ``work`` checked that caller's permission.
        ``work`` stores the call in its own unit of work if a repetition would matter; otherwise
        this method stores it afterwards.
        """
        method, response_type = method_of(request)
        request_id: str = request.request_id  # type: ignore[attr-defined]  # every request that changes something has it
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        who = principal.get()
        call = Call(scoped_request_id(who, request_id), method, digest, who)
        if not call.request_id:
            return await work(call)
        while (running := self._running.get(call.request_id)) is not None:
            await asyncio.wait([running])
        done = self._running[call.request_id] = asyncio.get_running_loop().create_future()
        try:
            # An earlier daemon, or an earlier attempt whose caller hung up, may have begun an
            # operation for this call.
            await self._core.operations.settled(call.request_id)
            known = await self._core.store.read(lambda reader: reader.calls.get(call.request_id))
            if known is not None:
                if (known.method, known.digest) != (method, digest):
                    raise RequestIdReusedError(
                        f"request id {request_id} came with another request before", hint="use a new one"
                    )
                return cast("Response", response_type.FromString(known.response))
            response = await work(call)
            if call.stored != response.SerializeToString():
                await self._core.store.write(lambda unit: call.remember(unit, response, given=True))
            return response
        finally:
            del self._running[call.request_id]
            done.set_result(None)


class Servicer(Protocol):
    _calls: Calls


def mutation(
    serve: Callable[[S, Request, Call], Awaitable[Response]],
) -> Callable[[S, Request, Any], Coroutine[Any, Any, Response]]:
    """Make a servicer's method a mutating RPC, which `Calls.once` runs."""

    @wraps(serve)
    async def method(self: S, request: Request, context: Any) -> Response:
        return await self._calls.once(request, partial(serve, self, request))

    return method
