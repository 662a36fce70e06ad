"""Entries of the merge queues, formatted for people."""

from collections.abc import Sequence

from ramet.jsonify import enum_name
from ramet.v1.landing_pb2 import Landing

from rametctl.console.lines import Line, Span, line
from rametctl.console.output import Output

STYLES = {
    "queued": "dim",
    "merging": "cyan",
    "checking": "cyan",
    "waiting": "yellow",
    "returned": "yellow",
    "held": "bold red",
    "landed": "green",
    "removed": "dim",
}
WORDS = {"merging": "being merged", "checking": "its check runs", "returned": "returned to its agent"}


def landing_state(landing: "Landing") -> str:
    return enum_name(landing, "state") or "unknown"


def landing_spans(landing: "Landing", *, known: str = "") -> list[Span]:
    """Describe an entry, without its session's name. ``known`` is the reason that was shown last;
    only what is new is shown."""
    state = landing_state(landing)
    spans = [(WORDS.get(state, state), STYLES.get(state, ""))]
    if state == "queued":
        spans.append((f" for {landing.target}, position {landing.place}", "dim"))
    reason = landing.reason.removeprefix(f"{known}; ") if known else landing.reason
    if reason and not known.startswith(reason):
        spans.append((f"{' ' if state == 'landed' else ': '}{reason}", ""))
    return spans


def landing_line(landing: "Landing", *, known: str = "") -> Line:
    name = landing.session_name or landing.session_id
    return line((f"{name}  ", "magenta"), *landing_spans(landing, known=known), hang=len(name) + 2)


def landing_table(output: Output, landings: Sequence["Landing"]) -> list[Line]:
    rows = [
        (
            (str(each.place or "-"), "dim"),
            (each.session_name, ""),
            (each.target, ""),
            (landing_state(each), STYLES.get(landing_state(each), "")),
            (each.id, "dim"),
            (each.reason, ""),
        )
        for each in landings
    ]
    headers = ("PLACE", "SESSION", "TARGET", "STATE", "ID", "REASON")
    return output.table(headers, rows, shrink=[("REASON", 20), ("SESSION", 12)], right=frozenset({"PLACE"}))
