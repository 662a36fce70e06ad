"""`rametctl new`: create a session."""

import shlex
import sys
from collections.abc import Sequence
from typing import TypedDict, Unpack

import click
from ramet.v1 import session_pb2
from ramet.v1.session_pb2 import CreateSessionRequest, Session

from rametctl.app import App
from rametctl.connection.environment import variable_changes
from rametctl.editor import write_prompt
from rametctl.errors import ClientError, UsageError
from rametctl.nouns.prompts import PromptCommand, check_unread, image_option, read_images, read_prompt, with_files
from rametctl.nouns.sessions import check_outcome, detachable, show_end, wait_sessions
from rametctl.options import (
    Budget,
    budget_option,
    complete_agent,
    complete_branch,
    complete_file,
    complete_session,
    effort_option,
    env_option,
    mode_number,
    mode_option,
    repo_option,
    repo_path,
    wait_options,
)
from rametctl.render.session import created, reference, setup_failed


class Options(TypedDict):
    """The command line of `new`."""

    prompt: str | None
    file: str | None
    images: tuple[str, ...]
    name: str
    branch: str
    base: str
    existing: str
    in_place: bool
    with_changes: bool
    fetch: bool
    initial_commit: bool
    agent: tuple[str, ...]
    model: str
    mode: str | None
    effort: str | None
    budget: Budget | None
    own: tuple[str, ...]
    forbid: tuple[str, ...]
    parent: str
    priority: int
    after: tuple[str, ...]
    count: int
    idle: bool
    check: str
    wait: bool
    timeout: float | None
    watch: bool
    env: tuple[str, ...]
    repo: str | None


@click.command("new", cls=PromptCommand, short_help="Create a session: branch, worktree, agent.")
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
@click.option("-n", "--name", default="", help="Session name (default: from the prompt).")
@click.option("-b", "--branch", default="", help="Branch to create (default: from the name).")
@click.option(
    "--base",
    metavar="REF",
    default="",
    shell_complete=complete_branch,
    help="Start from this ref (default: the current HEAD).",
)
@click.option(
    "--existing",
    metavar="BRANCH",
    default="",
    shell_complete=complete_branch,
    help="Work on an existing branch, local or remote.",
)
@click.option("--in-place", is_flag=True, help="Work in this checkout, without a worktree.")
@click.option("--with-changes", is_flag=True, help="Copy uncommitted changes of this checkout.")
@click.option("--fetch", is_flag=True, help="Fetch the base or the existing branch first.")
@click.option("--initial-commit", is_flag=True, help="If there is no commit yet, create an empty one.")
@click.option(
    "--agent",
    metavar="KIND[:N]",
    multiple=True,
    shell_complete=complete_agent,
    help="Kind of agent, see: rametctl agents (default: claude); several make a contest.",
)
@click.option("-m", "--model", default="", help="Model.")
@mode_option("Permission mode; see: rametctl help modes.")
@effort_option
@budget_option("Pause the session at this cost: dollars, or tokens such as 2Mtok.")
@click.option("--own", metavar="GLOB", multiple=True, help="Paths that the session owns (repeatable).")
@click.option("--forbid", metavar="GLOB", multiple=True, help="Paths that it must not change (repeatable).")
@click.option("--parent", metavar="SESSION", default="", shell_complete=complete_session, help="Parent session.")
@click.option("--priority", type=int, default=0, metavar="N", help="Higher starts first when slots are scarce.")
@click.option(
    "--after",
    metavar="SESSION",
    multiple=True,
    shell_complete=complete_session,
    help="Start once SESSION has ended a turn.",
)
@click.option(
    "--count", type=click.IntRange(1, 100), default=1, metavar="N", help="Create N sessions with the same prompt."
)
@click.option("--check", metavar="CMD", default="", help="Check that `rametctl compare` runs in each contender.")
@env_option
@click.option("--idle", is_flag=True, help="Create it without a prompt, even on a terminal.")
@wait_options
@click.option("-w", "--watch", is_flag=True, help="Watch the session afterwards.")
@repo_option
@click.pass_obj
def command(app: App, /, **options: Unpack[Options]) -> None:
    """Create a session: a branch, a worktree, and an agent that works on PROMPT.

    PROMPT may begin with a dash and be megabytes long. "@FILE" in it adds the contents
    of a text file. Text that is piped in is the prompt, or with "-f -" follows PROMPT.
    Without either, a terminal opens $EDITOR; with --idle, and elsewhere, the session
    is idle until `rametctl send`.

    With --count or several --agent, Ramet creates a contest: sessions with the same
    prompt and base commit, NAME-1 to NAME-N or NAME-KIND, all or none. See:
    rametctl compare, rametctl pick.

    --with-changes copies files, not the index: staged changes are unstaged in the new
    worktree. This checkout is not changed.

    \b
    Examples:
      rametctl new "fix the login"
      rametctl new --name docs --base main -f task.md
      gh issue view 12 | rametctl new --wait
      rametctl new "make it faster" --agent claude:2 --agent codex --check make
    """
    if options["base"] and options["existing"]:
        raise UsageError("--base and --existing were both given", hint="an existing branch is its own base")
    contenders = expand_agents(options["agent"], options["count"])
    if options["check"] and not contenders:
        raise UsageError("--check needs several sessions", hint="add --count or --agent KIND:N")
    wait, watch = options["wait"], options["watch"]
    if wait and watch:
        raise UsageError("--wait and --watch were both given", hint="give one of them")
    if options["idle"] and (options["prompt"], options["file"]) != (None, None):
        raise UsageError("a prompt and --idle were both given", hint="give one of them")
    text = None
    if options["idle"]:
        check_unread(sys.stdin, "--idle", "without --idle, it is the prompt", app.output.note)
    else:
        text = read_prompt(options["prompt"], options["file"], sys.stdin, app.output.note, app.cwd)
        if text is None and app.on_terminal:
            text = with_files(write_prompt(app), app.cwd)
    if wait and text is None:
        raise UsageError("--wait needs a prompt", hint="give a prompt", reason="EMPTY_PROMPT")
    images = read_images(options["images"], app.cwd)
    if images and text is None:
        raise UsageError("an image was given without a prompt", hint="add a prompt that says what to do with it")
    base = _request(options, contenders, text or "")
    base.images.extend(images)
    base.path = repo_path(app, options["repo"])
    if (variables := variable_changes(app.environ, options["env"])) is not None:
        base.variables.CopyFrom(variables)
    sessions = _create(app, base)
    if not (wait and app.output.json_mode):
        _report(app, sessions, stream=watch, idle=text is None, hint=not (wait or watch))
    if wait:
        with detachable(app, sessions):
            _wait(app, sessions, options["timeout"])
    if watch:
        from rametctl.commands.watch import watch_sessions

        with detachable(app, sessions):
            watch_sessions(app, [session.id for session in sessions])


