"""`rametctl ports`: list sessions' ports and their listeners."""

import click
from ramet.jsonify import to_json
from ramet.v1 import terminal_pb2
from ramet.v1.terminal_pb2 import Port

from rametctl.app import App
from rametctl.nouns.sessions import session_name
from rametctl.options import Verb, complete_session


@click.command("ports", cls=Verb, short_help="List ports and their listeners.")
@click.argument("session", metavar="[SESSION]", required=False, shell_complete=complete_session)
@click.pass_obj
def command(app: App, session: str | None) -> None:
    """Show the ports of SESSION and the process that listens on each, and whether that
    process belongs to the session. Without SESSION, show the ports of all sessions
    that have a listener.

    \b
    Examples:
      rametctl ports fix-login
      rametctl ports --json | jq '.[] | select(.listening)'
    """
    name = session_name(app, session) if session is not None else ""
    request = terminal_pb2.ListPortsRequest(session=name)
    answer = app.call(lambda daemon: daemon.terminals.ListPorts, request)
    listed = [(each, port) for each in answer.sessions for port in each.ports]
    app.output.json(
        [{"session_id": each.session_id, "session_name": each.session_name, **to_json(port)} for each, port in listed]
    )
    shown = [(each, port) for each, port in listed if session is not None or port.listening]
    if not shown:
        app.output.text("the session has no ports" if session is not None else "no program listens on a session's port")
        return
    rows = [
        [
            (each.session_name, ""),
            (str(port.number), "bold"),
            (port.variable, "dim"),
            (port.name or "-", ""),
            _listener(port),
        ]
        for each, port in shown
    ]
    headers = ["SESSION", "PORT", "VARIABLE", "NAME", "LISTENER"]
    app.output.show(
        *app.output.table(headers, rows, shrink=[("LISTENER", 12), ("SESSION", 10)], right=frozenset({"PORT"}))
    )


def _listener(port: "Port") -> tuple[str, str]:
    if not port.listening:
        return "-", "dim"
    who = f"{port.program} ({port.pid})" if port.pid else "another user's"
    return (who, "green") if port.own else (f"{who}, foreign", "yellow")
