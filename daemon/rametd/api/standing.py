"""SessionService: how sessions stand, now and once a wait for them is over."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
from ramet.environment import FORGE, Kind
from ramet.v1 import common_pb2, session_pb2

from rametd.api.attention import messages as request_messages
from rametd.api.context import here, principal
from rametd.api.paging import position_of, size_of, time_and_id, token_of
from rametd.api.repo import repo_id_around, resolve_repo
from rametd.api.session_calls import SessionCalls
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import OWNER, Agent
from rametd.platform.disk import tree_bytes
from rametd.services.commands.setup import why_failed
from rametd.services.departures.departures import Departures
from rametd.services.environments import variables_of
from rametd.services.lookup import find_session
from rametd.services.views import (
    STATES_BACK,
    SessionMessages,
    mark_gone,
    one_session_message,
    prompt_message,
    sessions_messages,
    stamp,
)
from rametd.services.waiting import Condition, Outcome, wait
from rametd.store import Reader

Context = grpc.aio.ServicerContext[Any, Any]

CONDITIONS = {
    session_pb2.WAIT_CONDITION_UNSPECIFIED: Condition.IDLE,
    session_pb2.WAIT_CONDITION_IDLE: Condition.IDLE,
    session_pb2.WAIT_CONDITION_WAITING: Condition.WAITING,
    session_pb2.WAIT_CONDITION_ENDED: Condition.ENDED,
    session_pb2.WAIT_CONDITION_SETTLED: Condition.SETTLED,
}

VARIABLE_KINDS = {
    Kind.PINNED: session_pb2.VARIABLE_KIND_PINNED,
    Kind.FRESH: session_pb2.VARIABLE_KIND_FRESH,
    Kind.SET: session_pb2.VARIABLE_KIND_SET,
    Kind.UNSET: session_pb2.VARIABLE_KIND_UNSET,
}

OUTCOMES = {
    Outcome.DONE: session_pb2.WAIT_OUTCOME_DONE,
    Outcome.ATTENTION: session_pb2.WAIT_OUTCOME_ATTENTION,
    Outcome.TIMEOUT: session_pb2.WAIT_OUTCOME_TIMEOUT,
    Outcome.FAILED: session_pb2.WAIT_OUTCOME_FAILED,
}


class StandingCalls(SessionCalls):
    """The other fields are set by the class that takes these calls in."""

    _departures: Departures
    _messages: SessionMessages

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        repo_id = await repo_id_around(self._core, request.path) if request.path else here.get()
        self._departures.landed.ask()

        def work(reader: Reader) -> tuple[session_pb2.GetSessionResponse, Agent | None]:
            session = find_session(reader, request.session, repo_id=repo_id)
            children = reader.sessions.list(parent_id=session.id, include_archived=True)
            response = session_pb2.GetSessionResponse(
                session=one_session_message(reader, session),
                pending_prompts=[prompt_message(prompt) for prompt in reader.prompts.open(session.id)],
                open_requests=request_messages(reader, reader.requests.open(session.id)),
                children=sessions_messages(reader, children),
                setup_failure=why_failed(session),
            )
            return response, reader.agents.latest(session.id)

        response, agent = await self._core.store.read(work)
        await asyncio.to_thread(mark_gone, [response.session])
        if request.include_disk_use:
            response.disk_bytes = await asyncio.to_thread(tree_bytes, Path(response.session.worktree))
        if request.include_variables and principal.get() in {OWNER, f"session:{response.session.id}"}:
            variables = await variables_of(self._core, response.session.id)
            kinds = variables.kinds((*FORGE, *self._core.config.agents.claude.pass_env))
            response.variables.extend(
                session_pb2.Variable(name=name, kind=VARIABLE_KINDS[kind]) for name, kind in sorted(kinds.items())
            )
        if agent is not None:
            response.process.CopyFrom(await self._process(agent))
        return response

    async def _process(self, agent: Agent) -> session_pb2.AgentProcess:
        runner = self._core.live.get(agent.session_id)
        pid = await runner.agent_pid() if runner is not None else 0
        return session_pb2.AgentProcess(
            generation=agent.generation,
            state=agent.state.value,
            pid=pid,
            version=agent.cli_version,
            exit_status=agent.exit_status,
            start_time=stamp(agent.start_time),
        )

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None
        size = size_of(request.page_size)
        after = position_of("sessions", request.page_token, time_and_id)
        states = {STATES_BACK[state] for state in request.states if state in STATES_BACK}
        self._departures.landed.ask()

        def work(reader: Reader) -> session_pb2.ListSessionsResponse:
            found = reader.sessions.stamps(
                states=states,
                repo_id=repo_id,
                include_archived=request.include_archived,
                after=after,
                limit=size + 1,
            )
            page = found[:size]
            token = token_of("sessions", [page[-1].create_time, page[-1].id]) if len(found) > size else ""
            cursor = common_pb2.Cursor(epoch=self._core.store.epoch, seq=reader.events.last_seq())
            return session_pb2.ListSessionsResponse(
                sessions=self._messages.of(reader, page),
                next_page_token=token,
                cursor=cursor,
                elsewhere=reader.sessions.count_elsewhere(repo_id) if repo_id is not None else 0,
            )

        response = await self._core.store.read(work)
        await asyncio.to_thread(mark_gone, response.sessions)
        return response

    async def WaitSessions(
        self, request: session_pb2.WaitSessionsRequest, context: Context
    ) -> session_pb2.WaitSessionsResponse:
        if not request.sessions:
            raise InvalidInputError("no session was named", hint="name at least one")
        ids = [await self._find(name) for name in request.sessions]
        waited = await wait(
            self._core,
            ids,
            CONDITIONS[request.condition],
            any_one=request.any,
            within=request.timeout.ToNanoseconds() / 1e9 if request.HasField("timeout") else None,
        )
        return await self._core.store.read(
            lambda reader: session_pb2.WaitSessionsResponse(
                outcome=OUTCOMES[waited.outcome],
                sessions=sessions_messages(reader, waited.sessions),
                open_requests=request_messages(reader, waited.requests),
            )
        )
