"""SessionService: sessions that leave, and those that come back."""

from typing import Any

import grpc
from ramet.v1 import session_pb2

from rametd.api.calls import Call
from rametd.api.context import freshen, named_session, principal
from rametd.api.session_calls import SessionCalls
from rametd.services.departures.departures import Departures
from rametd.services.views import SessionMessages

Context = grpc.aio.ServicerContext[Any, Any]


class DepartureCalls(SessionCalls):
    """The other fields are set by the class that takes these calls in."""

    _departures: Departures
    _messages: SessionMessages

    async def ArchiveSession(
        self, request: session_pb2.ArchiveSessionRequest, context: Context
    ) -> session_pb2.ArchiveSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.ArchiveSessionResponse:
            session_id = await self._find(request.session)
            return await self._departures.archiver.archive(session_id, force=request.force, caller=call.caller(who))

        return await self._calls.once(request, work)

    async def RestoreSession(
        self, request: session_pb2.RestoreSessionRequest, context: Context
    ) -> session_pb2.RestoreSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.RestoreSessionResponse:
            session_id = await self._find(request.session)
            warnings = await freshen(self._core, session_id)
            response = await self._departures.restorer.from_archive(session_id, call.caller(who))
            response.warnings.extend(warnings)
            return response

        return await self._calls.once(request, work)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: Context
    ) -> session_pb2.DeleteSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.DeleteSessionResponse:
            session = await named_session(self._core, request.session)
            response = await self._departures.remover.remove(session, force=request.force, caller=call.caller(who))
            self._messages.forget(session.id)
            return response

        return await self._calls.once(request, work)
