"""`rametctl daemon`: manage the daemon."""

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from ramet.jsonify import to_json
from ramet.v1 import daemon_pb2
from ramet.v1.daemon_pb2 import GetInfoResponse
from ramet.words import plural

from rametctl.app import App
from rametctl.connection.start import WARNING, config_problems, daemon_command
from rametctl.console.lines import line
from rametctl.errors import ClientError, ConnectionLostError, RefusedError, TimedOutError, UnreachableError
from rametctl.local.log import follow_file, log_line, tail
from rametctl.options import Verb
from rametctl.render.format import local_time, money

if TYPE_CHECKING:
    from rametctl.connection.channel import Connection

STOP_DEADLINE = 30.0
"""Seconds to wait for the daemon to exit after Shutdown."""


@click.group("daemon", short_help="Manage the daemon: start, stop, restart, status, logs.")
def command() -> None:
    """Manage the daemon. The first command that needs a daemon starts it. Agents keep
    running while the daemon is stopped.

    \b
    Examples:
      rametctl daemon status
      rametctl daemon restart
      rametctl daemon logs --follow
    """


@command.command("run", short_help="Run the daemon in the foreground.")
@click.pass_obj
def run(app: App) -> None:
    """Run the daemon in the foreground; this process becomes the daemon.

    \b
    Example:
      rametctl daemon run
    """
    words = [*daemon_command(), "run"]
    os.execvpe(words[0], words, dict(app.environ))  # noqa: S606  no shell is wanted


@command.command("start", cls=Verb, short_help="Start the daemon.")
@click.pass_obj
def start(app: App) -> None:
    """Start the daemon in the background and wait until it is ready. Succeeds if one
    is already running.

    \b
    Example:
      rametctl daemon start
    """
    connection = app.connect(autostart=True)
    with app.output.spinner("starting the daemon …"):
        started = connection.ensure_running()
    _say_running(app, connection.info(), "started" if started else "already running")


@command.command("stop", cls=Verb, short_help="Stop the daemon; agents keep running.")
@click.pass_obj
def stop(app: App) -> None:
    """Stop the daemon. Agents keep running under their keepers; the next daemon
    reattaches to them. Succeeds if none is running.

    \b
    Example:
      rametctl daemon stop
    """
    stopped = _stop(app, app.connect(autostart=False))
    app.output.json({"stopped": stopped is not None, "pid": stopped[0] if stopped else None})
    if stopped is None:
        app.output.text("no daemon is running")
    else:
        pid, agents = stopped
        who = "agents" if agents is None else plural(agents, "agent")
        runs = f"; {who} {'keeps' if agents == 1 else 'keep'} running" if agents != 0 else ""
        app.output.text(f"stopped rametd (pid {pid}){runs}")


@command.command("restart", cls=Verb, short_help="Restart the daemon; agents keep running.")
@click.pass_obj
def restart(app: App) -> None:
    """Restart the daemon, for example after an upgrade. Agents keep running. With an
    invalid configuration, the running daemon is not stopped.

    \b
    Example:
      rametctl daemon restart
    """
    connection = app.connect(autostart=True)
    wrong: list[str] = []
    with suppress(ClientError):  # a program of another release may not know the command; its start says what is wrong
        wrong = [each for each in config_problems(app.environ) if not each.startswith(WARNING)]
    if wrong:
        hint = "the daemon was not stopped; mend the file, then: rametctl daemon restart"
        raise ClientError("; ".join(wrong), hint=hint, reason="BAD_CONFIG")
    with app.output.spinner("restarting the daemon …"):
        _stop(app, app.connect(autostart=False))
        connection.ensure_running()
    _say_running(app, connection.info(), "restarted")


