"""The same request id is answered alike: mutating calls are remembered with their answers."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from rametd.domain.errors import NotFoundError, RequestIdReusedError
from rametd.services.core import Core
from rametd.store import Unit

Response = TypeVar("Response", bound=Message)


class Mutation(Protocol):
    """A request that changes something."""

    request_id: str

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One mutating call, to be remembered inside the unit of work that does what it asks."""

    request_id: str
    method: str
    digest: bytes

    def remember(self, unit: Unit, response: Message) -> None:
        if self.request_id:
            unit.calls.put(self.request_id, self.method, self.digest, response.SerializeToString())


class Calls:
    """Calls that run now, and those that the store remembers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._running: dict[str, asyncio.Future[None]] = {}

    async def once(
        self,
        method: str,
        request: Mutation,
        response_type: type[Response],
        work: Callable[[Call], Awaitable[Response]],
    ) -> Response:
        """Do ``work``, or return what it returned before. A second call with the same id waits for the first.

        ``work`` remembers the call in its own unit of work where doing it twice would matter; in any case it is remembered afterwards.
        """
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        call = Call(request.request_id, method, digest)
        if not call.request_id:
            return await work(call)
        while (running := self._running.get(call.request_id)) is not None:
            await asyncio.wait([running])
        done = self._running[call.request_id] = asyncio.get_running_loop().create_future()
        try:
            known = await self._core.store.read(lambda reader: reader.calls.get(call.request_id))
            if known is not None:
                if (known.method, known.digest) != (method, digest):
                    raise RequestIdReusedError(
                        f"request id {call.request_id} came with another request before", hint="use a new one"
                    )
                return response_type.FromString(known.response)
            try:
                response = await work(call)
            except NotFoundError:
                # What a former daemon had begun for this very call may have been finished since we looked, and what it names be gone with that.
                known = await self._core.store.read(lambda reader: reader.calls.get(call.request_id))
                if known is None:
                    raise
                return response_type.FromString(known.response)
            await self._core.store.write(lambda unit: call.remember(unit, response))
            return response
        finally:
            del self._running[call.request_id]
            done.set_result(None)
