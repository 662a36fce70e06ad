"""`rametctl diff`: show a session's changes."""

import shlex

import click
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import GetDiffResponse, WatchChangesResponse

from rametctl.app import App
from rametctl.connection.follow import resumed
from rametctl.errors import ClientError, UsageError
from rametctl.nouns.sessions import get_session, session_name
from rametctl.options import Verb, complete_against, complete_changed, session_argument
from rametctl.render.diff import patch_lines, stat_lines

LARGEST_PATCH = 48 << 20
"""Maximum size in bytes: the daemon's limit."""


@click.command("diff", cls=Verb, short_help="Show a session's changes.")
@session_argument
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_changed)
@click.option("--stat", is_flag=True, help="Show counts per file.")
@click.option("--name-only", is_flag=True, help="Show only paths.")
@click.option(
    "--against",
    default="",
    metavar="WHAT",
    shell_complete=complete_against,
    help='"base" (default), "target", a checkpoint, another session, or any ref.',
)
@click.option("-w", "--ignore-all-space", "space", flag_value="WHITESPACE_IGNORE_ALL", help="Ignore all white space.")
@click.option(
    "-b",
    "--ignore-space-change",
    "space",
    flag_value="WHITESPACE_IGNORE_CHANGE",
    help="Ignore changes in the amount of white space.",
)
@click.option(
    "--ignore-space-at-eol", "space", flag_value="WHITESPACE_IGNORE_AT_EOL", help="Ignore white space at line ends."
)
@click.option("--watch", is_flag=True, help="Follow changes until Ctrl-C.")
@click.pass_obj
def command(
    app: App,
    session: str,
    paths: tuple[str, ...],
    stat: bool,
    name_only: bool,
    against: str,
    space: str | None,
    watch: bool,
) -> None:
    """Show the changes of SESSION since its start, including uncommitted and untracked
    files; with PATH, only changes below these paths. On a terminal the output is
    coloured and paged; elsewhere it is a patch for `git apply`, including binary
    files. Very large files are only listed; `diff` then exits with 1, because the
    patch is incomplete.

    \b
    Examples:
      rametctl diff fix-login
      rametctl diff fix-login src --stat --against main
      rametctl diff fix-login --against 3
      rametctl diff fix-login --watch
      rametctl diff fix-login > fix.patch && git apply fix.patch
    """
    if stat and name_only:
        raise UsageError("--stat and --name-only were both given", hint="give one of them")
    if watch and (paths or space):
        raise UsageError("--watch shows all changes", hint="omit paths and white space options")
    if watch:
        # The session may be renamed meanwhile.
        _watch(app, get_session(app, session).session.id, against, stat=stat, name_only=name_only)
        return
    # `git apply` needs the complete patch; for reading, a part is enough.
    applied = not (stat or name_only or app.output.terminal)
    request = worktree_pb2.GetDiffRequest(
        session=session_name(app, session),
        against=against,
        stat_only=stat or name_only,
        max_bytes=LARGEST_PATCH if applied else 0,
        binary=applied,
        whitespace=worktree_pb2.Whitespace.Value(space or "WHITESPACE_UNSPECIFIED"),
        paths=paths,
    )
    answer = app.call(lambda daemon: daemon.worktrees.GetDiff, request, doing="comparing …")
    show_diff(app, answer, stat=stat, name_only=name_only)
    if not (answer.files or answer.patch):
        if paths:
            app.output.note(
                "rametctl: no path that you named has changed; to compare with a branch or session: --against NAME"
            )
        else:
            app.output.hint("no changes")
    if answer.truncated and applied and not app.output.json_mode:
        hint = f"see the complete diff with git in: rametctl path {shlex.quote(session)}"
        raise ClientError("the patch is incomplete: do not apply it", hint=hint)


def show_diff(app: App, answer: "GetDiffResponse", *, stat: bool = False, name_only: bool = False) -> None:
    app.output.json(answer)
    if name_only:
        app.output.raw(*(change.path for change in answer.files))
    elif stat:
        app.output.show(*stat_lines(answer))
    elif app.output.terminal:
        app.output.page(patch_lines(answer.patch))
    else:
        app.output.binary(answer.patch)


def _watch(app: App, session: str, against: str, *, stat: bool, name_only: bool) -> None:
    """Show the present differences and every change, over restarts of the daemon, until
    interrupted."""
    request = worktree_pb2.WatchChangesRequest(session=session, against=against, include_patch=not (stat or name_only))
    note, first = "", True
    warnings: list[str] = []
    changes = resumed(
        app.connection,
        lambda daemon: daemon.worktrees.WatchChanges,
        lambda: request,
        lambda words: app.output.note(f"rametctl: {words}"),
    )
    for answer in changes:
        if answer.note and answer.note != note:
            app.output.note(f"rametctl: {answer.note}; the daemon scans the tree now and then")
        if list(answer.warnings) != warnings:
            app.output.warn(answer.warnings)
        note, warnings = answer.note, list(answer.warnings)
        app.output.json(answer, stream=True)
        if first and not answer.files:
            app.output.hint("no changes yet; Ctrl-C ends the command")
        first = False
        _show_change(app, answer, stat=stat, name_only=name_only)


def _show_change(app: App, answer: "WatchChangesResponse", *, stat: bool, name_only: bool) -> None:
    if name_only:
        app.output.raw(*answer.changed_paths)
    elif stat:
        app.output.show(*stat_lines(answer))
    elif app.output.terminal:
        app.output.page(patch_lines(answer.patch), paged=False)
    else:
        app.output.binary(answer.patch)
