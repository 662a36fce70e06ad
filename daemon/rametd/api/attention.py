"""AttentionService."""

from collections.abc import Mapping
from typing import Any

import grpc
from ramet.v1 import attention_pb2, attention_pb2_grpc

from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import environment, freshen, here, named_session
from rametd.api.paging import page_of
from rametd.api.repo import resolve_repo
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Request, RequestKind
from rametd.services import attention
from rametd.services.attention import EFFECTS
from rametd.services.core import Core
from rametd.services.hooks import Resolver
from rametd.services.lookup import find_session
from rametd.services.notifications.notifier import Notifier
from rametd.services.trust.withheld import WithheldInbox
from rametd.services.views import request_message, rule_message
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]


def messages(reader: Reader, requests: list[Request]) -> list[attention_pb2.AttentionRequest]:
    sessions = {session.id: session for session in reader.sessions.list(include_archived=True)}
    repos = {repo.id: repo.name for repo in reader.repos.list()}
    return [
        request_message(request, session=session.name, repo=repos[session.repo_id])
        for request in requests
        if (session := sessions.get(request.session_id)) is not None
    ]


class AttentionServicer(attention_pb2_grpc.AttentionServiceServicer):
    def __init__(
        self,
        core: Core,
        calls: Calls,
        resolvers: Mapping[RequestKind, Resolver],
        notifier: Notifier,
        withheld: WithheldInbox,
    ) -> None:
        self._withheld = withheld
        self._core = core
        self._calls = calls
        self._resolvers = resolvers
        self._notifier = notifier

    async def ListRequests(
        self, request: attention_pb2.ListRequestsRequest, context: Context
    ) -> attention_pb2.ListRequestsResponse:
        near = here.get()
        await self._withheld.look()

        def work(reader: Reader) -> attention_pb2.ListRequestsResponse:
            session_id = find_session(reader, request.session, repo_id=near).id if request.session else None
            found = reader.requests.list(session_id) if request.include_closed else reader.requests.open(session_id)
            page, token = page_of("requests", request, found)
            return attention_pb2.ListRequestsResponse(requests=messages(reader, page), next_page_token=token)

        return await self._core.store.read(work)

    async def GetRequest(
        self, request: attention_pb2.GetRequestRequest, context: Context
    ) -> attention_pb2.GetRequestResponse:
        near = here.get()

        def work(reader: Reader) -> attention_pb2.GetRequestResponse:
            found = messages(reader, [attention.find_request(reader, request.request, near)])
            return attention_pb2.GetRequestResponse(request=found[0])

        return await self._core.store.read(work)

    @mutation
    async def ResolveRequest(
        self, request: attention_pb2.ResolveRequestRequest, call: Call
    ) -> attention_pb2.ResolveRequestResponse:
        near = here.get()
        if environment.get():
            asked = await self._core.store.read(lambda reader: attention.find_request(reader, request.request, near))
            await freshen(self._core, asked.session_id)  # an approval may start an agent

        def resolve(unit: Unit) -> tuple[Request, attention_pb2.ResolveRequestResponse]:
            answered, response = attention.resolve(
                unit, request.request, request.resolution, call.principal, self._core.policy, self._resolvers, near
            )
            call.remember(unit, response)
            return answered, response

        answered, response = await self._core.store.write(resolve)
        attention.notify(self._core, answered)
        return response

    async def ListRules(
        self, request: attention_pb2.ListRulesRequest, context: Context
    ) -> attention_pb2.ListRulesResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None

        def work(reader: Reader) -> attention_pb2.ListRulesResponse:
            names = {repo.id: repo.name for repo in reader.repos.list()}
            page, token = page_of("rules", request, reader.rules.list(repo_id))
            return attention_pb2.ListRulesResponse(
                rules=[rule_message(rule, repo=names[rule.repo_id]) for rule in page],
                next_page_token=token,
            )

        return await self._core.store.read(work)

    @mutation
    async def CreateRule(
        self, request: attention_pb2.CreateRuleRequest, call: Call
    ) -> attention_pb2.CreateRuleResponse:
        of = request.repo
        if request.session and not of:
            of = (await named_session(self._core, request.session)).repo_id
        repo = await resolve_repo(self._core, of)
        effect = EFFECTS.get(request.effect)
        if effect is None:
            raise InvalidInputError("no effect was given", hint="say deny, ask or allow")
        if request.agent:
            self._core.kind(request.agent)

        def create(unit: Unit) -> attention_pb2.CreateRuleResponse:
            session_id = find_session(unit, request.session, repo_id=repo.id).id if request.session else ""
            rule = attention.create(
                unit,
                repo_id=repo.id,
                session_id=session_id,
                agent=request.agent,
                effect=effect,
                text=request.rule,
                source=call.principal,
            )
            response = attention_pb2.CreateRuleResponse(
                rule=rule_message(rule, repo=repo.name), warnings=attention.cautions(effect, request.rule)
            )
            return call.remember(unit, response)

        return await self._core.store.write(create)

    @mutation
    async def DeleteRule(
        self, request: attention_pb2.DeleteRuleRequest, call: Call
    ) -> attention_pb2.DeleteRuleResponse:
        def delete(unit: Unit) -> attention_pb2.DeleteRuleResponse:
            rule = attention.delete(unit, request.rule_id)
            response = attention_pb2.DeleteRuleResponse(rule=rule_message(rule, repo=unit.repos.get(rule.repo_id).name))
            return call.remember(unit, response)

        return await self._core.store.write(delete)

    async def ReportFocus(
        self, request: attention_pb2.ReportFocusRequest, context: Context
    ) -> attention_pb2.ReportFocusResponse:
        if not request.client:
            raise InvalidInputError("no client was named", hint="send an id of this client")
        self._notifier.report_focus(request.client, focused=request.focused)
        return attention_pb2.ReportFocusResponse()

    async def TestNotifications(
        self, request: attention_pb2.TestNotificationsRequest, context: Context
    ) -> attention_pb2.TestNotificationsResponse:
        tried = await self._notifier.test()
        return attention_pb2.TestNotificationsResponse(
            results=[attention_pb2.NotificationTest(way=way, error=error) for way, error in tried]
        )
