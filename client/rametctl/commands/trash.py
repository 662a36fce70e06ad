"""`rametctl trash`: manage removed sessions."""

import time

import click
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import TrashEntry
from ramet.words import plural, size

from rametctl.app import App
from rametctl.errors import UsageError
from rametctl.nouns.sessions import report
from rametctl.options import Verb, VerbGroup, complete_trashed, repo_option, repo_reference
from rametctl.render.format import age, local_time


@click.group("trash", cls=VerbGroup, short_help="Manage removed sessions: ls, restore, empty.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage removed sessions. You can restore them until `retention.trash` (30 days)
    has passed. Without a command, lists them.

    \b
    Examples:
      rametctl trash
      rametctl trash restore fix-login
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(ls)


@command.command("ls", cls=Verb, short_help="List removed sessions.")
@repo_option
@click.pass_obj
def ls(app: App, repo: str | None = None) -> None:
    """List the removed sessions, newest first.

    \b
    Example:
      rametctl trash ls --json | jq -r '.[].name'
    """
    entries = _list(app, repo)
    app.output.json(entries)
    if not entries:
        app.output.text("the trash is empty")
    else:
        _show(app, entries)
        app.output.hint("to restore one: rametctl restore NAME")


@command.command("restore", cls=Verb, short_help="Restore a removed session.")
@click.argument("entry", shell_complete=complete_trashed)
@click.pass_obj
def restore(app: App, entry: str) -> None:
    """Restore removed session ENTRY (name or id): branch, worktree, uncommitted changes
    and conversation. Warns about differences, such as a name that is now in use.

    \b
    Example:
      rametctl trash restore fix-login
    """
    request = worktree_pb2.RestoreTrashRequest(entry=entry)
    answer = app.call(lambda daemon: daemon.worktrees.RestoreTrash, request, doing="restoring the session …")
    report(app, answer.session, note=answer.session.worktree, warnings=list(answer.warnings))


@command.command("empty", cls=Verb, short_help="Delete removed sessions permanently.")
@click.argument("entries", metavar="[ENTRY]...", nargs=-1, shell_complete=complete_trashed)
@repo_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@click.pass_obj
def empty(app: App, entries: tuple[str, ...], repo: str | None, yes: bool) -> int:
    """Delete removed sessions permanently, by default all of them. They cannot be restored
    after that.

    \b
    Examples:
      rametctl trash empty fix-login --yes
      rametctl trash empty --yes
    """
    if not yes:
        count = len(entries) or len(_list(app, repo))
        if not app.on_terminal:
            what = "the named entries" if entries else "everything in the trash"
            raise UsageError(f"stdin is not a terminal: cannot ask whether to delete {what}", hint="add --yes")
        if count and not app.output.confirm(f"Delete {plural(count, 'removed session')} permanently?"):
            return 1
    request = worktree_pb2.EmptyTrashRequest(entries=entries, repo=repo_reference(app, repo) if repo else "")
    answer = app.call(lambda daemon: daemon.worktrees.EmptyTrash, request, doing="emptying …")
    app.output.answer(answer.entries, [f"forgot {plural(len(answer.entries), 'removed session')}"])
    return 0


def _list(app: App, repo: str | None) -> "list[TrashEntry]":
    request = worktree_pb2.ListTrashRequest(repo=repo_reference(app, repo) if repo else "")
    return app.listed(lambda daemon: daemon.worktrees.ListTrash, request, lambda page: page.entries)


def _show(app: App, entries: "list[TrashEntry]") -> None:
    now = time.time()
    app.output.show(
        *app.output.table(
            ["NAME", "REPO", "BRANCH", "ID", "SIZE", "REMOVED", "UNTIL"],
            [
                [
                    (entry.name, "bold"),
                    (entry.repo, ""),
                    (entry.branch, ""),
                    (entry.id, "dim"),
                    (size(entry.bytes), ""),
                    (age(entry.create_time, now), "dim"),
                    (local_time(entry.expire_time), "dim"),
                ]
                for entry in entries
            ],
            shrink=[("BRANCH", 12), ("NAME", 20), ("REPO", 8), ("BRANCH", 6), ("NAME", 8)],
            right=frozenset({"SIZE", "REMOVED"}),
        )
    )
