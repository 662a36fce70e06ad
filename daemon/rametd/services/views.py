"""Convert values of the domain to messages of the contract."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ramet.v1 import attention_pb2, common_pb2, event_pb2, repo_pb2, session_pb2, terminal_pb2

from rametd.agents.base import Capabilities
from rametd.agents.registry import described
from rametd.config import Config
from rametd.domain.commands import Command, CommandKind
from rametd.domain.models import (
    Agent,
    AgentState,
    BackgroundCommand,
    Event,
    Mode,
    Prompt,
    Repo,
    Request,
    Session,
    StoredRule,
    Tokens,
)
from rametd.domain.states import State
from rametd.domain.text import first_line
from rametd.git import busy_with, existing_git_dir, fault_of
from rametd.services.messages import enum_numbers, stamp, to_message, tokens_message
from rametd.store import Reader
from rametd.store.sessions import SessionStamp

Key = tuple[SessionStamp, str, int, bool]
"""All inputs of a message: stamp of the row, name of the repository, number of open requests,
whether the agent lives. A change of background commands logs an event, which changes the stamp."""


def mark_gone(messages: Iterable[session_pb2.Session]) -> None:
    """Set ``worktree_gone``, ``under_way`` and ``worktree_fault`` in the caller's messages. Reads
    each worktree, so it blocks."""
    for each in messages:
        archived = each.state == session_pb2.SESSION_STATE_ARCHIVED
        each.worktree_gone = not archived and not os.path.isdir(each.worktree)  # noqa: PTH112  of a thousand
        if archived or each.worktree_gone:
            each.under_way = each.worktree_fault = ""
            continue
        each.under_way = under_way(Path(each.worktree))
        each.worktree_fault = fault_of(
            Path(each.worktree), "" if each.under_way else each.branch
        )  # a rebase detaches HEAD


def under_way(worktree: Path) -> str:
    """Return the unfinished operation of git in a worktree, such as "a rebase"; "" if there is
    none. Blocks."""
    git_dir = existing_git_dir(worktree)
    return busy_with(git_dir) if git_dir is not None else ""


class SessionMessages:
    """Cache of messages by session, for the store's reading threads. Cached messages are replaced,
    never changed."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Key, session_pb2.Session]] = {}

    def of(self, reader: Reader, stamps: Sequence[SessionStamp]) -> list[session_pb2.Session]:
        """One message for each stamp, in their order."""
        repos = {repo.id: repo.name for repo in reader.repos.list()}
        counts = reader.requests.open_counts()
        alive = {agent.session_id: agent for agent in reader.agents.alive()}
        keys = {stamp.id: (stamp, repos[stamp.repo_id], counts.get(stamp.id, 0), stamp.id in alive) for stamp in stamps}
        known = {
            identity: cached[1]
            for identity, key in keys.items()
            if (cached := self._cache.get(identity)) is not None and cached[0] == key
        }
        for session in reader.sessions.get_many([identity for identity in keys if identity not in known]):
            _, repo, attention, _ = key = keys[session.id]
            message = session_message(session, repo=repo, attention=attention, agent=alive.get(session.id))
            self._cache[session.id] = (key, message)
            known[session.id] = message
        return [known[stamp.id] for stamp in stamps]

    def forget(self, session_id: str) -> None:
        """Forget a removed session."""
        self._cache.pop(session_id, None)


STATES = enum_numbers(session_pb2.SessionState.DESCRIPTOR, State)
STATES_BACK = {message: state for state, message in STATES.items()}
MODES = enum_numbers(common_pb2.PermissionMode.DESCRIPTOR, Mode)
MODES_BACK = {message: mode for mode, message in MODES.items()}

EVENT_PART_LIMIT = 28 << 20
"""Maximum bytes of an event's payload, and of its frame; a message has at most 64 MiB."""


def in_background(reader: Reader, session_id: str) -> tuple[BackgroundCommand, ...]:
    """Background commands of a session's living agent."""
    agent = reader.agents.latest(session_id)
    return agent.background_commands if agent is not None and agent.state == AgentState.LIVE else ()


CAPABILITIES = {each.name: each.capabilities.names() for each in described(Config())}
"""Capabilities of each kind of agent. A kind that the configuration adds has the default ones."""


def now_words(session: Session) -> str:
    """Return in one line why a session waits, its present activity, or its last words."""
    if session.state_reason:
        return session.state_reason
    if session.state == State.WORKING:
        return session.doing
    if session.state in {State.QUEUED, State.STARTING}:
        return ""
    return first_line(session.result) or session.turn_summary


