"""Budgets of families: costs of children count for their ancestors, removed or running."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from rametd.agents.base import AgentKind, Capabilities
from rametd.config import Budget
from rametd.domain.errors import AgentUnableError
from rametd.domain.models import Session, Tokens
from rametd.domain.text import dollars
from rametd.services import budgets
from rametd.store import Reader, Store, Unit

from tests.support.rows import a_ledger_entry, a_repo, a_session

GIVEN = {"lead": 1.0, "kid": 0.5}
FAMILY = {"lead": "", "kid": "lead", "sibling": "lead", "grandchild": "kid"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Create a family in which every session has spent ten cents."""
    store = await Store.open(tmp_path / "ramet.db")

    def fill(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        for number, (name, parent) in enumerate(FAMILY.items()):
            unit.sessions.insert(
                a_session(name, parent_id=parent, root_id="lead", budget_usd=GIVEN.get(name), create_time=float(number))
            )
            if parent:
                unit.spawns.add(name, "lead", parent)
            unit.ledger.add(a_ledger_entry(name, cost_usd=0.1))

    await store.write(fill)
    yield store
    await store.aclose()


async def shown(store: Store, name: str, budget: Budget, **running: float) -> dict[str, tuple[float, float]]:
    def work(reader: Reader) -> list[budgets.Spending]:
        return budgets.spendings(reader, reader.sessions.get(name), budget, running=running)

    return {each.name: (each.limit, round(each.spent, 6)) for each in await store.read(work)}


async def test_what_descendants_spend_counts_for_every_ancestor_with_a_budget(store: Store) -> None:
    assert await shown(store, "grandchild", Budget()) == {
        "kid and its descendants": (0.5, 0.2),
        "lead and its descendants": (1.0, 0.4),
    }
    assert await shown(store, "lead", Budget()) == {"this session": (1.0, 0.4)}
    assert await shown(store, "sibling", Budget(session=3.0, tree=2.0)) == {
        "lead and its descendants": (1.0, 0.4),
        "this session": (3.0, 0.0),  # this limit uses its own row, which has no cost
        "its family": (2.0, 0.4),
    }


async def test_turns_that_run_count_with_what_they_have_cost_so_far(store: Store) -> None:
    assert await shown(store, "kid", Budget(), grandchild=0.05, sibling=0.25) == {
        "this session": (0.5, 0.25),
        "lead and its descendants": (1.0, 0.7),
    }


async def test_what_a_removed_child_has_spent_stays_spent(store: Store) -> None:
    await store.write(lambda unit: unit.sessions.delete("sibling"))
    assert await shown(store, "lead", Budget()) == {"this session": (1.0, 0.4)}


async def test_a_child_can_be_given_what_the_tightest_of_its_ancestors_has_left(store: Store) -> None:
    left = await store.read(
        lambda reader: {session.id: budgets.remaining(reader, session) for session in reader.sessions.list()}
    )
    assert left["lead"] == pytest.approx(0.6)
    assert left["grandchild"] == pytest.approx(0.3)
    alone: Session = a_session("alone")
    assert await store.read(lambda reader: budgets.remaining(reader, alone)) is None


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "$0.00"),
        (0.00042, "$0.00042"),
        (0.001, "$0.001"),
        (0.0099, "$0.0099"),
        (0.01, "$0.01"),
        (1234.5, "$1234.50"),
    ],
)
def test_no_amount_is_shown_as_nothing_but_nothing(amount: float, words: str) -> None:
    assert dollars(amount) == words


async def test_tokens_of_a_family_count_but_those_read_from_a_cache(store: Store) -> None:
    await store.write(lambda unit: unit.sessions.update("lead", budget_usd=None, budget_tokens=50))
    lead = await store.read(lambda reader: reader.sessions.get("kid"))
    found = await store.read(lambda reader: budgets.spendings(reader, lead, Budget()))
    tokens = next(each for each in found if each.in_tokens)
    each = Tokens(1, 2, 3, 4)
    assert (tokens.limit, tokens.spent) == (50, len(FAMILY) * (each.input + each.output + each.cache_write))
    assert tokens.reason == (
        "28 of 50 tokens used for lead and its descendants: `rametctl set lead --budget 100tok` continues it"
    )
    assert not tokens.exceeded
    await store.write(lambda unit: unit.sessions.update("lead", budget_tokens=28))
    spent = await store.read(lambda reader: budgets.exceeded(reader, lead, Budget()))
    assert spent is not None
    assert spent.in_tokens


class Kind:
    name = "quiet"

    def __init__(self, **capabilities: bool) -> None:
        self.capabilities = Capabilities(**capabilities)


@pytest.mark.parametrize(
    ("able", "in_dollars", "in_tokens", "hint"),
    [
        ({"cost": True, "tokens": True}, True, True, None),
        ({"tokens": True}, False, True, None),
        ({}, False, False, None),
        ({"tokens": True}, True, False, "limit tokens instead: --budget 2Mtok"),
        ({"cost": True}, False, True, "limit dollars instead: --budget 5"),
        ({}, True, False, "leave the budget out"),
        ({}, False, True, "leave the budget out"),
    ],
)
def test_a_limit_that_an_agent_would_not_let_hold_is_refused(
    able: dict[str, bool], in_dollars: bool, in_tokens: bool, hint: str | None
) -> None:
    kind = cast("AgentKind", Kind(**able))
    if hint is None:
        budgets.check_kind(kind, in_dollars=in_dollars, in_tokens=in_tokens)
        return
    with pytest.raises(AgentUnableError, match="quiet cannot report") as caught:
        budgets.check_kind(kind, in_dollars=in_dollars, in_tokens=in_tokens)
    assert caught.value.hint == hint


async def test_a_child_whose_spending_the_limits_of_its_family_could_not_see_is_refused(store: Store) -> None:
    grandchild = await store.read(lambda reader: reader.sessions.get("grandchild"))
    priced, untold = (cast("AgentKind", Kind(**able)) for able in ({"cost": True}, {"tokens": True}))
    await store.read(lambda reader: budgets.check_child(reader, priced, grandchild))
    with pytest.raises(AgentUnableError, match="quiet cannot report what a turn costs"):
        await store.read(lambda reader: budgets.check_child(reader, untold, grandchild))
