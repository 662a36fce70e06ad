"""Values of options that several verbs share."""

import re

import click
import pytest
from rametctl.options import Budget, budget_option


def parsed(text: str) -> Budget:
    command = click.Command("set", callback=lambda budget: budget)
    budget_option("", removable=True)(command)
    parsed: Budget = command.main(["--budget", text], standalone_mode=False)
    return parsed


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("5", {"budget_usd": 5.0}),
        ("$0.50", {"budget_usd": 0.5}),
        ("2Mtok", {"budget_tokens": 2_000_000}),
        ("2M tok", {"budget_tokens": 2_000_000}),
        ("1.5m tokens", {"budget_tokens": 1_500_000}),
        ("500k tok", {"budget_tokens": 500_000}),
        ("900tok", {"budget_tokens": 900}),
        ("none", {}),
    ],
)
def test_a_budget_is_in_dollars_or_in_tokens(text: str, budget: Budget) -> None:
    assert parsed(text) == budget


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "0tok", "2M", "tok", "five", "$", "-2Mtok", "2Gtok"])
def test_a_limit_of_nothing_and_what_is_no_amount_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=re.escape(f"{text!r} is not a budget: give dollars, such as 5")):
        parsed(text)
