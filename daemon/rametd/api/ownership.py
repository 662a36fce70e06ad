"""OrchestrationService: paths that sessions ask for and hand over."""

from typing import Any

import grpc
from ramet.v1 import orchestration_pb2, orchestration_pb2_grpc

from rametd.api.calls import Call, Calls
from rametd.api.context import principal
from rametd.services.delivery import sender_of
from rametd.services.ownership.handover import Decision, Ownership

Context = grpc.aio.ServicerContext[Any, Any]


class OwnershipCalls(orchestration_pb2_grpc.OrchestrationServiceServicer):
    """``_calls`` and ``_ownership`` are set by the class that takes these calls in."""

    _calls: Calls
    _ownership: Ownership

    async def RequestPath(
        self, request: orchestration_pb2.RequestPathRequest, context: Context
    ) -> orchestration_pb2.RequestPathResponse:
        caller_id = sender_of(principal.get())

        async def work(call: Call) -> orchestration_pb2.RequestPathResponse:
            return await self._ownership.request(caller_id, request.paths, request.reason, call.remember)

        return await self._calls.once(request, work)

    async def HandOverPath(
        self, request: orchestration_pb2.HandOverPathRequest, context: Context
    ) -> orchestration_pb2.HandOverPathResponse:
        caller_id = sender_of(principal.get())
        decision = Decision(
            request=request.path_request_id,
            refuse=request.refuse,
            paths=tuple(request.paths),
            session=request.session,
            reason=request.reason,
        )

        async def work(call: Call) -> orchestration_pb2.HandOverPathResponse:
            return await self._ownership.hand_over(caller_id, decision, call.remember)

        return await self._calls.once(request, work)
