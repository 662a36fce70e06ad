"""LandingService: the merge queues. Its calls on pull requests are in `rametd.api.pull_requests`."""

from typing import Any

import grpc
from ramet.v1 import landing_pb2, landing_pb2_grpc

from rametd.api.calls import Call, Calls
from rametd.api.context import freshen, principal
from rametd.api.paging import offset, position_of, size_of, token_of
from rametd.api.pull_requests import PullRequestCalls
from rametd.api.repo import repo_id_around, resolve_repo
from rametd.domain.errors import InvalidInputError
from rametd.domain.landing import Landing
from rametd.services.core import Core
from rametd.services.landing.drafting import NewLandings
from rametd.services.landing.entries import find_landing, message
from rametd.services.landing.queue import LandingQueue, listed
from rametd.services.lookup import find_session
from rametd.services.pull_requests.cleanup import PullRequestCleaner
from rametd.services.pull_requests.requests import PullRequests
from rametd.services.views import in_background
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]


class LandingCalls:
    """The calls on the merge queues."""

    _core: Core
    _calls: Calls
    _queue: LandingQueue

    async def LandSessions(
        self, request: landing_pb2.LandSessionsRequest, context: Context
    ) -> landing_pb2.LandSessionsResponse:
        who = principal.get()

        async def work(call: Call) -> landing_pb2.LandSessionsResponse:
            def answer(unit: Unit, made: list[Landing], warnings: list[str]) -> landing_pb2.LandSessionsResponse:
                entries = [message(unit, each) for each in made]
                running = [
                    f"`{command.description}` runs in the background of {each.session_name}: what it writes later does not land"
                    for each in made
                    for command in in_background(unit, each.session_id)
                ]
                response = landing_pb2.LandSessionsResponse(landings=entries, warnings=[*warnings, *running])
                call.remember(unit, response)
                return response

            new = NewLandings(
                sessions=list(request.sessions),
                principal=who,
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

        return await self._calls.once(request, work)

    async def ListLandings(
        self, request: landing_pb2.ListLandingsRequest, context: Context
    ) -> landing_pb2.ListLandingsResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None
        start = position_of("landings", request.page_token, offset) or 0
        size = size_of(request.page_size)

        def work(reader: Reader) -> landing_pb2.ListLandingsResponse:
            found = listed(reader, repo_id, ended=request.include_ended)
            token = token_of("landings", start + size) if start + size < len(found) else ""
            page = [message(reader, each) for each in found[start : start + size]]
            return landing_pb2.ListLandingsResponse(landings=page, next_page_token=token)

        return await self._core.store.read(work)

    async def WaitLandings(
        self, request: landing_pb2.WaitLandingsRequest, context: Context
    ) -> landing_pb2.WaitLandingsResponse:
        seconds = request.timeout_seconds
        if not 0 <= seconds < float("inf"):
            raise InvalidInputError(f"{seconds} seconds cannot be waited for", hint="0 means no limit")
        found, timed_out = await self._queue.wait(list(request.landings), seconds or None)
        return await self._core.store.read(
            lambda reader: landing_pb2.WaitLandingsResponse(
                landings=[message(reader, each) for each in found], timed_out=timed_out
            )
        )

    async def RemoveLanding(
        self, request: landing_pb2.RemoveLandingRequest, context: Context
    ) -> landing_pb2.RemoveLandingResponse:
        who = principal.get()

        async def work(call: Call) -> landing_pb2.RemoveLandingResponse:
            def answer(unit: Unit, landing: Landing) -> landing_pb2.RemoveLandingResponse:
                response = landing_pb2.RemoveLandingResponse(landing=message(unit, landing))
                call.remember(unit, response)
                return response

            return await self._queue.remove(request.landing, who, answer)

        return await self._calls.once(request, work)

    async def RetryLanding(
        self, request: landing_pb2.RetryLandingRequest, context: Context
    ) -> landing_pb2.RetryLandingResponse:
        who = principal.get()

        async def work(call: Call) -> landing_pb2.RetryLandingResponse:
            landing = await self._core.store.read(lambda reader: find_landing(reader, request.landing))
            await freshen(self._core, landing.session_id)

            def answer(unit: Unit, landing: Landing) -> landing_pb2.RetryLandingResponse:
                response = landing_pb2.RetryLandingResponse(landing=message(unit, landing))
                call.remember(unit, response)
                return response

            return await self._queue.retry(request.landing, who, answer)

        return await self._calls.once(request, work)


class LandingServicer(LandingCalls, PullRequestCalls, landing_pb2_grpc.LandingServiceServicer):
    def __init__(
        self, core: Core, calls: Calls, queue: LandingQueue, pulls: PullRequests, cleaner: PullRequestCleaner
    ) -> None:
        self._core = core
        self._calls = calls
        self._queue = queue
        self._pulls = pulls
        self._cleaner = cleaner
