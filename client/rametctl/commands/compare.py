"""`rametctl compare`: compare the contenders of a contest."""

import shlex

import click
from ramet.v1 import worktree_pb2
from ramet.v1.session_pb2 import Session

from rametctl.app import App
from rametctl.commands.diff import show_diff
from rametctl.errors import UsageError
from rametctl.nouns.contests import ask_judge, calls, compare, find_members
from rametctl.options import Verb, complete_agent, complete_session
from rametctl.render.contest import contest_lines, to_json
from rametctl.render.session import reference


@click.command("compare", cls=Verb, short_help="Compare the contenders of a contest.")
@click.argument("group", metavar="CONTEST", shell_complete=complete_session)
@click.option("--check", metavar="CMD", default="", help="Run this in each worktree (default: that of `new --check`).")
@click.option("--diff", "pair", nargs=2, metavar="A B", help="Show how the files of B differ from those of A.")
@click.option(
    "--judge",
    metavar="AGENT",
    default="",
    shell_complete=complete_agent,
    help="Let another session read all diffs and give advice.",
)
@click.pass_obj
def command(app: App, group: str, check: str, pair: tuple[str, str] | None, judge: str) -> None:
    """Compare the contenders of CONTEST: state, cost, time, changes, result of the check,
    files that all or only one of them changed, and how they differ from each other.
    CONTEST is its name or one of its sessions. A check runs in contenders that are not working, and
    again only when their files have changed; Ramet undoes its changes. The judge's verdict is
    advice.

    \b
    Examples:
      rametctl new "make it faster" --agent claude:2 --agent codex --check make
      rametctl compare make-it-faster
      rametctl compare make-it-faster --diff make-it-faster-1 make-it-faster-2
      rametctl pick make-it-faster-1 --land
    """
    if pair is not None:
        if check or judge:
            raise UsageError("--diff shows one diff only", hint="omit --check and --judge")
        _show_pair(app, find_members(app, group)[1], pair)
        return
    with app.output.spinner("comparing …"):
        contest = compare(app, group, check=check)
    if judge:
        import asyncio

        number = len(find_members(app, contest.name)[2]) + 1
        with app.output.spinner("creating the judge …"):
            asked = ask_judge(calls(app), contest, judge, number=number, path=app.cwd)
            session, _ = asyncio.run(asked)
        app.output.json(session)
        app.output.text(f"{session.name} reads the diffs; its verdict: rametctl compare {shlex.quote(contest.name)}")
        return
    app.output.json(to_json(contest))
    app.output.show(*contest_lines(app.output, contest))
    names = [reference(each.session) for each in contest.contenders]
    app.output.hint(
        f"rametctl compare {shlex.quote(contest.name)} --diff {' '.join(names[:2])}; pick one: rametctl pick {names[0]}"
    )


def _show_pair(app: App, contenders: "list[Session]", pair: tuple[str, str]) -> None:
    by_name = {name: each.id for each in contenders for name in (each.name, each.id)}
    for name in pair:
        if name not in by_name:
            names = ", ".join(each.name for each in contenders)
            raise UsageError(f"{name!r} is no contender", hint=f"contenders: {names}")
    request = worktree_pb2.GetDiffRequest(session=by_name[pair[1]], against=by_name[pair[0]])
    answer = app.call(lambda daemon: daemon.worktrees.GetDiff, request, doing="comparing …")
    show_diff(app, answer)
