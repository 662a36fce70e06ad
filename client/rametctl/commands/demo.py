"""`rametctl demo`: see it at work without an account."""

import os

import click

from rametctl.app import App


@click.command(
    "demo",
    short_help="See it at work, without an account.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_obj
def command(app: App, args: tuple[str, ...]) -> None:
    """Show several agents at work in a repository made for it, with scripted
    answers instead of a model: no account, no network, nothing of yours is
    touched.

    \b
    Example:
      rametctl demo
    """
    from rametctl.start import daemon_python

    python = daemon_python()
    os.execve(python, [python, "-P", "-m", "ramet_demo", *args], dict(app.environ))  # noqa: S606  no shell is wanted
