"""Comments and syncing: parts of WorktreeService."""

from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import freshen, here, named_session, principal
from rametd.api.paging import offset, position_of, size_of, token_of
from rametd.domain.comments import Comment
from rametd.domain.models import Prompt
from rametd.services.core import Core
from rametd.services.lookup import find_session
from rametd.services.views import prompt_message
from rametd.services.worktrees.comments import Reviewer, comment_message
from rametd.services.worktrees.sync import Sync, Syncer
from rametd.store import Unit

Context = grpc.aio.ServicerContext[Any, Any]


class ReviewCalls:
    """AddComment, ListComments, ResolveComment, SendComments, SyncSession."""

    _core: Core
    _calls: Calls
    _reviewer: Reviewer
    _syncer: Syncer

    async def AddComment(
        self, request: worktree_pb2.AddCommentRequest, context: Context
    ) -> worktree_pb2.AddCommentResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.AddCommentResponse:
            session = await named_session(self._core, request.session)

            def answer(comment: Comment) -> worktree_pb2.AddCommentResponse:
                return worktree_pb2.AddCommentResponse(comment=comment_message(comment, comment.line))

            def remember(unit: Unit, comment: Comment) -> None:
                call.remember(unit, answer(comment))

            return answer(await self._reviewer.add(session, request.path, request.line, request.text, who, remember))

        return await self._calls.once(request, work)

    async def ListComments(
        self, request: worktree_pb2.ListCommentsRequest, context: Context
    ) -> worktree_pb2.ListCommentsResponse:
        near = here.get()
        start = position_of("comments", request.page_token, offset) or 0
        size = size_of(request.page_size)
        session, found = await self._core.store.read(
            lambda reader: (
                session := find_session(reader, request.session, repo_id=near),
                reader.comments.list(session.id, resolved=request.include_resolved),
            )
        )
        page = found[start : start + size]
        places = await self._reviewer.where_now(session, page)
        return worktree_pb2.ListCommentsResponse(
            comments=[comment_message(comment, place) for comment, place in zip(page, places, strict=True)],
            next_page_token=token_of("comments", start + size) if start + size < len(found) else "",
        )

    async def ResolveComment(
        self, request: worktree_pb2.ResolveCommentRequest, context: Context
    ) -> worktree_pb2.ResolveCommentResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.ResolveCommentResponse:
            def remember(unit: Unit, comment: Comment) -> None:
                call.remember(unit, worktree_pb2.ResolveCommentResponse(comment=comment_message(comment)))

            comment = await self._reviewer.resolve(request.comment, who, remember)
            return worktree_pb2.ResolveCommentResponse(comment=comment_message(comment))

        return await self._calls.once(request, work)

    async def SendComments(
        self, request: worktree_pb2.SendCommentsRequest, context: Context
    ) -> worktree_pb2.SendCommentsResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.SendCommentsResponse:
            session = await named_session(self._core, request.session)
            await freshen(self._core, session.id)

            def answer(prompt: Prompt, sent: list[Comment]) -> worktree_pb2.SendCommentsResponse:
                return worktree_pb2.SendCommentsResponse(
                    prompt=prompt_message(prompt), comments=[comment_message(each) for each in sent]
                )

            def remember(unit: Unit, prompt: Prompt, sent: list[Comment]) -> None:
                call.remember(unit, answer(prompt, sent))

            return answer(*await self._reviewer.send(session, who, remember))

        return await self._calls.once(request, work)

    async def SyncSession(
        self, request: worktree_pb2.SyncSessionRequest, context: Context
    ) -> worktree_pb2.SyncSessionResponse:
        who = principal.get()

        async def work(call: Call) -> worktree_pb2.SyncSessionResponse:
            session = await named_session(self._core, request.session)
            await freshen(self._core, session.id)
            wanted = Sync(
                base_ref=request.base_ref,
                rebase=request.method == worktree_pb2.SYNC_METHOD_REBASE,
                fetch=request.fetch,
                ask_agent=request.ask_agent,
            )
            return await self._syncer.sync(session, wanted, call.caller(who))

        return await self._calls.once(request, work)