def session_message(session: Session, *, repo: str, attention: int, agent: Agent | None) -> session_pb2.Session:
    """The message of a session. ``agent``: its living process."""
    return to_message(
        session_pb2.Session,
        session,
        repo=repo,
        attention=attention,
        agent_alive=agent is not None,
        tokens=tokens_message(session.tokens) if session.tokens != Tokens() or session.cost_usd is not None else None,
        ports=range(session.port_base, session.port_base + session.port_count),
        check=session.contest_check,
        now=now_words(session),
        since=stamp(session.state_time or session.create_time),
        capabilities=CAPABILITIES.get(session.agent, Capabilities().names()),
        background=[
            to_message(session_pb2.BackgroundCommand, each)
            for each in (agent.background_commands if agent is not None else ())
        ],
    )


def sessions_messages(reader: Reader, sessions: list[Session]) -> list[session_pb2.Session]:
    """Messages of many sessions with three queries."""
    repos = {repo.id: repo.name for repo in reader.repos.list()}
    counts = reader.requests.open_counts()
    alive = {agent.session_id: agent for agent in reader.agents.alive()}
    return [
        session_message(
            session, repo=repos[session.repo_id], attention=counts.get(session.id, 0), agent=alive.get(session.id)
        )
        for session in sessions
    ]


def one_session_message(reader: Reader, session: Session) -> session_pb2.Session:
    latest = reader.agents.latest(session.id)
    return session_message(
        session,
        repo=reader.repos.get(session.repo_id).name,
        attention=reader.requests.open_counts().get(session.id, 0),
        agent=latest if latest is not None and latest.state in {"starting", "live"} else None,
    )


def command_message(reader: Reader, command: Command) -> terminal_pb2.Command:
    session = reader.sessions.find(command.session_id) if command.session_id else None
    return to_message(
        terminal_pb2.Command,
        command,
        session_name=session.name if session is not None else "",
        pid=command.pid if command.living else 0,
        check=command.name if command.kind == CommandKind.CHECK else "",
        tree=command.digest if command.kind == CommandKind.CHECK else "",
    )


def prompt_message(prompt: Prompt) -> session_pb2.Prompt:
    return to_message(session_pb2.Prompt, prompt)


def request_message(request: Request, *, session: str, repo: str) -> attention_pb2.AttentionRequest:
    return to_message(
        attention_pb2.AttentionRequest,
        request,
        session_name=session,
        repo=repo,
        input_json=request.input,
        suggestions_json=request.suggestions,
        edit=common_pb2.FileEdit.FromString(request.edit) if request.edit else None,
        offers=[attention_pb2.RuleOffer(rules=each.split("\n")) for each in request.offers],
        resolution=resolution_message(request.answer) if request.answer else None,
    )


def resolution_message(answer: str) -> attention_pb2.Resolution:
    """Convert a stored answer to a message; see `rametd.services.attention`."""
    stored = json.loads(answer)
    resolution = attention_pb2.Resolution()
    match stored["decision"]:
        case "approve":
            resolution.approve.updated_input_json = stored["updated_input"]
            resolution.approve.scope = stored["scope"]
            resolution.approve.mode = stored["mode"]
        case "deny":
            resolution.deny.message = stored["message"]
        case "reply":
            resolution.reply.answers.extend(stored["answers"])
    return resolution


RULE_EFFECTS = {
    "deny": attention_pb2.RULE_EFFECT_DENY,
    "ask": attention_pb2.RULE_EFFECT_ASK,
    "allow": attention_pb2.RULE_EFFECT_ALLOW,
}


def rule_message(rule: StoredRule, *, repo: str) -> attention_pb2.PermissionRule:
    return to_message(attention_pb2.PermissionRule, rule, repo=repo, effect=RULE_EFFECTS[rule.effect], rule=rule.text)


def repo_message(repo: Repo, sessions: int) -> repo_pb2.Repo:
    return to_message(repo_pb2.Repo, repo, sessions=sessions, trusted=repo.trusted)


def event_message(event: Event, *, frames: bool) -> event_pb2.Event:
    """Convert an event; with ``frames``, include its frame. A warning replaces a payload that is
    too large for a message."""
    if len(event.payload) <= EVENT_PART_LIMIT:
        message = event_pb2.Event.FromString(event.payload)
    else:
        message = event_pb2.Event()
        message.warning.message = f"{event.kind} of {len(event.payload):,} bytes is too large to show"
    message.seq = event.seq
    message.session_id, message.repo_id, message.principal = event.session_id, event.repo_id, event.principal
    message.time.FromMicroseconds(int(event.time * 1_000_000))
    if frames and len(event.frame) <= EVENT_PART_LIMIT:
        message.frame = event.frame
    return message
