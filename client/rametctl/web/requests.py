"""Requests as cards with their answers, and the inbox of all repositories."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from markupsafe import Markup, escape
from ramet.v1 import attention_pb2

from rametctl.dashboard.answering import as_json, plan_modes, suggested_rules
from rametctl.errors import UsageError
from rametctl.nouns.elicitation import content
from rametctl.nouns.requests import by_urgency
from rametctl.options import MODES, mode_number
from rametctl.render.format import parsed
from rametctl.render.request import body_lines, fields, kind_name, labels, questions, required_fields, title
from rametctl.view import parts
from rametctl.web import html
from rametctl.web.forms import Done, Form
from rametctl.web.site import Action, Fragments, Page, Site, Visit

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest


class Inbox(Page):
    """Return requests that block work first, then reviews, the oldest at the top."""

    path: ClassVar[str] = "/inbox"
    template: ClassVar[str] = "inbox.html"
    nav: ClassVar[str] = "Inbox"
    key: ClassVar[str] = "N"

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        blocking, reviews = by_urgency(site.requests)
        return {
            "blocking": cards(site, blocking, visit, named=True),
            "reviews": cards(site, reviews, visit, named=True),
            "empty": escape("" if blocking or reviews else "Nothing waits for you."),
        }


def cards(site: Site, found: "Iterable[AttentionRequest]", visit: Visit, *, named: bool = False) -> dict[str, Markup]:
    """Cards by the id of their element, in the order given. ``named``: each names its session."""
    return {
        f"r-{each.id}": site.cached(
            each.session_id,
            f"{each.id} {named} {visit.may_act}",
            partial(_card, site, each, visit, named=named),
        )
        for each in found
    }


def _card(site: Site, request: "AttentionRequest", visit: Visit, *, named: bool) -> Markup:
    kind, data = kind_name(request), parsed(request.input_json)
    asked = questions(data) if kind == "question" else []
    plan = data.get("plan") if kind == "plan" and isinstance(data, Mapping) else None
    if asked:
        body = Markup("")
    elif isinstance(plan, str) and plan.strip():
        body = Markup('<div class="words long" tabindex="0">{}</div>').format(html.markdown(plan))
    elif kind == "review":
        body = Markup('<div class="words long" tabindex="0">{}</div>').format(
            html.markdown(request.reason or "Its turn has ended.")
        )
    else:
        body = Markup('<div class="mono">{}</div>').format(html.lines(body_lines(request)))
    return site.html(
        "request.html", request=request, kind=kind, title=title(request), body=body, named=named, visit=visit,
        questions=[_question(each) for each in asked], fields=_fields(data) if kind == "elicitation" else [],
        rules=suggested_rules(request) if kind == "permission" else [], plan_modes=plan_modes(site.modes),
        why=request.reason if kind in {"permission", "plan"} and not _in(request.reason, data) else "",
    )  # fmt: skip


def _in(reason: str, data: Any) -> bool:
    return isinstance(data, Mapping) and any(reason.strip() and reason in str(value) for value in data.values())


def _question(question: Mapping[str, Any]) -> dict[str, Any]:
    options = question.get("options")
    about = [
        str(each.get("description", "")) if isinstance(each, Mapping) else ""
        for each in (options if isinstance(options, list) else [])
    ]
    return {
        "text": str(question.get("question", "")),
        "choices": list(zip(labels(question), about, strict=True)),
        "several": bool(question.get("multiSelect")),
    }


def _fields(data: Any) -> list[dict[str, Any]]:
    needed = required_fields(data)
    return [
        {
            "name": name,
            "about": str(schema.get("description") or schema.get("title") or ""),
            "choices": [str(each) for each in schema.get("enum", [])]
            if isinstance(schema.get("enum", []), list)
            else [],
            "default": str(schema.get("default", "")),
            "needed": name in needed,
        }
        for name, schema in fields(data).items()
    ]


async def answer(site: Site, form: Form) -> Done:
    """Answer a request. If another answer came first, the error names who gave it."""
    reference = form.params["request"]
    request = next((each for each in site.requests if each.id == reference), None)
    resolution, said = _resolution(form, request)
    call = attention_pb2.ResolveRequestRequest(request=reference, resolution=resolution, request_id=form.request_id)
    try:
        resolved = await site.call(lambda daemon: daemon.attention.ResolveRequest, call)
    finally:
        site.view.refresh(parts.REQUESTS)
    return Done(f"{resolved.request.session_name}: {said}")


def _resolution(form: Form, request: "AttentionRequest | None") -> "tuple[attention_pb2.Resolution, str]":
    approval = attention_pb2.Approval()
    said = "approved"
    match form.text("answer"):
        case "deny":
            return attention_pb2.Resolution(deny=attention_pb2.Denial(message=form.text("message"))), "denied"
        case "reply":
            answers = _answers(form, request)
            return attention_pb2.Resolution(
                reply=attention_pb2.Reply(answers=answers)
            ), f"answered: {'; '.join(answers)}"
        case "approve":
            pass
        case "edited":
            approval.updated_input_json, said = form.text("input"), "approved as edited"
        case "session":
            approval.scope, said = attention_pb2.APPROVAL_SCOPE_SESSION, "approved for this session"
        case "always":
            approval.scope = attention_pb2.APPROVAL_SCOPE_ALWAYS
            approval.rules.extend(rule.strip() for rule in form.text("rules").split("\n") if rule.strip())
            said = f"approved; from now on: {', '.join(approval.rules)}"
        case "fill" if request is not None:
            pairs = [
                f"{name[6:]}={value}" for name, value in form.values.items() if name.startswith("field-") and value
            ]
            approval.updated_input_json = as_json(content(parsed(request.input_json), pairs))
            said = "filled in"
        case mode if mode in MODES:
            approval.mode, said = mode_number(mode), f"approved in {mode}"
        case other:
            raise UsageError(f"there is no answer {other!r}")
    return attention_pb2.Resolution(approve=approval), said


def _answers(form: Form, request: "AttentionRequest | None") -> list[str]:
    """Return an answer to each question: the choices, and the person's own words after them."""
    asked = questions(parsed(request.input_json)) if request is not None else [{}]
    answers = [
        ", ".join(filter(None, (*form.texts(f"choice-{number}"), form.text(f"own-{number}"))))
        for number in range(len(asked))
    ]
    if not all(answers):
        raise UsageError("choose or write an answer to each question")
    return answers


PAGES: tuple[type[Page], ...] = (Inbox,)
ACTIONS: Mapping[str, Action] = {"/requests/{request}": answer}
