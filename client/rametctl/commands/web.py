"""`rametctl web`: the web page."""

import asyncio
import re
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ramet.paths import PathsError, make_private_directory
from ramet.v1 import session_pb2

from rametctl.app import App
from rametctl.errors import UnreachableError, UsageError
from rametctl.nouns.sessions import session_name
from rametctl.options import Verb, VerbGroup, session_argument

if TYPE_CHECKING:
    from rametctl.web.access import Access

PORT = 7363
UNITS = {"m": 60, "h": 3600, "d": 86400}


@click.group("web", cls=VerbGroup, short_help="Serve the web page: sessions, reviews and answers in a browser.")
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "-p", "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Listen on this port."
)
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Also answer to this host name (repeatable).")
@click.pass_context
def command(ctx: click.Context, listen: str, port: int, hosts: tuple[str, ...]) -> None:
    """Serve the web page until ctrl-C, and print a link that opens it once. Only this machine can
    reach it; the documentation describes access from others: ssh -L, Tailscale, a proxy.

    \b
    Examples:
      rametctl web
      rametctl web link
      rametctl web --host ramet.tailnet.ts.net
    """
    if ctx.invoked_subcommand is not None:
        return
    app: App = ctx.find_object(App)  # type: ignore[assignment]
    try:
        from rametctl.web.server import listening, serve
        from rametctl.web.site import Site
    except ImportError as error:
        raise UsageError(f"the web page needs {error.name}", hint="install: pip install 'ramet[web]'") from error
    from rametctl.connection.link import Link

    access = _access(app)
    with closing(listening(listen, port)) as bound:
        port = bound.getsockname()[1]
        app.output.text(_link(listen, port, access.link()))
        if listen not in {"127.0.0.1", "::1", "localhost"}:
            app.output.note("rametctl: warning: the connection to browsers is not encrypted")
        another = "rametctl web link" + (f" --port {port}" if port != PORT else "")
        app.output.note(f"the link works once, for 10 minutes; another: {another}. ctrl-C ends the server")

        async def run() -> None:
            site = Site(Link(app.directories, app.environ, autostart=app.autostart), access, Path.cwd())
            await serve(site, bound, hosts={*hosts, listen}, cookie=f"ramet_{port}")

        asyncio.run(run())


@command.command("link", cls=Verb, short_help="Create a link that opens the page in another browser.")
@click.option("-p", "--port", default=PORT, show_default=True, help="The server's port.")
@click.option("--host", metavar="NAME", default="127.0.0.1", show_default=True, help="Its name in the link.")
@click.pass_obj
def link(app: App, port: int, host: str) -> None:
    """Print a link that opens the web page once, within 10 minutes, for 7 days.

    \b
    Example:
      rametctl web link
    """
    _print_link(app, host, port, _access(app).link())


@command.command("share", cls=Verb, short_help="Create a link with which another person can view a session.")
@session_argument
@click.option("--read-only", is_flag=True, default=True, help="The link allows only viewing (default).")
@click.option(
    "--for", "lasting", metavar="TIME", default="2h", show_default=True, help="How long it is valid: 30m, 2h, 1d."
)
@click.option("-p", "--port", default=PORT, show_default=True, help="The server's port.")
@click.option("--host", metavar="NAME", default="127.0.0.1", show_default=True, help="Its name in the link.")
@click.pass_obj
def share(app: App, session: str, read_only: bool, lasting: str, port: int, host: str) -> None:
    """Print a link with which one browser can view SESSION and nothing else.

    \b
    Example:
      rametctl web share fix-login --for 2h
    """
    request = session_pb2.GetSessionRequest(session=session_name(app, session))
    found = app.call(lambda daemon: daemon.sessions.GetSession, request).session
    _print_link(app, host, port, _access(app).link(session=found.id, lasts=_seconds(lasting)))


@command.command("sessions", cls=Verb, short_help="List the browsers that have a session, and unopened links.")
@click.pass_obj
def sessions(app: App) -> None:
    """List unopened links and browser sessions.

    \b
    Example:
      rametctl web sessions
    """
    grants = _access(app).grants()
    app.output.json([
                {"id": each.id, "kind": each.kind, "session": each.session, "browser": each.browser,
                 "create_time": int(each.created), "expire_time": int(each.expires)}
                for each in grants
            ])  # fmt: skip
    for each in grants:
        until = datetime.fromtimestamp(each.expires).astimezone().strftime("%Y-%m-%d %H:%M")
        what = f"read-only {each.session}" if each.read_only else "everything"
        app.output.text(f"{each.id}  {each.kind:<7}  {what}  until {until}  {each.browser}".rstrip())


@command.command("revoke", cls=Verb, short_help="End browser sessions and links.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("-a", "--all", "everything", is_flag=True, help="All of them.")
@click.pass_obj
def revoke(app: App, ids: tuple[str, ...], everything: bool) -> None:
    """End browser sessions, or links that were not opened, at once.

    \b
    Example:
      rametctl web revoke --all
    """
    if everything == bool(ids):
        raise UsageError("name browser sessions, or give --all", hint="list them: rametctl web sessions")
    gone = _access(app).revoke(set(ids))
    app.output.answer(sorted(gone), [f"revoked {', '.join(sorted(gone)) or 'nothing'}"])
    if missing := set(ids) - gone:
        raise UsageError(f"there is no {', '.join(sorted(missing))}", hint="list them: rametctl web sessions")


def _access(app: App) -> "Access":
    from rametctl.web.access import Access

    if app.environ.get("RAMET_TOKEN") or app.environ.get("RAMET_SESSION"):
        # The browser that opens the link acts as the owner; a session may not.
        raise UsageError("a session cannot create links to the web page", hint="run it in a terminal of your own")
    try:
        make_private_directory(app.directories.home)
    except PathsError as error:
        raise UnreachableError(error.message, hint=error.hint, reason="DIRECTORIES") from error
    return Access(app.directories.home / "web.json")


def _link(host: str, port: int, token: str) -> str:
    name = "localhost" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104  what was typed
    return f"http://{name}:{port}/login#{token}"


def _print_link(app: App, host: str, port: int, token: str) -> None:
    made = _link(host, port, token)
    app.output.answer({"link": made}, [made])


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([mhd])", text)
    if found is None or not int(found[1]):
        raise UsageError(f"invalid time: {text!r}", hint="write it as 30m, 2h or 1d")
    return int(found[1]) * UNITS[found[2]]
