"""Pull requests as a table."""

from collections.abc import Sequence

from ramet.v1 import landing_pb2
from ramet.v1.landing_pb2 import PullRequest

from rametctl.console.lines import Line, Span
from rametctl.console.output import Output

STYLES = {"open": "green", "draft": "dim", "merged": "magenta", "closed": "red", "passed": "green", "failed": "red"}


def checks_name(pull: "PullRequest") -> str:
    """Return none, running, failed or passed; "-" if unknown."""
    name = landing_pb2.ChecksState.Name(pull.checks).removeprefix("CHECKS_STATE_").lower()
    return "-" if name == "unspecified" else name


def in_the_way(pull: "PullRequest") -> str:
    if pull.error:
        return f"not seen lately: {pull.error}"
    if pull.state == "none":
        return f"open one at {pull.url}" if pull.url.startswith("http") else "pushed; the remote is not on GitHub"
    return "; ".join(pull.blockers) or ("ready" if pull.state == "open" else "")


def status_lines(output: "Output", pulls: Sequence["PullRequest"]) -> list[Line]:
    """Return one row each, with the address below if the terminal has room."""
    rows = []
    for pull in pulls:
        checks = checks_name(pull)
        rows.append(
            [
                (pull.session_name, "bold"),
                (f"#{pull.number}" if pull.number else "-", ""),
                (pull.state, STYLES.get(pull.state, "")),
                (checks, STYLES.get(checks, "")),
                (pull.review.replace("_", " ") or "-", ""),
                (in_the_way(pull), "yellow" if pull.blockers or pull.error else "dim"),
            ]
        )
    headers = ["SESSION", "PR", "STATE", "CHECKS", "REVIEW", "IN THE WAY"]
    return output.table(headers, rows, shrink=[("IN THE WAY", 20), ("SESSION", 10)])


def pull_request_spans(pull: "PullRequest") -> list[Span]:
    """Describe its present state, for the log."""
    if pull.state == "none":
        return [(f"pushed {pull.branch}", "dim")]
    parts = [pull.state, f"checks {checks_name(pull)}" if pull.checks else "", *pull.blockers]
    words = ", ".join(part for part in parts if part)
    return [(f"pull request #{pull.number}: {words}", STYLES.get(pull.state, "dim"))]