def expand_agents(agents: Sequence[str], count: int) -> list[str]:
    """Return the agents of a contest, "" for the default one; empty for a single session. Raise
    UsageError."""
    if count > 1 and len(agents) > 1:
        raise UsageError("--count and several --agent were given", hint="give --agent KIND:N")
    kinds: list[str] = []
    for agent in agents or ("",):
        kind, colon, number = agent.partition(":")
        if colon and not (number.isascii() and number.isdigit() and 0 < int(number) <= 100 and kind):
            raise UsageError(f"invalid value for '--agent': {agent!r}", hint="give KIND or KIND:N, N from 1 to 100")
        kinds += [kind] * (int(number) if colon else 1) * count
    return kinds if len(kinds) > 1 else []


def _request(options: Options, contenders: Sequence[str], prompt: str) -> "CreateSessionRequest":
    return session_pb2.CreateSessionRequest(
        prompt=prompt,
        name=options["name"],
        branch=options["branch"],
        base_ref=options["base"],
        existing_branch=options["existing"],
        in_place=options["in_place"],
        with_changes=options["with_changes"],
        fetch=options["fetch"],
        initial_commit=options["initial_commit"],
        agent="" if contenders else "".join(options["agent"]).removesuffix(":1"),
        contenders=contenders,
        check=options["check"],
        model=options["model"],
        mode=mode_number(options["mode"]),
        effort=options["effort"] or "",
        **(options["budget"] or {}),
        owns=options["own"],
        forbids=options["forbid"],
        parent=options["parent"],
        priority=options["priority"],
        after=options["after"],
    )


def _create(app: App, request: "CreateSessionRequest") -> "list[Session]":
    """Create the session, or all of a contest; if there is no commit yet, offer to create one."""
    several = f"creating {len(request.contenders)} sessions …"
    try:
        answer = app.call(
            lambda daemon: daemon.sessions.CreateSession,
            request,
            doing=several if request.contenders else "creating the session …",
        )
    except ClientError as error:
        if error.reason != "NO_COMMIT" or request.initial_commit or not app.can_ask:
            raise
        if not app.output.confirm("This repository has no commit yet. Create an empty one?"):
            raise
        request.initial_commit, request.request_id = True, ""
        return _create(app, request)
    return list(answer.contenders) or [answer.session]


def _report(app: App, sessions: "Sequence[Session]", *, stream: bool, idle: bool, hint: bool) -> None:
    _print_json(app, sessions, stream=stream)
    for number, session in enumerate(sessions):
        if number:
            app.output.text("")
        app.output.show(*created(session))
        name = reference(session)
        if idle:
            app.output.text(f"The session is idle; send it a prompt: rametctl send {name} PROMPT")
        elif hint and len(sessions) == 1:
            app.output.hint(f"to follow it: rametctl watch {name}")
    if len(sessions) > 1 and not idle:
        app.output.text("", f"To compare them: rametctl compare {shlex.quote(sessions[0].contest)}")


def report_one(app: App, session: "Session", *, idle: bool) -> None:
    """Report a new session."""
    _report(app, [session], stream=False, idle=idle, hint=True)


def _print_json(app: App, sessions: "Sequence[Session]", *, stream: bool = False) -> None:
    """Print one object for one session, an array for a contest; one line per session before a
    stream."""
    for each in sessions if stream else [sessions[0] if len(sessions) == 1 else sessions]:
        app.output.json(each, stream=stream)


def _wait(app: App, sessions: "Sequence[Session]", timeout: float | None) -> None:
    answer = wait_sessions(app, [each.id for each in sessions], condition="turn", timeout=timeout)
    latest = {session.id: session for session in answer.sessions}
    now = [latest.get(each.id, each) for each in sessions]
    _print_json(app, now)
    for each in now:
        app.output.text("")
        show_end(app, each, answer)
        if setup_failed(each):
            app.output.warn([f"its setup failed; see: rametctl show {reference(each)}"])
    check_outcome(answer)
