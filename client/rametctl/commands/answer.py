"""`rametctl answer`: answer a question."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from ramet.v1 import attention_pb2
from ramet.words import plural

from rametctl.app import App
from rametctl.errors import ClientError, UsageError
from rametctl.nouns.elicitation import content
from rametctl.nouns.prompts import PromptCommand
from rametctl.nouns.requests import get_request, resolve, seen_request
from rametctl.options import request_argument
from rametctl.render.format import parsed
from rametctl.render.request import kind_name, labels, questions


@click.command("answer", cls=PromptCommand, short_help="Answer a question or an MCP server's form.")
@request_argument
@click.argument("answers", metavar="[ANSWER]...", nargs=-1)
@click.pass_obj
def command(app: App, request: str, answers: tuple[str, ...]) -> None:
    """Answer REQUEST: one ANSWER for each of its questions, in order. Without answers,
    choose them on the terminal.

    An ANSWER is the number or label of a choice, or any other text. Where you may
    choose several, separate them with commas. If an MCP server asks for input,
    give FIELD=VALUE for each field, or one JSON object.

    \b
    Examples:
      rametctl answer fix-login
      rametctl answer fix-login "1,3" "keep the old name"
      rametctl answer deploy region=eu-west-1 replicas=3
    """
    found = get_request(app, seen_request(app, request, {"question", "elicitation"}.__contains__))
    if kind_name(found) == "elicitation":
        filled = json.dumps(content(parsed(found.input_json), answers), ensure_ascii=False)
        resolution = attention_pb2.Resolution(approve=attention_pb2.Approval(updated_input_json=filled))
    else:
        asked = questions(parsed(found.input_json))
        given = answers or _choose(app, asked)
        resolution = attention_pb2.Resolution(reply=attention_pb2.Reply(answers=_replies(asked, given)))
    shown = resolve(app, found.id, resolution)
    app.output.json(shown)


def _choose(app: App, asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ask each question on the terminal. Raise UsageError without a terminal, ClientError if the
    person cancels."""
    from rametctl.console.choosing import choose

    if not app.output.terminal or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("no answer was given, and stdin is not a terminal", hint="give one answer for each question")
    if not asked:
        raise UsageError("this request is not a question", hint="see: rametctl inbox")
    given = []
    for question in asked:
        answer = choose(
            app.output, sys.stdin.fileno(), str(question.get("question", "")), labels(question),
            several=bool(question.get("multiSelect")),
        )  # fmt: skip
        if answer is None:
            raise ClientError("not answered", hint="it still waits: rametctl inbox", reason="NOT_ANSWERED")
        given.append(answer)
    return given


def _replies(asked: Sequence[Mapping[str, Any]], answers: Sequence[str]) -> Sequence[str]:
    if asked and len(asked) != len(answers):
        raise UsageError(
            f"{plural(len(answers), 'answer')} to {plural(len(asked), 'question')}",
            hint="give one answer for each question; quote answers that contain spaces",
        )
    if not asked:
        return answers
    return [chosen_answer(question, text) for question, text in zip(asked, answers, strict=True)]


def chosen_answer(question: Mapping[str, Any], text: str) -> str:
    """``text`` with the numbers of choices replaced by their labels. Raises UsageError for a number
    out of range."""
    choices = labels(question)
    if not choices or text in choices:
        return text
    parts = [part.strip() for part in text.split(",")] if question.get("multiSelect") else [text.strip()]
    if all(part in choices or part.isdecimal() for part in parts):
        return ", ".join(_label(part, choices) for part in parts)
    return text


def _label(part: str, choices: Sequence[str]) -> str:
    if part in choices:
        return part
    if not 1 <= int(part) <= len(choices):
        raise UsageError(f"there is no choice {part}", hint=f"choices are 1 to {len(choices)}; see: rametctl inbox")
    return choices[int(part) - 1]
