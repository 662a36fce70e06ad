"""SessionService: how sessions come to be."""

from typing import Any

import grpc
from ramet.v1 import session_pb2

from rametd.api.calls import Call
from rametd.api.context import environment, named_session, principal
from rametd.api.modes import mode_of
from rametd.api.repo import absolute
from rametd.api.session_calls import SessionCalls
from rametd.domain.errors import NotAllowedError
from rametd.domain.models import Session
from rametd.environment import Variables
from rametd.services.creation.creator import Creator
from rametd.services.creation.forking import Forker, Wanted
from rametd.services.creation.wanted import NewSession
from rametd.services.delivery import sender_of
from rametd.services.environments import Given
from rametd.services.orchestration import Orchestration, Spawn
from rametd.services.views import one_session_message
from rametd.store import Unit

Context = grpc.aio.ServicerContext[Any, Any]


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
    if request.HasField("variables"):
        raise NotAllowedError("a session's children have its environment", hint="leave --env out")
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


def given_of(changes: session_pb2.VariableChanges) -> Given:
    return Given(dict(changes.set), dict(changes.take), tuple(changes.unset))


class CreationCalls(SessionCalls):
    """The other fields are set by the class that takes these calls in."""

    _creator: Creator
    _forker: Forker
    _orchestration: Orchestration

    async def CreateSession(
        self, request: session_pb2.CreateSessionRequest, context: Context
    ) -> session_pb2.CreateSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.CreateSessionResponse:
            def remember(unit: Unit, session: Session) -> None:
                call.remember(unit, session_pb2.CreateSessionResponse(session=one_session_message(unit, session)))

            given = given_of(request.variables)
            variables = given.applied_to(Variables(environment.get()))
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
                    effort=request.effort,
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
                    environment=variables,
                    principal=who,
                    remember=remember,
                )
            )
            message = await self._message(created.session.id)
            return session_pb2.CreateSessionResponse(session=message, warnings=created.warnings)

        return await self._calls.once(request, work)

    async def ForkSession(
        self, request: session_pb2.ForkSessionRequest, context: Context
    ) -> session_pb2.ForkSessionResponse:
        who = principal.get()

        async def work(call: Call) -> session_pb2.ForkSessionResponse:
            def remember(unit: Unit, session: Session) -> None:
                call.remember(unit, session_pb2.ForkSessionResponse(session=one_session_message(unit, session)))

            session = await named_session(self._core, request.session)
            wanted = Wanted(request.prompt, request.checkpoint, request.name, request.branch, environment.get())
            created = await self._forker.fork(session, wanted, who, remember)
            message = await self._message(created.session.id)
            return session_pb2.ForkSessionResponse(session=message, warnings=created.warnings)

        return await self._calls.once(request, work)
