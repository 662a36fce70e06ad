"""`rametctl service`: let the system keep the daemon running."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import Verb

if TYPE_CHECKING:
    from rametctl.service import Report, Service


@click.group("service", short_help="Let systemd or launchd run the daemon: install, uninstall, status.")
def command() -> None:
    """Let the system's own manager (systemd, launchd) run the daemon, now and at
    every login. Without it the first command starts one.

    \b
    Examples:
      rametctl service install
      rametctl service status
    """


@command.command("install", cls=Verb, short_help="Install and start it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.pass_obj
def install(app: App, dry_run: bool) -> int:
    """Write the unit, start the daemon, and have it started at every login.

    \b
    Examples:
      rametctl service install
      rametctl service install --dry-run
    """
    with _errors():
        return _report(app, _service(app).install(dry_run=dry_run))


@command.command("uninstall", cls=Verb, short_help="Stop and remove it; agents go on.")
@click.pass_obj
def uninstall(app: App) -> int:
    """Stop the service and remove its unit. Agents go on.

    \b
    Example:
      rametctl service uninstall
    """
    with _errors():
        return _report(app, _service(app).uninstall())


@command.command("status", cls=Verb, short_help="Whether it is installed and runs.")
@click.pass_obj
def status(app: App) -> int:
    """Show whether the service is installed, current and running; leaves with 1
    when it is not.

    \b
    Example:
      rametctl service status
    """
    with _errors():
        return _report(app, _service(app).status())


def _service(app: App) -> "Service":
    from rametctl.service import Service, find_rametd

    return Service(find_rametd(Path(sys.executable), app.environ.get("PATH", "")), app.environ)


def _report(app: App, report: "Report") -> int:
    if app.output.json_mode:
        app.output.json({"ok": report.ok, "lines": report.lines})
    else:
        app.output.text(*report.lines)
    return 0 if report.ok else 1


@contextmanager
def _errors() -> Iterator[None]:
    from rametctl.errors import ClientError
    from rametctl.service import ServiceError

    try:
        yield
    except ServiceError as error:
        raise ClientError(error.message, hint=error.hint, reason="SERVICE") from error
