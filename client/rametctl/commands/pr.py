"""`rametctl pr`: manage pull requests of sessions."""

import shlex

import click
from ramet.v1 import landing_pb2
from ramet.v1.landing_pb2 import PullRequest
from ramet.words import plural

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.errors import RefusedError
from rametctl.nouns.sessions import session_name
from rametctl.options import (
    Verb,
    VerbGroup,
    complete_branch,
    repo_option,
    repo_reference,
    session_argument,
    sessions_argument,
)
from rametctl.render.pull_request import status_lines


@click.group("pr", cls=VerbGroup, short_help="Manage pull requests: create, status, fix, cleanup, …")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage pull requests of sessions, through your own gh login. Without a command,
    shows those of the current directory's repository.

    \b
    Examples:
      rametctl pr create fix-login
      rametctl pr status --refresh
      rametctl pr fix fix-login
    """
    if ctx.invoked_subcommand is None:
        _status(ctx.obj, (), None, everywhere=False, refresh=False)


@command.command("create", cls=Verb, short_help="Push the branch and open a pull request.")
@session_argument
@click.option("--title", default="", help="Title (default: from the goal).")
@click.option("--body", default="", help="Text (default: goal and summary).")
@click.option(
    "--base",
    default="",
    metavar="BRANCH",
    shell_complete=complete_branch,
    help="Target branch (default: SESSION's base).",
)
@click.option("--draft/--ready", default=None, help="Draft or ready (default: as configured).")
@click.option("--remote", default="", metavar="NAME", help="Remote to push to (default: the base's).")
@click.pass_obj
def create(app: App, session: str, title: str, body: str, base: str, draft: bool | None, remote: str) -> None:
    """Push the branch of SESSION and open its pull request, or update the open one. Text of others
    in it stays. If gh is not logged in, push the branch and print the address where you can open a
    pull request.

    \b
    Examples:
      rametctl pr create fix-login
      rametctl pr create fix-login --ready --title "Fix the login"
    """
    request = landing_pb2.CreatePullRequestRequest(
        session=_id(app, session), title=title, body=body, base=base, draft=draft, remote=remote
    )
    answer = app.call(lambda daemon: daemon.landing.CreatePullRequest, request, doing="pushing …")
    app.output.json(answer)
    if answer.action == "pushed":
        pull = answer.pull_request
        app.output.text(f"pushed {pull.branch}")
        if not pull.url.startswith("http"):
            app.output.text(
                f"{remote or 'its remote'} is not on GitHub; merge the branch there, or: rametctl land {shlex.quote(session)}"
            )
        elif "github.com" in pull.url:
            app.output.text("gh is not logged in; log in (gh auth login), or open the pull request at:", pull.url)
        else:
            app.output.text(f"{remote or 'its remote'} is not on GitHub; open the pull request at:", pull.url)
    else:
        app.output.text(f"{answer.action} {_name(answer.pull_request)}", answer.pull_request.url)


@command.command("link", cls=Verb, short_help="Link an existing pull request to a session.")
@session_argument
@click.option("--pr", "number", type=click.IntRange(1), required=True, metavar="N", help="Number of the pull request.")
@click.pass_obj
def link(app: App, session: str, number: int) -> None:
    """Link pull request N to SESSION.

    \b
    Example:
      rametctl pr link fix-login --pr 17
    """
    request = landing_pb2.LinkPullRequestRequest(session=_id(app, session), number=number)
    answer = app.call(lambda daemon: daemon.landing.LinkPullRequest, request, doing="asking …")
    app.output.answer(
        answer.pull_request,
        [f"{_name(answer.pull_request)} is {answer.pull_request.session_name}'s", answer.pull_request.url],
    )


@command.command("status", cls=Verb, short_help="Show state, checks, reviews and blockers.")
@sessions_argument(required=False)
@click.option("--refresh", is_flag=True, help="Refresh from GitHub first.")
@repo_option
@click.option("-a", "--all", "everywhere", is_flag=True, help="All repositories.")
@click.pass_obj
def status(app: App, sessions: tuple[str, ...], refresh: bool, repo: str | None, everywhere: bool) -> None:
    """Show the pull requests of SESSION..., by default of the current directory's
    repository. Ramet refreshes open ones about once a minute.

    \b
    Examples:
      rametctl pr status
      rametctl pr status fix-login --refresh --json
    """
    _status(app, sessions, repo, everywhere=everywhere, refresh=refresh)


@command.command("open", cls=Verb, short_help="Open a pull request in the browser.")
@session_argument
@click.pass_obj
def open_(app: App, session: str) -> None:
    """Open the pull request of SESSION in the browser; print its address if there is no browser.

    \b
    Example:
      rametctl pr open fix-login
    """
    import webbrowser

    found = _list(app, [_id(app, session)], "", refresh=False)
    if not found:
        raise RefusedError(
            f"{session} has no pull request",
            status="NOT_FOUND",
            hint=f"open one: rametctl pr create {shlex.quote(session)}",
            reason="PULL_REQUEST_NOT_FOUND",
            data={},
        )
    url = found[0].url
    app.output.json(found[0])
    if not app.output.json_mode and (not url.startswith("https://") or not webbrowser.open(url)):
        app.output.text(url)


@command.command("fix", cls=Verb, short_help="Send review comments and failed checks to the agent.")
@session_argument
@click.pass_obj
def fix(app: App, session: str) -> None:
    """Send the open review comments and failed checks of the pull request to the agent
    of SESSION as one prompt, without those that were sent before.

    \b
    Example:
      rametctl pr fix fix-login && rametctl wait fix-login
    """
    request = landing_pb2.FixPullRequestRequest(session=_id(app, session))
    answer = app.call(lambda daemon: daemon.landing.FixPullRequest, request, doing="asking …")
    app.output.json(answer)
    if not answer.HasField("prompt"):
        app.output.text("nothing new to fix")
    else:
        comments, checks = plural(answer.comments, "comment"), plural(answer.checks, "failed check")
        app.output.text(f"sent {comments} and {checks} to {session}")


@command.command("cleanup", cls=Verb, short_help="Archive sessions whose pull request is merged.")
@sessions_argument(required=False)
@click.option("--remote", "remote_branches", is_flag=True, help="Delete the branches on the remote too.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be done.")
@repo_option
@click.pass_obj
def cleanup(app: App, sessions: tuple[str, ...], remote_branches: bool, dry_run: bool, repo: str | None) -> int:
    """Archive those of SESSION... (default: all of the repository) whose pull request is
    merged, and delete their branches; `rametctl restore` restores one. Sessions that
    are working, unmerged, or have unmerged work stay, and the reason is shown.

    \b
    Examples:
      rametctl pr cleanup --dry-run
      rametctl pr cleanup fix-login --remote
    """
    request = landing_pb2.CleanUpPullRequestsRequest(
        sessions=[_id(app, name) for name in sessions],
        repo="" if sessions else repo_reference(app, repo),
        remote_branches=remote_branches,
        dry_run=dry_run,
    )
    answer = app.call(lambda daemon: daemon.landing.CleanUpPullRequests, request, doing="cleaning up …")
    for each in answer.sessions:
        app.output.warn(each.warnings, of=each.session_name)
    app.output.answer(
        answer.sessions,
        (line((each.session_name, "bold" if each.done else "dim"), f": {each.reason}") for each in answer.sessions),
        empty="nothing to clean up",
    )
    # Only named sessions must all be cleaned up; of a repository most stay.
    return 1 if sessions and not all(each.done for each in answer.sessions) else 0


def _id(app: App, session: str) -> str:
    return session_name(app, session)


def _name(pull: "PullRequest") -> str:
    return f"{'draft ' if pull.state == 'draft' else ''}#{pull.number} {pull.title}"


def _list(app: App, sessions: list[str], repo: str, *, refresh: bool) -> "list[PullRequest]":
    request = landing_pb2.ListPullRequestsRequest(sessions=sessions, repo=repo, refresh=refresh)
    return app.listed(lambda daemon: daemon.landing.ListPullRequests, request, lambda page: page.pull_requests)


def _status(app: App, sessions: tuple[str, ...], repo: str | None, *, everywhere: bool, refresh: bool) -> None:
    ids = [_id(app, session) for session in sessions]
    named = repo is not None or app.repo_here() is not None
    where = repo_reference(app, repo) if named and not everywhere and not ids else ""
    with app.output.spinner("looking …"):
        found = _list(app, ids, where, refresh=refresh)
    app.output.answer(
        found, status_lines(app.output, found), empty="no pull requests; open one with: rametctl pr create SESSION"
    )
