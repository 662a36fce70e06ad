"""SessionService: create, fork, list and wait for sessions; prompts, settings, holds; archive,
remove and restore."""

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import grpc
from ramet.environment import FORGE, Kind
from ramet.v1 import common_pb2, orchestration_pb2, session_pb2, session_pb2_grpc

from rametd.api.attention import messages as request_messages
from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import environment, freshen, here, named_session, principal
from rametd.api.modes import mode_of
from rametd.api.paging import position_of, size_of, time_and_id, token_of
from rametd.api.repo import absolute, repo_id_around, resolve_repo
from rametd.domain.errors import InvalidInputError, NotAllowedError
from rametd.domain.models import OWNER, Agent, Prompt, Session
from rametd.environment import Variables
from rametd.platform.files import tree_bytes
from rametd.services.archiving.archive import Archiver
from rametd.services.archiving.remove import Remover
from rametd.services.archiving.restore import Restorer
from rametd.services.archiving.steps import ends_with_agent
from rametd.services.attachments import Attachments
from rametd.services.budgets import spent_below
from rametd.services.commands.setup import why_failed
from rametd.services.core import Core
from rametd.services.creation.contests import Contests
from rametd.services.creation.creator import Creator
from rametd.services.creation.forking import Forker, ForkRequest
from rametd.services.creation.request import NewSession
from rametd.services.delivery import sender_of
from rametd.services.environments import Given, refresh, variables_of
from rametd.services.family import is_family
from rametd.services.landing.landed import LandedTracker
from rametd.services.lookup import find_session
from rametd.services.members import last_words
from rametd.services.messages import from_message, stamp, value_of
from rametd.services.orchestration import Orchestration, Spawn
from rametd.services.sessions import HELD_STATES, Changes, Sessions
from rametd.services.views import (
    STATES_BACK,
    SessionMessages,
    in_background,
    mark_gone,
    one_session_message,
    prompt_message,
    sessions_messages,
)
from rametd.services.waiting import Condition, Outcome, wait
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]

UPDATABLE = frozenset(each.name for each in dataclasses.fields(Changes))


def spawn_of(request: session_pb2.CreateSessionRequest) -> Spawn:
    """Create a child, within the caps, for a session that calls the person's `CreateSession`."""
    elsewhere = (
        request.in_place or request.adopt_path or request.with_changes or request.fetch or request.initial_commit
    )
    if elsewhere:
        raise NotAllowedError(
            "a session's children start from a base, in their own worktrees",
            hint="leave out --in-place, --with-changes, --fetch and --initial-commit",
        )
    if request.images:
        raise NotAllowedError("a session sends no images", hint="name the files in the prompt")
    if request.HasField("variables"):
        raise NotAllowedError("a session's children have its environment", hint="leave out --env")
    if request.contenders or request.check or request.judges:
        raise NotAllowedError(
            "a session creates its children one by one", hint="spawn a session for each agent, and compare their diffs"
        )
    if request.existing_branch or request.parent:
        raise NotAllowedError(
            "a session creates only its own children, on new branches", hint="leave out --existing and --parent"
        )
    return from_message(Spawn, request, base=request.base_ref, mode=mode_of(request.mode))


def contest_message(reader: Reader, contenders: Sequence[str]) -> session_pb2.CreateSessionResponse:
    messages = sessions_messages(reader, [reader.sessions.get(each) for each in contenders])
    return session_pb2.CreateSessionResponse(session=messages[0], contenders=messages)


def limit_of(settings: session_pb2.Session, name: Literal["budget_usd", "budget_tokens"]) -> float | int:
    """Return the limit to set, or 0, which removes the limit, if the message has none. Raise
    `InvalidInputError` for a limit of 0."""
    if not settings.HasField(name):
        return 0
    limit: float | int = getattr(settings, name)
    if not limit:
        raise InvalidInputError(
            "invalid budget: 0 (must be greater than 0)", hint="give an amount over 0, or none for no limit"
        )
    return limit


def given_of(changes: session_pb2.VariableChanges) -> Given:
    return Given(dict(changes.set), dict(changes.take), tuple(changes.unset))


