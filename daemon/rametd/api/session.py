"""SessionService; here: what a session is told to do, and with which settings."""

from typing import Any

import grpc
from ramet.v1 import orchestration_pb2, session_pb2

from rametd.api.calls import Call, Calls
from rametd.api.context import environment, freshen, principal
from rametd.api.creation import CreationCalls, given_of
from rametd.api.departures import DepartureCalls
from rametd.api.modes import mode_of
from rametd.api.standing import StandingCalls
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Prompt, Session
from rametd.services.attachments import Attachments
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.forking import Forker
from rametd.services.delivery import sender_of
from rametd.services.departures.clearing import ends_with_agent
from rametd.services.departures.departures import Departures
from rametd.services.environments import refresh
from rametd.services.orchestration import Orchestration
from rametd.services.sessions import Changes, Sessions
from rametd.services.views import SessionMessages, in_background, one_session_message, prompt_message
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]

UPDATABLE = frozenset({"name", "model", "effort", "mode", "budget_usd", "priority", "owns", "forbids"})


def require(prompt: Prompt | None) -> Prompt:
    assert prompt is not None, "a prompt that was just stored exists"
    return prompt


class SessionServicer(CreationCalls, StandingCalls, DepartureCalls):
    def __init__(
        self,
        core: Core,
        calls: Calls,
        creator: Creator,
        forker: Forker,
        sessions: Sessions,
        departures: Departures,
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
        self._sessions = sessions
        self._departures = departures

    async def UpdateSession(
        self, request: session_pb2.UpdateSessionRequest, context: Context
    ) -> session_pb2.UpdateSessionResponse:
        fields = set(request.update_mask.paths)
        if fields - UPDATABLE or not (fields or request.HasField("variables")):
            raise InvalidInputError(
                f"update_mask takes {', '.join(sorted(UPDATABLE))}", hint="name at least one of them, and no other"
            )
        new = request.session
        limited = "budget_usd" in fields and new.HasField("budget_usd")
        changes = Changes(
            name=new.name if "name" in fields else None,
            model=new.model if "model" in fields else None,
            effort=new.effort if "effort" in fields else None,
            mode=mode_of(new.mode) if "mode" in fields else None,
            budget_usd=new.budget_usd if limited else None,
            clear_budget="budget_usd" in fields and not limited,
            priority=new.priority if "priority" in fields else None,
            owns=tuple(new.owns) if "owns" in fields else None,
            forbids=tuple(new.forbids) if "forbids" in fields else None,
        )
        if "mode" in fields and changes.mode is None:
            raise InvalidInputError("no mode was given", hint="see: rametctl help modes")
        who = principal.get()

        async def work(call: Call) -> session_pb2.UpdateSessionResponse:
            session_id = await self._find(request.session_id)
            warnings = await refresh(self._core, session_id, environment.get(), who, given_of(request.variables))
            if fields:
                await self._sessions.update(session_id, changes, who)
            return session_pb2.UpdateSessionResponse(session=await self._message(session_id), warnings=warnings)

        return await self._calls.once(request, work)

    async def SendPrompt(
        self, request: session_pb2.SendPromptRequest, context: Context
    ) -> session_pb2.SendPromptResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.SendPromptResponse:
            warnings: list[str] = []

            def remember(unit: Unit, prompt: Prompt, session: Session) -> None:
                call.remember(unit, sent(unit, prompt, session))

            def sent(reader: Reader, prompt: Prompt, session: Session) -> session_pb2.SendPromptResponse:
                return session_pb2.SendPromptResponse(
                    prompt=prompt_message(prompt), session=one_session_message(reader, session), warnings=warnings
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
            warnings += await freshen(self._core, session_id)
            await self._attachments.before_prompt(session_id)
            warnings += await self._sessions.warnings(session_id)
            prompt, session = await self._sessions.send(session_id, request.prompt, who, remember)
            return await self._core.store.read(lambda reader: sent(reader, prompt, session))

        return await self._calls.once(request, work)

    async def InterruptSession(
        self, request: session_pb2.InterruptSessionRequest, context: Context
    ) -> session_pb2.InterruptSessionResponse:
        async def work(call: Call) -> session_pb2.InterruptSessionResponse:
            session_id = await self._find(request.session)
            interrupted, withdrawn = await self._sessions.interrupt(session_id)
            return session_pb2.InterruptSessionResponse(
                session=await self._message(session_id),
                interrupted=interrupted,
                withdrawn=[prompt_message(prompt) for prompt in withdrawn],
            )

        return await self._calls.once(request, work)

    async def AttachNative(
        self, request: session_pb2.AttachNativeRequest, context: Context
    ) -> session_pb2.AttachNativeResponse:
        # The answer is not remembered: it holds the agent's environment, which no database may have. The process makes a second call the same one.
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

    async def StopSession(
        self, request: session_pb2.StopSessionRequest, context: Context
    ) -> session_pb2.StopSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.StopSessionResponse:
            found = await self._find(request.session)
            background = await self._core.store.read(lambda reader: in_background(reader, found))
            if sender_of(who):
                session_id = (await self._orchestration.stop(sender_of(who), request.session)).id
            else:
                session_id = found
                await self._sessions.stop(session_id, who)
            warnings = [ends_with_agent(command) for command in background]
            return session_pb2.StopSessionResponse(session=await self._message(session_id), warnings=warnings)

        return await self._calls.once(request, work)

    async def ResumeSession(
        self, request: session_pb2.ResumeSessionRequest, context: Context
    ) -> session_pb2.ResumeSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.ResumeSessionResponse:
            session_id = await self._find(request.session)
            warnings = [*await freshen(self._core, session_id), *await self._sessions.warnings(session_id)]
            await self._sessions.resume(session_id, who)
            return session_pb2.ResumeSessionResponse(session=await self._message(session_id), warnings=warnings)

        return await self._calls.once(request, work)

    async def PauseSession(
        self, request: session_pb2.PauseSessionRequest, context: Context
    ) -> session_pb2.PauseSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.PauseSessionResponse:
            session_id = await self._find(request.session)
            await self._sessions.pause(session_id, who)
            return session_pb2.PauseSessionResponse(session=await self._message(session_id))

        return await self._calls.once(request, work)
