"""OrchestrationService, for sessions; the owner may call it too, with every session as family."""

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from ramet.mcp import SERVICE, ToolRefused, ToolServer
from ramet.v1 import orchestration_pb2, orchestration_pb2_grpc

from rametd.api.attention import messages as request_messages
from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import environment, freshen, principal
from rametd.api.interceptor import OUR_FAULTS, internal, record_refusal
from rametd.api.modes import mode_named
from rametd.api.paging import offset, position_of, token_of
from rametd.api.repo import absolute
from rametd.domain.errors import InvalidInputError, RametError
from rametd.domain.models import Session
from rametd.environment import Variables
from rametd.git import EVERYTHING
from rametd.services import family
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.request import NewSession
from rametd.services.delivery import SESSION, sender_of
from rametd.services.family import find_member
from rametd.services.members import member_of, message_of, transcript
from rametd.services.messages import from_message
from rametd.services.orchestration import Orchestration, Spawn
from rametd.services.ownership.handover import Decision, Ownership
from rametd.services.waiting import wait_for_family
from rametd.services.worktrees.changes import against, change_message, compare
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")

DIFF_BYTES, LARGEST_DIFF = 20_000, 200_000
TRANSCRIPT_BYTES, LARGEST_TRANSCRIPT = 10_000, 100_000
LONGEST_WAIT_S = 50
"""Maximum wait in seconds; MCP clients give up on a tool after a minute."""


def caller_of(reader: Reader, who: str) -> Session | None:
    """Return the calling session, None for the owner."""
    session_id = sender_of(who)
    return reader.sessions.get(session_id) if session_id else None


