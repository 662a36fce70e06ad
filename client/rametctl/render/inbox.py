"""The inbox as a list with one line for each request."""

from collections.abc import Sequence

from ramet.v1.attention_pb2 import AttentionRequest
from ramet.words import plural

from rametctl.console.lines import Line, Span, line
from rametctl.console.output import Output
from rametctl.render.format import age, parsed, unbold
from rametctl.render.request import kind_name, questions, short_id

HEADERS = ("ID", "SESSION", "SINCE", "WANTS")
SHRINK = (("WANTS", 30), ("SESSION", 16), ("WANTS", 10), ("SESSION", 8))
_DETAILS = ("command", "file_path", "notebook_path", "url", "pattern", "query", "description", "path")


def inbox_lines(
    output: "Output",
    blocking: "Sequence[AttentionRequest]",
    reviews: "Sequence[AttentionRequest]",
    now: float,
    *,
    room: int,
) -> list[Line]:
    """Return a table of all requests that block work, and as many finished turns as fit into
    ``room``; then how to answer."""
    shown = [*blocking, *reviews[:room]]
    with_repo = len({request.repo for request in shown}) > 1
    rows: list[list[Span]] = [
        [
            (short_id(request, shown), "cyan"),
            ((f"{request.repo}/" if with_repo else "") + (request.session_name or request.session_id), "bold"),
            (age(request.create_time, now), "dim"),
            (wish(request), "dim" if kind_name(request) == "review" else "yellow"),
        ]
        for request in shown
    ]
    lines = output.table(HEADERS, rows, shrink=SHRINK, right=frozenset({"SINCE"}))
    if left := len(reviews) - room:
        lines += [line((f"… {plural(left, 'more finished turn')}: rametctl inbox --full", "dim"))] if left > 0 else []
    if blocking:
        lines.append(line(("in full: inbox NAME · then: approve | deny | answer NAME", "dim")))
    if reviews:
        lines.append(line(("finished turns: diff NAME · done NAME | --all · deny NAME -m WHAT-TO-DO-BETTER", "dim")))
    return lines


def wish(request: "AttentionRequest") -> str:
    """Describe a request in one line."""
    data = parsed(request.input_json)
    given = data if isinstance(data, dict) else {}
    match kind_name(request):
        case "permission":
            detail = request.edit.path or next((str(given[key]) for key in _DETAILS if given.get(key)), "")
            words = f"{request.tool}: {detail}" if detail else request.tool
        case "question":
            asked = questions(data)
            words = f"asks: {asked[0].get('question', '')}" if asked else "asks"
        case "plan":
            words = "plan to approve"
        case "review":
            words = f"done: {unbold(request.reason)}" if request.reason else "finished its turn"
        case "trouble":
            words = request.reason
        case kind:
            words = f"{kind}: {request.reason}" if request.reason else kind
    return " ".join(words.split())
