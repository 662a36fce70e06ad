"""`rametctl agents`: kinds of agents."""

from collections.abc import Sequence

import click
from ramet.v1 import daemon_pb2
from ramet.v1.daemon_pb2 import KindOfAgent

from rametctl.app import App
from rametctl.console.lines import Span, line
from rametctl.options import Verb, VerbGroup, complete_agent, mode_name

PATIENCE_S = 300.0
"""Time limit in seconds: nine programs, two at a time, each with a minute to start."""

WORDS = {
    "ask": "asks before a call",
    "resume": "resumes",
    "fork": "forks",
    "rewind": "rewinds",
    "steer": "takes prompts in a turn",
    "cost": "tells costs",
    "tokens": "tells tokens",
    "mcp": "has Ramet's tools",
    "attach": "can be attached to",
}


@click.group("agents", cls=VerbGroup, short_help="Show which agents are installed and what they can do.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show the kinds of agents for --agent: which are installed, and how to install the others.
    Without a command, lists them.

    \b
    Examples:
      rametctl agents
      rametctl agents check
      rametctl agents show codex
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(ls)


@command.command("ls", cls=Verb, short_help="List kinds of agents.")
@click.pass_obj
def ls(app: App) -> None:
    """List the kinds of agents, with release or how to install them.

    \b
    Example:
      rametctl agents ls --json | jq -r '.[] | select(.installed).name'
    """
    _list(app, _agents(app, (), start=False))


@command.command("check", cls=Verb, short_help="Start agents, to test whether they work.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_agent)
@click.pass_obj
def check(app: App, names: Sequence[str]) -> int:
    """Start each installed agent, or the NAMEs, to test whether it works and is logged in. Sends no
    prompt. Exits with 1 if none works, or if not all NAMEs work.

    \b
    Examples:
      rametctl agents check
      rametctl agents check codex opencode
    """
    with app.output.spinner("starting agents …"):
        found = _agents(app, names, start=True)
    _list(app, found)
    works = [each.installed and not each.problem and each.logged_in for each in found]
    return int(not (all(works) if names else any(works)))


@command.command("show", cls=Verb, short_help="Show what a kind of agent can do.")
@click.argument("name", shell_complete=complete_agent)
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show the kind of agent NAME: command, modes, what it can do and what it cannot.

    \b
    Example:
      rametctl agents show codex
    """
    (agent,) = _agents(app, [name], start=False)
    app.output.json(agent)
    state, style = _state(agent)
    able = set(agent.capabilities)
    rows = [
        ("name", f"{agent.name} ({agent.title})", "bold"),
        ("state", state, style),
        ("command", " ".join(agent.command) + (f" ({agent.path})" if agent.path else ""), ""),
        ("install", agent.install_command, ""),
        ("login", agent.login_command, ""),
        ("modes", ", ".join(mode_name(mode) for mode in agent.modes), ""),
        ("can", ", ".join(words for name, words in WORDS.items() if name in able), ""),
        ("cannot", ", ".join(words for name, words in WORDS.items() if name not in able), ""),
        *(("note", fault, "") for fault in agent.faults),
    ]
    app.output.show(*(line((f"{key:<9} ", "dim"), (value, style)) for key, value, style in rows if value))


def _agents(app: App, names: Sequence[str], *, start: bool) -> "Sequence[KindOfAgent]":
    request = daemon_pb2.ListAgentsRequest(names=names, inspect=True, start=start)
    return app.call(lambda daemon: daemon.daemon.ListAgents, request, timeout=PATIENCE_S).agents


def _list(app: App, agents: "Sequence[KindOfAgent]") -> None:
    app.output.json(agents)
    rows = [[(each.name, "bold"), (each.version or "-", ""), _state(each), (_next(each), "dim")] for each in agents]
    app.output.show(*app.output.table(["AGENT", "RELEASE", "STATE", "NEXT"], rows, shrink=[("NEXT", 20)]))


def _state(agent: "KindOfAgent") -> "Span":
    if not agent.installed:
        return "not installed", "dim"
    if agent.problem:
        return agent.problem, "red"
    if not agent.HasField("logged_in"):
        return "installed", "green"
    return ("works", "green") if agent.logged_in else ("not logged in", "yellow")


def _next(agent: "KindOfAgent") -> str:
    """Return the command that makes the agent usable."""
    if not agent.installed or agent.problem.endswith("which Ramet needs"):
        return agent.install_command
    if agent.HasField("logged_in") and not agent.logged_in:
        return agent.login_command
    return "" if agent.tried else "not tried with Ramet yet"