class OrchestrationServicer(orchestration_pb2_grpc.OrchestrationServiceServicer):
    def __init__(
        self, core: Core, calls: Calls, creator: Creator, orchestration: Orchestration, ownership: Ownership
    ) -> None:
        self._core = core
        self._calls = calls
        self._creator = creator
        self._orchestration = orchestration
        self._ownership = ownership

    @mutation
    async def SpawnSession(
        self, request: orchestration_pb2.SpawnSessionRequest, call: Call
    ) -> orchestration_pb2.SpawnSessionResponse:
        def response_of(reader: Reader, session: Session) -> orchestration_pb2.SpawnSessionResponse:
            return orchestration_pb2.SpawnSessionResponse(
                session=member_of(reader, caller_of(reader, call.principal), session)
            )

        def remember(unit: Unit, session: Session) -> None:
            call.remember(unit, response_of(unit, session))

        parent_id = sender_of(call.principal)
        mode = mode_named(request.mode)
        if parent_id:
            created = await self._orchestration.spawn(parent_id, from_message(Spawn, request, mode=mode), remember)
        else:
            if not request.path:
                raise InvalidInputError("no repository was named", hint="give path, or call from inside a session")
            new = from_message(
                NewSession,
                request,
                path=absolute(request.path),
                base_ref=request.base,
                mode=mode,
                environment=Variables(environment.get()),
                principal=call.principal,
                remember=remember,
            )
            created = await self._creator.create(new)
        return await self._core.store.read(lambda reader: response_of(reader, created.session))

    async def ListFamily(
        self, request: orchestration_pb2.ListFamilyRequest, context: Context
    ) -> orchestration_pb2.ListFamilyResponse:
        def work(reader: Reader, caller: Session | None) -> orchestration_pb2.ListFamilyResponse:
            found = family.family_of(reader, caller) if caller is not None else reader.sessions.list()
            return orchestration_pb2.ListFamilyResponse(
                sessions=[member_of(reader, caller, session) for session in found]
            )

        return await self._read(work)

    async def GetMember(
        self, request: orchestration_pb2.GetMemberRequest, context: Context
    ) -> orchestration_pb2.GetMemberResponse:
        def work(reader: Reader, caller: Session | None) -> tuple[Session, orchestration_pb2.GetMemberResponse]:
            member = self._member(reader, caller, request.session)
            response = orchestration_pb2.GetMemberResponse(
                session=member_of(reader, caller, member),
                open_requests=request_messages(reader, reader.requests.open(member.id)),
            )
            return member, response

        member, response = await self._read(work)
        diff = await self._core.git.diffs.of_worktree(member.worktree, member.base_commit, patch=False)
        response.changed_files.extend(change_message(change) for change in diff.files)
        return response

    async def GetMemberDiff(
        self, request: orchestration_pb2.GetMemberDiffRequest, context: Context
    ) -> orchestration_pb2.GetMemberDiffResponse:
        member = await self._read(lambda reader, caller: find_member(reader, caller, request.session))
        limit = min(request.max_bytes or DIFF_BYTES, LARGEST_DIFF)
        base = await against(self._core, member, "base")
        diff = await compare(self._core, member, base, patch=not request.stat_only, max_patch=limit, options=EVERYTHING)
        return orchestration_pb2.GetMemberDiffResponse(
            files=[change_message(change) for change in diff.files],
            patch=(diff.patch or b"").decode("utf-8", "replace"),
            truncated=diff.truncated,
        )

    async def GetTranscript(
        self, request: orchestration_pb2.GetTranscriptRequest, context: Context
    ) -> orchestration_pb2.GetTranscriptResponse:
        def work(reader: Reader, caller: Session | None) -> orchestration_pb2.GetTranscriptResponse:
            member = find_member(reader, caller, request.session)
            limit = min(request.max_bytes or TRANSCRIPT_BYTES, LARGEST_TRANSCRIPT)
            text, truncated = transcript(reader, member.id, limit)
            return orchestration_pb2.GetTranscriptResponse(text=text, truncated=truncated)

        return await self._read(work)

    @mutation
    async def SendMessage(
        self, request: orchestration_pb2.SendMessageRequest, call: Call
    ) -> orchestration_pb2.SendMessageResponse:
        caller_id = sender_of(call.principal)

        if not caller_id:
            found = await self._core.store.read(lambda reader: self._member(reader, None, request.session))
            await freshen(self._core, found.id)
        return await self._orchestration.send(caller_id, request.session, request.text, call.remember)

    async def ReadMessages(
        self, request: orchestration_pb2.ReadMessagesRequest, context: Context
    ) -> orchestration_pb2.ReadMessagesResponse:
        def work(reader: Reader, caller: Session | None) -> orchestration_pb2.ReadMessagesResponse:
            member = self._member(reader, caller, request.session if caller is None else "")
            found = [message_of(reader, prompt) for prompt in reader.prompts.messages(member.id)]
            ids = [message.id for message in found]
            if request.after_id in ids:
                found = found[ids.index(request.after_id) + 1 :]
            return orchestration_pb2.ReadMessagesResponse(messages=found)

        return await self._read(work)

    async def WaitForMembers(
        self, request: orchestration_pb2.WaitForMembersRequest, context: Context
    ) -> orchestration_pb2.WaitForMembersResponse:
        def begin(reader: Reader, caller: Session | None) -> tuple[list[str], int]:
            if request.sessions:
                ids = [find_member(reader, caller, name).id for name in request.sessions]
            elif caller is not None:
                ids = [child.id for child in reader.sessions.list(parent_id=caller.id)]
            else:
                ids = []
            return ids, reader.events.last_seq()

        ids, now = await self._read(begin)
        if not ids:
            raise InvalidInputError("there is no session to wait for", hint="name some, or spawn children first")
        since = position_of("family", request.cursor, offset)
        deadline = min(request.timeout_seconds or LONGEST_WAIT_S, LONGEST_WAIT_S)
        done = await wait_for_family(self._core, ids, seq=now, within=deadline, any_one=request.any, since=since or 0)

        def tell(reader: Reader, caller: Session | None) -> orchestration_pb2.WaitForMembersResponse:
            members = [session for each in ids if (session := reader.sessions.find(each)) is not None]
            changed = [session for session in members if since is None or session.last_seq > since]
            people = [session.name for session in members if session.state == "waiting"]
            advice = "done" if done else "not done yet: call again with the cursor"
            if people:
                advice += f"; {', '.join(people)} waits for the person"
            return orchestration_pb2.WaitForMembersResponse(
                done=done,
                sessions=[member_of(reader, caller, session) for session in changed],
                cursor=token_of("family", reader.events.last_seq()),
                advice=advice,
            )

        return await self._read(tell)

    @mutation
    async def StopMember(
        self, request: orchestration_pb2.StopMemberRequest, call: Call
    ) -> orchestration_pb2.StopMemberResponse:
        session = await self._orchestration.stop(sender_of(call.principal), request.session)
        return await self._read(
            lambda reader, caller: orchestration_pb2.StopMemberResponse(session=member_of(reader, caller, session))
        )

    @mutation
    async def ReportResult(
        self, request: orchestration_pb2.ReportResultRequest, call: Call
    ) -> orchestration_pb2.ReportResultResponse:
        caller_id = sender_of(call.principal)

        def answer(unit: Unit, session: Session) -> orchestration_pb2.ReportResultResponse:
            member = member_of(unit, caller_of(unit, call.principal), session)
            return call.remember(unit, orchestration_pb2.ReportResultResponse(session=member))

        return await self._orchestration.report(caller_id, request.text, answer)

    # Requests for paths, and their handover

    @mutation
    async def RequestPath(
        self, request: orchestration_pb2.RequestPathRequest, call: Call
    ) -> orchestration_pb2.RequestPathResponse:
        return await self._ownership.request(sender_of(call.principal), request.paths, request.reason, call.remember)

    @mutation
    async def HandOverPath(
        self, request: orchestration_pb2.HandOverPathRequest, call: Call
    ) -> orchestration_pb2.HandOverPathResponse:
        decision = from_message(Decision, request, request=request.path_request_id)
        return await self._ownership.hand_over(sender_of(call.principal), decision, call.remember)

    async def _read(self, work: Callable[[Reader, Session | None], T]) -> T:
        """Read as the caller, None for the owner. The store's threads do not have the call's
        context."""
        who = principal.get()
        return await self._core.store.read(lambda reader: work(reader, caller_of(reader, who)))

    def _member(self, reader: Reader, caller: Session | None, name: str) -> Session:
        """Return the named session, or the caller."""
        if name:
            return find_member(reader, caller, name)
        if caller is None:
            raise InvalidInputError("no session was named", hint="name one")
        return caller


def tool_server(core: Core, servicer: OrchestrationServicer, session_id: str) -> ToolServer:
    """The MCP server of one session, whose calls run as that session."""

    async def call(method: str, request: Message, key: str) -> Message:
        token = principal.set(SESSION + session_id)
        try:
            response: Message = await getattr(servicer, method)(request, None)
        except RametError as error:
            await record_refusal(core, f"/{SERVICE.full_name}/{method}", principal.get(), error)
            raise ToolRefused(f"{error.message}; {error.hint}" if error.hint else error.message) from error
        except OUR_FAULTS as error:
            # Without an answer the agent would wait forever.
            raise ToolRefused(internal(method, error).message) from error
        finally:
            principal.reset(token)
        return response

    return ToolServer(call)
