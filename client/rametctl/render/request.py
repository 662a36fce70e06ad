"""Requests in full: the exact input that an answer applies to."""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ramet.jsonify import enum_name
from ramet.v1.attention_pb2 import AttentionRequest
from ramet.visible import visible

from rametctl.console.lines import Line, line
from rametctl.render.diff import edit_counts, edit_lines, whole_edit_lines
from rametctl.render.format import age, parsed, unbold

_SHOWN_ID = 8
_PADDING = re.compile(r"[^\S\n]{41,}|(?<=\n)(?:[^\S\n]*\n){6,}")
OF_THE_DAEMON = frozenset({"review", "conflict", "ownership", "trouble", "login", "trust", "landing"})
"""Kinds of requests with nothing but a reason."""
SEEN_BY = {"trouble": "logs", "conflict": "conflicts", "review": "diff"}
"""Verbs that show what a request is about, by its kind."""


def kind_name(request: "AttentionRequest") -> str:
    return enum_name(request, "kind") or "request"


def blocks(request: "AttentionRequest") -> bool:
    """Return whether work waits for the answer; a finished turn to review blocks none."""
    return kind_name(request) != "review"


def title(request: "AttentionRequest") -> str:
    kind = kind_name(request)
    return f"{kind}: {request.tool}" if request.tool and kind in {"permission", "elicitation"} else kind


def short_id(request: "AttentionRequest", others: Sequence["AttentionRequest"] = ()) -> str:
    """Return the shortest prefix that is unique among ``others``, at least 8 characters."""
    ids = [other.id for other in others if other.id != request.id]
    for length in range(_SHOWN_ID, len(request.id)):
        if not any(other.startswith(request.id[:length]) for other in ids):
            return request.id[:length]
    return request.id


def _session(request: "AttentionRequest") -> str:
    """Return the request's session as an argument of a command line."""
    name = request.session_name
    return shlex.quote(name) if name and not name.startswith("-") else request.session_id


def answer_command(request: "AttentionRequest", name: str | None = None) -> str:
    """Return the command that answers."""
    which = name or short_id(request)
    if kind_name(request) == "elicitation":
        values = " ".join(f"{key}=VALUE" for key in fields(parsed(request.input_json)))
        return f"rametctl answer {which} {values}" if values else f"rametctl approve {which}"
    if kind_name(request) == "question":
        asked = len(questions(parsed(request.input_json)))
        choices = " ".join(["1"] * asked) if asked else "TEXT"
        return f"rametctl answer {which} {choices}"
    if (command := _own_command(request)) is not None:
        return command
    if kind_name(request) == "review":
        return f"rametctl done {_session(request)}"
    if kind_name(request) == "landing":
        return f"rametctl queue retry {_session(request)}"
    return f"rametctl approve {which}"


def _own_command(request: "AttentionRequest") -> str | None:
    """Return what helps a stuck session besides an answer."""
    data = parsed(request.input_json) if kind_name(request) in {"trouble", "login", "trust"} else None
    return str(data["command"]) if isinstance(data, Mapping) and "command" in data else None


def request_lines(
    request: "AttentionRequest", now: float, others: Sequence["AttentionRequest"] = (), *, commands: bool = True
) -> Iterator[Line]:
    """Return a request in full: session, tool, exact input, reason, and, with ``commands``, those
    that answer it."""
    which = short_id(request, others)
    yield line(
        (which, "cyan"), "  ", ((request.session_name or request.session_id), "bold"), "  ",
        (title(request), "bold yellow"), "  ", (age(request.create_time, now), "dim"),
        (f"  in {request.repo}" if request.repo else "", "dim"),
    )  # fmt: skip
    yield from body_lines(request)
    if request.reason and kind_name(request) not in {*OF_THE_DAEMON, "elicitation"} and not _repeats(request):
        for text in _unpadded(request.reason).splitlines():
            yield line((f"why: {text}", "dim"), indent=2)
    if request.offers:
        yield line(("--always would allow:", "dim"), indent=2)
        for number, offer in enumerate(request.offers, 1):
            yield line((f"{number}) ", "cyan"), (", ".join(offer.rules), "dim"), indent=4)
    if commands:
        yield from answer_lines(request, which)


