"""Requests, for `inbox`, `approve`, `deny` and `answer`: find and answer them, and print the
outcome."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ramet.jsonify import to_json
from ramet.v1 import attention_pb2
from ramet.v1.attention_pb2 import AttentionRequest, Resolution

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.errors import ClientError, UsageError
from rametctl.render.request import blocks, kind_name, request_lines, short_id, shown_decision, title
from rametctl.render.rule import rule_text

if TYPE_CHECKING:
    from rametctl.connection.channel import Connection


def get_request(app: "App", reference: str) -> "AttentionRequest":
    """Find a request by id, unique prefix, or a session with exactly one open request."""
    return app.call(
        lambda daemon: daemon.attention.GetRequest,
        attention_pb2.GetRequestRequest(request=reference),
    ).request


def open_requests(connection: "Connection") -> list["AttentionRequest"]:
    """Return all open requests, oldest first."""
    pages = connection.pages(lambda daemon: daemon.attention.ListRequests, attention_pb2.ListRequestsRequest())
    return [request for page in pages for request in page.requests]


def by_urgency(requests: "Sequence[AttentionRequest]") -> "tuple[list[AttentionRequest], list[AttentionRequest]]":
    """Return requests that block work, then reviews of finished work, each in order of arrival."""
    blocking = [request for request in requests if blocks(request)]
    return blocking, [request for request in requests if not blocks(request)]


def resolve(app: "App", reference: str, resolution: "Resolution") -> object:
    """Answer a request, print the outcome for people, and return it as JSON."""
    request = attention_pb2.ResolveRequestRequest(request=reference, resolution=resolution)
    response = app.call(lambda daemon: daemon.attention.ResolveRequest, request)
    answer = response.request
    rules = list(response.rules) or ([response.rule] if response.HasField("rule") else [])
    name = answer.session_name or answer.session_id
    app.output.show(line((name, "bold"), f"  {title(answer)}  ", (shown_decision(answer), "green")))
    if rules:
        for rule in rules:
            app.output.show(line(f"from now on: {rule_text(rule, answer.session_name)}", indent=2))
        ids = " ".join(rule.id for rule in rules)
        app.output.show(line((f"to take it back: rametctl rules rm {ids}", "dim"), indent=2))
    return to_json(answer) | {
        "rule": to_json(rules[0]) if rules else None,
        "rules": [to_json(rule) for rule in rules],
    }


def seen_request(app: "App", reference: str, fits: "Callable[[str], bool]") -> str:
    """Return the request to answer: ``reference``, unless it names a session whose request was not
    shown on this terminal.

    Then show it and ask the person. Raise ClientError if the answer is no, or without a terminal.
    Do not ask about a kind that the answer does not fit (``fits``): the daemon refuses that.
    """
    if not app.output.terminal:
        return reference  # a script names what it means
    request = get_request(app, reference)
    if request.id.startswith(reference) or was_shown(app, request) or not fits(kind_name(request)):
        return request.id
    app.output.show(*request_lines(request, time.time()))
    remember(app, [request])
    if sys.stdin is None or not sys.stdin.isatty():
        hint = f"it is above; to answer it: rametctl approve {short_id(request)}"
        raise ClientError(f"you have not been shown this request of {request.session_name}", hint=hint)
    if not app.output.confirm("This came after you last looked. Answer it?"):
        raise ClientError("not answered", hint="it still waits: rametctl inbox", reason="NOT_ANSWERED")
    return request.id


def finished_turns(requests: "Sequence[AttentionRequest]") -> "list[AttentionRequest]":
    """Return reviews of finished turns."""
    return [request for request in requests if kind_name(request) == "review"]


def edited_input(app: "App", request: "AttentionRequest") -> str:
    """Open the request's input in $EDITOR and return the result; "" if unchanged. Raises a
    ClientError."""
    from rametctl.editor import edit

    before = json.loads(request.input_json or "{}")
    shown = json.dumps(before, ensure_ascii=False, indent=2) + "\n"
    text = edit(app, shown, extension=".json", undone="nothing was approved")
    if text is None:
        # Closed without saving: a person who asked for an editor has not approved the original
        # input.
        raise ClientError("nothing was approved: the input was not saved", hint="omit --edit to approve it unchanged")
    try:
        after = json.loads(text)
    except ValueError as error:
        raise UsageError(f"nothing was approved: what was saved is not JSON ({error})", hint="try again") from error
    if not isinstance(after, dict):
        raise UsageError("nothing was approved: the input must be a JSON object", hint="try again")
    return "" if after == before else json.dumps(after, ensure_ascii=False)


# Requests that this person has been shown, so that ``approve NAME`` never means a later one

MOST = 1000
"""Most remembered ids, the newest last."""


def remember(app: "App", requests: "Iterable[AttentionRequest]") -> None:
    """Note that requests were shown on this person's terminal; do nothing elsewhere."""
    if not app.output.terminal:
        return
    known = _read(app)
    fresh = [request.id for request in requests if request.id not in known]
    if not fresh:
        return
    path = _file(app)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    # Without it, the person is asked once more.
    with suppress(OSError):
        scratch.write_text(json.dumps([*known, *fresh][-MOST:]))
        scratch.replace(path)


def was_shown(app: "App", request: "AttentionRequest") -> bool:
    return request.id in _read(app)


def _read(app: "App") -> list[str]:
    try:
        found = json.loads(_file(app).read_text())
    except (OSError, ValueError):
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _file(app: "App") -> Path:
    return app.directories.home / "shown.json"
