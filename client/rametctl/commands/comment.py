"""`rametctl comment`: review comments on a session's work."""

import re
import shlex
import sys

import click
from ramet.jsonify import enum_name
from ramet.v1 import worktree_pb2
from ramet.v1.worktree_pb2 import Comment
from ramet.words import plural

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.errors import UsageError
from rametctl.nouns.prompts import PromptCommand, read_prompt
from rametctl.nouns.sessions import session_name
from rametctl.options import complete_changed, session_argument


@click.command("comment", cls=PromptCommand, short_help="Add, send and resolve review comments.")
@session_argument
@click.argument("place", metavar="[FILE:LINE[-END]]", required=False, shell_complete=complete_changed)
@click.argument("text", metavar="[TEXT|-]", required=False)
@click.option("--send", is_flag=True, help="Send all unsent comments to the agent as one prompt.")
@click.option("--resolve", metavar="ID", help="Resolve or withdraw a comment.")
@click.option("-a", "--all", "everything", is_flag=True, help="Include resolved comments.")
@click.pass_obj
def command(
    app: App, session: str, place: str | None, text: str | None, send: bool, resolve: str | None, everything: bool
) -> None:
    """Comment on lines of SESSION's work. Without FILE:LINE, list the comments.
    Ramet collects comments until --send, then sends them to the agent as one
    prompt that quotes the lines. A comment stays open until it is resolved.

    \b
    Examples:
      rametctl comment fix-login src/login.py:42 "this swallows the error"
      rametctl comment fix-login src/login.py:42-48 "extract a function"
      rametctl comment fix-login --send
      rametctl comment fix-login
      rametctl comment fix-login --resolve 3f2a
    """
    if sum(map(bool, (place, send, resolve))) > 1 and not (place and send):
        raise UsageError("conflicting options were given", hint="give either a comment, --send, or --resolve")
    session_id = session_name(app, session)
    if place is not None:
        said = text if text not in {None, "-"} else read_prompt(text, None, sys.stdin, app.output.note)
        if said is None or not said.strip():
            raise UsageError(
                "the comment has no text", hint=f"rametctl comment {shlex.quote(session)} {shlex.quote(place)} TEXT"
            )
        _add(app, session_id, place, said, quiet=send)
    if send:
        _send(app, session_id)
    elif resolve is not None:
        _resolve(app, resolve)
    elif place is None:
        _list(app, session_id, everything)


def _add(app: App, session_id: str, place: str, text: str, *, quiet: bool) -> None:
    path, line, end_line = _place(place)
    request = worktree_pb2.AddCommentRequest(session=session_id, path=path, line=line, end_line=end_line, text=text)
    comment = app.call(lambda daemon: daemon.worktrees.AddComment, request).comment
    if not quiet:
        _show(app, [comment], single=True)
        app.output.hint(f"to send it to the agent: rametctl comment {session_id} --send")


def _place(place: str) -> tuple[str, int, int]:
    """Parse ``FILE:LINE-END``, ``FILE:LINE`` or ``FILE``. A colon without a number after it is a
    part of the name."""
    found = re.fullmatch(r"(.+):([0-9]{1,9})(?:-([0-9]{1,9}))?", place, re.DOTALL)
    if found is None:
        return place, 0, 0
    path, line = found[1], int(found[2])
    if not line:
        raise UsageError("lines are counted from 1, not 0", hint="omit :LINE to comment on the whole file")
    return path, line, int(found[3] or line)


def _send(app: App, session_id: str) -> None:
    request = worktree_pb2.SendCommentsRequest(session=session_id)
    answer = app.call(lambda daemon: daemon.worktrees.SendComments, request)
    app.output.answer(answer, [line(f"{plural(len(answer.comments), 'comment')} sent to the agent")])


def _resolve(app: App, comment: str) -> None:
    request = worktree_pb2.ResolveCommentRequest(comment=comment)
    _show(app, [app.call(lambda daemon: daemon.worktrees.ResolveComment, request).comment], single=True)


def _list(app: App, session_id: str, everything: bool) -> None:
    request = worktree_pb2.ListCommentsRequest(session=session_id, include_resolved=everything)
    _show(app, app.listed(lambda daemon: daemon.worktrees.ListComments, request, lambda page: page.comments))


def _show(app: App, comments: "list[Comment]", *, single: bool = False) -> None:
    app.output.json(comments[0] if single else comments)
    if not comments:
        app.output.text("no comments")
    for comment in comments:
        end = f"-{comment.end_line}" if comment.end_line > comment.line else ""
        where = f"{comment.path}:{comment.line}{end}" if comment.line else comment.path
        moved = ""
        if not single and comment.line and comment.current_line != comment.line:
            moved = f"  now line {comment.current_line}" if comment.current_line else "  the line has changed"
        app.output.show(
            line(
                (comment.id[:8], "cyan"), "  ", (where, "bold"), "  ",
                (enum_name(comment, "state") or "", "dim"), (moved, "yellow"),
            )
        )  # fmt: skip
        for text in comment.quote.splitlines():
            app.output.show(line((text, "dim"), indent=2))
        for text in comment.text.splitlines():
            app.output.show(line(text, indent=2))
