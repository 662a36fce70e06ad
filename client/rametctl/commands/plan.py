"""`rametctl plan`: apply plans, follow their threads, open pull requests, clean up."""

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import click
from ramet.v1 import plan_pb2
from ramet.v1.plan_pb2 import CheckPlanResponse

from rametctl.app import App
from rametctl.errors import RefusedError, UsageError
from rametctl.options import Verb, VerbGroup, complete_file, repo_option, repo_path
from rametctl.render.plan import (
    applied_lines,
    check_lines,
    cleanup_lines,
    converge_lines,
    not_applied,
    plan_table,
    problem_lines,
    status_lines,
)

Answer = TypeVar("Answer")
DEFAULT = "plan.toml"


@click.group("plan", cls=VerbGroup, short_help="Manage plans: check, apply, status, converge, cleanup.")
@click.pass_context
def command(context: click.Context) -> None:
    """Apply and follow plans: several threads, each with its own paths, branch and
    agent. FILE is plan.toml in the current directory or at the repository's root; see
    the reference and `plan schema` for its format. Without a command, shows status.

    \b
    Examples:
      rametctl plan check
      rametctl plan apply
      rametctl plan status
      rametctl plan converge --dry-run
    """
    if context.invoked_subcommand is None:
        _status(context.ensure_object(App), None, None)


def file_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("file", metavar="[FILE]", required=False, shell_complete=complete_file)(function)


@command.command("check", cls=Verb, short_help="Check a plan.")
@file_argument
@repo_option
@click.pass_obj
def check(app: App, file: str | None, repo: str | None) -> int:
    """Report all errors in the plan in FILE ("-": standard input) by line and key:
    overlapping paths, cycles, existing branches. Creates nothing. Exits with 1 if the
    plan cannot be applied.

    \b
    Example:
      rametctl plan check plan.toml
    """
    name, text = read_plan(app, file)
    answer = _check(app, name, text, repo)
    app.output.answer(answer, check_lines(app.output, answer, shown(app, name)))
    return 0 if answer.ok else 1


@command.command("apply", cls=Verb, short_help="Apply a plan, or the changes in it.")
@file_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would change.")
@repo_option
@click.pass_obj
def apply(app: App, file: str | None, dry_run: bool, repo: str | None) -> None:
    """Create the sessions of the plan in FILE ("-": standard input): branches, worktrees, agents
    and prompts, all or none. Applying it again applies only the differences; sessions of threads
    that you removed from the plan stay.

    \b
    Examples:
      rametctl plan apply
      rametctl plan apply --dry-run
    """
    name, text = read_plan(app, file)
    request = plan_pb2.ApplyPlanRequest(path=repo_path(app, repo), text=text, file=name, dry_run=dry_run)
    try:
        answer = app.call(lambda daemon: daemon.plans.ApplyPlan, request, doing="applying it …")
    except RefusedError as error:
        if error.reason == "BAD_PLAN":
            checked = _check(app, name, text, repo)
            for item in problem_lines(checked, shown(app, name)):
                app.output.note(item.text)
            error.exit_code = 1  # the command line is fine
            if not app.output.json_mode:
                error.message, error.hint = not_applied(checked), ""
        raise
    app.output.json(answer)
    app.output.show(*applied_lines(answer, dry_run=dry_run))
    if not dry_run:
        app.output.hint("see: rametctl plan status")


@command.command("status", cls=Verb, short_help="Show the status of the threads.")
@file_argument
@repo_option
@click.pass_obj
def status(app: App, file: str | None, repo: str | None) -> None:
    """Show the status of each thread of an applied plan, in landing order: state,
    commits AHEAD of and BEHIND the target, uncommitted files (DIRTY), files inside (IN)
    and outside (OUT) its paths, and cost; on a terminal without columns of zeros. FILE
    may be the plan's name.

    \b
    Example:
      rametctl plan status --json | jq -r '.threads[] | select(.outside != [])'
    """
    _status(app, file, repo)


