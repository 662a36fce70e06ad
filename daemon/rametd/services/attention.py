"""Requests that wait for a person, their answers, and permission rules."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.v1 import attention_pb2
from ramet.words import plural

from rametd.agents.base import Decision, require
from rametd.domain.errors import (
    AmbiguousError,
    BypassForbiddenError,
    EmptyPromptError,
    InvalidInputError,
    RequestNotFoundError,
    RuleNotFoundError,
    SessionNotFoundError,
)
from rametd.domain.models import (
    DAEMON_REQUESTS,
    OWNER,
    UNATTENDED,
    Mode,
    Request,
    RequestKind,
    RequestState,
    Session,
    StoredRule,
)
from rametd.domain.states import State
from rametd.rules import Effect, caution, completed, is_whole_line, parse
from rametd.services.checks import check_prompt
from rametd.services.core import Core, Policy
from rametd.services.delivery import post
from rametd.services.hooks import Resolver
from rametd.services.ids import new_id
from rametd.services.lifecycle import change_state, log_request, log_update
from rametd.services.lookup import find_session, only
from rametd.services.ownership.transfers import involved
from rametd.services.views import MODES_BACK, request_message, rule_message
from rametd.store import Reader, Unit

EFFECTS = {
    attention_pb2.RULE_EFFECT_DENY: Effect.DENY,
    attention_pb2.RULE_EFFECT_ASK: Effect.ASK,
    attention_pb2.RULE_EFFECT_ALLOW: Effect.ALLOW,
}


def create(
    unit: Unit,
    *,
    repo_id: str,
    session_id: str,
    effect: Effect,
    text: str,
    source: str,
    agent: str = "",
    request_id: str = "",
) -> StoredRule:
    """Store a rule, unless an equal one exists. Raises `BadRuleError`."""
    parse(text, effect)
    return unit.rules.add(
        StoredRule(
            id=new_id(),
            repo_id=repo_id,
            session_id=session_id,
            agent=agent,
            effect=effect.value,
            text=text,
            source=source,
            request_id=request_id,
            matches=0,
            create_time=unit.now,
            match_time=None,
        )
    )


def cautions(effect: Effect, text: str) -> list[str]:
    """Warnings about a new rule that allows more than it seems to."""
    found = caution(text) if effect is Effect.ALLOW else ""
    return [found] if found else []


def remember(
    unit: Unit, session: Session, request: Request, scope: int, wanted: Sequence[str] = ()
) -> list[StoredRule]:
    """Create the rules of an approval with a scope: the ``wanted`` ones, else the first offered
    rule.

    Raises `InvalidInputError` if there is no offer for calls like this one, and `BadRuleError`.
    """
    if scope not in {attention_pb2.APPROVAL_SCOPE_SESSION, attention_pb2.APPROVAL_SCOPE_ALWAYS}:
        if wanted:
            raise InvalidInputError("a rule was given for an approval of only this call", hint="add --always")
        return []
    if request.kind != RequestKind.PERMISSION:
        raise InvalidInputError(f"a {request.kind} is answered once", hint="leave --session and --always out")
    texts = [completed(text, request.tool) for text in wanted] or _first_offer(request)
    for_session = scope == attention_pb2.APPROVAL_SCOPE_SESSION
    return [
        create(
            unit,
            repo_id=session.repo_id,
            session_id=session.id if for_session else "",
            effect=Effect.ALLOW,
            text=text,
            source=OWNER,
            request_id=request.id,
        )
        for text in texts
    ]


def _first_offer(request: Request) -> list[str]:
    if not request.offers:
        raise InvalidInputError(
            "every rule for calls like this one would allow other calls too",
            hint=f"`rametctl approve {request.id}` approves only this call",
        )
    texts = request.offers[0].split("\n")
    if any(map(is_whole_line, texts)):
        raise InvalidInputError(
            "only a rule for exactly this line fits, which is unlikely to match again",
            hint='give one, as in --always "git commit *", or use this line with --always=1',
        )
    return texts


def delete(unit: Unit, rule_id: str) -> StoredRule:
    """Delete a rule. Raises `RuleNotFoundError`."""
    rule = unit.rules.get(rule_id)
    if rule is None:
        raise RuleNotFoundError(f"there is no rule {rule_id!r}", hint="`rametctl rules` lists them")
    unit.rules.remove(rule_id)
    return rule


ASKED_BY_AGENT = frozenset({RequestKind.PERMISSION, RequestKind.PLAN})
DEFAULT_DENIAL = (
    "The person said no. Do not try the same in another way; continue without it, or say what you need it for."
)


def find_request(reader: Reader, name: str, repo_id: str | None = None) -> Request:
    """Find a request by id, by a session with exactly one open request, or by a unique prefix of an
    id, in this order.

    The name of a session must never find a request of another session: agents choose their
    children's names, and could choose the id of a request. ``repo_id`` as in `find_session`.
    """
    found = reader.requests.find_by_prefix(name) if name else []
    if exact := [request for request in found if request.id == name]:
        return exact[0]
    session = named_session(reader, name, repo_id)
    if session is None:
        # Prefer open requests to closed ones.
        found = [request for request in found if request.state == RequestState.OPEN] or found
        if found:
            return only(found, name, "requests", RequestNotFoundError(name))
    hint = "`rametctl inbox` lists open requests"
    try:
        session = session or find_session(reader, name, repo_id=repo_id)
    except SessionNotFoundError:
        raise RequestNotFoundError(f"there is no request or session {name!r}", hint=hint) from None
    # Prefer requests of the agent, then those of the daemon that block work, to reviews.
    asked = [request for request in reader.requests.open(session.id) if request.kind != RequestKind.TRUST]
    waiting = (
        [request for request in asked if request.kind not in DAEMON_REQUESTS]
        or [request for request in asked if request.kind != RequestKind.REVIEW]
        or asked
    )
    if not waiting:
        raise RequestNotFoundError(f"{session.name} has no open request", hint=hint)
    if len(waiting) > 1:
        matches = ", ".join(f"{request.id} ({request.kind})" for request in waiting)
        raise AmbiguousError(
            f"{len(waiting)} requests of {session.name} wait: {matches}", hint="name one of them", matches=matches
        )
    return waiting[0]


def named_session(reader: Reader, name: str, repo_id: str | None) -> Session | None:
    """Find a session by full id or name; None if there is none. Raises `AmbiguousError` if several
    have the name and none is in ``repo_id``."""
    bears = reader.sessions.find(name) is not None or bool(reader.sessions.by_name(name)) or "/" in name
    if not name or not bears:
        return None
    try:
        return find_session(reader, name, repo_id=repo_id)
    except SessionNotFoundError:
        return None


def resolve(
    unit: Unit,
    name: str,
    resolution: attention_pb2.Resolution,
    principal: str,
    policy: Policy,
    resolvers: Mapping[RequestKind, Resolver],
    repo_id: str | None = None,
) -> tuple[Request, attention_pb2.ResolveRequestResponse]:
    """Store an answer; the first one wins. The session continues once it has no other open request.

    Approving a plan ends the session's plan mode, also for later processes. The message that denies
    a review becomes the session's next prompt, and so does the reason of a refusal if the agent's
    protocol cannot carry it. Raises `AgentUnableError` for a changed input that the protocol cannot
    carry.
    """
    request = find_request(unit, name, repo_id)
    answer = stored_answer(request, resolution)
    mode = MODES_BACK.get(answer.get("mode", 0))
    if mode in UNATTENDED and not policy.config.permissions.allow_bypass:
        raise BypassForbiddenError.of(mode)
    kind = policy.kinds[unit.sessions.get(request.session_id).agent]
    if answer.get("updated_input") and request.kind not in DAEMON_REQUESTS:
        require(kind, "edit", hint="deny the call with a reason, or approve it as it is")
    request = unit.requests.answer(request.id, json.dumps(answer, ensure_ascii=False), principal)
    session = unit.sessions.get(request.session_id)
    log_request(unit, session, request, principal=principal)
    if (resolver := resolvers.get(request.kind)) is not None:
        resolver(unit, request, resolution, principal)
        session = unit.sessions.get(session.id)
    wanted = resolution.approve.rules if resolution.WhichOneof("decision") == "approve" else ()
    rules = remember(unit, session, request, int(answer.get("scope", 0)), wanted)
    if request.kind == RequestKind.REVIEW and answer["decision"] == "deny":
        _, session = post(unit, kind, session, answer["message"], principal)
    if (
        request.kind in ASKED_BY_AGENT
        and answer["decision"] == "deny"
        and answer["message"]
        and not kind.capabilities.reason
    ):
        words = f"I refused your call of {request.tool}: {answer['message']}"
        _, session = post(unit, kind, session, words, principal)
    if request.kind == RequestKind.PLAN and answer["decision"] == "approve":
        mode = mode or (session.mode if session.mode != Mode.PLAN else Mode.DEFAULT)
        session = unit.sessions.update(session.id, mode=mode)
        log_update(unit, session, ["mode"], principal)
    if session.state == State.WAITING and not unit.requests.open_count(session.id):
        session = change_state(unit, session, State.WORKING, principal=principal)
    repo = unit.repos.get(session.repo_id).name
    response = attention_pb2.ResolveRequestResponse(request=request_message(request, session=session.name, repo=repo))
    response.rules.extend(rule_message(rule, repo=repo) for rule in rules)
    if rules:
        response.rule.CopyFrom(response.rules[0])
    return request, response


def stored_answer(request: Request, resolution: attention_pb2.Resolution) -> dict[str, Any]:
    """Convert an answer for the row. Raises `InvalidInputError` for an answer of the wrong kind."""
    match resolution.WhichOneof("decision"):
        case "approve":
            approve = resolution.approve
            if request.kind == RequestKind.QUESTION and request.state == RequestState.OPEN:
                raise InvalidInputError(
                    "a question needs an answer, not an approval", hint=f"`rametctl answer {request.id} ANSWER`"
                )
            if approve.mode and request.kind != RequestKind.PLAN:
                raise InvalidInputError(
                    f"this is a {request.kind}, not a plan: approving it changes no mode",
                    hint="`rametctl set SESSION --mode MODE` does",
                )
            if approve.updated_input_json:
                json_object(approve.updated_input_json)
            elif request.kind == RequestKind.ELICITATION and required_fields(request):
                raise InvalidInputError(
                    f"it asks for {', '.join(required_fields(request))}",
                    hint=f"`rametctl answer {request.id} FIELD=VALUE`",
                )
            return {
                "decision": "approve",
                "updated_input": approve.updated_input_json,
                "scope": int(approve.scope),
                "mode": int(approve.mode),
            }
        case "deny":
            if request.kind == RequestKind.REVIEW:
                if not resolution.deny.message.strip():
                    raise EmptyPromptError(
                        "a denied review needs a message",
                        hint="add -m TEXT with what to change; `approve` closes the review",
                    )
                check_prompt(resolution.deny.message)
            return {"decision": "deny", "message": resolution.deny.message}
        case "reply":
            if request.kind != RequestKind.QUESTION:
                raise InvalidInputError(
                    f"this is a {request.kind}, not a question", hint=f"`rametctl approve {request.id}` or `deny`"
                )
            questions = json.loads(request.input).get("questions", [])
            answers = list(resolution.reply.answers)
            if len(answers) != len(questions):
                raise InvalidInputError(
                    f"{plural(len(answers), 'answer')} to {plural(len(questions), 'question')}",
                    hint="give one for each, and quote each; several choices of one question go into one answer, joined by commas",
                )
            chosen = [choose(question, answer) for question, answer in zip(questions, answers, strict=True)]
            return {"decision": "reply", "answers": chosen}
        case _:
            raise InvalidInputError("the resolution holds no decision", hint="set approve, deny or reply")


def required_fields(request: Request) -> list[str]:
    """Required fields of an MCP server's request for input. Its schema may be any JSON."""
    schema = json.loads(request.input).get("requested_schema")
    required = schema.get("required") if isinstance(schema, dict) else None
    return [str(name) for name in required] if isinstance(required, list) else []


