"""Budgets in dollars: of a session, of its family, of a day; from the ledger, and from what a running turn says to have cost so far."""

import time
from dataclasses import dataclass

from rametd.config import Budget
from rametd.domain.models import Session
from rametd.store import Reader

WARN_AT = 0.8
CENT = 0.0000001
"""Sums of many small costs are not exact: a limit that is reached but for this is reached."""


@dataclass(frozen=True, slots=True)
class Spending:
    """One limit and what is spent of it, in dollars. ``name`` is for people."""

    name: str
    limit: float
    spent: float

    @property
    def exceeded(self) -> bool:
        return self.spent + CENT >= self.limit

    @property
    def near(self) -> bool:
        return self.spent + CENT >= self.limit * WARN_AT

    def __str__(self) -> str:
        return f"${self.spent:.2f} of the ${self.limit:.2f} for {self.name} are spent"


def spendings(reader: Reader, session: Session, budget: Budget, *, running: float = 0.0) -> list[Spending]:
    """Every limit that holds for a session; ``running`` is what its turn has cost beyond the ledger."""
    found = []
    own = session.budget_usd if session.budget_usd is not None else budget.session
    if own is not None:
        found.append(Spending("this session", own, session.cost_usd + running))
    if budget.tree is not None:
        ids = [member.id for member in reader.sessions.family(session.root_id or session.id)]
        found.append(Spending("its family", budget.tree, reader.ledger.total(ids).cost_usd + running))
    if budget.day is not None:
        spent = reader.ledger.total(since=midnight(time.time())).cost_usd
        found.append(Spending("today", budget.day, spent + running))
    return found


def exceeded(reader: Reader, session: Session, budget: Budget, *, running: float = 0.0) -> Spending | None:
    """The first limit that is reached, or None."""
    return next((each for each in spendings(reader, session, budget, running=running) if each.exceeded), None)


def limited(session: Session, budget: Budget) -> bool:
    """Whether any limit holds for a session at all."""
    return session.budget_usd is not None or any(
        limit is not None for limit in (budget.session, budget.tree, budget.day)
    )


def how_to_raise(session: Session, spending: Spending) -> str:
    """What goes on after a limit is reached."""
    if spending.name == "this session":
        return f"`rametctl set {session.name} --budget USD` goes on"
    key = "budget.tree" if spending.name == "its family" else "budget.day"
    return f"raise {key} in config.toml and restart the daemon" + (
        ", or wait for tomorrow" if key == "budget.day" else ""
    )


def midnight(now: float) -> float:
    """When the local day of a time began."""
    local = time.localtime(now)
    return time.mktime((local.tm_year, local.tm_mon, local.tm_mday, 0, 0, 0, 0, 0, -1))
