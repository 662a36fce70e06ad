"""`rametctl service`: run the daemon as a system service."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rametctl.app import App
from rametctl.errors import ClientError
from rametctl.local.service import Report, Service, ServiceError, find_rametd
from rametctl.options import Verb


@click.group("service", short_help="Run the daemon as a service: install, uninstall, status.")
def command() -> None:
    """Run the daemon as a user service of systemd or launchd, which starts at login. Without the
    service, the first command starts the daemon.

    \b
    Examples:
      rametctl service install
      rametctl service status
    """


@command.command("install", cls=Verb, short_help="Install and start the service.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be done.")
@click.pass_obj
def install(app: App, dry_run: bool) -> int:
    """Install the unit, start the daemon, and start it at every login.

    \b
    Examples:
      rametctl service install
      rametctl service install --dry-run
    """
    if not dry_run:
        app.refuse_session("install the service")
    with _errors():
        return _report(app, _service(app).install(dry_run=dry_run))


@command.command("uninstall", cls=Verb, short_help="Stop and remove the service; agents keep running.")
@click.pass_obj
def uninstall(app: App) -> int:
    """Stop the service and remove its unit. Agents keep running.

    \b
    Example:
      rametctl service uninstall
    """
    app.refuse_session("remove the service")
    with _errors():
        return _report(app, _service(app).uninstall())


@command.command("status", cls=Verb, short_help="Show the service's status.")
@click.pass_obj
def status(app: App) -> int:
    """Show whether the service is installed, up to date and running; exits with 1 if it
    is not.

    \b
    Example:
      rametctl service status
    """
    with _errors():
        return _report(app, _service(app).status())


def _service(app: App) -> "Service":
    return Service(find_rametd(Path(sys.executable), app.environ.get("PATH", "")), app.environ)


def _report(app: App, report: "Report") -> int:
    app.output.answer({"ok": report.ok, "lines": report.lines}, [*report.lines])
    return 0 if report.ok else 1


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise ClientError(error.message, hint=error.hint, reason="SERVICE") from error
