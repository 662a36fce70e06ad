"""`rametctl pr`: pull requests of sessions."""

from typing import TYPE_CHECKING

import click

from rametctl.app import App
from rametctl.options import (
    Verb,
    VerbGroup,
    new_request_id,
    repo_option,
    repo_reference,
    session_argument,
    sessions_argument,
)

if TYPE_CHECKING:
    from ramet.v1.landing_pb2 import PullRequest


@click.group("pr", cls=VerbGroup, short_help="Pull requests: create, status, fix, cleanup, …")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Pull requests of sessions, through the gh that you are logged in with.
    Alone it shows those of the repository around us.

    \b
    Examples:
      rametctl pr create fix-login
      rametctl pr status --refresh
      rametctl pr fix fix-login
    """
    if ctx.invoked_subcommand is None:
        _status(ctx.obj, (), None, everywhere=False, refresh=False)


@command.command("create", cls=Verb, short_help="Push a session's branch and open one.")
@session_argument
@click.option("--title", default="", help="Its title; otherwise made of the goal.")
@click.option("--body", default="", help="Its text; otherwise goal, summary and cost.")
@click.option("--base", default="", metavar="BRANCH", help="Where it goes; otherwise what S started from.")
@click.option("--draft/--ready", default=None, help="Whether it is a draft; otherwise as configured.")
@click.option("--remote", default="", metavar="NAME", help="Where to push; otherwise the base's remote.")
@click.pass_obj
def create(app: App, session: str, title: str, body: str, base: str, draft: bool | None, remote: str) -> None:
    """Push the branch of session S and open a pull request, or bring the one that
    is open up to date. What others wrote in it stays. Where gh is not logged in,
    the branch is pushed and the address printed where one is opened.

    \b
    Examples:
      rametctl pr create fix-login
      rametctl pr create fix-login --ready --title "Fix the login"
    """
    from ramet.jsonify import to_json
    from ramet.v1 import landing_pb2

    request = landing_pb2.CreatePullRequestRequest(
        session=_id(app, session),
        title=title,
        body=body,
        base=base,
        draft=draft,
        remote=remote,
        request_id=new_request_id(),
    )
    with app.output.spinner("pushing …"):
        answer = app.connection.call(lambda daemon: daemon.landing.CreatePullRequest, request)
    for warning in answer.warnings:
        app.output.note(f"rametctl: {warning}")
    if app.output.json_mode:
        app.output.json(to_json(answer))
    elif answer.action == "pushed":
        app.output.text(f"pushed {answer.pull_request.branch}; open a pull request at", answer.pull_request.url)
    else:
        app.output.text(f"{answer.action} {_name(answer.pull_request)}", answer.pull_request.url)


@command.command("link", cls=Verb, short_help="Say which one is a session's.")
@session_argument
@click.option("--pr", "number", type=click.IntRange(1), required=True, metavar="N", help="Its number.")
@click.pass_obj
def link(app: App, session: str, number: int) -> None:
    """Say that pull request N is that of session S.

    \b
    Example:
      rametctl pr link fix-login --pr 17
    """
    from ramet.jsonify import to_json
    from ramet.v1 import landing_pb2

    request = landing_pb2.LinkPullRequestRequest(session=_id(app, session), number=number, request_id=new_request_id())
    with app.output.spinner("asking …"):
        answer = app.connection.call(lambda daemon: daemon.landing.LinkPullRequest, request)
    if app.output.json_mode:
        app.output.json(to_json(answer.pull_request))
    else:
        app.output.text(
            f"{_name(answer.pull_request)} is {answer.pull_request.session_name}'s", answer.pull_request.url
        )


@command.command("status", cls=Verb, short_help="State, checks, reviews, and what is in the way.")
@sessions_argument(required=False)
@click.option("--refresh", is_flag=True, help="Look now, not as last seen.")
@repo_option
@click.option("--all", "everywhere", is_flag=True, help="Of all repositories.")
@click.pass_obj
def status(app: App, sessions: tuple[str, ...], refresh: bool, repo: str | None, everywhere: bool) -> None:
    """Show the pull requests of sessions S, of the repository around us otherwise.
    Open ones are looked at about once a minute.

    \b
    Examples:
      rametctl pr status
      rametctl pr status fix-login --refresh --json
    """
    _status(app, sessions, repo, everywhere=everywhere, refresh=refresh)


@command.command("open", cls=Verb, short_help="Open one in the browser.")
@session_argument
@click.pass_obj
def open_(app: App, session: str) -> None:
    """Open the pull request of session S in the browser; where there is none, its
    address is printed.

    \b
    Example:
      rametctl pr open fix-login
    """
    import webbrowser

    from ramet.jsonify import to_json

    from rametctl.errors import RefusedError

    found = _list(app, [_id(app, session)], "", refresh=False)
    if not found:
        raise RefusedError(
            f"{session} has no pull request",
            status="NOT_FOUND",
            hint=f"open one: rametctl pr create {session}",
            reason="PULL_REQUEST_NOT_FOUND",
            data={},
        )
    url = found[0].url
    if app.output.json_mode:
        app.output.json(to_json(found[0]))
    elif not url.startswith("https://") or not webbrowser.open(url):
        app.output.text(url)


@command.command("fix", cls=Verb, short_help="Give the agent what reviewers and checks say.")
@session_argument
@click.pass_obj
def fix(app: App, session: str) -> None:
    """Send the open review comments and failed checks of its pull request to the
    agent of session S as one prompt. What it was sent before is left out.

    \b
    Example:
      rametctl pr fix fix-login && rametctl wait fix-login
    """
    from ramet.jsonify import to_json
    from ramet.v1 import landing_pb2
    from ramet.words import plural

    request = landing_pb2.FixPullRequestRequest(session=_id(app, session), request_id=new_request_id())
    with app.output.spinner("asking …"):
        answer = app.connection.call(lambda daemon: daemon.landing.FixPullRequest, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
    elif not answer.HasField("prompt"):
        app.output.text("nothing new to be fixed")
    else:
        comments, checks = plural(answer.comments, "comment"), plural(answer.checks, "failed check")
        app.output.text(f"sent {comments} and {checks} to {session}")


@command.command("cleanup", cls=Verb, short_help="Archive sessions whose pull request is merged.")
@sessions_argument(required=False)
@click.option("--remote", "remote_branches", is_flag=True, help="Delete the branches on the remote too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@repo_option
@click.pass_obj
def cleanup(app: App, sessions: tuple[str, ...], remote_branches: bool, dry_run: bool, repo: str | None) -> int:
    """Archive sessions S (all of the repository otherwise) whose pull request is
    merged, and delete their branches; `rametctl restore` brings one back. What is
    at work, holds more than was merged, or is not merged stays, with the reason.

    \b
    Examples:
      rametctl pr cleanup --dry-run
      rametctl pr cleanup fix-login --remote
    """
    from ramet.jsonify import to_json
    from ramet.v1 import landing_pb2

    from rametctl.lines import line
    from rametctl.render.warnings import note_warnings

    request = landing_pb2.CleanUpPullRequestsRequest(
        sessions=[_id(app, name) for name in sessions],
        repo="" if sessions else repo_reference(app, repo),
        remote_branches=remote_branches,
        dry_run=dry_run,
        request_id=new_request_id(),
    )
    with app.output.spinner("cleaning up …"):
        answer = app.connection.call(lambda daemon: daemon.landing.CleanUpPullRequests, request)
    note_warnings(app.output, ((each.session_name, each.warnings) for each in answer.sessions))
    if app.output.json_mode:
        app.output.json([to_json(each) for each in answer.sessions])
    elif not answer.sessions:
        app.output.text("nothing to clean up")
    else:
        app.output.show(
            *(line((each.session_name, "bold" if each.done else "dim"), f": {each.reason}") for each in answer.sessions)
        )
    # Those that were named were meant; of a whole repository most stay.
    return 1 if sessions and not all(each.done for each in answer.sessions) else 0


def _id(app: App, session: str) -> str:
    from rametctl.sessions import get_session

    return get_session(app, session).session.id


def _name(pull: "PullRequest") -> str:
    return f"{'draft ' if pull.state == 'draft' else ''}#{pull.number} {pull.title}"


def _list(app: App, sessions: list[str], repo: str, *, refresh: bool) -> "list[PullRequest]":
    from ramet.v1 import landing_pb2

    request = landing_pb2.ListPullRequestsRequest(sessions=sessions, repo=repo, refresh=refresh)
    pages = app.connection.pages(lambda daemon: daemon.landing.ListPullRequests, request)
    return [pull for page in pages for pull in page.pull_requests]


def _status(app: App, sessions: tuple[str, ...], repo: str | None, *, everywhere: bool, refresh: bool) -> None:
    from ramet.jsonify import to_json

    from rametctl.render.pull_request import status_lines

    ids = [_id(app, session) for session in sessions]
    named = repo is not None or app.repo_here() is not None
    where = repo_reference(app, repo) if named and not everywhere and not ids else ""
    with app.output.spinner("looking …"):
        found = _list(app, ids, where, refresh=refresh)
    if app.output.json_mode:
        app.output.json([to_json(pull) for pull in found])
    elif not found:
        app.output.text("no pull requests; open one with: rametctl pr create S")
    else:
        app.output.show(*status_lines(app.output, found))