def _repeats(request: "AttentionRequest") -> bool:
    """Return whether the reason only repeats the input: a path, or the description of a command."""
    data = parsed(request.input_json)
    reason = " ".join(request.reason.split())
    texts = [value for value in data.values() if isinstance(value, str)] if isinstance(data, Mapping) else []
    return any(text == reason or text.endswith(f"/{reason}") for text in texts)


def answer_lines(request: "AttentionRequest", which: str | None = None) -> Iterator[Line]:
    """Yield the commands that answer and deny, and below them the one that shows more."""
    which = which or short_id(request)
    yield line(("→ " + answer_command(request, which), "green"), (_or_deny(request, which), "dim"), indent=2, hang=2)
    if verb := SEEN_BY.get(kind_name(request)):
        yield line((f"see: rametctl {verb} {_session(request)}", "dim"), indent=4)


def body_lines(
    request: "AttentionRequest",
    *,
    omit: Collection[str] = (),
    answers: Sequence[str] | None = None,
    chosen: Collection[int] = (),
) -> Iterator[Line]:
    """Return the complete input of a tool or question, without the fields in ``omit``.

    ``answers`` to the first questions, and the ``chosen`` numbers of the next one, where keys
    answer it.
    """
    data = parsed(request.input_json)
    if kind_name(request) == "question" and (asked := questions(data)):
        yield from _question_lines(asked, answers, chosen)
    elif kind_name(request) == "plan" and isinstance(data, Mapping):
        yield from _plan_lines(request, data)
    elif kind_name(request) == "elicitation" and isinstance(data, Mapping):
        yield from _elicitation_lines(request, data)
    elif kind_name(request) in OF_THE_DAEMON:
        yield from _block(unbold(request.reason) or "its turn has ended")
    elif request.HasField("edit"):
        yield line((request.edit.path, "bold"), (f"  {edit_counts(request.edit)}", "dim"), indent=2)
        yield from requested_edit_lines(request)
    elif isinstance(data, Mapping):
        yield from _tool_lines({key: value for key, value in data.items() if key not in omit})
    elif request.input_json:
        yield from _block(request.input_json)


def requested_edit_lines(request: "AttentionRequest") -> Iterator[Line]:
    """Return the requested change: the diff, or all of the input if the diff is cut."""
    data = parsed(request.input_json)
    if request.edit.omitted_lines and isinstance(data, Mapping):
        yield from whole_edit_lines(data)
    else:
        yield from edit_lines(request.edit)


def questions(data: Any) -> list[Mapping[str, Any]]:
    """Return the questions of an input: a list under ``questions``, or the input itself."""
    if not isinstance(data, Mapping):
        return []
    if isinstance(data.get("questions"), list):
        return [question for question in data["questions"] if isinstance(question, Mapping)]
    return [data] if "question" in data else []


def fields(data: Any) -> dict[str, Mapping[str, Any]]:
    """Return the fields of an elicitation: JSON schemas of single values, by name."""
    schema = data.get("requested_schema") if isinstance(data, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): value if isinstance(value, Mapping) else {} for name, value in properties.items()}


def required_fields(data: Any) -> list[str]:
    """Return the names of an elicitation's required fields."""
    schema = data.get("requested_schema") if isinstance(data, Mapping) else None
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return [str(name) for name in required] if isinstance(required, list) else []


def labels(question: Mapping[str, Any]) -> list[str]:
    """Return the labels of a question's choices, in order."""
    options = question.get("options")
    if not isinstance(options, list):
        return []
    return [str(option.get("label", "")) if isinstance(option, Mapping) else str(option) for option in options]


def _or_deny(request: "AttentionRequest", which: str) -> str:
    match kind_name(request):
        case "question":
            return ""
        case "elicitation":
            return f"   or: rametctl deny {which}"
        case "login":
            return f"   then all continue by themselves; at once: rametctl approve {which}"
        case "landing":
            return f"   or: rametctl queue rm {_session(request)}"
        case "trouble" | "trust":
            return f"   to dismiss it: rametctl deny {which}"
        case "conflict":
            return "   dismisses it"
        case "review":
            return f"   or: rametctl deny {which} -m WHAT-TO-DO-BETTER"
        case _:
            return f"   or: rametctl deny {which} -m WHY"


