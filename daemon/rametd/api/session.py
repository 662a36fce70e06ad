"""SessionService."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
from ramet.v1 import common_pb2, orchestration_pb2, session_pb2, session_pb2_grpc

from rametd.api.attention import messages as request_messages
from rametd.api.calls import Call, Calls
from rametd.api.context import principal
from rametd.api.paging import position_of, size_of, time_and_id, token_of
from rametd.api.repo import absolute, resolve_repo
from rametd.domain.errors import InvalidInputError, NotAllowedError, RepoNotFoundError
from rametd.domain.models import Agent, Mode, Prompt, Session
from rametd.platform.disk import tree_bytes
from rametd.services import repos
from rametd.services.commands.setup import why_failed
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.forking import Forker, Wanted
from rametd.services.creation.wanted import NewSession
from rametd.services.delivery import sender_of
from rametd.services.departures.departures import Departures
from rametd.services.listing import SessionMessages
from rametd.services.lookup import find_session
from rametd.services.orchestration import Orchestration, Spawn
from rametd.services.sessions import Changes, Sessions
from rametd.services.views import (
    MODES_BACK,
    STATES_BACK,
    one_session_message,
    prompt_message,
    sessions_messages,
    stamp,
)
from rametd.services.waiting import Condition, Outcome, wait
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]

UPDATABLE = frozenset({"name", "model", "mode", "budget_usd", "priority", "owns", "forbids"})
CONDITIONS = {
    session_pb2.WAIT_CONDITION_UNSPECIFIED: Condition.IDLE,
    session_pb2.WAIT_CONDITION_IDLE: Condition.IDLE,
    session_pb2.WAIT_CONDITION_WAITING: Condition.WAITING,
    session_pb2.WAIT_CONDITION_ENDED: Condition.ENDED,
}
OUTCOMES = {
    Outcome.DONE: session_pb2.WAIT_OUTCOME_DONE,
    Outcome.ATTENTION: session_pb2.WAIT_OUTCOME_ATTENTION,
    Outcome.TIMEOUT: session_pb2.WAIT_OUTCOME_TIMEOUT,
    Outcome.FAILED: session_pb2.WAIT_OUTCOME_FAILED,
}


def mode_of(number: int) -> Mode | None:
    """None where none was given. One that only a newer client knows is refused: another in its place could be looser."""
    if number and number not in MODES_BACK:
        raise InvalidInputError(f"there is no permission mode number {number}", hint="name one of the five modes")
    return MODES_BACK.get(number)  # type: ignore[call-overload, no-any-return]


def require(prompt: Prompt | None) -> Prompt:
    assert prompt is not None, "a prompt that was just stored exists"
    return prompt


def spawn_of(request: session_pb2.CreateSessionRequest) -> Spawn:
    """What a session asks for with the person's own command: a child, within the caps."""
    elsewhere = (
        request.in_place or request.adopt_path or request.with_changes or request.fetch or request.initial_commit
    )
    if elsewhere:
        raise NotAllowedError(
            "a session's children start from a base, in worktrees of their own",
            hint="leave --in-place, --with-changes, --fetch and --initial-commit out",
        )
    if request.existing_branch or request.parent:
        raise NotAllowedError(
            "a session makes children of its own, on new branches", hint="leave --existing and --parent out"
        )
    return Spawn(
        prompt=request.prompt,
        name=request.name,
        base=request.base_ref,
        branch=request.branch,
        model=request.model,
        mode=mode_of(request.mode),
        budget_usd=request.budget_usd if request.HasField("budget_usd") else None,
        owns=tuple(request.owns),
        forbids=tuple(request.forbids),
        after=tuple(request.after),
    )


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    def __init__(
        self,
        core: Core,
        calls: Calls,
        creator: Creator,
        forker: Forker,
        sessions: Sessions,
        departures: Departures,
        orchestration: Orchestration,
    ) -> None:
        self._orchestration = orchestration
        self._forker = forker
        self._messages = SessionMessages()
        self._core = core
        self._calls = calls
        self._creator = creator
        self._sessions = sessions
        self._departures = departures

    async def CreateSession(
        self, request: session_pb2.CreateSessionRequest, context: Context
    ) -> session_pb2.CreateSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.CreateSessionResponse:
            def remember(unit: Unit, session: Session) -> None:
                call.remember(unit, session_pb2.CreateSessionResponse(session=one_session_message(unit, session)))

            if sender_of(who):
                created = await self._orchestration.spawn(sender_of(who), spawn_of(request), remember)
                message = await self._message(created.session.id)
                return session_pb2.CreateSessionResponse(session=message, warnings=created.warnings)
            created = await self._creator.create(
                NewSession(
                    path=absolute(request.path),
                    prompt=request.prompt,
                    name=request.name,
                    branch=request.branch,
                    base_ref=request.base_ref,
                    existing_branch=request.existing_branch,
                    agent=request.agent or "claude",
                    model=request.model,
                    mode=mode_of(request.mode),
                    budget_usd=request.budget_usd if request.HasField("budget_usd") else None,
                    owns=tuple(request.owns),
                    forbids=tuple(request.forbids),
                    parent=request.parent,
                    priority=request.priority,
                    after=tuple(request.after),
                    with_changes=request.with_changes,
                    in_place=request.in_place,
                    adopt=absolute(request.adopt_path) if request.adopt_path else None,
                    fetch=request.fetch,
                    initial_commit=request.initial_commit,
                    environment=dict(request.environment),
                    principal=who,
                    remember=remember,
                )
            )
            message = await self._message(created.session.id)
            return session_pb2.CreateSessionResponse(session=message, warnings=created.warnings)

        return await self._calls.once("CreateSession", request, session_pb2.CreateSessionResponse, work)

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        repo_id = await self._repo_id(request.path)
        self._departures.landed.ask()

        def work(reader: Reader) -> tuple[session_pb2.GetSessionResponse, Agent | None]:
            session = find_session(reader, request.session, repo_id=repo_id)
            children = reader.sessions.list(parent_id=session.id, include_archived=True)
            response = session_pb2.GetSessionResponse(
                session=one_session_message(reader, session),
                pending_prompts=[prompt_message(prompt) for prompt in reader.prompts.open(session.id)],
                open_requests=request_messages(reader, reader.requests.open(session.id)),
                children=sessions_messages(reader, children),
                setup_failure=why_failed(reader, session),
            )
            return response, reader.agents.latest(session.id)

        response, agent = await self._core.store.read(work)
        if request.include_disk_use:
            response.disk_bytes = await asyncio.to_thread(tree_bytes, Path(response.session.worktree))
        if agent is not None:
            response.process.CopyFrom(await self._process(agent))
        return response

    async def _process(self, agent: Agent) -> session_pb2.AgentProcess:
        runner = self._core.runners.get(agent.session_id)
        pid = await runner.agent_pid() if runner is not None else 0
        return session_pb2.AgentProcess(
            generation=agent.generation,
            state=agent.state.value,
            pid=pid,
            version=agent.cli_version,
            exit_status=agent.exit_status,
            start_time=stamp(agent.start_time),
        )

    async def _repo_id(self, path: str) -> str | None:
        """The repository whose sessions are meant where a name fits several; a path outside of any is no fault."""
        if not path:
            return None
        try:
            repo = await repos.around(self._core, absolute(path))
        except RepoNotFoundError:
            return None
        return repo.id if repo is not None else None

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
                sessions=self._messages.of(reader, page), next_page_token=token, cursor=cursor
            )

        return await self._core.store.read(work)

    async def UpdateSession(
        self, request: session_pb2.UpdateSessionRequest, context: Context
    ) -> session_pb2.UpdateSessionResponse:
        fields = set(request.update_mask.paths)
        if not fields or fields - UPDATABLE:
            raise InvalidInputError(
                f"update_mask takes {', '.join(sorted(UPDATABLE))}", hint="name at least one of them, and no other"
            )
        new = request.session
        limited = "budget_usd" in fields and new.HasField("budget_usd")
        changes = Changes(
            name=new.name if "name" in fields else None,
            model=new.model if "model" in fields else None,
            mode=mode_of(new.mode) if "mode" in fields else None,
            budget_usd=new.budget_usd if limited else None,
            clear_budget="budget_usd" in fields and not limited,
            priority=new.priority if "priority" in fields else None,
            owns=tuple(new.owns) if "owns" in fields else None,
            forbids=tuple(new.forbids) if "forbids" in fields else None,
        )
        if "mode" in fields and changes.mode is None:
            raise InvalidInputError("no mode was given", hint="name one of the five modes")
        who = principal.get()

        async def work(call: Call) -> session_pb2.UpdateSessionResponse:
            session_id = await self._find(request.session_id)
            await self._sessions.update(session_id, changes, who)
            return session_pb2.UpdateSessionResponse(session=await self._message(session_id))

        return await self._calls.once("UpdateSession", request, session_pb2.UpdateSessionResponse, work)

    async def SendPrompt(
        self, request: session_pb2.SendPromptRequest, context: Context
    ) -> session_pb2.SendPromptResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.SendPromptResponse:
            def remember(unit: Unit, prompt: Prompt, session: Session) -> None:
                call.remember(unit, sent(unit, prompt, session))

            def sent(reader: Reader, prompt: Prompt, session: Session) -> session_pb2.SendPromptResponse:
                return session_pb2.SendPromptResponse(
                    prompt=prompt_message(prompt), session=one_session_message(reader, session)
                )

            def sent_message(
                reader: Reader, answer: orchestration_pb2.SendMessageResponse
            ) -> session_pb2.SendPromptResponse:
                prompt = require(reader.prompts.get(answer.message.id))
                return sent(reader, prompt, reader.sessions.get(prompt.session_id))

            if sender_of(who):
                answer = await self._orchestration.send(
                    sender_of(who),
                    request.session,
                    request.prompt,
                    lambda unit, answer: call.remember(unit, sent_message(unit, answer)),
                )
                return await self._core.store.read(lambda reader: sent_message(reader, answer))
            session_id = await self._find(request.session)
            prompt, session = await self._sessions.send(session_id, request.prompt, who, remember)
            return await self._core.store.read(lambda reader: sent(reader, prompt, session))

        return await self._calls.once("SendPrompt", request, session_pb2.SendPromptResponse, work)

    async def InterruptSession(
        self, request: session_pb2.InterruptSessionRequest, context: Context
    ) -> session_pb2.InterruptSessionResponse:
        async def work(call: Call) -> session_pb2.InterruptSessionResponse:
            session_id = await self._find(request.session)
            _, interrupted = await self._sessions.interrupt(session_id)
            return session_pb2.InterruptSessionResponse(
                session=await self._message(session_id), interrupted=interrupted
            )

        return await self._calls.once("InterruptSession", request, session_pb2.InterruptSessionResponse, work)

    async def StopSession(
        self, request: session_pb2.StopSessionRequest, context: Context
    ) -> session_pb2.StopSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.StopSessionResponse:
            if sender_of(who):
                session_id = (await self._orchestration.stop(sender_of(who), request.session)).id
            else:
                session_id = await self._find(request.session)
                await self._sessions.stop(session_id, who)
            return session_pb2.StopSessionResponse(session=await self._message(session_id))

        return await self._calls.once("StopSession", request, session_pb2.StopSessionResponse, work)

    async def ResumeSession(
        self, request: session_pb2.ResumeSessionRequest, context: Context
    ) -> session_pb2.ResumeSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.ResumeSessionResponse:
            session_id = await self._find(request.session)
            await self._sessions.resume(session_id, who)
            return session_pb2.ResumeSessionResponse(session=await self._message(session_id))

        return await self._calls.once("ResumeSession", request, session_pb2.ResumeSessionResponse, work)

    async def PauseSession(
        self, request: session_pb2.PauseSessionRequest, context: Context
    ) -> session_pb2.PauseSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.PauseSessionResponse:
            session_id = await self._find(request.session)
            await self._sessions.pause(session_id, who)
            return session_pb2.PauseSessionResponse(session=await self._message(session_id))

        return await self._calls.once("PauseSession", request, session_pb2.PauseSessionResponse, work)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: Context
    ) -> session_pb2.DeleteSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.DeleteSessionResponse:
            session = await self._core.store.read(lambda reader: find_session(reader, request.session))
            response = await self._departures.remover.remove(
                session, force=request.force, principal=who, request_id=call.request_id, digest=call.digest
            )
            self._messages.forget(session.id)
            return response

        return await self._calls.once("DeleteSession", request, session_pb2.DeleteSessionResponse, work)

    async def ForkSession(
        self, request: session_pb2.ForkSessionRequest, context: Context
    ) -> session_pb2.ForkSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.ForkSessionResponse:
            def remember(unit: Unit, session: Session) -> None:
                call.remember(unit, session_pb2.ForkSessionResponse(session=one_session_message(unit, session)))

            session = await self._core.store.read(lambda reader: find_session(reader, request.session))
            wanted = Wanted(request.prompt, request.checkpoint, request.name, request.branch)
            created = await self._forker.fork(session, wanted, who, remember)
            message = await self._message(created.session.id)
            return session_pb2.ForkSessionResponse(session=message, warnings=created.warnings)

        return await self._calls.once("ForkSession", request, session_pb2.ForkSessionResponse, work)

    async def ArchiveSession(
        self, request: session_pb2.ArchiveSessionRequest, context: Context
    ) -> session_pb2.ArchiveSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.ArchiveSessionResponse:
            session_id = await self._find(request.session)
            return await self._departures.archiver.archive(
                session_id, force=request.force, principal=who, request_id=call.request_id, digest=call.digest
            )

        return await self._calls.once("ArchiveSession", request, session_pb2.ArchiveSessionResponse, work)

    async def RestoreSession(
        self, request: session_pb2.RestoreSessionRequest, context: Context
    ) -> session_pb2.RestoreSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.RestoreSessionResponse:
            session_id = await self._find(request.session)
            restored = await self._departures.restorer.from_archive(
                session_id, principal=who, request_id=call.request_id, digest=call.digest
            )
            return session_pb2.RestoreSessionResponse(session=restored.session, warnings=restored.warnings)

        return await self._calls.once("RestoreSession", request, session_pb2.RestoreSessionResponse, work)

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

    async def _find(self, name: str) -> str:
        return await self._core.store.read(lambda reader: find_session(reader, name).id)

    async def _message(self, session_id: str) -> session_pb2.Session:
        return await self._core.store.read(lambda reader: one_session_message(reader, reader.sessions.get(session_id)))
