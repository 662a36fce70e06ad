"""`rametctl doctor`: find and repair inconsistencies."""

import click
from ramet.v1 import worktree_pb2
from ramet.words import plural

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.options import Verb, repo_option, repo_reference


@click.command("doctor", cls=Verb, short_help="Find inconsistencies, and repair the safe ones.")
@repo_option
@click.option("--fix", is_flag=True, help="Repair what can be repaired without loss.")
@click.pass_obj
def command(app: App, repo: str | None, fix: bool) -> int:
    """Compare the recorded sessions with the actual worktrees, branches, agents, ports and
    refs, and explain each difference. --fix repairs those that need no decision and
    lose no work. Exits with 1 while errors remain.

    \b
    Examples:
      rametctl doctor
      rametctl doctor --fix
    """
    request = worktree_pb2.DiagnoseRequest(repo=repo_reference(app, repo) if repo else "", fix=fix)
    answer = app.call(lambda daemon: daemon.worktrees.Diagnose, request, doing="looking …")
    remain = [found for found in answer.findings if not found.fixed]
    status = int(any(found.severity == "error" for found in remain))
    app.output.json(answer)
    styles = {"error": "red", "warning": "yellow", "info": "dim"}
    for found in answer.findings:
        severity = ("fixed", "green") if found.fixed else (found.severity, styles.get(found.severity, ""))
        app.output.show(
            line(severity, "  ", (found.code, "bold"), "  ", found.subject),
            line("    ", found.message),
        )
        if not found.fixed:
            app.output.show(*(line("    ", (each, "dim")) for each in found.advice.splitlines()))
    looked = ", ".join(
        plural(count, _one_of(kind)) for kind, count in sorted(answer.checked.items()) if kind.endswith("s") and count
    )
    if not answer.findings:
        app.output.text(f"ok: {looked}" if looked else "ok")
    elif not fix and any(found.fixable for found in remain):
        app.output.text("to fix what can be fixed without risk: rametctl doctor --fix")
    return status


def _one_of(kind: str) -> str:
    """Return the singular of a checked kind."""
    if kind.endswith("ies"):
        return f"{kind[:-3]}y"
    return kind.removesuffix("es" if kind.endswith("ches") else "s")
