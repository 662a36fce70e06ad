"""Options and arguments that several verbs share."""

import itertools
import math
import os.path
import re
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click
from ramet.v1 import common_pb2
from ramet.visible import visible

from rametctl.app import App
from rametctl.errors import ClientError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from ramet.v1.daemon_pb2 import GetConfigResponse

    from rametctl.connection.channel import Connection, Method


Function = TypeVar("Function", bound=Callable[..., Any])
Request = TypeVar("Request")
Response = TypeVar("Response")

QUICK_S = 1.0
"""Seconds that a completion waits for the daemon."""

MODES = {
    "default": "PERMISSION_MODE_DEFAULT",
    "acceptEdits": "PERMISSION_MODE_ACCEPT_EDITS",
    "plan": "PERMISSION_MODE_PLAN",
    "dontAsk": "PERMISSION_MODE_DONT_ASK",
    "auto": "PERMISSION_MODE_AUTO",
    "bypassPermissions": "PERMISSION_MODE_BYPASS_PERMISSIONS",
    "manual": "PERMISSION_MODE_DEFAULT",
}
"""Permission modes as people write them, with the contract's names."""
UNATTENDED = frozenset({"auto", "bypassPermissions"})
"""Modes that `permissions.allow_bypass` allows."""

STATES = ("queued", "starting", "working", "waiting", "idle", "paused", "lost", "failed", "archived")


OPTION = re.compile(r"--?[A-Za-z][A-Za-z-]*")


class Verb(click.Command):
    """A command with `--json`. ``main`` reads the flag itself, since errors depend on it too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, expose_value=False, help="Print JSON on standard output.")
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise `UsageError` for an option in place of another's value, as in ``--commit -m
        "text"``."""
        given = args[: args.index("--")] if "--" in args else args
        takers = {
            name: param.opts[-1]
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and param.type is click.STRING
            for name in param.opts
        }
        for name, value in itertools.pairwise(given):
            if name in takers and OPTION.fullmatch(value) and not ctx.resilient_parsing:
                raise UsageError(
                    f"{name} takes a text, and {value} looks like an option",
                    hint=f"give the text right after {name}; if {value} is the text: {takers[name]}={value}",
                )
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # Click names no command for an option without its argument
            raise


class VerbGroup(click.Group):
    """A group that does something without a verb too, and so takes `--json` itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"invoke_without_command": True})
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, expose_value=False, help="Print JSON on standard output.")
        )


class Budget(TypedDict, total=False):
    """A limit in the contract's form; empty for none."""

    budget_usd: float
    budget_tokens: int


_TOKENS = re.compile(r"(\d+(?:\.\d+)?) *([kKmM]?) *tok(?:ens?)?")


