"""Requests from agents to people, with the edits, offered rules and plans that belong to them, and
a one-line description."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from ramet.v1 import event_pb2

from rametd.agents import edits
from rametd.agents.base import ControlAsked, Frame, Question
from rametd.domain.calls import describe_wish
from rametd.domain.models import Agent, Request, RequestKind, RequestState, Session
from rametd.domain.text import first_line
from rametd.rules import Call
from rametd.rules import offers as rule_offers
from rametd.services.ids import new_id
from rametd.store import Unit

RECENT = 8
"""Number of an agent's last messages in which to search for the call that it asks about."""


def same_question(unit: Unit, session_id: str, question: Question) -> Request | None:
    """Return the request in which an earlier process, killed while it waited, asked the same; None
    if there is none.

    An answer given in between still counts.
    """
    asked = _essence(question.input)
    for request in unit.requests.detached(session_id):
        if request.tool == question.tool and _essence(request.input) == asked:
            return request
    return None


def _essence(tool_input: str) -> dict[str, object]:
    """Return a call's input without the description, which a model words differently each time."""
    return {name: value for name, value in json.loads(tool_input).items() if name != "description"}


def with_plan(unit: Unit, session_id: str, question: Question) -> Question:
    """Add to a question the plan from its call: Claude Code sends the plan only if it is in its
    plan file."""
    asked = json.loads(question.input)
    if question.kind != RequestKind.PLAN or asked.get("plan"):
        return question
    for event in unit.events.each(session_id=session_id, kinds=("assistant_message",), limit=RECENT, newest=True):
        for block in event_pb2.Event.FromString(event.payload).assistant_message.blocks:
            call = block.tool_call
            if call.tool_use_id == question.tool_use_id and call.tool_use_id:
                plan = json.loads(call.input_json or "{}").get("plan")
                return (
                    replace(question, input=json.dumps(asked | {"plan": plan}, ensure_ascii=False))
                    if plan
                    else question
                )
    return question


def asks_to_edit(frame: Frame) -> bool:
    """Return whether the line asks a person about a change to a file."""
    return frame.control is not None and any(
        isinstance(fact, ControlAsked) and fact.question is not None and fact.question.tool in edits.EDITORS
        for fact in frame.facts
    )


async def with_edits(frame: Frame, worktree: Path) -> Frame:
    """Add to the questions of a line the changes of their calls. The agent waits, so it will find
    the files as they are now."""
    facts = [
        replace(fact, question=await with_edit(fact.question, worktree))
        if isinstance(fact, ControlAsked) and fact.question is not None
        else fact
        for fact in frame.facts
    ]
    return frame._replace(facts=tuple(facts))


async def with_edit(question: Question, worktree: Path) -> Question:
    """Add to a question the change that its call would make."""
    if question.tool not in edits.EDITORS:
        return question
    edit = await asyncio.to_thread(edits.planned, question.tool, json.loads(question.input), worktree)
    return replace(question, edit=edit.SerializeToString()) if edit is not None else question


def offers_of(question: Question, worktree: Path) -> tuple[str, ...]:
    """Return the rules that an approval can store: those that the agent's program suggests, and
    ours."""
    if question.kind != RequestKind.PERMISSION:
        return ()
    asked = [
        f"{rule.get('toolName')}({rule['ruleContent']})"
        for suggestion in json.loads(question.suggestions)
        if isinstance(suggestion, dict)
        and suggestion.get("type") == "addRules"
        and suggestion.get("behavior") == "allow"
        for rule in suggestion.get("rules", ())
        if isinstance(rule, dict) and isinstance(rule.get("ruleContent"), str)
    ]
    found = rule_offers(Call(question.tool, json.loads(question.input), worktree), asked)
    return tuple("\n".join(rules) for rules in found)


def new_request(agent: Agent, control_id: str, question: Question, now: float, offers: tuple[str, ...] = ()) -> Request:
    """Return an open request of the agent's session; ``control_id`` is empty if no line of the
    agent asks it."""
    return Request(
        id=new_id(),
        session_id=agent.session_id,
        generation=agent.generation,
        control_id=control_id,
        tool_use_id=question.tool_use_id,
        kind=RequestKind(question.kind),
        tool=question.tool,
        input=question.input,
        reason=question.reason,
        suggestions=question.suggestions,
        edit=question.edit,
        offers=offers,
        state=RequestState.OPEN,
        answer="",
        answered_by="",
        answer_time=None,
        create_time=now,
    )


def describe(request: Request, session: Session) -> str:
    """Describe a request in one line, with paths relative to the session's worktree."""
    match request.kind:
        case RequestKind.QUESTION:
            questions = json.loads(request.input).get("questions") or [{}]
            return f"asks: {first_line(str(questions[0].get('question', '')))}"
        case RequestKind.PLAN:
            return "has a plan and wants it approved"
        case RequestKind.ELICITATION:
            return f"{request.tool} asks: {first_line(request.reason)}"
        case _:
            return describe_wish(request.tool, json.loads(request.input)).replace(f"{session.worktree}/", "")
