import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet_demo.scripted.flags import DEFAULT_MODEL, parse
from ramet_demo.scripted.gate import _covers
from ramet_demo.scripted.session import USAGE, Ledger
from ramet_demo.scripted.wire import new_id


def test_flags_are_read_in_both_spellings_and_unknown_ones_are_ignored() -> None:
    flags = parse(
        [
            "--resume=abc",
            "--model",
            "m",
            "--verbose",
            "--unheard-of",
            "--allowedTools",
            "Bash(git:*),Write",
            "--setting-sources=",
        ]
    )
    assert (flags.resume, flags.model, flags.allowed) == ("abc", "m", ("Bash(git:*)", "Write"))
    assert parse([]).model == DEFAULT_MODEL


def test_a_prompt_that_looks_like_a_flag_is_the_value_of_the_flag_before_it() -> None:
    assert parse(["--append-system-prompt", "--resume=no", "--replay-user-messages"]).resume == ""


@pytest.mark.parametrize(
    ("rule", "tool", "command", "covered"),
    [
        ("Bash", "Bash", "ls", True),
        ("Bash(git status:*)", "Bash", "git status -s", True),
        ("Bash(git status:*)", "Bash", "git push", False),
        ("Bash(ls)", "Bash", "ls -l", False),
        ("mcp__ramet", "mcp__ramet__spawn", "", True),
        ("mcp__ramet", "mcp__rametta__spawn", "", False),
        ("Write", "Bash", "", False),
    ],
)
def test_a_rule_covers_what_it_says(rule: str, tool: str, command: str, covered: bool) -> None:
    assert _covers(rule, tool, {"command": command}) is covered


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**6), st.booleans())))
def test_the_parts_of_results_add_up_to_the_total(spent: list[tuple[str, int, bool]]) -> None:
    ledger = Ledger({"total_cost_usd": 1.0, "modelUsage": {}})
    dollars, tokens = 0.0, 0
    for model, amount, ends in [*spent, ("a", 0, True)]:
        ledger.add(model, {**USAGE, "input_tokens": amount})
        if ends:
            result = ledger.close()
            dollars += sum(entry["costUSD"] for entry in result["model_usage_since_last_result"].values())
            tokens += sum(entry["inputTokens"] for entry in result["model_usage_since_last_result"].values())
    assert result["total_cost_usd"] == pytest.approx(1.0 + dollars)
    assert sum(entry["inputTokens"] for entry in result["modelUsage"].values()) == tokens


def test_ids_are_random_uuids() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert {uuid.UUID(one).version for one in ids} == {4}
