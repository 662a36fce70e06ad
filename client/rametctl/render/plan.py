"""Plans: errors, changes, and the status of threads."""

from collections.abc import Iterable, Iterator, Sequence

from ramet.v1.plan_pb2 import (
    ApplyPlanResponse,
    CheckPlanResponse,
    CleanUpPlanResponse,
    ConvergePlanResponse,
    GetPlanResponse,
    Plan,
    PlanProblem,
    Thread,
    ThreadStatus,
)
from ramet.words import plural

from rametctl.console.lines import Line, Span, line
from rametctl.console.output import Output
from rametctl.render.format import local_time, money
from rametctl.render.session import state_name, state_style

LISTED = 5
STATUS = ("LANDS", "THREAD", "NAME", "STATE", "AHEAD", "BEHIND", "DIRTY", "IN", "OUT", "COST", "NOW")
SHRINK = (("NOW", 20), ("NAME", 12), ("THREAD", 8), ("NOW", 8))
_ACTION_STYLES = {
    "create": "green",
    "update": "yellow",
    "prompt": "yellow",
    "drop": "red",
    "keep": "dim",
    "open": "green",
    "opened": "green",
    "pushed": "green",
    "updated": "yellow",
    "unchanged": "dim",
    "landed": "dim",
    "skipped": "yellow",
    "failed": "red",
}


def problem_lines(answer: "CheckPlanResponse", file: str) -> Iterator[Line]:
    """Return each error as ``FILE:LINE: error: KEY: message``, with its hint below."""
    for problem in answer.problems:
        yield from _problem(problem, file)


def _problem(problem: "PlanProblem", file: str) -> Iterator[Line]:
    place = f"{file}:{problem.line}" if problem.line else file
    key = f"{problem.key}: " if problem.key else ""
    style = "bold red" if problem.severity == "error" else "yellow"
    yield line((f"{place}: ", "bold"), (problem.severity, style), f": {key}{problem.message}", hang=4)
    if problem.examples:
        yield line((f"such as {(', '.join(problem.examples))}", "dim"), indent=4)
    if problem.hint:
        yield line((problem.hint, "dim"), indent=4)


def check_lines(output: Output, answer: "CheckPlanResponse", file: str) -> Iterator[Line]:
    yield from problem_lines(answer, file)
    if answer.ok:
        yield line((answer.name, "bold"), f": {plural(len(answer.threads), 'thread')}, can be applied")
        yield from _threads(output, answer.threads)
    else:
        yield line((not_applied(answer), "red"))


def not_applied(answer: "CheckPlanResponse") -> str:
    """Return how many errors a plan has."""
    errors = sum(problem.severity == "error" for problem in answer.problems)
    return f"{plural(errors, 'error')}: it cannot be applied"


def _threads(output: Output, threads: Sequence["Thread"]) -> list[Line]:
    rows: list[list[Span]] = [
        [
            (str(place), "dim"),
            (thread.id, "bold"),
            (thread.name, ""),
            (thread.branch or "-", ""),
            (", ".join(thread.after) or "-", ""),
            (", ".join(thread.owns) or "-", "dim"),
        ]
        for place, thread in enumerate(threads, 1)
    ]
    headers = ["LANDS", "THREAD", "NAME", "BRANCH", "AFTER", "OWNS"]
    return output.table(headers, rows, shrink=[("OWNS", 12), ("BRANCH", 12), ("NAME", 12)], right=frozenset({"LANDS"}))


def applied_lines(answer: "ApplyPlanResponse", *, dry_run: bool) -> Iterator[Line]:
    yield from _steps((change.action, change.thread, change.message) for change in answer.changes)
    if all(change.action == "keep" for change in answer.changes):
        yield line("nothing differs")
    elif dry_run:
        yield line(("nothing was changed: --dry-run", "dim"))


def converge_lines(answer: "ConvergePlanResponse", *, dry_run: bool) -> Iterator[Line]:
    planned = {"opened": "open", "updated": "update"} if dry_run else {}
    for step in answer.steps:
        target = f"{step.branch or '(no branch)'} → {step.base}: " if step.action != "landed" else ""
        yield from _steps([(planned.get(step.action, step.action), step.thread, f"{target}{step.message}")])
        if step.action not in {"landed", "skipped"}:
            yield line((step.title, "dim"), indent=12)
            if step.url and step.url not in step.message:
                yield line((step.url, "dim"), indent=12)
    if answer.failed:
        yield line((f"{plural(answer.failed, 'thread')} failed; the same command tries again", "red"))


