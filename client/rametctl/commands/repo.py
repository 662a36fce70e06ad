"""`rametctl repo`: manage repositories."""

import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager

import click
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import repo_pb2
from ramet.v1.repo_pb2 import GetTrustResponse, Repo, TrustItem

from rametctl.app import App
from rametctl.console.lines import Line, line
from rametctl.errors import ClientError, RefusedError, UsageError
from rametctl.options import Verb, VerbGroup, complete_directory, complete_repo, repo_reference
from rametctl.render.format import local_time

CLAUDE = "Claude's own; its hooks, servers and commands run with every agent"


@click.group("repo", cls=VerbGroup, short_help="Manage repositories: add, ls, show, rm, trust.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage repositories. A repository is registered with its first session. Without a
    command, lists them.

    \b
    Examples:
      rametctl repo
      rametctl repo add ~/src/shop
      rametctl repo trust
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(ls)


@command.command("add", cls=Verb, short_help="Register a repository.")
@click.argument("path", default=".", shell_complete=complete_directory)
@click.pass_obj
def add(app: App, path: str) -> None:
    """Register the repository at PATH (default: the current directory).

    \b
    Example:
      rametctl repo add ~/src/shop
    """
    request = repo_pb2.RegisterRepoRequest(path=app.absolute(path))
    with _hinting("give the path of one: rametctl repo add PATH"):
        answer = app.call(lambda daemon: daemon.repos.RegisterRepo, request)
    _show(app, answer.repo)


@command.command("ls", cls=Verb, short_help="List repositories.")
@click.pass_obj
def ls(app: App) -> None:
    """List the repositories, oldest first.

    \b
    Example:
      rametctl repo ls --json | jq -r '.[].root'
    """
    repos = app.listed(lambda daemon: daemon.repos.ListRepos, repo_pb2.ListReposRequest(), lambda page: page.repos)
    app.output.answer(
        repos,
        app.output.table(
            ["NAME", "SESSIONS", "TRUSTED", "ROOT"],
            [
                [
                    (repo.name, "bold"),
                    (str(repo.sessions), ""),
                    ("yes" if repo.trusted else "no", ""),
                    (repo.root, "dim"),
                ]
                for repo in repos
            ],
            shrink=[("ROOT", 20), ("NAME", 10)],
            right=frozenset({"SESSIONS"}),
        ),
        empty="no repositories yet; create a session: rametctl new PROMPT",
    )


@command.command("show", cls=Verb, short_help="Show a repository.")
@click.argument("repo", required=False, shell_complete=complete_repo)
@click.pass_obj
def show(app: App, repo: str | None) -> None:
    """Show repository REPO (name, id or path; default: the current directory's).

    \b
    Example:
      rametctl repo show shop
    """

    found = _get(app, repo)
    _show(app, found)
    if found.trusted and not app.output.json_mode and (changes := list(_difference(_get_trust(app, found)))):
        app.output.text(
            "",
            f"It has changed since you trusted it; the trusted version is in effect until: rametctl repo trust {shlex.quote(found.name)}",
        )
        app.output.show(*changes)


@command.command("trust", cls=Verb, short_help="Allow a repository's settings and commands.")
@click.argument("repo", required=False, shell_complete=complete_repo)
@click.option("--no", "withdraw", is_flag=True, help="Revoke the trust.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@click.pass_obj
def trust(app: App, repo: str | None, withdraw: bool, yes: bool) -> int:
    """Trust repository REPO (default: the current directory's). Its .ramet.toml may then
    run commands, and agents load its settings and MCP servers. The command first
    shows everything that would run and asks you to confirm. A setup that waits for
    trust then starts.

    \b
    Examples:
      rametctl repo trust
      rametctl repo trust shop --no
    """
    found = _get_or_add(app, repo)
    asked = not app.output.json_mode and app.on_terminal
    request = repo_pb2.UpdateRepoRequest(
        repo_id=found.id, repo=repo_pb2.Repo(trusted=not withdraw), update_mask=FieldMask(paths=["trusted"])
    )
    if not withdraw:
        trust = _get_trust(app, found)
        news = not found.trusted or bool(trust.difference)
        if news and not (yes or asked):
            raise UsageError(
                f"stdin is not a terminal: cannot ask whether you trust {found.name}",
                hint="add --yes; `rametctl repo show` shows what would run",
            )
        if not app.output.json_mode and not _agreed(app, trust, ask=news and not yes):
            app.output.text(f"nothing was changed; {found.name} is{'' if found.trusted else ' not'} trusted as before")
            return 1
        request.trust_digest = trust.digest
    answer = app.call(lambda daemon: daemon.repos.UpdateRepo, request)
    _show(app, answer.repo)
    return 0


def _agreed(app: App, trust: "GetTrustResponse", *, ask: bool) -> bool:
    """Show the commands that would run; return whether the person agrees."""
    if trust.problem:
        raise ClientError(trust.problem, hint="correct it first", reason="BAD_CONFIG")
    if trust.items:
        app.output.text(f"Once you trust it, this runs or is copied without asking you ({trust.place}):")
        app.output.show(*_contents(trust))
    if changes := list(_difference(trust)):
        app.output.text("", "It differs from what you trusted:")
        app.output.show(*changes)
    return not ask or app.output.confirm(f"Trust {trust.repo.name}?")


def _get_trust(app: App, repo: "Repo") -> "GetTrustResponse":
    return app.call(lambda daemon: daemon.repos.GetTrust, repo_pb2.GetTrustRequest(repo=repo.id))


@command.command("rm", cls=Verb, short_help="Unregister a repository.")
@click.argument("repo", shell_complete=complete_repo)
@click.pass_obj
def remove(app: App, repo: str) -> None:
    """Unregister repository REPO. Refused while it has sessions. The files of the repository stay
    unchanged.

    \b
    Example:
      rametctl repo rm shop
    """
    request = repo_pb2.RemoveRepoRequest(repo=repo_reference(app, repo))
    answer = app.call(lambda daemon: daemon.repos.RemoveRepo, request)
    app.output.answer(answer.repo, [f"removed {answer.repo.name} from Ramet; {answer.repo.root} is unchanged"])


@contextmanager
def _hinting(hint: str) -> Iterator[None]:
    """Replace the hint of REPO_NOT_FOUND, which names an option that these verbs do not have, by
    ``hint``."""
    try:
        yield
    except RefusedError as error:
        if error.reason == "REPO_NOT_FOUND" and "--repo" in error.hint:
            error.hint = hint
        raise


def _get(app: App, repo: str | None) -> "Repo":
    request = repo_pb2.GetRepoRequest(repo=repo_reference(app, repo))
    with _hinting("name one; see: rametctl repo ls"):
        return app.call(lambda daemon: daemon.repos.GetRepo, request).repo


def _get_or_add(app: App, repo: str | None) -> "Repo":
    """Return the repository; register it if it is given by a path and unknown."""
    try:
        return _get(app, repo)
    except RefusedError as error:
        path = repo_reference(app, repo)
        if error.reason != "REPO_NOT_FOUND" or not path.startswith("/"):
            raise
    request = repo_pb2.RegisterRepoRequest(path=path)
    with _hinting("name one; see: rametctl repo ls"):
        return app.call(lambda daemon: daemon.repos.RegisterRepo, request).repo


def _show(app: App, repo: "Repo") -> None:
    app.output.json(repo)
    rows = [
        ("name", repo.name),
        ("id", repo.id),
        ("root", repo.root),
        ("git directory", repo.common_dir),
        ("trusted", "yes" if repo.trusted else "no; its own settings wait for: rametctl repo trust"),
        ("sessions", str(repo.sessions)),
        ("known since", local_time(repo.create_time)),
    ]
    app.output.show(*(line((f"{key:<14} ", "dim"), value) for key, value in rows))


def _contents(trust: "GetTrustResponse") -> "Iterator[Line]":
    """Return lines with every item, first those whose present text the person has not trusted."""
    words = {repo_pb2.TRUST_STATE_CHANGED: "changed since you trusted it", repo_pb2.TRUST_STATE_NEW: "new"}
    marked = trust.repo.trusted
    for item in sorted(trust.items, key=lambda each: each.state == repo_pb2.TRUST_STATE_TRUSTED):
        about = CLAUDE if item.key.startswith((".claude", ".mcp")) else ""
        notes = ", ".join(filter(None, (words.get(item.state, "") if marked else "", about)))
        yield line((item.key, "bold"), (f"  ({notes})" if notes else "", "dim"))
        yield from (line(text, indent=2) for text in _texts(item))


def _texts(item: "TrustItem") -> Iterator[str]:
    """Return the lines of an item; for a setting, which is a line of TOML, its values."""
    text = item.text
    if text.startswith(f"{item.key} = "):
        value = tomllib.loads(text.replace(item.key, "value", 1))["value"]
        text = "\n".join(str(each) for each in (value if isinstance(value, list) else [value]))
    yield from text.rstrip().split("\n")


def _difference(trust: "GetTrustResponse") -> "Iterator[Line]":
    """Return the difference from the trusted contents; nothing for an untrusted repository."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    if trust.repo.trusted and trust.difference:
        yield from (line((text, styles.get(text[:1], ""))) for text in trust.difference.split("\n"))
