"""WorktreeService: the spare worktrees of a repository."""

from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import principal
from rametd.api.repo import resolve_or_new
from rametd.domain.spares import Spare
from rametd.services.core import Core
from rametd.services.creation.pool import Pool, PoolStatus
from rametd.services.repos import register
from rametd.services.views import stamp

Context = grpc.aio.ServicerContext[Any, Any]


def spare_message(spare: Spare, size: int = 0, *, warm: bool = False, cold: str = "") -> worktree_pb2.Spare:
    return worktree_pb2.Spare(
        id=spare.id,
        path=str(spare.path),
        commit=spare.commit,
        state=spare.state.value,
        reason=spare.reason or cold,
        warm_agent=warm,
        bytes=size,
        create_time=stamp(spare.create_time),
    )


class PoolCalls:
    """A part of `WorktreeServicer`."""

    _core: Core
    _calls: Calls
    _pool: Pool

    async def GetPool(self, request: worktree_pb2.GetPoolRequest, context: Context) -> worktree_pb2.GetPoolResponse:
        status = await self._pool.status(await resolve_or_new(self._core, request.repo))
        return worktree_pb2.GetPoolResponse(
            spares=self._spares(status),
            size=status.size,
            warm_agents=status.warm_agents,
            held_reason=status.held_reason,
            disk_free_bytes=status.disk_free,
            claims=status.claims,
            misses=status.misses,
        )

    def _spares(self, status: PoolStatus) -> list[worktree_pb2.Spare]:
        has, cold = self._pool.warmer.has, self._pool.spares.cold
        return [
            spare_message(spare, size, warm=has(spare.id), cold=cold.get(spare.id, "")) for spare, size in status.spares
        ]

    async def FillPool(self, request: worktree_pb2.FillPoolRequest, context: Context) -> worktree_pb2.FillPoolResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.FillPoolResponse:
            wanted = await resolve_or_new(self._core, request.repo)
            repo = await self._core.store.write(lambda unit: register(unit, wanted, who))
            await self._pool.fill(repo)
            status = await self._pool.status(repo)
            return worktree_pb2.FillPoolResponse(spares=self._spares(status))

        return await self._calls.once(request, work)

    async def DrainPool(
        self, request: worktree_pb2.DrainPoolRequest, context: Context
    ) -> worktree_pb2.DrainPoolResponse:
        async def work(call: Call) -> worktree_pb2.DrainPoolResponse:
            removed = await self._pool.drain(await resolve_or_new(self._core, request.repo))
            return worktree_pb2.DrainPoolResponse(spares=[spare_message(spare) for spare in removed])

        return await self._calls.once(request, work)