def _plan_lines(request: "AttentionRequest", data: Mapping[str, Any]) -> Iterator[Line]:
    plan = data.get("plan")
    if isinstance(plan, str) and plan.strip():
        yield from _block(plan.rstrip("\n"))
    else:
        # Claude Code sends the content of its plan file; without one, the plan is only in the
        # agent's last message.
        yield line(("it has written no plan; what it said: ", "dim"), f"rametctl logs {_session(request)}", indent=2)


def _elicitation_lines(request: "AttentionRequest", data: Mapping[str, Any]) -> Iterator[Line]:
    """Return an elicitation: message, link, and fields with their types."""
    yield from _block(str(data.get("message") or request.reason))
    if isinstance(data.get("url"), str):
        yield line(("at: ", "dim"), data["url"], indent=2)
    required = required_fields(data)
    for name, schema in fields(data).items():
        choices = schema.get("enum")
        takes = " | ".join(map(str, choices)) if isinstance(choices, list) else str(schema.get("type", "text"))
        about = schema.get("description") or schema.get("title") or ""
        yield line(
            (name, "cyan"), f": {takes}", ("" if name in required else ", may be left out", "dim"),
            (f"  {about}" if about else "", "dim"), indent=4,
        )  # fmt: skip


def _question_lines(
    asked: list[Mapping[str, Any]], answers: Sequence[str] | None, chosen: Collection[int]
) -> Iterator[Line]:
    for number, question in enumerate(asked, 1):
        prefix = f"{number}. " if len(asked) > 1 else ""
        given = f"  ✓ {answers[number - 1]}" if answers is not None and number <= len(answers) else ""
        yield line((f"{prefix}{question.get('question', '')!s}", "bold"), (given, "green"), indent=2)
        if given:
            continue
        several = bool(question.get("multiSelect"))
        ticking = several and answers is not None and number == len(answers) + 1
        options = question.get("options")
        for choice, option in enumerate(options if isinstance(options, list) else [], 1):
            label = option.get("label", "") if isinstance(option, Mapping) else option
            about = option.get("description", "") if isinstance(option, Mapping) else ""
            tick = f"[{'x' if choice in chosen else ' '}] " if ticking else ""
            yield line(
                (f"{choice}) ", "cyan"), f"{tick}{label}", (f"  {about!s}" if about else "", "dim"),
                indent=4,
            )  # fmt: skip
        if several and answers is None:
            yield line(('several may be chosen: "1,2"', "dim"), indent=4)


def _tool_lines(data: Mapping[str, Any]) -> Iterator[Line]:
    if isinstance(data.get("command"), str):
        for index, text in enumerate(_unpadded(data["command"]).split("\n")):
            yield line((("$ " if index == 0 else "  ") + text, "cyan"), indent=2)
        data = {key: value for key, value in data.items() if key != "command"}
    for key, value in data.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        first, *rest = _unpadded(text).split("\n")
        yield line((f"{key}: ", "dim"), first, indent=2)
        yield from (line(more, indent=4) for more in rest)


def _block(text: str) -> Iterator[Line]:
    for part in _unpadded(text).split("\n"):
        yield line(part, indent=2)


def _unpadded(text: str) -> str:
    """Make a text visible. A note replaces a long run of blanks or empty lines, which would push a
    part of a command off the screen."""

    def noted(found: re.Match[str]) -> str:
        lines = found[0].count("\n")
        return f"⋯ {lines} empty lines ⋯\n" if lines else f" ⋯ {len(found[0])} blanks ⋯ "

    return _PADDING.sub(noted, visible(text))


def shown_decision(request: "AttentionRequest", *, owner: str = "owner") -> str:
    """Describe the outcome of a closed request; ``owner`` is the word for the person."""
    answerer = owner if request.answered_by == "owner" else request.answered_by
    by = f" by {answerer}" if answerer else ""
    match request.resolution.WhichOneof("decision"):
        case "approve":
            done = {"review": "done", "conflict": f"seen{by}"}
            return done.get(kind_name(request), f"approved{by}")
        case "deny":
            why = request.resolution.deny.message
            return f"denied{by}" + (f": {why}" if why else "")
        case "reply":
            return f"answered{by}: {('; '.join(request.resolution.reply.answers))}"
        case _:
            return "withdrawn"
