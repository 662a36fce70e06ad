"""`rametctl send`: send a prompt."""

import sys

import click
from ramet.v1 import session_pb2
from ramet.v1.session_pb2 import PROMPT_STATE_QUEUED, SendPromptResponse, Session

from rametctl.app import App
from rametctl.editor import write_prompt
from rametctl.errors import UsageError
from rametctl.nouns.prompts import PromptCommand, image_option, read_images, read_prompt, with_files
from rametctl.nouns.requests import by_urgency
from rametctl.nouns.sessions import addressee, check_outcome, detachable, get_session, show_end, wait_sessions
from rametctl.options import complete_file, session_argument, wait_options
from rametctl.render.request import answer_command
from rametctl.render.session import reference, state_name


@click.command("send", cls=PromptCommand, short_help="Send a prompt to an agent.")
@session_argument
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option(
    "-f",
    "-F",
    "--file",
    metavar="FILE",
    shell_complete=complete_file,
    help="Read the prompt, or what follows PROMPT, from a file.",
)
@image_option
@wait_options
@click.option("-w", "--watch", is_flag=True, help="Watch the session afterwards.")
@click.pass_obj
def command(
    app: App,
    session: str,
    prompt: str | None,
    file: str | None,
    images: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    watch: bool,
) -> None:
    """Send PROMPT to SESSION. A working agent gets it in its running turn, an idle one starts a
    turn, and a stopped one is started. "@FILE" in PROMPT adds the contents of a text file. Text
    that is piped in is the prompt, or with "-f -" follows PROMPT. Without either, a terminal opens
    $EDITOR.

    Inside a session, the sender is that session: it may send prompts of at most 16 KiB to its
    family ("parent" is the session that spawned it).

    \b
    Examples:
      rametctl send fix-login "now write the tests, as in @notes.md"
      rametctl send fix-login "make it look like this" --image mockup.png
      rametctl send fix-login -f review.md --wait
      git diff | rametctl send fix-login "review this" -f -
    """
    if wait and watch:
        raise UsageError("--wait and --watch were both given", hint="give one of them")
    text = read_prompt(prompt, file, sys.stdin, app.output.note, app.cwd)
    if text is None and not app.on_terminal:
        raise UsageError("there is no prompt", hint="give one, or pipe one in", reason="EMPTY_PROMPT")
    name = addressee(app, session)
    if text is None:
        text = with_files(write_prompt(app), app.cwd)
    request = session_pb2.SendPromptRequest(session=name, prompt=text, images=read_images(images, app.cwd))
    answer = app.call(lambda daemon: daemon.sessions.SendPrompt, request, doing="sending …")
    if wait:
        with detachable(app, [answer.session]):
            _wait(app, answer, timeout)
        return
    app.output.json(answer, stream=watch)
    app.output.text(f"{answer.session.name}: {fate(answer, _first_answer(app, answer.session))}")
    if watch:
        from rametctl.commands.watch import watch_sessions

        with detachable(app, [answer.session]):
            watch_sessions(app, [answer.session.id])


def _first_answer(app: App, session: "Session") -> str:
    """Return the command that answers the request that blocks a waiting session; "" for another
    state."""
    if state_name(session) != "waiting":
        return ""
    blocking, _ = by_urgency(get_session(app, session.id).open_requests)
    return answer_command(blocking[0]) if blocking else ""


def fate(sent: "SendPromptResponse", answer: str = "") -> str:
    """Describe what happens to a queued prompt, by its session's state; ``answer`` is the command
    that unblocks the session."""
    session = sent.session
    match state_name(session):
        case "working" if sent.prompt.state == PROMPT_STATE_QUEUED:
            return "sent; the agent gets it once the running turn has ended"
        case "working":
            return "sent; it reaches the running turn"
        case "waiting":
            return f"queued until its request is answered: {answer or f'rametctl inbox {reference(session)}'}"
        case "paused" if session.state_reason.startswith("attached "):
            return f"queued until the program that has the conversation ends: the session is {session.state_reason}"
        case "paused" | "queued" if session.state_reason:
            return f"kept: {session.state_reason}"
        case "paused":
            return f"queued until the session resumes: rametctl resume {reference(session)}"
        case _:
            return "sent; it starts a turn"


def _wait(app: App, answer: "SendPromptResponse", timeout: float | None) -> None:
    if state_name(answer.session) in {"paused", "waiting"}:
        app.output.note(fate(answer))  # else a script that sees the wait fail would send it again
    waited = wait_sessions(app, [answer.session.id], condition="turn", timeout=timeout, prompt=answer.prompt.number)
    if waited.sessions:
        answer.session.CopyFrom(waited.sessions[0])
    app.output.json(answer)
    show_end(app, answer.session, waited, answer.prompt.id)
    check_outcome(waited)