@command.command("converge", cls=Verb, short_help="Push branches, open or update pull requests.")
@file_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--remote", default="", metavar="NAME", help="Remote to push to (default: the target's, else origin).")
@repo_option
@click.pass_obj
def converge(app: App, file: str | None, dry_run: bool, remote: str, repo: str | None) -> int:
    """Push each thread's branch and open or update its pull request, in landing order.
    Running it again applies only the differences. If one thread fails, the others continue, and
    converge exits with 1.

    \b
    Example:
      rametctl plan converge --dry-run
    """

    def call(name: str) -> plan_pb2.ConvergePlanResponse:
        request = plan_pb2.ConvergePlanRequest(plan=name, path=repo_path(app, repo), dry_run=dry_run, remote=remote)
        return app.call(lambda daemon: daemon.plans.ConvergePlan, request, doing="pushing …")

    answer = of_plan(app, file, call)
    app.output.answer(answer, converge_lines(answer, dry_run=dry_run))
    return 1 if answer.failed else 0


@command.command("cleanup", cls=Verb, short_help="Remove the threads that have landed.")
@file_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be done.")
@repo_option
@click.pass_obj
def cleanup(app: App, file: str | None, dry_run: bool, repo: str | None) -> None:
    """Remove the threads whose work is on the target, with worktree and branch; you can
    restore them from the trash. Other threads stay, and the reason is shown. A plan
    without threads is removed.

    \b
    Example:
      rametctl plan cleanup
    """

    def call(name: str) -> plan_pb2.CleanUpPlanResponse:
        request = plan_pb2.CleanUpPlanRequest(plan=name, path=repo_path(app, repo), dry_run=dry_run)
        return app.call(lambda daemon: daemon.plans.CleanUpPlan, request, doing="removing …")

    answer = of_plan(app, file, call)
    for step in answer.steps:
        app.output.warn(step.warnings, of=step.thread)
    app.output.answer(answer, cleanup_lines(answer, dry_run=dry_run))


@command.command("ls", cls=Verb, short_help="List the applied plans.")
@click.pass_obj
def ls(app: App) -> None:
    """List the applied plans of all repositories, oldest first.

    \b
    Example:
      rametctl plan ls --json | jq -r '.[].file'
    """
    plans = app.listed(lambda daemon: daemon.plans.ListPlans, plan_pb2.ListPlansRequest(), lambda page: page.plans)
    app.output.answer(
        plans, plan_table(app.output, plans), empty="no plans are applied; write a plan.toml, then: rametctl plan apply"
    )


@command.command("schema", cls=Verb, short_help="Print the JSON schema of plan.toml.")
@click.pass_obj
def schema(app: App) -> None:
    """Print the JSON schema of plan.toml, for editors and for programs that write plans.

    \b
    Example:
      rametctl plan schema > plan.schema.json
    """
    text = (files("ramet") / "plan.schema.json").read_text(encoding="utf-8")
    app.output.json(json.loads(text))
    app.output.binary(text.encode())


def _check(app: App, name: str, text: str, repo: str | None) -> "CheckPlanResponse":
    request = plan_pb2.CheckPlanRequest(path=repo_path(app, repo), text=text, file=name)
    return app.call(lambda daemon: daemon.plans.CheckPlan, request, doing="checking …")


def _status(app: App, file: str | None, repo: str | None) -> None:
    def call(name: str) -> plan_pb2.GetPlanResponse:
        request = plan_pb2.GetPlanRequest(plan=name, path=repo_path(app, repo))
        return app.call(lambda daemon: daemon.plans.GetPlan, request, doing="looking …")

    answer = of_plan(app, file, call)
    app.output.answer(answer, status_lines(app.output, answer))


def read_plan(app: App, file: str | None) -> tuple[str, str]:
    """Return the absolute path of a plan, "" for standard input, and its text. Raise UsageError."""
    if file == "-":
        return "", _decoded(sys.stdin.buffer.read(), "standard input")
    path = Path(app.absolute(file)) if file is not None else default_file(app)
    if path is None:
        hint = "name a file, or write one; for its format run: rametctl plan schema"
        raise UsageError(f"there is no {DEFAULT} here or at the repository's root", hint=hint)
    try:
        return str(path), _decoded(path.read_bytes(), f"the file {path}")
    except OSError as error:
        raise UsageError(f"the plan {path} cannot be read: {error.strerror}", hint="name another file") from error


def default_file(app: App) -> Path | None:
    """Return ``plan.toml`` in the current directory, or at the root of its repository."""
    here = Path(app.cwd)
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return next((folder / DEFAULT for folder in (here, root) if (folder / DEFAULT).is_file()), None)


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start})", hint="convert it first") from error


def of_plan(app: App, file: str | None, call: Callable[[str], Answer]) -> Answer:
    """Make a call with the plan's name: the given file or name, else the default file if it is
    applied, else the only plan."""
    if file is not None:
        looks_like_one = "/" in file or file.endswith(".toml") or Path(app.absolute(file)).is_file()
        return call(app.absolute(file) if looks_like_one else file)
    usual = default_file(app)
    if usual is not None:
        try:
            return call(str(usual))
        except RefusedError as error:
            if error.reason != "PLAN_NOT_FOUND":
                raise
    return call("")


def shown(app: App, name: str) -> str:
    """Return the file relative to the current directory."""
    if not name:
        return "standard input"
    path = Path(name)
    return str(path.relative_to(app.cwd)) if path.is_relative_to(app.cwd) else name
