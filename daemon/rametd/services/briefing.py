"""The briefing of an agent: its goal, its paths, its neighbours and how to reach them.

It is part of the agent's system prompt or, if the agent's program takes no system prompt, of its
first prompt. It is in no file, so that no agent commits it by accident. The daemon computes it at
each start of an agent's process. A conversation has its first briefing until it is compacted, so a
running agent gets changes as a message (`changed`).
"""

from collections.abc import Sequence

from ramet.words import plural

from rametd.domain.models import Session
from rametd.domain.plans import PlanThread
from rametd.domain.states import State
from rametd.store import Reader

LIMIT = 12_000
"""Maximum number of characters: the text is a command-line argument, and part of each paid request
to the model."""
NEIGHBOURS = 40
PATTERNS = 30
GOAL_LIMIT = 2000
WORDS_LIMIT = 200


def briefing(reader: Reader, session: Session) -> str:
    """Return the briefing, "" for a session without paths and plan."""
    if not (session.owns or session.forbids or session.plan_id):
        return ""
    parts = [*_task(reader, session), *_paths(session), *_neighbours(reader, session)]
    text = "\n".join(["# You work beside other agents", "", *parts])
    return text if len(text) <= LIMIT else f"{text[: LIMIT - 100].rstrip()}\n… (cut: list_sessions tells the rest)"


def changed(text: str) -> str:
    """Return the message that tells a running agent its new briefing."""
    return f"Your place among the other agents has changed. This replaces the earlier description:\n\n{text}"


def _task(reader: Reader, session: Session) -> list[str]:
    thread = reader.plans.thread_of(session.id) if session.plan_id else None
    plan = reader.plans.get(thread.plan_id) if thread is not None else None
    if thread is None or plan is None:
        return [f"You are the session {session.name!r}, in a worktree of your own on the branch {session.branch}.", ""]
    threads = [each for each in reader.plans.threads(plan.id) if not each.dropped]
    lines = [
        f"You are the session {session.name!r}: thread {thread.id} of the plan {plan.name!r}, in a worktree of your own on the branch {session.branch}.",
        f"Of {plural(len(threads), 'thread')} yours lands {_ordinal(thread.position)}, on {plan.target}.",
        "",
    ]
    if plan.goal:
        lines += ["The plan as a whole is to reach:", plan.goal[:GOAL_LIMIT], ""]
    if thread.goal:
        lines += ["Your part of it:", thread.goal[:GOAL_LIMIT], ""]
    before = [each for each in threads if each.id in thread.after]
    for each in before:
        lines += [
            f"You come after {each.name!r}. Your branch began without its work: `git merge {each.branch}` brings in what it has committed.",
            "",
        ]
    return lines


def _paths(session: Session) -> list[str]:
    """Describe the session's paths, patterns as in a .gitignore at the top of the repository."""
    lines = []
    if session.owns:
        lines += [f"You own these paths, and write to no others: {_listed(session.owns)}"]
    if session.forbids:
        lines += [f"You must not write to these paths: {_listed(session.forbids)}"]
    if lines:
        lines += [
            "The patterns are those of a .gitignore at the top of the repository. Writes elsewhere are refused or reported.",
            "If you need a path that is not yours, do not work around it: ask for it with request_path, or leave it to its owner.",
            "",
        ]
    return lines


def _neighbours(reader: Reader, session: Session) -> list[str]:
    goals: dict[str, PlanThread] = {}
    if session.plan_id:
        goals = {thread.session_id: thread for thread in reader.plans.threads(session.plan_id)}
    others = [
        each
        for each in reader.sessions.list(repo_id=session.repo_id)
        if each.id != session.id
        and each.state != State.FAILED
        and ((session.plan_id and each.plan_id == session.plan_id) or each.owns)
    ]
    if not others:
        return []
    others.sort(key=lambda each: (each.plan_id != session.plan_id, each.create_time))
    lines = ["Your neighbours:"]
    for each in others[:NEIGHBOURS]:
        thread = goals.get(each.id)
        owns = f"owns {_listed(each.owns)}" if each.owns else "owns no paths"
        goal = f": {_line(thread.goal)}" if thread is not None and thread.goal else ""
        lines.append(f"- {each.name!r} {owns}{goal}")
    if len(others) > NEIGHBOURS:
        lines.append(f"- and {len(others) - NEIGHBOURS} more: list_sessions shows those you can reach")
    return [
        *lines,
        "Reach one by its name with send_message, ask for a path with request_path, see its work with get_diff.",
        "Write if it matters for the other's work; do not report that you have begun or are done.",
    ]


def _listed(patterns: Sequence[str]) -> str:
    shown = ", ".join(f"`{pattern[:WORDS_LIMIT]}`" for pattern in patterns[:PATTERNS])
    return shown + (f" and {len(patterns) - PATTERNS} more" if len(patterns) > PATTERNS else "")


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= WORDS_LIMIT else f"{words[: WORDS_LIMIT - 1]}…"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"as number {number}")
