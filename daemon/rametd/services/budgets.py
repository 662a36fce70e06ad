"""Budgets: of a session in dollars or tokens, of its family and of a day in dollars.

The daemon checks them against the ledger and the reported cost of running turns. Tokens are known
only at the end of a turn. An agent that does not report costs would add nothing to a budget in
dollars, so its sessions cannot have one.

A session's own budget covers the session and its descendants, so that children together spend no
more than their parent may.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ramet.words import token_count, tokens

from rametd.agents.base import AgentKind, require
from rametd.config import Budget
from rametd.domain.models import Session
from rametd.domain.text import dollars
from rametd.services.family import ancestors
from rametd.store import Reader

WARN_AT = 0.8
CENT = 0.0000001
"""Tolerance: sums of many small costs are not exact."""

Running = Mapping[str, float]
"""Session → cost of its running turn, not yet in the ledger."""
NOTHING: Running = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Spending:
    """A limit and the spent amount, in dollars or tokens. ``name`` and ``remedy`` are texts for
    people."""

    name: str
    limit: float
    spent: float
    remedy: str
    in_tokens: bool = False

    @property
    def exceeded(self) -> bool:
        return self.spent + CENT >= self.limit

    @property
    def near(self) -> bool:
        return self.spent + CENT >= self.limit * WARN_AT

    @property
    def reason(self) -> str:
        """Reason why a session is paused."""
        return f"{self}: {self.remedy}"

    def __str__(self) -> str:
        if self.in_tokens:
            return f"{token_count(self.spent)} of {tokens(self.limit)} used for {self.name}"
        return f"{dollars(self.spent)} of {dollars(self.limit)} spent for {self.name}"


def spendings(reader: Reader, session: Session, budget: Budget, *, running: Running = NOTHING) -> list[Spending]:
    """All limits of a session, including its ancestors'."""
    found = [*_given(reader, session, running), *_given_tokens(reader, session)]
    if session.budget_usd is None and budget.session is not None:
        spent = (session.cost_usd or 0.0) + running.get(session.id, 0.0)
        found.append(Spending("this session", budget.session, spent, raise_hint(session)))
    if budget.tree is not None:
        root_id = session.root_id or session.id
        spent = _subtree(reader, root_id, root_id, running)
        remedy = "raise it: `rametctl config set budget.tree USD`"
        found.append(Spending("its family", budget.tree, spent, remedy))
    if budget.day is not None:
        spent = reader.ledger.total(since=midnight(time.time())).cost_usd + sum(running.values())
        remedy = "raise it: `rametctl config set budget.day USD`, or wait for tomorrow"
        found.append(Spending("today", budget.day, spent, remedy))
    return found


def _given(reader: Reader, session: Session, running: Running) -> list[Spending]:
    """Limits that a session and its ancestors have themselves."""
    return [
        Spending(
            whose(holder, session),
            holder.budget_usd,
            _subtree(reader, holder.id, holder.root_id or holder.id, running),
            raise_hint(holder),
        )
        for holder in (session, *ancestors(reader, session))
        if holder.budget_usd is not None
    ]


def _given_tokens(reader: Reader, session: Session) -> list[Spending]:
    return [
        Spending(
            whose(holder, session),
            holder.budget_tokens,
            reader.ledger.total(_family(reader, holder)).tokens.counted,
            f"`rametctl set {holder.reference} --budget {token_count(2 * holder.budget_tokens)}tok` continues it",
            in_tokens=True,
        )
        for holder in (session, *ancestors(reader, session))
        if holder.budget_tokens is not None
    ]


def whose(holder: Session, session: Session) -> str:
    return "this session" if holder.id == session.id else f"{holder.name} and its descendants"


def _family(reader: Reader, session: Session) -> list[str]:
    """A session and its descendants, removed ones included."""
    return [session.id, *reader.spawns.descendants(session.id, session.root_id or session.id)]


def _subtree(reader: Reader, session_id: str, root_id: str, running: Running) -> float:
    """Cost of a session and its descendants, including removed ones."""
    ids = [session_id, *reader.spawns.descendants(session_id, root_id)]
    return reader.ledger.total(ids).cost_usd + sum(running.get(each, 0.0) for each in ids)


def spent_below(reader: Reader, session: Session) -> float:
    """Cost of a session's descendants in dollars, including removed ones."""
    _, *below = _family(reader, session)
    return reader.ledger.total(below).cost_usd if below else 0.0


def raise_hint(session: Session) -> str:
    return f"`rametctl set {session.reference} --budget USD` continues it"


def exceeded(reader: Reader, session: Session, budget: Budget, *, running: Running = NOTHING) -> Spending | None:
    """The first limit that is reached, else None."""
    return next((each for each in spendings(reader, session, budget, running=running) if each.exceeded), None)


def check_kind(kind: AgentKind, *, in_dollars: bool, in_tokens: bool) -> None:
    """Raise `AgentUnableError` for a limit that cannot be enforced because the agent does not
    report costs or tokens."""
    if in_dollars:
        instead = "limit tokens instead: --budget 2Mtok" if kind.capabilities.tokens else "leave the budget out"
        require(kind, "cost", hint=instead)
    if in_tokens:
        instead = "limit dollars instead: --budget 5" if kind.capabilities.cost else "leave the budget out"
        require(kind, "tokens", hint=instead)


def check_child(reader: Reader, kind: AgentKind, parent: Session) -> None:
    """Raise `AgentUnableError` for a child whose agent does not report what the limits of its
    family count."""
    holders = (parent, *ancestors(reader, parent))
    check_kind(
        kind,
        in_dollars=any(each.budget_usd is not None for each in holders),
        in_tokens=any(each.budget_tokens is not None for each in holders),
    )


def remaining(reader: Reader, session: Session) -> float | None:
    """Dollars that a session may still spend or give to a child; None if neither it nor an ancestor
    has a budget in dollars."""
    return min((max(0.0, each.limit - each.spent) for each in _given(reader, session, NOTHING)), default=None)


def midnight(now: float) -> float:
    """Start of the local day of a time."""
    local = time.localtime(now)
    return time.mktime((local.tm_year, local.tm_mon, local.tm_mday, 0, 0, 0, 0, 0, -1))
