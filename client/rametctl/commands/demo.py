"""`rametctl demo`: show agents at work without an account."""

import os

import click

from rametctl.app import App
from rametctl.connection.start import daemon_python


@click.command(
    "demo",
    short_help="Show a demo; needs no account.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_obj
def command(app: App, args: tuple[str, ...]) -> None:
    """Show several agents at work in a temporary repository, with scripted answers
    instead of a model. Needs no account and no network, and does not use your files.

    \b
    Example:
      rametctl demo
    """
    python = daemon_python()
    os.execve(python, [python, "-P", "-m", "ramet_demo", *args], dict(app.environ))  # noqa: S606  no shell is wanted