CONDITIONS = {
    session_pb2.WAIT_CONDITION_UNSPECIFIED: Condition.IDLE,
    session_pb2.WAIT_CONDITION_IDLE: Condition.IDLE,
    session_pb2.WAIT_CONDITION_WAITING: Condition.WAITING,
    session_pb2.WAIT_CONDITION_ENDED: Condition.ENDED,
    session_pb2.WAIT_CONDITION_SETTLED: Condition.SETTLED,
    session_pb2.WAIT_CONDITION_TURN: Condition.TURN,
}

VARIABLE_KINDS = {each: session_pb2.VariableKind.Value(f"VARIABLE_KIND_{each.name}") for each in Kind}

OUTCOMES = {each: session_pb2.WaitOutcome.Value(f"WAIT_OUTCOME_{each.name}") for each in Outcome}


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    def __init__(
        self,
        core: Core,
        calls: Calls,
        creator: Creator,
        forker: Forker,
        sessions: Sessions,
        remover: Remover,
        archiver: Archiver,
        restorer: Restorer,
        landed: LandedTracker,
        orchestration: Orchestration,
        attachments: Attachments,
    ) -> None:
        self._attachments = attachments
        self._orchestration = orchestration
        self._forker = forker
        self._messages = SessionMessages()
        self._core = core
        self._calls = calls
        self._creator = creator
        self._contests = Contests(core, creator)
        self._sessions = sessions
        self._remover = remover
        self._archiver = archiver
        self._restorer = restorer
        self._landed = landed

    @mutation
    async def CreateSession(
        self, request: session_pb2.CreateSessionRequest, call: Call
    ) -> session_pb2.CreateSessionResponse:
        def remember(unit: Unit, session: Session) -> None:
            call.remember(unit, session_pb2.CreateSessionResponse(session=one_session_message(unit, session)))

        given = given_of(request.variables)
        variables = given.applied_to(Variables(environment.get()))
        if sender_of(call.principal):
            created = await self._orchestration.spawn(sender_of(call.principal), spawn_of(request), remember)
            message = await self._message(created.session.id)
            return session_pb2.CreateSessionResponse(session=message, warnings=created.warnings)
        new = from_message(
            NewSession,
            request,
            path=absolute(request.path),
            images=tuple(each.data for each in request.images),
            mode=mode_of(request.mode),
            adopt=absolute(request.adopt_path) if request.adopt_path else None,
            environment=variables,
            contest_check=request.check,
            principal=call.principal,
        )
        if not request.contenders:
            created = await self._creator.create(replace(new, remember=remember))
            message = await self._message(created.session.id)
            return session_pb2.CreateSessionResponse(session=message, warnings=created.warnings)

        def remember_all(unit: Unit, made: Sequence[Session]) -> None:
            call.remember(unit, contest_message(unit, [each.id for each in made]))

        several = await self._contests.create(new, request.contenders, remember_all)
        answer = await self._core.store.read(
            lambda reader: contest_message(reader, [each.session.id for each in several])
        )
        answer.warnings.extend(dict.fromkeys(warning for each in several for warning in each.warnings))
        return answer

    @mutation
    async def ForkSession(self, request: session_pb2.ForkSessionRequest, call: Call) -> session_pb2.ForkSessionResponse:
        def remember(unit: Unit, session: Session) -> None:
            call.remember(unit, session_pb2.ForkSessionResponse(session=one_session_message(unit, session)))

        session = await named_session(self._core, request.session)
        fork = from_message(ForkRequest, request, environment=environment.get())
        created = await self._forker.fork(session, fork, call.principal, remember)
        message = await self._message(created.session.id)
        return session_pb2.ForkSessionResponse(session=message, warnings=created.warnings)

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        repo_id = await repo_id_around(self._core, request.path) if request.path else here.get()
        self._landed.ask()
        who = principal.get()

        def work(reader: Reader) -> tuple[session_pb2.GetSessionResponse, Agent | None]:
            session = find_session(reader, request.session, repo_id=repo_id)
            children = reader.sessions.list(parent_id=session.id, include_archived=True)
            parent = reader.sessions.find(session.parent_id) if session.parent_id else None
            caller = reader.sessions.find(sender_of(who))
            response = session_pb2.GetSessionResponse(
                session=one_session_message(reader, session),
                pending_prompts=[prompt_message(prompt) for prompt in reader.prompts.open(session.id)],
                open_requests=request_messages(reader, reader.requests.open(session.id)),
                children=sessions_messages(reader, children),
                setup_failure=why_failed(session),
                parent_name=parent.name if parent is not None else "",
                spent_below_usd=spent_below(reader, session),
                cursor=common_pb2.Cursor(epoch=self._core.store.epoch, seq=reader.events.last_seq()),
            )
            if who == OWNER or (caller is not None and is_family(caller, session)):
                response.last_words = last_words(reader, session.id, failed=False)
            return response, reader.agents.latest(session.id)

        response, agent = await self._core.store.read(work)
        await asyncio.to_thread(mark_gone, [response.session])
        if request.include_disk_use:
            response.disk_bytes = await asyncio.to_thread(tree_bytes, Path(response.session.worktree))
        if request.include_variables and who in {OWNER, f"session:{response.session.id}"}:
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
        self._landed.ask()

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
            prompt=request.prompt_number,
        )
        return await self._core.store.read(
            lambda reader: session_pb2.WaitSessionsResponse(
                outcome=OUTCOMES[waited.outcome],
                sessions=sessions_messages(reader, waited.sessions),
                open_requests=request_messages(reader, waited.requests),
                reason=waited.reason,
            )
        )

    @mutation
    async def UpdateSession(
        self, request: session_pb2.UpdateSessionRequest, call: Call
    ) -> session_pb2.UpdateSessionResponse:
        fields = set(request.update_mask.paths)
        if fields - UPDATABLE or not (fields or request.HasField("variables")):
            raise InvalidInputError(
                f"update_mask takes {', '.join(sorted(UPDATABLE))}", hint="name at least one of them, and no other"
            )
        new = request.session
        values = {name: value_of(new, name) for name in fields}
        if "budget_usd" in fields:
            values["budget_usd"] = limit_of(new, "budget_usd")
        if "budget_tokens" in fields:
            values["budget_tokens"] = limit_of(new, "budget_tokens")
        if "mode" in fields:
            values["mode"] = mode_of(new.mode)
        changes = Changes(**values)
        if "mode" in fields and changes.mode is None:
            raise InvalidInputError("no mode was given", hint="see: rametctl help modes")
        session_id = await self._find(request.session_id)
        warnings = await refresh(self._core, session_id, environment.get(), call.principal, given_of(request.variables))
        if fields:
            warnings += await self._sessions.update(session_id, changes, call.principal)
        return session_pb2.UpdateSessionResponse(session=await self._message(session_id), warnings=warnings)

    @mutation
    async def SendPrompt(self, request: session_pb2.SendPromptRequest, call: Call) -> session_pb2.SendPromptResponse:
        warnings: list[str] = []

        def answer(unit: Unit, prompt: Prompt, session: Session) -> session_pb2.SendPromptResponse:
            response = session_pb2.SendPromptResponse(
                prompt=prompt_message(prompt), session=one_session_message(unit, session), warnings=warnings
            )
            return call.remember(unit, response)

        def answer_member(unit: Unit, sent: orchestration_pb2.SendMessageResponse) -> session_pb2.SendPromptResponse:
            prompt = unit.prompts.get(sent.message.id)
            assert prompt is not None, "this unit of work stored it"
            return answer(unit, prompt, unit.sessions.get(prompt.session_id))

        if sender_of(call.principal):
            if request.images:
                raise NotAllowedError("a session sends no images", hint="name the files in the message")
            return await self._orchestration.send(
                sender_of(call.principal), request.session, request.prompt, answer_member
            )
        session = await named_session(self._core, request.session)
        warnings += await freshen(self._core, session.id)
        await self._attachments.before_prompt(session.id)
        warnings += await self._sessions.warnings(session)
        images = [each.data for each in request.images]
        return await self._sessions.send(session.id, request.prompt, call.principal, answer, images=images)

    @mutation
    async def WithdrawPrompts(
        self, request: session_pb2.WithdrawPromptsRequest, call: Call
    ) -> session_pb2.WithdrawPromptsResponse:
        def answer(unit: Unit, withdrawn: list[Prompt], session: Session) -> session_pb2.WithdrawPromptsResponse:
            response = session_pb2.WithdrawPromptsResponse(
                session=one_session_message(unit, session), withdrawn=map(prompt_message, withdrawn)
            )
            return call.remember(unit, response)

        session_id = await self._find(request.session)
        return await self._sessions.withdraw(session_id, request.prompts, call.principal, answer)

    @mutation
    async def InterruptSession(
        self, request: session_pb2.InterruptSessionRequest, call: Call
    ) -> session_pb2.InterruptSessionResponse:
        session_id = await self._find(request.session)
        interrupted, withdrawn = await self._sessions.interrupt(session_id)
        return session_pb2.InterruptSessionResponse(
            session=await self._message(session_id),
            interrupted=interrupted,
            withdrawn=[prompt_message(prompt) for prompt in withdrawn],
        )

    async def AttachNative(
        self, request: session_pb2.AttachNativeRequest, context: Context
    ) -> session_pb2.AttachNativeResponse:
        # The answer is not stored, since it contains the agent's environment, which must not be in
        # the database. The attached process makes a repeated call the same one.
        session_id = await self._find(request.session)
        warnings = await freshen(self._core, session_id)
        background = await self._core.store.read(lambda reader: in_background(reader, session_id))
        launch = await self._attachments.attach(
            session_id, request.pid, request.terminal, request.mcp_command, interrupt=request.interrupt
        )
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        return session_pb2.AttachNativeResponse(
            argv=launch.argv,
            environment=launch.environment,
            worktree=str(session.worktree),
            warnings=[*warnings, *(ends_with_agent(each) for each in background)],
        )

    @mutation
    async def StopSession(self, request: session_pb2.StopSessionRequest, call: Call) -> session_pb2.StopSessionResponse:
        found = await self._find(request.session)
        background = await self._core.store.read(lambda reader: in_background(reader, found))
        if sender_of(call.principal):
            session_id = (await self._orchestration.stop(sender_of(call.principal), request.session)).id
        else:
            session_id = found
            await self._sessions.stop(session_id, call.principal)
        warnings = [ends_with_agent(command) for command in background]
        return session_pb2.StopSessionResponse(session=await self._message(session_id), warnings=warnings)

    @mutation
    async def ResumeSession(
        self, request: session_pb2.ResumeSessionRequest, call: Call
    ) -> session_pb2.ResumeSessionResponse:
        session = await named_session(self._core, request.session)
        warnings = [*await freshen(self._core, session.id), *await self._sessions.warnings(session)]
        await self._sessions.resume(session.id, call.principal)
        return session_pb2.ResumeSessionResponse(
            session=await self._message(session.id), warnings=warnings, resumed=session.state in HELD_STATES
        )

    @mutation
    async def PauseSession(
        self, request: session_pb2.PauseSessionRequest, call: Call
    ) -> session_pb2.PauseSessionResponse:
        session_id = await self._find(request.session)
        await self._sessions.pause(session_id, call.principal)
        return session_pb2.PauseSessionResponse(session=await self._message(session_id))

    @mutation
    async def ArchiveSession(
        self, request: session_pb2.ArchiveSessionRequest, call: Call
    ) -> session_pb2.ArchiveSessionResponse:
        session_id = await self._find(request.session)
        return await self._archiver.archive(session_id, force=request.force, caller=call.caller)

    @mutation
    async def RestoreSession(
        self, request: session_pb2.RestoreSessionRequest, call: Call
    ) -> session_pb2.RestoreSessionResponse:
        session_id = await self._find(request.session)
        warnings = await freshen(self._core, session_id)
        response = await self._restorer.from_archive(session_id, call.caller)
        response.warnings.extend(warnings)
        return response

    @mutation
    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, call: Call
    ) -> session_pb2.DeleteSessionResponse:
        session = await named_session(self._core, request.session)
        response = await self._remover.remove(session, force=request.force, caller=call.caller)
        self._messages.forget(session.id)
        return response

    async def _find(self, name: str) -> str:
        return (await named_session(self._core, name)).id

    async def _message(self, session_id: str) -> session_pb2.Session:
        return await self._core.store.read(lambda reader: one_session_message(reader, reader.sessions.get(session_id)))
