"""Rows for tests: every field has a default, and a test sets those that matter to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rametd.domain.landing import Landing, LandingState
from rametd.domain.models import (
    Agent,
    AgentState,
    ControlRequest,
    Hold,
    LedgerEntry,
    Mode,
    Repo,
    Request,
    RequestKind,
    RequestState,
    Session,
    StoredRule,
    Tokens,
    TrashEntry,
)
from rametd.domain.states import State


def a_repo(repo_id: str = "repo", **fields: Any) -> Repo:
    root = Path("/src") / repo_id
    return replace(Repo(repo_id, repo_id, root, root / ".git", trust_digest="", create_time=1.0), **fields)


def a_session(session_id: str = "one", **fields: Any) -> Session:
    session = Session(
        id=session_id,
        repo_id="repo",
        name=session_id,
        branch=f"ramet/{session_id}",
        base_ref="main",
        base_commit="0" * 40,
        worktree=Path("/trees") / session_id,
        parent_id="",
        agent="claude",
        model="",
        mode=Mode.DEFAULT,
        state=State.QUEUED,
        state_reason="",
        hold=Hold.NONE,
        conversation_id=f"conversation-{session_id}",
        conversation_begun=False,
        created_branch=True,
        worktree_ready=False,
        interrupted=False,
        turns=0,
        cost_usd=0.0,
        tokens=Tokens(),
        budget_usd=None,
        priority=0,
        owns=(),
        forbids=(),
        after=(),
        resumes=0,
        generation=0,
        create_time=1.0,
        update_time=1.0,
        last_seq=0,
    )
    return replace(session, **fields)


def an_agent(session_id: str = "one", generation: int = 1, **fields: Any) -> Agent:
    agent = Agent(
        session_id=session_id,
        generation=generation,
        state=AgentState.LIVE,
        start_time=1.0,
        handle="local:1",
    )
    return replace(agent, **fields)


def a_request(request_id: str = "ask", session_id: str = "one", **fields: Any) -> Request:
    request = Request(
        id=request_id,
        session_id=session_id,
        generation=1,
        control_id=f"control-{request_id}",
        tool_use_id="",
        kind=RequestKind.PERMISSION,
        tool="Bash",
        input="{}",
        reason="",
        suggestions="[]",
        edit=b"",
        offers=(),
        state=RequestState.OPEN,
        answer="",
        answered_by="",
        answer_time=None,
        create_time=1.0,
    )
    return replace(request, **fields)


def a_control_request(control_id: str = "c", session_id: str = "one", **fields: Any) -> ControlRequest:
    request = ControlRequest(session_id, 1, control_id, "can_use_tool", b"{}", b"", cancelled=False)
    return replace(request, **fields)


def a_ledger_entry(session_id: str = "one", **fields: Any) -> LedgerEntry:
    return replace(LedgerEntry(session_id, 1, 0, "opus", 0.5, Tokens(1, 2, 3, 4), 86_400.0), **fields)


def a_landing(landing_id: str = "land", session_id: str = "one", **fields: Any) -> Landing:
    landing = Landing(
        id=landing_id,
        repo_id="repo",
        session_id=session_id,
        session_name=session_id,
        branch=f"ramet/{session_id}",
        target="main",
        method="merge",
        checks=(),
        state=LandingState.LANDED,
        reason="",
        merge_order=0,
        position=0,
        after=(),
        returns=0,
        commit="0" * 40,
        old_target="",
        new_target="",
        check_command_id="",
        batch=(),
        principal="owner",
        create_time=1.0,
        update_time=1.0,
    )
    return replace(landing, **fields)


def a_trash_entry(entry_id: str = "bin", **fields: Any) -> TrashEntry:
    entry = TrashEntry(
        entry_id, "repo", "one", "one", "ramet/one", "refs/ramet/trash/one", "0" * 40, "0" * 40, 10, "{}", 1.0, 100.0
    )
    return replace(entry, **fields)


def a_rule(rule_id: str = "rule", **fields: Any) -> StoredRule:
    rule = StoredRule(
        id=rule_id,
        repo_id="repo",
        session_id="",
        agent="",
        effect="allow",
        text="Bash(make:*)",
        source="owner",
        request_id="",
        matches=0,
        create_time=1.0,
        match_time=None,
    )
    return replace(rule, **fields)
