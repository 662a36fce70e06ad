"""`rametctl answer`: answer a question."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from rametctl.app import App
from rametctl.options import request_argument
from rametctl.prompts import PromptCommand


@click.command("answer", cls=PromptCommand, short_help="Answer a question or an MCP server's form.")
@request_argument
@click.argument("answers", metavar="ANSWER...", nargs=-1, required=True)
@click.pass_obj
def command(app: App, request: str, answers: tuple[str, ...]) -> None:
    """Answer REQUEST: one ANSWER for each of its questions, in order.

    An ANSWER is the number or label of a choice, or any other text. Where you may
    choose several, separate them with commas. If an MCP server asks for input,
    give FIELD=VALUE for each field, or one JSON object.

    \b
    Examples:
      rametctl answer fix-login 2
      rametctl answer fix-login "1,3" "keep the old name"
      rametctl answer deploy region=eu-west-1 replicas=3
    """
    from ramet.v1 import attention_pb2
    from ramet.words import plural

    from rametctl.errors import UsageError
    from rametctl.render.format import parsed
    from rametctl.render.request import kind_name, questions
    from rametctl.requests import get_request, resolve

    found = get_request(app, request)
    if kind_name(found) == "elicitation":
        import json

        from rametctl.elicitation import content

        filled = json.dumps(content(parsed(found.input_json), answers), ensure_ascii=False)
        approval = attention_pb2.Approval(updated_input_json=filled)
        resolve(app, found.id, attention_pb2.Resolution(approve=approval))
        return
    asked = questions(parsed(found.input_json))
    if asked and len(asked) != len(answers):
        raise UsageError(
            f"{plural(len(answers), 'answer')} to {plural(len(asked), 'question')}",
            hint="give one answer for each question; quote answers that contain spaces",
        )
    chosen = (
        [chosen_answer(question, text) for question, text in zip(asked, answers, strict=True)] if asked else answers
    )
    resolve(app, found.id, attention_pb2.Resolution(reply=attention_pb2.Reply(answers=chosen)))


def chosen_answer(question: Mapping[str, Any], text: str) -> str:
    """``text`` with the numbers of choices replaced by their labels. Raises UsageError for a number out of range."""
    from rametctl.render.request import labels

    choices = labels(question)
    if not choices or text in choices:
        return text
    parts = [part.strip() for part in text.split(",")] if question.get("multiSelect") else [text.strip()]
    if all(part in choices or part.isdecimal() for part in parts):
        return ", ".join(_label(part, choices) for part in parts)
    return text


def _label(part: str, choices: Sequence[str]) -> str:
    from rametctl.errors import UsageError

    if part in choices:
        return part
    if not 1 <= int(part) <= len(choices):
        raise UsageError(f"there is no choice {part}", hint=f"choices are 1 to {len(choices)}; see: rametctl inbox")
    return choices[int(part) - 1]
