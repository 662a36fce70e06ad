"""`rametctl run`: run a command in a session's worktree."""

import shlex
import time
from collections.abc import Sequence
from typing import TypedDict, Unpack

import click
from ramet.jsonify import enum_name
from ramet.v1 import terminal_pb2
from ramet.v1.terminal_pb2 import Command

from rametctl.app import App
from rametctl.errors import UsageError
from rametctl.nouns.sessions import get_session, session_name
from rametctl.nouns.terminals import ends_at_once, follow_to_end, show_output
from rametctl.options import Verb, session_argument
from rametctl.render.command import exit_code, how_it_ended, title
from rametctl.render.format import age

TYPED = "rametctl.typed"
ENDED = 30.0
"""Seconds after a command's time limit in which the daemon ends it, if one runs: a command may end
slowly."""


class RunCommand(Verb):
    """Takes everything after ``--`` as a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[TYPED] = argv_of(args[at + 1 :])
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                raise click.UsageError("put -- before a command: rametctl run SESSION -- COMMAND...", ctx) from error
            raise


def argv_of(typed: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments after ``--``. A single one with blanks is a command line, as in ssh."""
    if len(typed) == 1 and len(typed[0].split()) > 1:
        return ("sh", "-c", typed[0])
    return tuple(typed)


class Options(TypedDict):
    """The command line of `run`."""

    session: str
    name: str | None
    detach: bool
    timeout: float | None
    list_them: bool
    show_all: bool
    logs: str | None
    follow: bool
    stop: str | None


@click.command("run", cls=RunCommand, options_metavar="[OPTIONS]", short_help="Run a command in a session's worktree.")
@session_argument
@click.argument("name", metavar="[NAME | -- COMMAND...]", required=False)
@click.option("--detach", is_flag=True, help="Start it in the background; report an immediate exit.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop it after this time."
)
@click.option("--list", "list_them", is_flag=True, help="List running commands; with --all also ended ones.")
@click.option("-a", "--all", "show_all", is_flag=True, help="With --list: include ended commands.")
@click.option("--logs", metavar="ID", help="Show a command's output.")
@click.option("-f", "--follow", is_flag=True, help="With --logs: follow until it has ended.")
@click.option("--stop", metavar="ID", help="Stop a command with all its processes.")
@click.pass_context
def command(ctx: click.Context, /, **options: Unpack[Options]) -> int:
    """Run COMMAND, or the configured command run.NAME, in the worktree of SESSION, with its ports
    and environment. Follows the output and exits with the command's exit code. The command keeps
    running if you press Ctrl-C or the daemon restarts; --stop ends it with all its child processes.

    \b
    Examples:
      rametctl run fix-login -- npm test
      rametctl run fix-login -- "npm ci && npm test"
      rametctl run fix-login web --detach
      rametctl run fix-login --list
      rametctl run fix-login --logs k3m --follow
    """
    app = ctx.find_object(App)
    assert app is not None
    typed: tuple[str, ...] = ctx.meta.get(TYPED, ())
    ways = [bool(options["list_them"]), options["logs"] is not None, options["stop"] is not None]
    starts = bool(typed) or options["name"] is not None
    if sum(ways) + starts != 1 or (typed and options["name"] is not None):
        raise UsageError(
            "give one thing to do: a NAME, or -- and a command, --list, --logs or --stop",
            hint="see: rametctl run --help",
        )
    if options["show_all"] and not options["list_them"]:
        raise UsageError("--all needs --list", hint="add --list")
    if options["follow"] and options["logs"] is None:
        raise UsageError("--follow needs --logs", hint="a new command is followed unless you give --detach")
    timeout = options["timeout"]
    with app.connection.within(None if timeout is None else timeout + ENDED):
        session = session_name(app, options["session"])
        if options["list_them"]:
            return _list(app, session, everything=options["show_all"])
        if options["logs"] is not None or options["stop"] is not None:
            get_session(app, session)  # refuse a session that does not exist
        if options["logs"] is not None:
            return _logs(app, options["logs"], follow=options["follow"])
        if options["stop"] is not None:
            return _stop(app, options["stop"])
        return _start(app, session, typed, options)


def _start(app: App, session: str, argv: tuple[str, ...], options: Options) -> int:
    request = terminal_pb2.StartCommandRequest(session=session, argv=argv, name=options["name"] or "")
    if options["timeout"] is not None:
        request.timeout.FromNanoseconds(int(options["timeout"] * 1e9))
    answer = app.call(lambda daemon: daemon.terminals.StartCommand, request, doing="starting …")
    started = answer.command
    stop = f"rametctl run {shlex.quote(started.session_name or session)} --stop {started.id}"
    if options["detach"]:
        return _detach(app, started, stop)
    ended = follow_to_end(app, started, stop)
    app.output.json(ended, stream=True)
    if not ended.exit_status.startswith("code"):
        app.output.note(f"rametctl: {how_it_ended(ended)}")
    return exit_code(ended)


def _detach(app: App, started: "Command", stop: str) -> int:
    """Report that the command runs, or that it has failed within a moment."""
    over = ends_at_once(app, started)
    app.output.json(over[0] if over else started)
    if over is None:
        app.output.text(f"{started.id} is running; to stop it: {stop}")
        return 0
    ended, last = over
    words = f": {last}" if last else ", without output" if exit_code(ended) else ""
    app.output.text(f"{ended.id} has ended already, {how_it_ended(ended)}{words}")
    return exit_code(ended)


def _logs(app: App, name: str, *, follow: bool) -> int:
    ended = show_output(app, name, follow=follow)
    if ended is not None:
        app.output.json(ended, stream=True)
    return 0


def _stop(app: App, name: str) -> int:
    request = terminal_pb2.StopCommandRequest(command=name)
    stopped = app.call(lambda daemon: daemon.terminals.StopCommand, request, doing="stopping the command …").command
    app.output.answer(stopped, [f"{stopped.id} {title(stopped)}: {how_it_ended(stopped)}"])
    return 0


def _list(app: App, session: str, *, everything: bool) -> int:
    request = terminal_pb2.ListCommandsRequest(session=session, include_ended=everything)
    found = app.listed(lambda daemon: daemon.terminals.ListCommands, request, lambda page: page.commands)
    app.output.json(found)
    if not found:
        app.output.text("no commands are running" if not everything else "no commands were run")
    else:
        now = time.time()
        rows = [
            [
                (each.id, "bold"),
                (enum_name(each, "kind") or "", ""),
                (how_it_ended(each), ""),
                (age(each.start_time, now), "dim"),
                (" ".join(title(each).split()), ""),
            ]
            for each in found
        ]
        headers = ["ID", "KIND", "STATE", "AGE", "COMMAND"]
        app.output.show(*app.output.table(headers, rows, shrink=[("COMMAND", 20), ("STATE", 10)]))
    return 0