@command.command("status", cls=Verb, short_help="Show the daemon's state.")
@click.pass_obj
def status(app: App) -> None:
    """Show whether a daemon is running, and its counts. Exits with 5 if none is
    running; never starts one.

    \b
    Examples:
      rametctl daemon status
      rametctl daemon status --json | jq .agents_alive
    """
    connection = app.connect(autostart=False)
    info = connection.info(timeout=10)
    statistics: daemon_pb2.GetStatisticsResponse | None = None
    if info.serving:
        try:
            statistics = connection.call(
                lambda daemon: daemon.daemon.GetStatistics,
                daemon_pb2.GetStatisticsRequest(), timeout=10,
            )  # fmt: skip
        except RefusedError as error:
            # An agent may ask whether a daemon runs, but not about sessions of others.
            if error.status != "PERMISSION_DENIED":
                raise
    sessions = sum(statistics.sessions.values()) if statistics else None
    agents = statistics.agents_alive if statistics else None
    totals = {"sessions": sessions, "agents_alive": agents} | ({"statistics": statistics} if statistics else {})
    app.output.json(to_json(info) | totals)
    state = "serves" if info.serving else "recovers"
    rows = [
        ("daemon", f"rametd {info.version}, pid {info.pid}, {state}"),
        ("since", local_time(info.start_time)),
        ("socket", info.socket),
        ("state", info.state_dir),
        ("log", info.log_file),
    ]
    if statistics:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(statistics.sessions.items()) if count)
        rows += [
            ("sessions", f"{sessions}" + (f" ({counts})" if counts else "")),
            ("agents", f"{agents} alive"),
            ("requests", f"{statistics.open_requests} open"),
            ("spent", money(statistics.cost_usd)),
        ]
    if info.read_only:
        rows.append(("warning", "the disk is full: Ramet cannot record anything until there is room again"))
    if info.quarantine:
        rows.append(("warning", f"a damaged database was saved as: {info.quarantine}"))
    app.output.show(*(line((f"{key:<9} ", "dim"), value) for key, value in rows))


@command.command("logs", cls=Verb, short_help="Show the daemon's log.")
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), default=200, metavar="N", help="Number of lines (default: 200)."
)
@click.pass_obj
def logs(app: App, follow: bool, lines: int) -> None:
    """Show the daemon's log, whether or not the daemon is running. --json prints the
    lines as they are in the file, one object per line.

    \b
    Examples:
      rametctl daemon logs -n 50
      rametctl daemon logs --follow
    """
    file = app.directories.logs / "rametd.log"
    if not file.exists():
        raise ClientError(f"no log yet: {file}", hint="run: rametctl daemon start", reason="NO_LOG")
    for text in follow_file(file, lines) if follow else tail(file, lines):
        _print_log_line(app, text)


def _print_log_line(app: App, text: str) -> None:
    app.output.json_line(text)
    app.output.show(log_line(text))


def _stop(app: App, connection: "Connection") -> tuple[int, int | None] | None:
    """Shut the daemon down and wait until it has exited. Returns (pid, running agents if reported),
    or None if none ran.

    This never signals a process: a pid in a file may belong to another process by now.
    """
    if not connection.running():
        return None
    pid, instance = 0, ""
    agents: int | None = None
    try:
        before = connection.info(timeout=STOP_DEADLINE)
        pid, instance = before.pid, before.instance_id
        answer = connection.call(
            lambda daemon: daemon.daemon.Shutdown,
            daemon_pb2.ShutdownRequest(), timeout=STOP_DEADLINE, retry=False,
        )  # fmt: skip
        pid, agents = answer.pid, answer.agents_alive
    except TimedOutError as error:
        message = "the daemon does not answer"
        raise UnreachableError(message, hint="is its process stopped? rametctl daemon logs", reason="SILENT") from error
    except ConnectionLostError:
        # It exited before its answer was sent, or upon another request; it is stopping either way.
        agents = None
    except UnreachableError:
        return None
    end = time.monotonic() + STOP_DEADLINE
    while connection.running() or (pid and _alive(pid)):
        if time.monotonic() > end:
            raise UnreachableError("the daemon did not exit in time", hint="see: rametctl daemon logs", reason="SILENT")
        if connection.running() and _is_another(connection, instance):
            app.output.note(
                "rametctl: another daemon was started meanwhile, by the service manager or by a waiting command"
            )
            break
        time.sleep(0.05)
    return pid, agents


def _alive(pid: int) -> bool:
    """Return whether the process exists, by the pid that the daemon has just reported. Sends no
    signal."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        # Gone, or another user's process by now, which means the same.
        return False
    return True


def _is_another(connection: "Connection", instance_id: str) -> bool:
    connection.close()
    try:
        return connection.info(timeout=1, retry=False).instance_id != instance_id
    except ClientError:
        return False


def _say_running(app: App, info: "GetInfoResponse", what: str) -> None:
    app.output.answer(info, [f"{what}: rametd {info.version} (pid {info.pid}) at {info.socket}"])
