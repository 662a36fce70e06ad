"""WorktreeService: garbage, and the doctor."""

from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import principal
from rametd.api.repo import resolve_repo
from rametd.domain.models import Repo
from rametd.domain.text import utf8
from rametd.services.core import Core
from rametd.services.upkeep.collector import Collector
from rametd.services.upkeep.doctor import Doctor

Context = grpc.aio.ServicerContext[Any, Any]


class UpkeepCalls:
    _core: Core
    _calls: Calls
    _collector: Collector
    _doctor: Doctor

    async def CollectGarbage(
        self, request: worktree_pb2.CollectGarbageRequest, context: Context
    ) -> worktree_pb2.CollectGarbageResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.CollectGarbageResponse:
            items = await self._collector.collect(
                await self._repo(request.repo), dry_run=request.dry_run, principal=who
            )
            return worktree_pb2.CollectGarbageResponse(
                items=[
                    worktree_pb2.Garbage(
                        kind=item.kind,
                        name=utf8(item.name),
                        session_id=item.session_id,
                        repo=item.repo,
                        verdict=item.verdict,
                        reason=utf8(item.reason),
                        bytes=item.bytes,
                        removed=item.removed,
                        warnings=map(utf8, item.warnings),
                    )
                    for item in items
                ],
                bytes=sum(item.bytes for item in items if (item.goes if request.dry_run else item.removed)),
            )

        return await self._calls.once(request, work)

    async def Diagnose(self, request: worktree_pb2.DiagnoseRequest, context: Context) -> worktree_pb2.DiagnoseResponse:
        async def work(call: Call) -> worktree_pb2.DiagnoseResponse:
            diagnosis = await self._doctor.diagnose(await self._repo(request.repo), fix=request.fix)
            return worktree_pb2.DiagnoseResponse(
                findings=[
                    worktree_pb2.Finding(
                        severity=found.severity,
                        code=found.code,
                        subject=utf8(found.subject),
                        session_id=found.session_id,
                        message=utf8(found.message),
                        advice=utf8(found.advice),
                        fixable=found.fix is not None,
                        fixed=found.fixed,
                    )
                    for found in diagnosis.findings
                ],
                checked=diagnosis.checked,
            )

        return await self._calls.once(request, work)

    async def _repo(self, name: str) -> Repo | None:
        return await resolve_repo(self._core, name) if name else None
