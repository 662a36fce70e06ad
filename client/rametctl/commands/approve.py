"""`rametctl approve`: approve a request."""

import json
from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb, mode_number, mode_option, request_argument

if TYPE_CHECKING:
    from ramet.v1.attention_pb2 import AttentionRequest


@click.command("approve", cls=Verb, short_help="Approve a request.")
@request_argument
@click.option("--session", "for_session", is_flag=True, help="Also allow the same call in this session.")
@click.option("--always", is_flag=True, help="Also allow the same call in this repository.")
@click.option("--edit", is_flag=True, help="Edit the input in $EDITOR first.")
@mode_option("For plans: the permission mode to continue in.")
@click.pass_obj
def command(app: App, request: str, for_session: bool, always: bool, edit: bool, mode: str | None) -> None:
    """Approve REQUEST: its id, a unique prefix of the id, or a session with exactly
    one open request. `rametctl inbox` shows the details.

    --session and --always also store a rule, and print it with the command that
    removes it. For a finished turn, approve dismisses the review.

    \b
    Examples:
      rametctl approve fix-login
      rametctl approve k3xw9abc --always
      rametctl approve fix-login --mode acceptEdits
    """
    from ramet.v1 import attention_pb2

    from rametctl.errors import UsageError
    from rametctl.requests import get_request, resolve

    if for_session and always:
        raise UsageError("--session and --always were both given", hint="--always includes the session")
    scope = attention_pb2.APPROVAL_SCOPE_ONCE
    if for_session or always:
        scope = attention_pb2.APPROVAL_SCOPE_ALWAYS if always else attention_pb2.APPROVAL_SCOPE_SESSION
    approval = attention_pb2.Approval(scope=scope, mode=mode_number(mode))
    if edit:
        found = get_request(app, request)
        request = found.id
        approval.updated_input_json = edited_input(app, found)
    resolve(app, request, attention_pb2.Resolution(approve=approval))


def edited_input(app: App, request: "AttentionRequest") -> str:
    """Open the request's input in $EDITOR and return the result; "" if unchanged. Raises a ClientError."""
    from rametctl.errors import ClientError, UsageError

    before = json.loads(request.input_json or "{}")
    editor = app.environ.get("VISUAL") or app.environ.get("EDITOR") or "vi"
    try:
        text = click.edit(json.dumps(before, ensure_ascii=False, indent=2) + "\n", editor=editor, extension=".json")
    except click.ClickException as error:
        raise ClientError(f"nothing was approved: {error.format_message()}", hint="is $EDITOR right?") from error
    if text is None:
        # Left without saving: whoever asked for an editor has not said yes to the input as it was.
        raise ClientError("nothing was approved: the input was not saved", hint="omit --edit to approve it unchanged")
    try:
        after = json.loads(text)
    except ValueError as error:
        raise UsageError(f"nothing was approved: what was saved is not JSON ({error})", hint="try again") from error
    if not isinstance(after, dict):
        raise UsageError("nothing was approved: the input must be a JSON object", hint="try again")
    return "" if after == before else json.dumps(after, ensure_ascii=False)
