"""LandingService: the calls about pull requests."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
from ramet.v1 import landing_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import freshen, principal
from rametd.api.paging import offset, position_of, size_of, token_of
from rametd.api.repo import resolve_repo
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Prompt, Session
from rametd.services.core import Core
from rametd.services.lookup import find_session
from rametd.services.pull_requests.cleanup import CleanedUp, PullRequestCleaner
from rametd.services.pull_requests.feedback import Feedback
from rametd.services.pull_requests.messages import pull_message
from rametd.services.pull_requests.requests import PullRequests, Wanted
from rametd.services.views import prompt_message
from rametd.store import Unit

Context = grpc.aio.ServicerContext[Any, Any]

LOOKS = 4
"""Pull requests that are looked at together when a person asks."""
LARGEST_NUMBER = (1 << 31) - 1


class PullRequestCalls:
    """A part of LandingServicer."""

    _core: Core
    _calls: Calls
    _pulls: PullRequests
    _cleaner: PullRequestCleaner

    async def CreatePullRequest(
        self, request: landing_pb2.CreatePullRequestRequest, context: Context
    ) -> landing_pb2.CreatePullRequestResponse:
        who = principal.get()
        wanted = Wanted(
            title=_text(request.title, 256, "title"),
            body=_text(request.body, 60_000, "body"),
            base=_text(request.base, 250, "base"),
            draft=request.draft if request.HasField("draft") else None,
            remote=request.remote,
        )

        async def work(call: Call) -> landing_pb2.CreatePullRequestResponse:
            session = await self._called(request.session)
            opened = await self._pulls.create(session, wanted, who)
            message = await self._core.store.read(lambda reader: pull_message(reader, opened.pull_request))
            action = "updated" if opened.action == "unchanged" else opened.action
            return landing_pb2.CreatePullRequestResponse(pull_request=message, action=action, warnings=opened.warnings)

        return await self._calls.once(request, work)

    async def LinkPullRequest(
        self, request: landing_pb2.LinkPullRequestRequest, context: Context
    ) -> landing_pb2.LinkPullRequestResponse:
        who = principal.get()

        async def work(call: Call) -> landing_pb2.LinkPullRequestResponse:
            session = await self._called(request.session)
            if not 0 < request.number <= LARGEST_NUMBER:
                raise InvalidInputError("no number of a pull request", hint="give the number that GitHub shows")
            pull = await self._pulls.link(session, request.number, who)
            message = await self._core.store.read(lambda reader: pull_message(reader, pull))
            return landing_pb2.LinkPullRequestResponse(pull_request=message)

        return await self._calls.once(request, work)

    async def ListPullRequests(
        self, request: landing_pb2.ListPullRequestsRequest, context: Context
    ) -> landing_pb2.ListPullRequestsResponse:
        core = self._core
        start = position_of("pull-requests", request.page_token, offset) or 0
        size = size_of(request.page_size)
        repo = await resolve_repo(core, request.repo) if request.repo else None
        repo_id = repo.id if repo is not None else None
        sessions = [await self._session(name, repo_id) for name in request.sessions]
        wanted = {session.id for session in sessions}
        found = await core.store.read(lambda reader: reader.pull_requests.list(None if wanted else repo_id))
        found = [pull for pull in found if not wanted or pull.session_id in wanted]
        page = found[start : start + size]
        if request.refresh:
            limit = asyncio.Semaphore(LOOKS)

            async def look(session_id: str) -> None:
                async with limit:
                    await self._pulls.refresh(session_id)

            await asyncio.gather(*(look(pull.session_id) for pull in page))
        ids = [pull.session_id for pull in page]
        messages = await core.store.read(
            lambda reader: [
                pull_message(reader, pull) for each in ids if (pull := reader.pull_requests.find(each)) is not None
            ]
        )
        token = token_of("pull-requests", start + size) if start + size < len(found) else ""
        return landing_pb2.ListPullRequestsResponse(pull_requests=messages, next_page_token=token)

    async def FixPullRequest(
        self, request: landing_pb2.FixPullRequestRequest, context: Context
    ) -> landing_pb2.FixPullRequestResponse:
        who = principal.get()

        async def work(call: Call) -> landing_pb2.FixPullRequestResponse:
            session = await self._called(request.session)

            def remember(unit: Unit, feedback: Feedback, prompt: Prompt | None) -> None:
                call.remember(unit, _fix_answer(feedback, prompt))

            return _fix_answer(*await self._pulls.fix(session, who, remember))

        return await self._calls.once(request, work)

    async def CleanUpPullRequests(
        self, request: landing_pb2.CleanUpPullRequestsRequest, context: Context
    ) -> landing_pb2.CleanUpPullRequestsResponse:
        who = principal.get()

        async def work(call: Call) -> landing_pb2.CleanUpPullRequestsResponse:
            sessions = await self._to_clean(request.sessions, request.repo)
            await freshen(self._core, *(session.id for session in sessions))
            cleaned = await self._cleaner.clean(
                sessions,
                remote_branches=request.remote_branches,
                dry_run=request.dry_run,
                principal=who,
            )
            return landing_pb2.CleanUpPullRequestsResponse(sessions=[_cleaned_message(each) for each in cleaned])

        return await self._calls.once(request, work)

    async def _to_clean(self, names: Sequence[str], repo_name: str) -> list[Session]:
        if not names and not repo_name:
            raise InvalidInputError("neither sessions nor a repository", hint="name one of them")
        repo = await resolve_repo(self._core, repo_name) if repo_name else None
        repo_id = repo.id if repo is not None else None
        if names:
            found = [await self._session(name, repo_id) for name in names]
            return list({session.id: session for session in found}.values())
        return await self._core.store.read(
            lambda reader: [reader.sessions.get(pull.session_id) for pull in reader.pull_requests.list(repo_id)]
        )

    async def _called(self, name: str) -> Session:
        """Find the session that a call is about, and give it the call's environment."""
        session = await self._session(name)
        await freshen(self._core, session.id)
        return session

    async def _session(self, name: str, repo_id: str | None = None) -> Session:
        return await self._core.store.read(lambda reader: find_session(reader, name, repo_id=repo_id))


def _fix_answer(feedback: Feedback, prompt: Prompt | None) -> landing_pb2.FixPullRequestResponse:
    message = prompt_message(prompt) if prompt is not None else None
    return landing_pb2.FixPullRequestResponse(prompt=message, comments=feedback.comments, checks=feedback.checks)


def _cleaned_message(cleaned: CleanedUp) -> landing_pb2.PullRequestCleanUp:
    return landing_pb2.PullRequestCleanUp(
        session_id=cleaned.session.id,
        session_name=cleaned.session.name,
        done=cleaned.done,
        reason=cleaned.reason,
        warnings=cleaned.warnings,
    )


def _text(text: str, limit: int, what: str) -> str:
    """Raises `InvalidInputError` for what GitHub would refuse."""
    if len(text) > limit or "\0" in text:
        raise InvalidInputError(f"the {what} is too long, or holds a zero byte", hint=f"use up to {limit} characters")
    return text
