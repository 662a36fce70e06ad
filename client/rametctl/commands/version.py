"""`rametctl version`: show client and daemon versions."""

from importlib.metadata import version

import click

from rametctl.app import App
from rametctl.errors import UnreachableError
from rametctl.options import Verb


@click.command("version", cls=Verb, short_help="Show client and daemon versions.")
@click.pass_obj
def command(app: App) -> None:
    """Show the versions of this client and of the running daemon, if any.

    \b
    Example:
      rametctl version
    """
    from rametctl.connection.channel import CONTRACT_VERSION

    client = version("ramet")
    try:
        info = app.connect(autostart=False).info(timeout=5)
    except UnreachableError:
        info = None
    daemon = {"version": info.version, "contract_version": info.contract_version, "pid": info.pid} if info else None
    app.output.json({"client": {"version": client, "contract_version": CONTRACT_VERSION}, "daemon": daemon})
    app.output.text(f"rametctl {client}")
    app.output.text(f"rametd {info.version} (pid {info.pid})" if info else "no daemon is running")
    if info and info.version != client:
        app.output.text("versions differ; restart the daemon (agents keep running): rametctl daemon restart")
