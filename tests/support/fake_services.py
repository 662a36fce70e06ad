"""The services of the daemon with canned answers, over one `State`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from ramet.v1 import (
    attention_pb2,
    attention_pb2_grpc,
    common_pb2,
    daemon_pb2,
    daemon_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    landing_pb2,
    landing_pb2_grpc,
    orchestration_pb2,
    orchestration_pb2_grpc,
    repo_pb2,
    repo_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    worktree_pb2,
    worktree_pb2_grpc,
)

from tests.support.fake_state import BEGAN, Call, Refusal

if TYPE_CHECKING:
    from tests.support.fake_daemon import FakeDaemon


class Servicer:
    def __init__(self, daemon: "FakeDaemon") -> None:
        self.daemon = daemon
        self.state = daemon.state

    def note(self, method: str, request: Any, context: Any) -> None:
        """Record the call, then refuse it if the test requested that."""
        metadata = {key: value for key, value in context.invocation_metadata() if key.startswith("ramet-")}
        call = Call(method, request, metadata)
        self.state.calls.append(call)
        self.state.on_call(call)
        if pending := self.state.refusals.get(method):
            refuse(context, pending.pop(0))

    def find(self, reference: str, context: Any) -> session_pb2.Session:
        """Find a session by id, unique prefix, name or REPO/NAME."""
        for session in self.state.sessions.values():
            if reference in {session.id, session.name, f"{session.repo}/{session.name}"}:
                return session
        found = [session for session in self.state.sessions.values() if session.id.startswith(reference)]
        if len(found) == 1 and reference:
            return found[0]
        return refuse(
            context,
            Refusal("NOT_FOUND", f"there is no session {reference!r}", "SESSION_NOT_FOUND", "see: rametctl ls --all"),
        )


def refuse(context: Any, refusal: Refusal) -> NoReturn:
    """End the call with a status, and with an ErrorInfo as the daemon sends it."""
    code = getattr(grpc.StatusCode, refusal.status)
    if refusal.reason:
        detail = AnyMessage()
        metadata = refusal.data | ({"hint": refusal.hint} if refusal.hint else {})
        detail.Pack(error_details_pb2.ErrorInfo(reason=refusal.reason, domain="ramet", metadata=metadata))
        status = status_pb2.Status(code=code_pb2.Code.Value(refusal.status), message=refusal.message, details=[detail])
        context.abort_with_status(rpc_status.to_status(status))
    context.abort(code, refusal.message)
    raise AssertionError("abort returns never")


class Daemon(Servicer, daemon_pb2_grpc.DaemonServiceServicer):
    def GetInfo(self, request: Any, context: Any) -> daemon_pb2.GetInfoResponse:  # noqa: N802
        self.note("GetInfo", request, context)
        return daemon_pb2.GetInfoResponse(
            version="0.1.0",
            contract_version=1,
            instance_id=f"instance-{os.getpid()}-{self.daemon.instance}",
            cursor=common_pb2.Cursor(epoch=self.state.epoch, seq=len(self.state.events)),
            pid=os.getpid(),
            socket=str(self.daemon.socket),
            state_dir=str(self.daemon.home),
            serving=True,
            log_file=str(self.daemon.home / "logs" / "rametd.log"),
        )

    def Shutdown(self, request: Any, context: Any) -> daemon_pb2.ShutdownResponse:  # noqa: N802
        self.note("Shutdown", request, context)
        self.daemon.shutdown_asked.set()
        return daemon_pb2.ShutdownResponse(pid=os.getpid(), agents_alive=2)

    def GetConfig(self, request: Any, context: Any) -> daemon_pb2.GetConfigResponse:  # noqa: N802
        self.note("GetConfig", request, context)
        return daemon_pb2.GetConfigResponse(settings=self.state.settings, owner_file="/nowhere/config.toml")

    def ListAgents(self, request: Any, context: Any) -> daemon_pb2.ListAgentsResponse:  # noqa: N802
        self.note("ListAgents", request, context)
        names = request.names or self.state.agents
        return daemon_pb2.ListAgentsResponse(agents=[self.state.agents[name] for name in names])

    def GetStatistics(self, request: Any, context: Any) -> daemon_pb2.GetStatisticsResponse:  # noqa: N802
        self.note("GetStatistics", request, context)
        counts: dict[str, int] = {}
        for session in self.state.sessions.values():
            name = session_pb2.SessionState.Name(session.state).removeprefix("SESSION_STATE_").lower()
            counts[name] = counts.get(name, 0) + 1
        return daemon_pb2.GetStatisticsResponse(
            sessions=counts, agents_alive=1, events=len(self.state.events), open_requests=len(self.state.requests)
        )

    def GetCosts(self, request: Any, context: Any) -> daemon_pb2.GetCostsResponse:  # noqa: N802
        self.note("GetCosts", request, context)
        return self.state.costs


class Repos(Servicer, repo_pb2_grpc.RepoServiceServicer):
    def _repo(self, reference: str, context: Any) -> repo_pb2.Repo:
        for repo in self.state.repos.values():
            if reference in {repo.id, repo.name, repo.root}:
                return repo
        return refuse(context, Refusal("NOT_FOUND", f"there is no repository {reference!r}", "REPO_NOT_FOUND"))

    def RegisterRepo(self, request: Any, context: Any) -> repo_pb2.RegisterRepoResponse:  # noqa: N802
        self.note("RegisterRepo", request, context)
        repo = repo_pb2.Repo(id="r1", name=Path(request.path).name, root=request.path)
        self.state.repos[repo.id] = repo
        return repo_pb2.RegisterRepoResponse(repo=repo)

    def GetRepo(self, request: Any, context: Any) -> repo_pb2.GetRepoResponse:  # noqa: N802
        self.note("GetRepo", request, context)
        return repo_pb2.GetRepoResponse(repo=self._repo(request.repo, context))

    def ListRepos(self, request: Any, context: Any) -> repo_pb2.ListReposResponse:  # noqa: N802
        self.note("ListRepos", request, context)
        return repo_pb2.ListReposResponse(repos=self.state.repos.values())

    def GetTrust(self, request: Any, context: Any) -> repo_pb2.GetTrustResponse:  # noqa: N802
        self.note("GetTrust", request, context)
        repo = self._repo(request.repo, context)
        return repo_pb2.GetTrustResponse(repo=repo, place=repo.root, digest="seen", items=self.state.trust_items)

    def UpdateRepo(self, request: Any, context: Any) -> repo_pb2.UpdateRepoResponse:  # noqa: N802
        self.note("UpdateRepo", request, context)
        repo = self._repo(request.repo_id, context)
        request.update_mask.MergeMessage(request.repo, repo)
        return repo_pb2.UpdateRepoResponse(repo=repo)

    def RemoveRepo(self, request: Any, context: Any) -> repo_pb2.RemoveRepoResponse:  # noqa: N802
        self.note("RemoveRepo", request, context)
        repo = self._repo(request.repo, context)
        return repo_pb2.RemoveRepoResponse(repo=self.state.repos.pop(repo.id))


class Sessions(Servicer, session_pb2_grpc.SessionServiceServicer):
    def CreateSession(self, request: Any, context: Any) -> session_pb2.CreateSessionResponse:  # noqa: N802
        self.note("CreateSession", request, context)
        name = request.name or "made-up"
        names = [f"{name}-{number}" for number, _ in enumerate(request.contenders, 1)] or [name]
        sessions = [self.state.session(each) for each in names]
        for session in sessions:
            session.contest = name if request.contenders else ""
            if request.prompt:
                session.state = session_pb2.SESSION_STATE_WORKING
        return session_pb2.CreateSessionResponse(
            session=sessions[0], contenders=sessions if request.contenders else (), warnings=self.state.warnings
        )

    def GetSession(self, request: Any, context: Any) -> session_pb2.GetSessionResponse:  # noqa: N802
        self.note("GetSession", request, context)
        session = self.find(request.session, context)
        return session_pb2.GetSessionResponse(
            session=session,
            pending_prompts=self.state.prompts,
            open_requests=[item for item in self.state.requests.values() if item.session_id == session.id],
            process=session_pb2.AgentProcess(generation=1, state="live", pid=4711, version="2.1"),
            children=[item for item in self.state.sessions.values() if item.parent_id == session.id],
            last_words=self.state.last_words,
            parent_name=self.state.sessions[session.parent_id].name if session.parent_id in self.state.sessions else "",
            spent_below_usd=sum(each.cost_usd for each in self._below(session)),
            cursor=common_pb2.Cursor(epoch=self.state.epoch, seq=len(self.state.events)),
        )

    def _below(self, session: session_pb2.Session) -> Iterator[session_pb2.Session]:
        for each in self.state.sessions.values():
            if each.parent_id == session.id:
                yield each
                yield from self._below(each)

    def ListSessions(self, request: Any, context: Any) -> session_pb2.ListSessionsResponse:  # noqa: N802
        self.note("ListSessions", request, context)
        chosen = [
            session for session in self.state.sessions.values() if not request.states or session.state in request.states
        ]
        begin = int(request.page_token or 0)
        size = min(request.page_size or 100, 1000)
        return session_pb2.ListSessionsResponse(
            sessions=chosen[begin : begin + size],
            next_page_token=str(begin + size) if begin + size < len(chosen) else "",
            cursor=common_pb2.Cursor(epoch=self.state.epoch, seq=len(self.state.events)),
            elsewhere=self.state.elsewhere,
        )

    def UpdateSession(self, request: Any, context: Any) -> session_pb2.UpdateSessionResponse:  # noqa: N802
        self.note("UpdateSession", request, context)
        session = self.find(request.session_id, context)
        request.update_mask.MergeMessage(request.session, session)
        return session_pb2.UpdateSessionResponse(session=session)

    def SendPrompt(self, request: Any, context: Any) -> session_pb2.SendPromptResponse:  # noqa: N802
        self.note("SendPrompt", request, context)
        session = self.find(request.session, context)
        if session.state != session_pb2.SESSION_STATE_PAUSED:
            session.state = session_pb2.SESSION_STATE_WORKING
        prompt = session_pb2.Prompt(id="p1", text=request.prompt, source="owner", state=session_pb2.PROMPT_STATE_SENT)
        return session_pb2.SendPromptResponse(prompt=prompt, session=session)

    def ForkSession(self, request: Any, context: Any) -> session_pb2.ForkSessionResponse:  # noqa: N802
        self.note("ForkSession", request, context)
        origin = self.find(request.session, context)
        return session_pb2.ForkSessionResponse(session=self.state.session(f"{origin.name}-fork"))

    def WithdrawPrompts(self, request: Any, context: Any) -> session_pb2.WithdrawPromptsResponse:  # noqa: N802
        self.note("WithdrawPrompts", request, context)
        found = self.find(request.session, context)
        withdrawn = [session_pb2.Prompt(id=each, text=f"text {each}") for each in request.prompts or ["newest"]]
        return session_pb2.WithdrawPromptsResponse(session=found, withdrawn=withdrawn)

    def AttachNative(self, request: Any, context: Any) -> session_pb2.AttachNativeResponse:  # noqa: N802
        self.note("AttachNative", request, context)
        self.find(request.session, context)
        return session_pb2.AttachNativeResponse(argv=["true"], worktree="/")

    def InterruptSession(self, request: Any, context: Any) -> session_pb2.InterruptSessionResponse:  # noqa: N802
        self.note("InterruptSession", request, context)
        found = self.find(request.session, context)
        return session_pb2.InterruptSessionResponse(session=found, interrupted=not self.state.idle_interrupts)

    def StopSession(self, request: Any, context: Any) -> session_pb2.StopSessionResponse:  # noqa: N802
        self.note("StopSession", request, context)
        return session_pb2.StopSessionResponse(session=self.find(request.session, context))

    def ResumeSession(self, request: Any, context: Any) -> session_pb2.ResumeSessionResponse:  # noqa: N802
        self.note("ResumeSession", request, context)
        session = self.find(request.session, context)
        held = session.state == session_pb2.SESSION_STATE_PAUSED
        return session_pb2.ResumeSessionResponse(session=session, resumed=held)

    def PauseSession(self, request: Any, context: Any) -> session_pb2.PauseSessionResponse:  # noqa: N802
        self.note("PauseSession", request, context)
        return session_pb2.PauseSessionResponse(session=self.find(request.session, context))

    def ArchiveSession(self, request: Any, context: Any) -> session_pb2.ArchiveSessionResponse:  # noqa: N802
        self.note("ArchiveSession", request, context)
        session = self.find(request.session, context)
        session.state = session_pb2.SESSION_STATE_ARCHIVED
        return session_pb2.ArchiveSessionResponse(session=session)

    def RestoreSession(self, request: Any, context: Any) -> session_pb2.RestoreSessionResponse:  # noqa: N802
        self.note("RestoreSession", request, context)
        session = self.find(request.session, context)
        session.state = session_pb2.SESSION_STATE_IDLE
        return session_pb2.RestoreSessionResponse(session=session)

    def DeleteSession(self, request: Any, context: Any) -> session_pb2.DeleteSessionResponse:  # noqa: N802
        self.note("DeleteSession", request, context)
        session = self.state.sessions.pop(self.find(request.session, context).id)
        answer = session_pb2.DeleteSessionResponse(session=session, trash_ref=self.state.trash_ref)
        if answer.trash_ref:
            answer.expire_time.seconds = BEGAN + 86400
        return answer

    def WaitSessions(self, request: Any, context: Any) -> session_pb2.WaitSessionsResponse:  # noqa: N802
        self.note("WaitSessions", request, context)
        with self.state.changed:
            while not self.state.wait.outcome and not self.daemon.stopping.is_set() and context.is_active():
                self.state.changed.wait(0.05)
        if not self.state.wait.outcome:
            refuse(context, Refusal("UNAVAILABLE", "Socket closed"))
        return self.state.wait


class Events(Servicer, event_pb2_grpc.EventServiceServicer):
    def _chosen(self, event: event_pb2.Event, sessions: list[str]) -> bool:
        return not sessions or event.session_id in sessions

    def ListEvents(self, request: Any, context: Any) -> event_pb2.ListEventsResponse:  # noqa: N802
        self.note("ListEvents", request, context)
        chosen = [self.find(request.session, context).id] if request.session else []
        events = [event for event in self.state.events if self._chosen(event, chosen)]
        begin = int(request.page_token or 0)
        size = request.page_size or 100
        page = events[-size:] if request.newest else events[begin : begin + size]
        more = not request.newest and begin + size < len(events)
        return event_pb2.ListEventsResponse(
            events=page,
            next_page_token=str(begin + size) if more else "",
            cursor=common_pb2.Cursor(epoch=self.state.epoch, seq=page[-1].seq if page else 0),
        )

    def WatchEvents(self, request: Any, context: Any) -> Iterator[event_pb2.WatchEventsResponse]:  # noqa: N802
        self.note("WatchEvents", request, context)
        epoch = self.state.epoch
        position = request.after.seq if request.HasField("after") else len(self.state.events)
        cursor = common_pb2.Cursor(epoch=epoch, seq=position)
        if request.HasField("after") and request.after.epoch != epoch:
            cursor.seq = len(self.state.events)
            yield event_pb2.WatchEventsResponse(reset=event_pb2.Reset(epoch=epoch), cursor=cursor)
            return
        if request.snapshot:
            sessions = list(self.state.sessions.values())
            yield event_pb2.WatchEventsResponse(snapshot=event_pb2.Snapshot(sessions=sessions), cursor=cursor)
        else:
            yield event_pb2.WatchEventsResponse(heartbeat=event_pb2.Heartbeat(), cursor=cursor)
        while context.is_active() and not self.daemon.stopping.is_set():
            with self.state.changed:
                if position >= len(self.state.events):
                    self.state.changed.wait(0.05)
                    continue
                event = self.state.events[position]
            position += 1
            cursor = common_pb2.Cursor(epoch=epoch, seq=event.seq)
            hidden = request.rows and event.HasField("assistant_message") and event.session_id not in request.detailed
            if self._chosen(event, list(request.sessions)) and not hidden:
                yield event_pb2.WatchEventsResponse(events=[event], cursor=cursor)
            session = self.state.sessions.get(event.session_id)
            if request.rows and session is not None:
                yield event_pb2.WatchEventsResponse(changed=event_pb2.Changed(sessions=[session]), cursor=cursor)


class Landings(Servicer, landing_pb2_grpc.LandingServiceServicer):
    def LandSessions(self, request: Any, context: Any) -> landing_pb2.LandSessionsResponse:  # noqa: N802
        self.note("LandSessions", request, context)
        return landing_pb2.LandSessionsResponse()

    def WaitLandings(self, request: Any, context: Any) -> landing_pb2.WaitLandingsResponse:  # noqa: N802
        self.note("WaitLandings", request, context)
        landed = landing_pb2.Landing(state=landing_pb2.LANDING_STATE_LANDED)
        return landing_pb2.WaitLandingsResponse(landings=[landed])


class Attention(Servicer, attention_pb2_grpc.AttentionServiceServicer):
    def _find(self, reference: str, context: Any) -> attention_pb2.AttentionRequest:
        for request in self.state.requests.values():
            if request.id.startswith(reference) or reference in {request.session_id, request.session_name}:
                return request
        return refuse(context, Refusal("NOT_FOUND", f"there is no request {reference!r}", "REQUEST_NOT_FOUND"))

    def ListRequests(self, request: Any, context: Any) -> attention_pb2.ListRequestsResponse:  # noqa: N802
        self.note("ListRequests", request, context)
        requests = [each for each in self.state.requests.values() if each.state == attention_pb2.ATTENTION_STATE_OPEN]
        return attention_pb2.ListRequestsResponse(requests=requests)

    def GetRequest(self, request: Any, context: Any) -> attention_pb2.GetRequestResponse:  # noqa: N802
        self.note("GetRequest", request, context)
        return attention_pb2.GetRequestResponse(request=self._find(request.request, context))

    def ResolveRequest(self, request: Any, context: Any) -> attention_pb2.ResolveRequestResponse:  # noqa: N802
        self.note("ResolveRequest", request, context)
        found = self._find(request.request, context)
        found.state = attention_pb2.ATTENTION_STATE_ANSWERED
        found.answered_by = "owner"
        found.resolution.CopyFrom(request.resolution)
        answer = attention_pb2.ResolveRequestResponse(request=found)
        if request.resolution.approve.scope == attention_pb2.APPROVAL_SCOPE_ALWAYS:
            answer.rule.CopyFrom(self.state.rule(f"{found.tool}(make:*)", request_id=found.id))
        return answer

    def ListRules(self, request: Any, context: Any) -> attention_pb2.ListRulesResponse:  # noqa: N802
        self.note("ListRules", request, context)
        return attention_pb2.ListRulesResponse(rules=self.state.rules.values())

    def CreateRule(self, request: Any, context: Any) -> attention_pb2.CreateRuleResponse:  # noqa: N802
        self.note("CreateRule", request, context)
        rule = self.state.rule(request.rule, effect=request.effect, session_id=request.session, agent=request.agent)
        return attention_pb2.CreateRuleResponse(rule=rule)

    def ReportFocus(self, request: Any, context: Any) -> attention_pb2.ReportFocusResponse:  # noqa: N802
        self.note("ReportFocus", request, context)
        return attention_pb2.ReportFocusResponse()

    def TestNotifications(self, request: Any, context: Any) -> attention_pb2.TestNotificationsResponse:  # noqa: N802
        self.note("TestNotifications", request, context)
        return attention_pb2.TestNotificationsResponse()

    def DeleteRule(self, request: Any, context: Any) -> attention_pb2.DeleteRuleResponse:  # noqa: N802
        self.note("DeleteRule", request, context)
        return attention_pb2.DeleteRuleResponse(rule=self.state.rules.pop(request.rule_id))


class Orchestration(Servicer, orchestration_pb2_grpc.OrchestrationServiceServicer):
    def _member(self, session: session_pb2.Session) -> orchestration_pb2.Member:
        return orchestration_pb2.Member(id=session.id, name=session.name, state="idle")

    def SpawnSession(self, request: Any, context: Any) -> orchestration_pb2.SpawnSessionResponse:  # noqa: N802
        self.note("SpawnSession", request, context)
        return orchestration_pb2.SpawnSessionResponse(
            session=self._member(self.state.session(request.name or "made-up"))
        )

    def ListFamily(self, request: Any, context: Any) -> orchestration_pb2.ListFamilyResponse:  # noqa: N802
        self.note("ListFamily", request, context)
        return orchestration_pb2.ListFamilyResponse(sessions=map(self._member, self.state.sessions.values()))

    def GetMember(self, request: Any, context: Any) -> orchestration_pb2.GetMemberResponse:  # noqa: N802
        self.note("GetMember", request, context)
        return orchestration_pb2.GetMemberResponse(session=self._member(self.find(request.session, context)))

    def GetMemberDiff(self, request: Any, context: Any) -> orchestration_pb2.GetMemberDiffResponse:  # noqa: N802
        self.note("GetMemberDiff", request, context)
        return orchestration_pb2.GetMemberDiffResponse(files=self.state.diff.files)

    def GetTranscript(self, request: Any, context: Any) -> orchestration_pb2.GetTranscriptResponse:  # noqa: N802
        self.note("GetTranscript", request, context)
        return orchestration_pb2.GetTranscriptResponse(text=self.find(request.session, context).name)

    def WaitForMembers(self, request: Any, context: Any) -> orchestration_pb2.WaitForMembersResponse:  # noqa: N802
        """Waits for `State.wait`, as WaitSessions does."""
        self.note("WaitForMembers", request, context)
        with self.state.changed:
            while not self.state.wait.outcome and not self.daemon.stopping.is_set() and context.is_active():
                self.state.changed.wait(0.05)
        if not self.state.wait.outcome:
            refuse(context, Refusal("UNAVAILABLE", "Socket closed"))
        return orchestration_pb2.WaitForMembersResponse(done=True, advice="done")

    def StopMember(self, request: Any, context: Any) -> orchestration_pb2.StopMemberResponse:  # noqa: N802
        self.note("StopMember", request, context)
        return orchestration_pb2.StopMemberResponse(session=self._member(self.find(request.session, context)))

    def ReportResult(self, request: Any, context: Any) -> orchestration_pb2.ReportResultResponse:  # noqa: N802
        self.note("ReportResult", request, context)
        return orchestration_pb2.ReportResultResponse()

    def SendMessage(self, request: Any, context: Any) -> orchestration_pb2.SendMessageResponse:  # noqa: N802
        self.note("SendMessage", request, context)
        message = orchestration_pb2.Message(id="m1", from_name="owner", to_name=request.session, text=request.text)
        return orchestration_pb2.SendMessageResponse(message=message, outcome="it starts a turn")

    def ReadMessages(self, request: Any, context: Any) -> orchestration_pb2.ReadMessagesResponse:  # noqa: N802
        self.note("ReadMessages", request, context)
        return orchestration_pb2.ReadMessagesResponse(messages=self.state.messages)


class Worktrees(Servicer, worktree_pb2_grpc.WorktreeServiceServicer):
    def GetDiff(self, request: Any, context: Any) -> worktree_pb2.GetDiffResponse:  # noqa: N802
        self.note("GetDiff", request, context)
        self.find(request.session, context)
        return self.state.diff

    def AddComment(self, request: Any, context: Any) -> worktree_pb2.AddCommentResponse:  # noqa: N802
        self.note("AddComment", request, context)
        return worktree_pb2.AddCommentResponse()

    def SendComments(self, request: Any, context: Any) -> worktree_pb2.SendCommentsResponse:  # noqa: N802
        self.note("SendComments", request, context)
        return worktree_pb2.SendCommentsResponse()

    def WatchChanges(self, request: Any, context: Any) -> Iterator[worktree_pb2.WatchChangesResponse]:  # noqa: N802
        self.note("WatchChanges", request, context)
        self.find(request.session, context)
        for _ in self._moments(context):
            diff = self.state.diff
            names = [change.path for change in diff.files]
            yield worktree_pb2.WatchChangesResponse(
                files=diff.files, changed_paths=names, patch=diff.patch, warnings=diff.warnings
            )

    def WatchConflicts(self, request: Any, context: Any) -> Iterator[worktree_pb2.WatchConflictsResponse]:  # noqa: N802
        self.note("WatchConflicts", request, context)
        for _ in self._moments(context):
            yield worktree_pb2.WatchConflictsResponse(session_ids=list(self.state.sessions))

    def _moments(self, context: Any) -> Iterator[None]:
        """Yield at once, and after each event."""
        seen = -1
        while context.is_active() and not self.daemon.stopping.is_set():
            with self.state.changed:
                if len(self.state.events) == seen:
                    self.state.changed.wait(0.05)
                    continue
                seen = len(self.state.events)
            yield
