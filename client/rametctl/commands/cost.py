"""`rametctl cost`: show costs."""

import click
from ramet.v1 import daemon_pb2
from ramet.v1.common_pb2 import Tokens
from ramet.v1.daemon_pb2 import GetCostsResponse

from rametctl.app import App
from rametctl.console.lines import Line
from rametctl.options import Verb
from rametctl.render.format import money

GROUPINGS = ("session", "day", "model", "repo")


@click.command("cost", cls=Verb, short_help="Show costs by session, day, model or repository.")
@click.option("--by", type=click.Choice(GROUPINGS), default="session", help="Group by (default: session).")
@click.pass_obj
def command(app: App, by: str) -> None:
    """Show the cost of all sessions, including removed ones, in dollars and tokens, with the total,
    the most expensive first. Days are in UTC, oldest first.

    \b
    Examples:
      rametctl cost --by day
      rametctl cost --json | jq 'map(.cost_usd) | add'
    """
    request = daemon_pb2.GetCostsRequest(grouping=daemon_pb2.CostGrouping.Value(f"COST_GROUPING_{by.upper()}"))
    answer = app.call(lambda daemon: daemon.daemon.GetCosts, request)
    app.output.answer(answer.costs, _table(app, by, answer), empty="no costs yet")


def _table(app: App, by: str, answer: "GetCostsResponse") -> "list[Line]":
    def amounts(cost_usd: float, unpriced: bool, tokens: Tokens | None, style: str = "") -> "list[tuple[str, str]]":
        known = "unknown" if unpriced and not cost_usd else money(cost_usd) + (" + unknown" if unpriced else "")
        if tokens is None:
            return [(known, style), *(("unknown", "dim") for _ in range(4))]
        counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
        return [(known, style), *((f"{count:,}", "dim") for count in counts)]

    total = Tokens(
        input=sum(cost.tokens.input for cost in answer.costs),
        output=sum(cost.tokens.output for cost in answer.costs),
        cache_read=sum(cost.tokens.cache_read for cost in answer.costs),
        cache_write=sum(cost.tokens.cache_write for cost in answer.costs),
    )
    headers = [by.upper(), "COST", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITTEN"]
    rows = [
        [(" ".join(cost.key.split()) or "(removed)", "bold"),
         *amounts(cost.cost_usd, cost.unpriced, cost.tokens if cost.HasField("tokens") else None)]
        for cost in answer.costs
    ]  # fmt: skip
    rows.append([("total", "dim"), *amounts(answer.total_usd, answer.unpriced, total, "bold")])
    return app.output.table(headers, rows, shrink=[(by.upper(), 8)], right=frozenset(headers[1:]))
