"""`rametctl gc`: clear away what is done with."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, repo_option, repo_reference


@click.command("gc", cls=Verb, short_help="Clear away what is done with; lists it unless told.")
@repo_option
@click.option("--yes", is_flag=True, help="Do it. Sessions go to the trash, and can be brought back.")
@click.option("--dry-run", is_flag=True, help="Only list it; so it is without --yes too.")
@click.pass_obj
def command(app: App, repo: str | None, yes: bool, dry_run: bool) -> None:
    """List what can go, and what stays and why: sessions whose work has landed
    (squashed and rebased too), that nobody has touched for long, or that were
    archived long ago, and what was left of sessions that are gone. What is dirty, at
    work, on no other branch, or not made by Ramet is never among it.

    It is about the repository around the current directory, and outside of any about
    all of them. The last line says what --yes would do, and in which.

    \b
    Examples:
      rametctl gc
      rametctl gc --yes
    """
    from ramet.jsonify import to_json
    from ramet.v1 import worktree_pb2

    from rametctl.errors import ClientError, UsageError
    from rametctl.render.garbage import done, listing
    from rametctl.render.warnings import note_warnings

    if yes and dry_run:
        raise UsageError("--yes and --dry-run were both given", hint="give one of them")
    here = app.repo_here() if repo is None else None
    where = repo_reference(app, repo) if repo is not None else here or ""
    request = worktree_pb2.CollectGarbageRequest(repo=where, dry_run=not yes, request_id=new_request_id())
    with app.output.spinner("looking …" if not yes else "clearing away …"):
        try:
            answer = app.connection.call(lambda daemon: daemon.worktrees.CollectGarbage, request)
        except ClientError as error:
            # A repository is known to the daemon from its first session on.
            if here is None or error.reason != "REPO_NOT_FOUND":
                raise
            answer = worktree_pb2.CollectGarbageResponse()
    note_warnings(app.output, ((item.name, item.warnings) for item in answer.items))
    if app.output.json_mode:
        app.output.json(to_json(answer))
    elif not answer.items:
        app.output.text("nothing is there that could go" + (" in this repository" if here is not None else ""))
    else:
        app.output.show(*(done(app.output, answer) if yes else listing(app.output, answer, _again(repo))))


def _again(repo: str | None) -> str:
    """The command that does what was listed."""
    import shlex

    return f"rametctl gc --yes --repo {shlex.quote(repo)}" if repo is not None else "rametctl gc --yes"
