"""Costs by day, model, repository and session, with the budgets as lines."""

import json
from collections.abc import Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, ClassVar

from markupsafe import Markup

from rametctl.view import parts
from rametctl.web import svg
from rametctl.web.site import Action, Fragments, Page, Site, Visit, Wants

if TYPE_CHECKING:
    from ramet.v1.daemon_pb2 import GetCostsResponse

DAYS = 28
SHOWN = 15
"""Bars of one chart: the largest."""


class Costs(Page):
    path: ClassVar[str] = "/costs"
    template: ClassVar[str] = "costs.html"
    nav: ClassVar[str] = "Costs"

    def wants(self, site: Site, visit: Visit) -> Wants:
        return Wants((*((parts.COSTS, key) for key in ("day", "model", "repo")), (parts.SETTINGS, "")))

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        answers = {key: site.view.part(parts.COSTS, key).value for key in ("day", "model", "repo")}
        sessions = sorted(
            (each for each in site.view.sessions.values() if each.cost_usd), key=lambda each: -each.cost_usd
        )
        spent = [(each.name, each.cost_usd, each.budget_usd or None) for each in sessions[:SHOWN]]
        day, config = answers["day"], site.view.part(parts.SETTINGS).value
        limits = [json.loads(each.value_json) for each in config.settings if each.key == "budget.day"] if config else []
        days = every_day({each.key: each.cost_usd for each in day.costs}) if day is not None and day.costs else []
        unpriced = day is not None and any(each.unpriced for each in day.costs)
        return {
            "total": Markup("${}{}").format(
                f"{day.total_usd if day is not None else 0:,.2f}",
                " and what some agents do not say" if unpriced else "",
            ),
            "days": svg.columns(days, "Costs by day, with the day's budget", line=limits[0] if limits else None)
            if days
            else Markup(""),
            "models": _bars(answers["model"], "Costs by model"),
            "repos": _bars(answers["repo"], "Costs by repository"),
            "sessions": svg.bars(spent, "Costs by session, with budgets") if spent else Markup(""),
        }


def every_day(costs: Mapping[str, float]) -> list[tuple[str, float]]:
    """The last `DAYS` days until the newest of the given ones, those without costs too."""
    last = date.fromisoformat(max(costs))
    days = [(last - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
    return [(day, costs.get(day, 0.0)) for day in days]


def _bars(answer: "GetCostsResponse | None", label: str) -> Markup:
    costs = sorted(answer.costs if answer is not None else (), key=lambda each: -each.cost_usd)[:SHOWN]
    values = [(each.key or "removed sessions", each.cost_usd, None) for each in costs]
    return svg.bars(values, label) if values else Markup('<p class="dim">Nothing was spent yet.</p>')


PAGES: tuple[type[Page], ...] = (Costs,)
ACTIONS: Mapping[str, Action] = {}
