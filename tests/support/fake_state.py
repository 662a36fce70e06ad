"""The state of the daemon with canned answers, which tests fill."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ramet.environment import METADATA, decode
from ramet.v1 import (
    attention_pb2,
    common_pb2,
    daemon_pb2,
    event_pb2,
    orchestration_pb2,
    repo_pb2,
    session_pb2,
    worktree_pb2,
)

BEGAN = 1_700_000_000


@dataclass(frozen=True)
class Refusal:
    """An error of the daemon; with an empty reason a status without any details."""

    status: str
    message: str
    reason: str = ""
    hint: str = ""
    data: dict[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """A received call."""

    method: str
    request: Any
    metadata: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The environment that it carried."""
        return decode(self.metadata.get(METADATA, b""))


@dataclass
class State:
    """The data of a daemon. ``refusals``: by method, the errors of its next calls. ``on_call`` runs
    in each call."""

    epoch: str = "epoch1"
    sessions: dict[str, session_pb2.Session] = field(default_factory=dict)
    repos: dict[str, repo_pb2.Repo] = field(default_factory=dict)
    trust_items: list[repo_pb2.TrustItem] = field(default_factory=list)
    requests: dict[str, attention_pb2.AttentionRequest] = field(default_factory=dict)
    prompts: list[session_pb2.Prompt] = field(default_factory=list)
    rules: dict[str, attention_pb2.PermissionRule] = field(default_factory=dict)
    messages: list[orchestration_pb2.Message] = field(default_factory=list)
    costs: daemon_pb2.GetCostsResponse = field(default_factory=daemon_pb2.GetCostsResponse)
    events: list[event_pb2.Event] = field(default_factory=list)
    diff: worktree_pb2.GetDiffResponse = field(default_factory=worktree_pb2.GetDiffResponse)
    settings: list[daemon_pb2.Setting] = field(default_factory=list)
    wait: session_pb2.WaitSessionsResponse = field(default_factory=session_pb2.WaitSessionsResponse)
    idle_interrupts: bool = False
    elsewhere: int = 0
    last_words: str = ""
    trash_ref: str = ""
    warnings: tuple[str, ...] = ()
    refusals: dict[str, list[Refusal]] = field(default_factory=dict)
    agents: dict[str, daemon_pb2.KindOfAgent] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    on_call: Callable[[Call], None] = lambda call: None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def session(self, name: str, **fields: Any) -> session_pb2.Session:
        """Add a session; ``fields`` override its defaults."""
        number = len(self.sessions) + 1
        session = session_pb2.Session(
            id=f"{number:08x}-aaaa",
            name=name,
            repo="shop",
            branch=f"ramet/{name}",
            base_ref="main",
            base_commit="c0ffee" * 6,
            worktree=f"/trees/{number}",
            agent="claude",
            mode=common_pb2.PERMISSION_MODE_DEFAULT,
            state=session_pb2.SESSION_STATE_IDLE,
            repo_id="r1",
            cost_usd=0.0,
            tokens=common_pb2.Tokens(),
        )
        session.create_time.seconds = session.update_time.seconds = BEGAN
        session.MergeFrom(session_pb2.Session(**fields))
        self.sessions[session.id] = session
        return session

    def request(self, session: session_pb2.Session, **fields: Any) -> attention_pb2.AttentionRequest:
        """Add an open request of ``session``."""
        number = len(self.requests) + 1
        request = attention_pb2.AttentionRequest(
            id=f"{number:02x}beef00-1111-2222",
            session_id=session.id,
            session_name=session.name,
            repo=session.repo,
            kind=attention_pb2.ATTENTION_KIND_PERMISSION,
            state=attention_pb2.ATTENTION_STATE_OPEN,
        )
        request.create_time.seconds = BEGAN
        request.MergeFrom(attention_pb2.AttentionRequest(**fields))
        self.requests[request.id] = request
        session.attention += 1
        return request

    def rule(self, text: str, **fields: Any) -> attention_pb2.PermissionRule:
        """Add an allow rule of the repository."""
        rule = attention_pb2.PermissionRule(
            id=f"rule{len(self.rules) + 1}",
            repo="shop",
            effect=attention_pb2.RULE_EFFECT_ALLOW,
            rule=text,
            source="owner",
        )
        rule.create_time.seconds = BEGAN
        rule.MergeFrom(attention_pb2.PermissionRule(**fields))
        self.rules[rule.id] = rule
        return rule

    def event(self, session: session_pb2.Session | None = None, **payload: Any) -> event_pb2.Event:
        """Append an event, and wake up watchers."""
        event = event_pb2.Event(seq=len(self.events) + 1, principal="daemon", **payload)
        event.time.seconds = BEGAN + event.seq
        if session is not None:
            event.session_id = session.id
            event.repo_id = session.repo_id
            session.last_seq = event.seq
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()
        return event

    def called(self, method: str) -> list[Any]:
        """Return the requests of all calls of ``method``."""
        return [call.request for call in self.calls if call.method == method]

    def carried(self, method: str) -> dict[str, str]:
        """Return the environment that the last call of ``method`` carried."""
        return next(call.environment for call in reversed(self.calls) if call.method == method)
