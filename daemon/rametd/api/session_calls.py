"""What all calls of SessionService need, whichever of its parts they are in."""

from ramet.v1 import session_pb2, session_pb2_grpc

from rametd.api.calls import Calls
from rametd.api.context import named_session
from rametd.services.core import Core
from rametd.services.views import one_session_message


class SessionCalls(session_pb2_grpc.SessionServiceServicer):
    """The fields are set by the class that takes these calls in."""

    _core: Core
    _calls: Calls

    async def _find(self, name: str) -> str:
        return (await named_session(self._core, name)).id

    async def _message(self, session_id: str) -> session_pb2.Session:
        return await self._core.store.read(lambda reader: one_session_message(reader, reader.sessions.get(session_id)))
