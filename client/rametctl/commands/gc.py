"""`rametctl gc`: clean up finished sessions."""

import shlex

import click
from ramet.v1 import worktree_pb2

from rametctl.app import App
from rametctl.errors import ClientError, UsageError
from rametctl.options import Verb, repo_option, repo_reference
from rametctl.render.garbage import done, listing


@click.command("gc", cls=Verb, short_help="List or remove finished sessions and leftovers.")
@repo_option
@click.option("-y", "--yes", is_flag=True, help="Remove them. Sessions go to the trash and can be restored.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list (default).")
@click.pass_obj
def command(app: App, repo: str | None, yes: bool, dry_run: bool) -> None:
    """List what gc would remove, and what it keeps and why. It removes sessions whose
    work has landed (also squashed or rebased), idle and archived sessions past their
    retention, and leftovers of removed sessions. It never removes uncommitted work,
    running sessions, commits on no other branch, or files that Ramet did not create.

    It covers the repository of the current directory, or all repositories if you are
    in none. The last line says what --yes would do.

    \b
    Examples:
      rametctl gc
      rametctl gc --yes
    """
    if yes and dry_run:
        raise UsageError("--yes and --dry-run were both given", hint="give one of them")
    here = app.repo_here() if repo is None else None
    where = repo_reference(app, repo) if repo is not None else here or ""
    if not where:
        app.output.note("rametctl: not in a repository: all repositories")
    request = worktree_pb2.CollectGarbageRequest(repo=where, dry_run=not yes)
    with app.output.spinner("searching …" if not yes else "cleaning up …"):
        try:
            answer = app.call(lambda daemon: daemon.worktrees.CollectGarbage, request)
        except ClientError as error:
            # A repository is registered with its first session.
            if here is None or error.reason != "REPO_NOT_FOUND":
                raise
            answer = worktree_pb2.CollectGarbageResponse()
    for item in answer.items:
        app.output.warn(item.warnings, of=item.name)
    app.output.answer(
        answer.items,
        (done(app.output, answer) if yes else listing(app.output, answer, _again(repo))),
        empty="nothing to remove" + (" in this repository" if here is not None else ""),
    )


def _again(repo: str | None) -> str:
    """Return the command that removes the listed items."""
    return f"rametctl gc --yes --repo {shlex.quote(repo)}" if repo is not None else "rametctl gc --yes"