def budget_of(text: str) -> Budget:
    """Parse a budget in dollars (5, $0.50) or tokens (2Mtok, 500k tok). Raise `ValueError` for
    anything else, and for 0."""
    if found := _TOKENS.fullmatch(text.strip()):
        tokens = round(float(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[found[2].lower()])
        if tokens > 0:
            return {"budget_tokens": tokens}
    elif 0 < (dollars := float(text.strip().removeprefix("$"))) < math.inf:
        return {"budget_usd": dollars}
    raise ValueError(text)


def budget_option(help_: str, *, removable: bool = False) -> Callable[[Function], Function]:
    """`--budget`, in dollars or tokens; if ``removable``, "none" is an empty `Budget`."""

    def read(_ctx: click.Context, param: click.Parameter, value: str | None) -> Budget | None:
        if value is None or (removable and value == "none"):
            return None if value is None else {}
        try:
            return budget_of(value)
        except ValueError:
            text = f"{value!r} is not a budget: give dollars, such as 5 or 0.50, or tokens, such as 2Mtok"
            raise click.BadParameter(text, param=param) from None

    return click.option("--budget", metavar="USD|TOKENS" + ("|none" if removable else ""), help=help_, callback=read)


def wait_options(function: Function) -> Function:
    """`--wait`, and its `--timeout`."""

    def check(ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
        if value is not None and not ctx.params.get("wait") and not ctx.resilient_parsing:
            raise UsageError("--timeout needs --wait", hint="add --wait")
        return value

    wait = click.option(
        "--wait", is_flag=True, is_eager=True, help="Wait until the turn ends; exit with 4 if it needs your input."
    )
    timeout = click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        callback=check,
        help="With --wait: exit with 124 after this time; the session continues.",
    )
    return wait(timeout(function))


def complete_session(
    ctx: click.Context, _param: click.Parameter, incomplete: str, *, asking: bool = False
) -> "list[CompletionItem]":
    """Return the session names of a running daemon, of those with an open request if ``asking``;
    never starts one."""
    from ramet.v1 import session_pb2

    page = _ask(ctx, lambda daemon: daemon.sessions.ListSessions, session_pb2.ListSessionsRequest(page_size=1000))
    return _items((each.name for each in page.sessions if each.attention or not asking) if page else (), incomplete)


def complete_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the names of the kinds of agents that a running daemon knows; never starts one."""
    from ramet.v1 import daemon_pb2

    answer = _ask(ctx, lambda daemon: daemon.daemon.ListAgents, daemon_pb2.ListAgentsRequest())
    return _items((each.name for each in answer.agents) if answer else (), incomplete)


def agent_option(help_: str) -> Callable[[Function], Function]:
    return click.option("--agent", metavar="KIND", default="", help=help_, shell_complete=complete_agent)


def session_argument(function: Function) -> Function:
    return click.argument("session", metavar="SESSION", shell_complete=complete_session)(function)


def sessions_argument(*, required: bool) -> Callable[[Function], Function]:
    return click.argument(
        "sessions",
        metavar="SESSION..." if required else "[SESSION]...",
        nargs=-1,
        required=required,
        shell_complete=complete_session,
    )


def complete_asking(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the names of sessions with an open request; never starts a daemon."""
    return complete_session(ctx, param, incomplete, asking=True)


def complete_changed(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the paths that the session on the command line has changed; never starts a daemon."""
    from ramet.v1 import worktree_pb2

    request = worktree_pb2.GetDiffRequest(session=str(ctx.params.get("session") or ""), stat_only=True)
    diff = _ask(ctx, lambda daemon: daemon.worktrees.GetDiff, request)
    return _items((each.path for each in diff.files) if diff else (), incomplete)


def complete_restorable(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the names of archived and removed sessions; never starts a daemon."""
    from ramet.v1 import session_pb2

    sessions = session_pb2.ListSessionsRequest(
        states=[session_pb2.SESSION_STATE_ARCHIVED], include_archived=True, page_size=1000
    )
    archived = _ask(ctx, lambda daemon: daemon.sessions.ListSessions, sessions)
    named = _items((each.name for each in archived.sessions) if archived else (), incomplete)
    return [*named, *complete_trashed(ctx, param, incomplete)]


def complete_branch(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the local and remote branches of ``--repo``, or of the repository around the current
    directory."""
    return _branches(ctx, incomplete, "refs/heads", "refs/remotes")


def complete_target(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the local branches: no other can be landed on."""
    return _branches(ctx, incomplete, "refs/heads")


def _branches(ctx: click.Context, incomplete: str, *refs: str) -> "list[CompletionItem]":
    import subprocess
    from pathlib import Path

    where = Path(ctx.params.get("repo") or ".").expanduser()
    shown = "--format=%(if)%(symref)%(then)%(else)%(refname:short)%(end)"  # not origin/HEAD
    command = ["git", "-C", str(where), "for-each-ref", shown, *refs]
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:  # no git
        return []
    return _items(done.stdout.decode("utf-8", "replace").split(), incomplete)


def complete_against(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return sessions and words that `diff --against` takes besides refs; never starts a daemon."""
    return [*_items(("base", "target"), incomplete), *complete_session(ctx, param, incomplete)]


def complete_checkpoint(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the numbers of the checkpoints of the session on the command line; never starts a
    daemon."""
    from ramet.v1 import worktree_pb2

    request = worktree_pb2.ListCheckpointsRequest(session=str(ctx.params.get("session") or ""), page_size=1000)
    page = _ask(ctx, lambda daemon: daemon.worktrees.ListCheckpoints, request)
    return _items((str(each.number) for each in page.checkpoints) if page else (), incomplete)


def complete_file(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Let the shell complete a path of a file."""
    return _path(incomplete, "file")


def complete_directory(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Let the shell complete a path of a directory."""
    return _path(incomplete, "dir")


def _path(incomplete: str, kind: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]


def complete_repo(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return directories, and the names of the repositories of a running daemon; never starts
    one."""
    from ramet.v1 import repo_pb2

    answer = _ask(ctx, lambda daemon: daemon.repos.ListRepos, repo_pb2.ListReposRequest(page_size=1000))
    # The scripts begin the list of names anew after a path.
    return [*_path(incomplete, "dir"), *_items((each.name for each in answer.repos) if answer else (), incomplete)]


def complete_trashed(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the names of removed sessions; never starts a daemon."""
    from ramet.v1 import worktree_pb2

    removed = _ask(ctx, lambda daemon: daemon.worktrees.ListTrash, worktree_pb2.ListTrashRequest(page_size=1000))
    return _items((each.name for each in removed.entries) if removed else (), incomplete)


def complete_setting(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the keys of settings; never starts a daemon."""
    from ramet.v1 import daemon_pb2

    answer = _ask(ctx, lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())
    return _items((each.key for each in answer.settings) if answer else (), incomplete)


def request_argument(function: Function) -> Function:
    return click.argument("request", metavar="REQUEST", shell_complete=complete_asking)(function)


def requests_argument(function: Function) -> Function:
    return click.argument("requests", metavar="REQUEST...", nargs=-1, required=True, shell_complete=complete_asking)(
        function
    )


def repo_option(function: Function) -> Function:
    return click.option(
        "--repo", metavar="REPO", shell_complete=complete_repo, help="Use this repository (path or name)."
    )(function)


def env_option(function: Function) -> Function:
    return click.option(
        "--env",
        metavar="NAME[=VALUE]",
        multiple=True,
        help="Set an environment variable; NAME without a value takes it from here.",
    )(function)


def mode_option(help_text: str) -> Callable[[Function], Function]:
    return click.option(
        "--mode",
        "--permission-mode",
        "mode",
        type=click.Choice(list(MODES)),
        metavar="MODE",
        help=help_text,
        shell_complete=complete_mode,
    )


def complete_mode(ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the modes that a running daemon allows; never starts one."""
    from ramet.v1 import daemon_pb2

    answer = _ask(ctx, lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())
    return _items(allowed_modes(answer), incomplete)


def allowed_modes(settings: "GetConfigResponse | None") -> tuple[str, ...]:
    """Return the modes to offer under these settings; all if they are not known."""
    known = {each.key: each.value_json for each in settings.settings} if settings is not None else {}
    forbidden = UNATTENDED if known.get("permissions.allow_bypass") == "false" else frozenset()
    return tuple(mode for mode in MODES if mode not in forbidden)


def effort_option(function: Function) -> Function:
    levels = ["low", "medium", "high", "xhigh", "max"]
    return click.option(
        "--effort", type=click.Choice(levels), metavar="LEVEL", help="Effort: low, medium, high, xhigh, max."
    )(function)


def mode_number(mode: str | None) -> "Any":
    """Return the contract's number of a mode; unspecified for None."""
    return common_pb2.PermissionMode.Value(MODES[mode] if mode else "PERMISSION_MODE_UNSPECIFIED")


def mode_name(number: int) -> str:
    """Return a mode in the spelling of `--mode`."""
    return next((mode for mode, name in MODES.items() if common_pb2.PermissionMode.Value(name) == number), "default")


def new_request_id() -> str:
    return str(uuid.uuid4())


def repo_path(app: "App", repo: str | None) -> str:
    """Return an absolute path inside the requested repository: the current directory, or the one
    that ``--repo`` names."""
    if repo is None:
        return app.cwd
    path = app.absolute(repo)
    if os.path.isdir(path):  # noqa: PTH112  a name may hold anything, and this one never raises
        return path
    from ramet.v1 import repo_pb2

    found = app.call(lambda daemon: daemon.repos.GetRepo, repo_pb2.GetRepoRequest(repo=repo))
    return found.repo.root


def repo_reference(app: "App", repo: str | None) -> str:
    """Return the repository's reference for the daemon: an absolute path if ``repo`` is a
    directory, else the given name."""
    if repo is None:
        return app.cwd
    path = app.absolute(repo)
    return path if os.path.isdir(path) else repo  # noqa: PTH112  as above


def _ask(
    ctx: click.Context, method: "Callable[[Connection], Method[Request, Response]]", request: Request
) -> Response | None:
    """Call a running daemon for the shell's completion: quick and silent, without starting one."""
    app = ctx.find_object(App)
    if app is None:
        return None
    try:
        return app.connect(autostart=False).call(method, request, timeout=QUICK_S, retry=False)
    except ClientError:
        # Messages on the terminal would appear in the middle of the typed line.
        return None


def _items(texts: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    fitting = {text for text in texts if text.startswith(incomplete) and visible(text) == text}
    return [CompletionItem(text) for text in sorted(fitting)]
