"""WorktreeService: checkpoints, and the way back to them."""

from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import freshen, here, named_session, principal
from rametd.api.paging import offset, position_of, size_of, token_of
from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.models import Session
from rametd.services.core import Core
from rametd.services.lookup import find_session
from rametd.services.missing import require_tree
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.history import checkpoint_message, find_checkpoint, list_checkpoints
from rametd.services.worktrees.rewind import Rewinder
from rametd.store import Reader

Context = grpc.aio.ServicerContext[Any, Any]


class CheckpointCalls:
    _core: Core
    _calls: Calls
    _checkpointer: Checkpointer
    _rewinder: Rewinder

    async def ListCheckpoints(
        self, request: worktree_pb2.ListCheckpointsRequest, context: Context
    ) -> worktree_pb2.ListCheckpointsResponse:
        near = here.get()
        before = position_of("checkpoints", request.page_token, offset)
        size = size_of(request.page_size)

        def work(reader: Reader) -> worktree_pb2.ListCheckpointsResponse:
            session = find_session(reader, request.session, repo_id=near)
            found = list_checkpoints(reader, session.id, before, size + 1)
            page = found[:size]
            return worktree_pb2.ListCheckpointsResponse(
                checkpoints=page,
                next_page_token=token_of("checkpoints", page[-1].number) if len(found) > size else "",
            )

        return await self._core.store.read(work)

    async def CreateCheckpoint(
        self, request: worktree_pb2.CreateCheckpointRequest, context: Context
    ) -> worktree_pb2.CreateCheckpointResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.CreateCheckpointResponse:
            session = await self._session_of(request.session)
            await require_tree(self._core, session)
            made = await self._checkpointer.ask(session.id, CheckpointReason.MANUAL, who)
            warnings = [
                f"not kept, since git could not read it: {line}" for line in self._checkpointer.unread(session.id)
            ]
            return worktree_pb2.CreateCheckpointResponse(checkpoint=checkpoint_message(made), warnings=warnings)

        return await self._calls.once(request, work)

    async def RewindSession(
        self, request: worktree_pb2.RewindSessionRequest, context: Context
    ) -> worktree_pb2.RewindSessionResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.RewindSessionResponse:
            session = await self._session_of(request.session)
            await require_tree(self._core, session)
            checkpoint = await self._core.store.read(
                lambda reader: find_checkpoint(reader, session, request.checkpoint)
            )
            await freshen(self._core, session.id)
            return await self._rewinder.rewind(
                session, checkpoint, files_only=request.files_only, caller=call.caller(who)
            )

        return await self._calls.once(request, work)

    async def _session_of(self, name: str) -> Session:
        return await named_session(self._core, name)
