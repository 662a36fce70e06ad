"""`rametctl top`: the dashboard."""

import click

from rametctl.app import App
from rametctl.dashboard import run
from rametctl.options import repo_option, repo_reference


@click.command("top", short_help="Open the dashboard.")
@click.option("-a", "--all", "everywhere", is_flag=True, help="All repositories.")
@repo_option
@click.pass_obj
def command(app: App, everywhere: bool, repo: str | None) -> None:
    """Show all sessions on one screen, by what they need, and the session under the cursor in full.
    Answer, write, review and land there; ? lists the keys. `rametctl` without a verb opens it too.

    \b
    Examples:
      rametctl
      rametctl top --all
    """
    where = "" if everywhere else repo_reference(app, repo) if repo is not None else app.repo_here() or ""
    run(app, repo_path=where, everywhere=everywhere)
