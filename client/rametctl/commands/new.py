"""`rametctl new`: make a session."""

import fnmatch
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from rametctl.app import App
from rametctl.options import complete_session, mode_number, mode_option, new_request_id, repo_option, repo_path
from rametctl.prompts import PromptCommand, read_prompt

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import CreateSessionRequest, Session


class Options(TypedDict):
    """The command line of `new`."""

    prompt: str | None
    file: str | None
    name: str
    branch: str
    base: str
    existing: str
    agent: str
    model: str
    mode: str | None
    budget: float | None
    own: tuple[str, ...]
    forbid: tuple[str, ...]
    parent: str
    priority: int
    after: tuple[str, ...]
    wait: bool
    watch: bool
    repo: str | None


@click.command("new", cls=PromptCommand, short_help="Make a session: branch, worktree, agent.")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file.")
@click.option("--name", default="", help="Its name; made from the prompt otherwise.")
@click.option("--branch", default="", help="The branch to make; made from the name otherwise.")
@click.option("--base", metavar="REF", default="", help="What to start from; what is checked out here otherwise.")
@click.option("--existing", metavar="BRANCH", default="", help="Work on a branch that exists.")
@click.option("--agent", default="", help="Kind of agent; claude otherwise.")
@click.option("--model", default="", help="Its model.")
@mode_option("What it may do unasked.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Pause it at this cost.")
@click.option("--own", metavar="GLOB", multiple=True, help="Paths that are its own; again for more.")
@click.option("--forbid", metavar="GLOB", multiple=True, help="Paths it must not touch; again for more.")
@click.option("--parent", metavar="S", default="", shell_complete=complete_session, help="The session it belongs to.")
@click.option("--priority", type=int, default=0, metavar="N", help="Higher starts first when slots are rare.")
@click.option(
    "--after", metavar="S", multiple=True, shell_complete=complete_session, help="Start once S has ended a turn."
)
@click.option("--wait", is_flag=True, help="Wait for the end of the turn; leaves with 4 when a person is needed.")
@click.option("--watch", is_flag=True, help="Watch it afterwards.")
@repo_option
@click.pass_obj
def command(app: App, /, **options: Unpack[Options]) -> None:
    """Make a session: a branch, a worktree and an agent in it, at work on PROMPT.

    The prompt may begin with a dash and be megabytes long. It is read from
    standard input when that is a pipe, or with "-". Without one the session is
    idle until `rametctl send`.

    \b
    Examples:
      rametctl new "fix the login"
      rametctl new --name docs --base main -f task.md
      gh issue view 12 | rametctl new --wait
    """
    from ramet import jsonify

    from rametctl.errors import UsageError
    from rametctl.render.session import created, reference

    if options["base"] and options["existing"]:
        raise UsageError("--base and --existing were both given", hint="an existing branch is its own base")
    wait, watch = options["wait"], options["watch"]
    if wait and watch:
        raise UsageError("--wait and --watch were both given", hint="give one of them")
    text = read_prompt(options["prompt"], options["file"], sys.stdin)
    if wait and text is None:
        raise UsageError("there is nothing to wait for without a prompt", hint="give a prompt", reason="EMPTY_PROMPT")
    request = _request(options, text or "")
    request.path = repo_path(app, options["repo"])
    with app.output.spinner("making the session …"):
        patterns = app.connection.info().environment_patterns
        request.environment.update(wanted_environment(app.environ, patterns))
        answer = app.connection.call(lambda daemon: daemon.sessions.CreateSession, request)
    session = answer.session
    for warning in answer.warnings:
        app.output.note(f"rametctl: warning: {warning}")
    if app.output.json_mode:
        if not wait:
            app.output.json(jsonify.to_json(session), stream=watch)
    else:
        app.output.show(*created(session))
        name = reference(session)
        if text is None:
            app.output.text(f"It is idle. Tell it what to do: rametctl send {name} PROMPT")
        elif not (wait or watch):
            app.output.hint(f"rametctl watch {name}")
    if wait:
        _wait(app, session)
    if watch:
        from rametctl.commands.watch import watch_sessions

        watch_sessions(app, [session.id])


def wanted_environment(environ: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    """The variables that the daemon asks for by its patterns; what is not UTF-8 cannot be sent and stays out."""
    wanted = list(patterns)
    return {
        key: value
        for key, value in environ.items()
        if any(fnmatch.fnmatchcase(key, pattern) for pattern in wanted) and _is_utf8(key + value)
    }


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _request(options: Options, prompt: str) -> "CreateSessionRequest":
    from ramet.v1 import session_pb2

    return session_pb2.CreateSessionRequest(
        prompt=prompt,
        name=options["name"],
        branch=options["branch"],
        base_ref=options["base"],
        existing_branch=options["existing"],
        agent=options["agent"],
        model=options["model"],
        mode=mode_number(options["mode"]),
        budget_usd=options["budget"],
        owns=options["own"],
        forbids=options["forbid"],
        parent=options["parent"],
        priority=options["priority"],
        after=options["after"],
        request_id=new_request_id(),
    )


def _wait(app: App, session: "Session") -> None:
    from ramet import jsonify

    from rametctl.render.session import outcome
    from rametctl.sessions import check_outcome, wait_sessions

    answer = wait_sessions(app, [session.id])
    latest = answer.sessions[0] if answer.sessions else session
    if app.output.json_mode:
        app.output.json(jsonify.to_json(latest))
    else:
        app.output.show(outcome(latest))
    check_outcome(answer)
