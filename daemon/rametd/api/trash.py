"""WorktreeService: the trash."""

from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import freshen, principal
from rametd.api.paging import position_of, size_of, time_and_id, token_of
from rametd.api.repo import resolve_repo
from rametd.services.core import Core
from rametd.services.departures.departures import Departures
from rametd.services.departures.trash import find_entry, message
from rametd.store import Reader

Context = grpc.aio.ServicerContext[Any, Any]


class TrashCalls:
    _core: Core
    _calls: Calls
    _departures: Departures

    async def ListTrash(
        self, request: worktree_pb2.ListTrashRequest, context: Context
    ) -> worktree_pb2.ListTrashResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None
        size = size_of(request.page_size)
        after = position_of("trash", request.page_token, time_and_id)

        def work(reader: Reader) -> worktree_pb2.ListTrashResponse:
            entries = reader.trash.list(repo_id)
            if after is not None:  # the newest first, and by id where they are of one moment
                time, identity = after
                entries = [each for each in entries if (-each.create_time, each.id) > (-time, identity)]
            page = entries[:size]
            token = token_of("trash", [page[-1].create_time, page[-1].id]) if len(entries) > size else ""
            return worktree_pb2.ListTrashResponse(
                entries=[message(reader, entry) for entry in page], next_page_token=token
            )

        return await self._core.store.read(work)

    async def RestoreTrash(
        self, request: worktree_pb2.RestoreTrashRequest, context: Context
    ) -> worktree_pb2.RestoreTrashResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.RestoreTrashResponse:
            entry = await self._core.store.read(lambda reader: find_entry(reader, request.entry))
            response = await self._departures.restorer.from_trash(entry, call.caller(who))
            response.warnings.extend(await freshen(self._core, entry.session_id))
            return response

        return await self._calls.once(request, work)

    async def EmptyTrash(
        self, request: worktree_pb2.EmptyTrashRequest, context: Context
    ) -> worktree_pb2.EmptyTrashResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.EmptyTrashResponse:
            repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None

            def find(reader: Reader) -> worktree_pb2.EmptyTrashResponse:
                if request.entries:
                    entries = [find_entry(reader, name, repo_id) for name in request.entries]
                else:
                    entries = reader.trash.list(repo_id)
                found = {entry.id: message(reader, entry) for entry in entries}
                return worktree_pb2.EmptyTrashResponse(entries=found.values())

            response = await self._core.store.read(find)
            await self._departures.trash.empty(response, call.caller(who))
            return response

        return await self._calls.once(request, work)
