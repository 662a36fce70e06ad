"""LandingService: the merge queues, and pull requests."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
from ramet.v1 import landing_pb2, landing_pb2_grpc

from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import freshen, here
from rametd.api.paging import page_of
from rametd.api.repo import repo_id_around, resolve_repo
from rametd.domain.errors import InvalidInputError
from rametd.domain.landing import Landing
from rametd.domain.models import Prompt, Session
from rametd.services.core import Core
from rametd.services.landing.drafting import NewLandings
from rametd.services.landing.entries import find_landing, message
from rametd.services.landing.queue import LandingQueue, listed
from rametd.services.lookup import find_session
from rametd.services.pull_requests.book import pull_message
from rametd.services.pull_requests.cleanup import CleanedUp, PullRequestCleaner
from rametd.services.pull_requests.feedback import Feedback
from rametd.services.pull_requests.requests import PullRequests, PullRequestValues
from rametd.services.views import in_background, prompt_message
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]

LOOKS = 4
"""Maximum number of pull requests to refresh at the same time for a call."""
LARGEST_NUMBER = (1 << 31) - 1


class LandingServicer(landing_pb2_grpc.LandingServiceServicer):
    def __init__(
        self, core: Core, calls: Calls, queue: LandingQueue, pulls: PullRequests, cleaner: PullRequestCleaner
    ) -> None:
        self._core = core
        self._calls = calls
        self._queue = queue
        self._pulls = pulls
        self._cleaner = cleaner

    # Merge queues

    @mutation
    async def LandSessions(
        self, request: landing_pb2.LandSessionsRequest, call: Call
    ) -> landing_pb2.LandSessionsResponse:
        def answer(unit: Unit, made: list[Landing], warnings: list[str]) -> landing_pb2.LandSessionsResponse:
            entries = [message(unit, each) for each in made]
            running = [
                f"`{command.description}` runs in the background of {each.session_name}; later changes by it do not land"
                for each in made
                for command in in_background(unit, each.session_id)
            ]
            response = landing_pb2.LandSessionsResponse(landings=entries, warnings=[*warnings, *running])
            return call.remember(unit, response)

        new = NewLandings(
            sessions=list(request.sessions),
            principal=call.principal,
            target=request.target,
            method=request.method,
            checks=tuple(request.check),
            commit_message=request.commit_message,
            local=request.local,
            repo_id=await repo_id_around(self._core, request.path),
        )

        def named(reader: Reader) -> list[str]:
            return [find_session(reader, name, repo_id=new.repo_id).id for name in new.sessions]

        await freshen(self._core, *await self._core.store.read(named))
        return await self._queue.land(new, answer)

    async def ListLandings(
        self, request: landing_pb2.ListLandingsRequest, context: Context
    ) -> landing_pb2.ListLandingsResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None

        def work(reader: Reader) -> landing_pb2.ListLandingsResponse:
            page, token = page_of("landings", request, listed(reader, repo_id, ended=request.include_ended))
            return landing_pb2.ListLandingsResponse(
                landings=[message(reader, each) for each in page], next_page_token=token
            )

        return await self._core.store.read(work)

    async def WaitLandings(
        self, request: landing_pb2.WaitLandingsRequest, context: Context
    ) -> landing_pb2.WaitLandingsResponse:
        seconds = request.timeout_seconds
        if not 0 <= seconds < float("inf"):
            raise InvalidInputError(f"invalid timeout: {seconds} s", hint="use 0 for no limit")
        named = [(await self._named(name)).id for name in request.landings]
        found, timed_out = await self._queue.wait(named, seconds or None)
        return await self._core.store.read(
            lambda reader: landing_pb2.WaitLandingsResponse(
                landings=[message(reader, each) for each in found], timed_out=timed_out
            )
        )

    @mutation
    async def RemoveLanding(
        self, request: landing_pb2.RemoveLandingRequest, call: Call
    ) -> landing_pb2.RemoveLandingResponse:
        def answer(unit: Unit, landing: Landing) -> landing_pb2.RemoveLandingResponse:
            response = landing_pb2.RemoveLandingResponse(landing=message(unit, landing))
            return call.remember(unit, response)

        return await self._queue.remove((await self._named(request.landing)).id, call.principal, answer)

    @mutation
    async def RetryLanding(
        self, request: landing_pb2.RetryLandingRequest, call: Call
    ) -> landing_pb2.RetryLandingResponse:
        landing = await self._named(request.landing)
        await freshen(self._core, landing.session_id)

        def answer(unit: Unit, landing: Landing) -> landing_pb2.RetryLandingResponse:
            response = landing_pb2.RetryLandingResponse(landing=message(unit, landing))
            return call.remember(unit, response)

        return await self._queue.retry(landing.id, call.principal, answer)

    async def _named(self, name: str) -> Landing:
        """Find the entry that the caller names, by its id or its session."""
        near = here.get()
        return await self._core.store.read(lambda reader: find_landing(reader, name, near))

    # Pull requests

    @mutation
    async def CreatePullRequest(
        self, request: landing_pb2.CreatePullRequestRequest, call: Call
    ) -> landing_pb2.CreatePullRequestResponse:
        values = PullRequestValues(
            title=_text(request.title, 256, "title"),
            body=_text(request.body, 60_000, "body"),
            base=_text(request.base, 250, "base"),
            draft=request.draft if request.HasField("draft") else None,
            remote=request.remote,
        )

        session = await self._called(request.session)
        opened = await self._pulls.create(session, values, call.principal)
        message = await self._core.store.read(lambda reader: pull_message(reader, opened.pull_request))
        action = "updated" if opened.action == "unchanged" else opened.action
        return landing_pb2.CreatePullRequestResponse(pull_request=message, action=action, warnings=opened.warnings)

    @mutation
    async def LinkPullRequest(
        self, request: landing_pb2.LinkPullRequestRequest, call: Call
    ) -> landing_pb2.LinkPullRequestResponse:
        session = await self._called(request.session)
        if not 0 < request.number <= LARGEST_NUMBER:
            raise InvalidInputError("no number of a pull request", hint="give the number that GitHub shows")
        pull = await self._pulls.link(session, request.number, call.principal)
        message = await self._core.store.read(lambda reader: pull_message(reader, pull))
        return landing_pb2.LinkPullRequestResponse(pull_request=message)

    async def ListPullRequests(
        self, request: landing_pb2.ListPullRequestsRequest, context: Context
    ) -> landing_pb2.ListPullRequestsResponse:
        core = self._core
        repo = await resolve_repo(core, request.repo) if request.repo else None
        repo_id = repo.id if repo is not None else None
        sessions = [await self._session(name, repo_id) for name in request.sessions]
        wanted = {session.id for session in sessions}
        found = await core.store.read(lambda reader: reader.pull_requests.list(None if wanted else repo_id))
        found = [pull for pull in found if not wanted or pull.session_id in wanted]
        page, token = page_of("pull-requests", request, found)
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
        return landing_pb2.ListPullRequestsResponse(pull_requests=messages, next_page_token=token)

    @mutation
    async def FixPullRequest(
        self, request: landing_pb2.FixPullRequestRequest, call: Call
    ) -> landing_pb2.FixPullRequestResponse:
        session = await self._called(request.session)

        def remember(unit: Unit, feedback: Feedback, prompt: Prompt | None) -> None:
            call.remember(unit, _fix_answer(feedback, prompt))

        return _fix_answer(*await self._pulls.fix(session, call.principal, remember))

    @mutation
    async def CleanUpPullRequests(
        self, request: landing_pb2.CleanUpPullRequestsRequest, call: Call
    ) -> landing_pb2.CleanUpPullRequestsResponse:
        sessions = await self._to_clean(request.sessions, request.repo)
        await freshen(self._core, *(session.id for session in sessions))
        cleaned = await self._cleaner.clean(
            sessions,
            remote_branches=request.remote_branches,
            dry_run=request.dry_run,
            principal=call.principal,
        )
        return landing_pb2.CleanUpPullRequestsResponse(sessions=[_cleaned_message(each) for each in cleaned])

    async def _to_clean(self, names: Sequence[str], repo_name: str) -> list[Session]:
        if not names and not repo_name:
            raise InvalidInputError("no sessions and no repository given", hint="name one of them")
        repo = await resolve_repo(self._core, repo_name) if repo_name else None
        repo_id = repo.id if repo is not None else None
        if names:
            found = [await self._session(name, repo_id) for name in names]
            return list({session.id: session for session in found}.values())
        return await self._core.store.read(
            lambda reader: [reader.sessions.get(pull.session_id) for pull in reader.pull_requests.list(repo_id)]
        )

    async def _called(self, name: str) -> Session:
        """Find the session of a call, and update its environment from the call."""
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
    """Raise `InvalidInputError` for a text that GitHub would refuse."""
    if len(text) > limit or "\0" in text:
        raise InvalidInputError(
            f"the {what} is too long, or contains a zero byte", hint=f"use up to {limit} characters"
        )
    return text