def choose(question: dict[str, Any], answer: str) -> str:
    """The answer to one question: numbers select choices, anything else is text."""
    labels = [str(option.get("label", "")) for option in question.get("options", [])]
    parts = [part.strip() for part in answer.split(",")]
    if labels and all(part.isdigit() and 1 <= int(part) <= len(labels) for part in parts):
        return ", ".join(labels[int(part) - 1] for part in parts)
    return answer


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the changed input is not JSON: {error}", hint="edit it again") from None
    if not isinstance(value, dict):
        raise InvalidInputError("the changed input is not a JSON object", hint="edit it again")
    return value


def decision_of(request: Request, mode: Mode) -> Decision:
    """Convert a stored answer to the decision for the agent. ``mode``: the mode after an approved
    plan, unless the answer has one."""
    if request.state == RequestState.GONE:
        return Decision(allow=False, message="The request was withdrawn.")
    answer = json.loads(request.answer)
    match answer["decision"]:
        case "deny":
            return Decision(allow=False, message=answer["message"] or DEFAULT_DENIAL)
        case "reply":
            asked = json.loads(request.input)
            texts = [str(question.get("question", "")) for question in asked.get("questions", [])]
            asked["answers"] = dict(zip(texts, answer["answers"], strict=True))
            return Decision(allow=True, updated_input=json.dumps(asked, ensure_ascii=False))
    next_mode = ""
    if request.kind == RequestKind.PLAN:
        next_mode = MODES_BACK.get(answer["mode"], mode).value
    return Decision(allow=True, updated_input=answer["updated_input"], mode=next_mode)


def notify(core: Core, request: Request) -> None:
    """Send a committed answer to the agent that waits for it."""
    core.failpoint.hit("resolve.committed")
    runner = core.live.get(request.session_id)
    if runner is not None:
        runner.answered(request)
    for session_id in (request.session_id, *involved(request)):
        core.live.wake(session_id)
