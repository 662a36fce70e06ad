"""`rametctl sync`: merge the base's newest commits into a session."""

import shlex

import click
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import SyncSessionResponse
from ramet.words import plural

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.nouns.sessions import session_name
from rametctl.options import Verb, complete_branch, session_argument
from rametctl.render.session import reference


@click.command("sync", cls=Verb, short_help="Merge the base's newest commits.")
@session_argument
@click.option("--rebase", is_flag=True, help="Rebase onto the base instead of merging.")
@click.option(
    "--base",
    "base_ref",
    default="",
    metavar="REF",
    shell_complete=complete_branch,
    help="Merge this ref instead of the session's base.",
)
@click.option("--fetch", is_flag=True, help="Fetch the base from its remote first.")
@click.option("--ask-agent", is_flag=True, help="On a conflict, ask the agent to merge.")
@click.pass_obj
def command(app: App, session: str, rebase: bool, base_ref: str, fetch: bool, ask_agent: bool) -> None:
    """Merge the base's newest commits into the branch of SESSION, which must be idle. On a
    conflict, nothing is changed and the files are listed. Uncommitted changes stay;
    git refuses if the merge would overwrite them. A checkpoint is created first:
    `rametctl rewind` undoes the sync, including its index.

    \b
    Examples:
      rametctl sync fix-login
      rametctl sync fix-login --rebase --fetch
      rametctl sync fix-login --ask-agent
    """
    request = worktree_pb2.SyncSessionRequest(
        session=session_name(app, session),
        method=worktree_pb2.SYNC_METHOD_REBASE if rebase else worktree_pb2.SYNC_METHOD_MERGE,
        base_ref=base_ref,
        fetch=fetch,
        ask_agent=ask_agent,
    )
    answer = app.call(lambda daemon: daemon.worktrees.SyncSession, request, doing="merging the base …")
    app.output.json(answer)
    options = [
        *(("--base", base_ref) if base_ref else ()),
        *(["--rebase"] if rebase else ()),
        *(["--fetch"] if fetch else ()),
    ]
    _show(app, answer, rebased=rebase, options=shlex.join(options))
    if answer.conflicts and not answer.HasField("prompt"):
        raise SystemExit(1)


def _show(app: App, answer: "SyncSessionResponse", *, rebased: bool, options: str) -> None:
    """Report the result. ``options``: the given ones, for the hint that repeats the command with
    --ask-agent."""
    name = answer.session.name
    if not answer.conflicts:
        if not answer.commits:
            app.output.show(line((name, "bold"), "  has all of its base already"))
            return
        came = f"{plural(answer.commits, 'new commit')} of its base"
        what = f"rebased onto {came}" if rebased else f"merged {came}"
        app.output.show(
            line((name, "bold"), f"  {what}, ", (f"{answer.old_commit[:12]} → {answer.new_commit[:12]}", "dim"))
        )
        if answer.HasField("checkpoint"):
            undo = f"rametctl rewind {reference(answer.session)} {answer.checkpoint.number}"
            app.output.text(f"to undo this: {undo}")
        return
    app.output.show(line((name, "bold"), "  conflicts with its base; nothing was changed:"))
    for path in answer.conflicts:
        app.output.show(line(path, indent=2))
    if answer.HasField("prompt"):
        app.output.show(line("its agent was asked to merge"))
    else:
        app.output.show(
            line(
                (
                    "to ask the agent to merge: "
                    + " ".join(filter(None, ["rametctl sync", reference(answer.session), options, "--ask-agent"])),
                    "dim",
                )
            )
        )