def cleanup_lines(answer: "CleanUpPlanResponse", *, dry_run: bool) -> Iterator[Line]:
    gone = "would go" if dry_run else "removed"
    for step in answer.steps:
        word, style = (gone, "green") if step.removed else ("stays", "yellow")
        yield line((f"{word:<9} ", style), (step.thread, "bold"), f"  {step.reason}", hang=10)
    if answer.plan_removed:
        yield line(f"the plan {'would be' if dry_run else 'is'} forgotten: nothing of it is left")


def _steps(steps: Iterable[tuple[str, str, str]]) -> Iterator[Line]:
    for action, thread, message in steps:
        yield line(
            (f"{action:<10}", _ACTION_STYLES.get(action, "")),
            " ",
            (thread, "bold"),
            f"  {message}",
            hang=12,
        )


def status_lines(output: Output, answer: "GetPlanResponse") -> Iterator[Line]:
    plan = answer.plan
    cost = f", {money(plan.cost_usd)}" if plan.cost_usd else ""
    file = f", from {plan.file}" if plan.file else ""
    yield line((plan.name, "bold"), (f" in {plan.repo}{file}{cost}", "dim"))
    rows = [_status_row(status) for status in answer.threads]
    # A column without a difference takes the room of the reasons.
    dull = {"NAME": all(row["NAME"][0] == row["THREAD"][0] for row in rows)}
    dull |= {header: all(row[header][0] == "0" for row in rows) for header in ("BEHIND", "DIRTY", "OUT")}
    headers = [header for header in STATUS if not (output.terminal and dull.get(header))]
    yield from output.table(
        headers,
        [[row[header] for header in headers] for row in rows],
        shrink=[each for each in SHRINK if each[0] in headers],
        right=frozenset({"LANDS", "AHEAD", "BEHIND", "DIRTY", "IN", "OUT", "COST"}),
    )
    for status in answer.threads:
        if status.outside:
            more = f" and {len(status.outside) - LISTED} more" if len(status.outside) > LISTED else ""
            paths = ", ".join(status.outside[:LISTED])
            yield line((f"{status.thread.id} has touched paths that are not its own: {paths}{more}", "yellow"))


def _status_row(status: "ThreadStatus") -> dict[str, Span]:
    there = status.HasField("session")
    state = state_name(status.session) if there else "gone"
    note = status.landing
    if status.landed:
        note = f"landed: {status.landed_reason}" + (f"; {note}" if note else "")
    elif there and status.session.state_reason and not note:
        note = status.session.state_reason
    return {
        "LANDS": (str(status.place or "-"), "dim"),
        "THREAD": (status.thread.id, "bold"),
        "NAME": (status.session.name if there else status.thread.name, ""),
        "STATE": (state, state_style(state)),
        "AHEAD": (str(status.ahead), ""),
        "BEHIND": (str(status.behind), ""),
        "DIRTY": (str(status.dirty), "yellow" if status.dirty else ""),
        "IN": (str(len(status.inside)), ""),
        "OUT": (str(len(status.outside)), "bold yellow" if status.outside else ""),
        "COST": (money(status.session.cost_usd) if there else "-", ""),
        "NOW": (" ".join(note.split()), "green" if status.landed else ""),
    }


def plan_table(output: Output, plans: Sequence["Plan"]) -> list[Line]:
    return output.table(
        ["NAME", "REPO", "THREADS", "COST", "APPLIED", "FILE"],
        [
            [
                (plan.name, "bold"),
                (plan.repo, ""),
                (str(plan.threads), ""),
                (money(plan.cost_usd), ""),
                (local_time(plan.update_time), "dim"),
                (plan.file or "-", "dim"),
            ]
            for plan in plans
        ],
        shrink=[("FILE", 20), ("NAME", 10)],
        right=frozenset({"THREADS", "COST"}),
    )
