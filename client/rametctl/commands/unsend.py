"""`rametctl unsend`: take back a queued prompt."""

import click
from ramet.v1 import session_pb2
from ramet.words import plural

from rametctl.app import App
from rametctl.errors import UsageError
from rametctl.nouns.sessions import get_session, session_name
from rametctl.options import Verb, session_argument
from rametctl.render.session import reference


@click.command("unsend", cls=Verb, short_help="Take back a queued prompt.")
@session_argument
@click.argument("number", metavar="[N]", type=click.IntRange(min=1), required=False)
@click.option("-a", "--all", "every", is_flag=True, help="Take back all queued prompts.")
@click.pass_obj
def command(app: App, session: str, number: int | None, every: bool) -> None:
    """Take back the newest queued prompt of SESSION, or the Nth of those that `show`
    lists, and print it. This works until the agent has it; `interrupt` withdraws prompts that a
    working agent has not read.

    \b
    Examples:
      rametctl unsend fix-login
      rametctl unsend fix-login | $EDITOR -
    """
    if number is not None and every:
        raise UsageError("N and --all were both given", hint="give one of them")
    request = session_pb2.WithdrawPromptsRequest(session=session_name(app, session))
    if number is not None or every:
        found = get_session(app, request.session)
        queued = [each.id for each in found.pending_prompts if each.state == session_pb2.PROMPT_STATE_QUEUED]
        if number is not None and number > len(queued):
            raise UsageError(
                f"{found.session.name} has {plural(len(queued), 'queued prompt')}",
                hint=f"see: rametctl show {reference(found.session)}",
            )
        request.prompts[:] = queued if number is None else queued[number - 1 : number]
    answer = app.call(lambda daemon: daemon.sessions.WithdrawPrompts, request)
    app.output.json(answer)
    app.output.raw(*(prompt.text for prompt in answer.withdrawn))
