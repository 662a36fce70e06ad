"""Keys that answer a request: when they count, and their answers."""

import json
import re
from typing import Any

import pytest
from ramet.v1 import attention_pb2
from rametctl.dashboard.answering import GRACE_S, Shown, hints, suggested_rules
from rametctl.render.request import body_lines


def request(kind: str, data: Any = None, **fields: Any) -> attention_pb2.AttentionRequest:
    return attention_pb2.AttentionRequest(
        kind=attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}"), input_json=json.dumps(data), **fields
    )


def test_no_key_counts_for_a_request_that_just_appeared_or_is_not_read_to_its_end() -> None:
    shown = Shown(request("PERMISSION"), since=100.0)
    assert "just appeared" in shown.refusal(100.0 + GRACE_S / 2)
    assert "to its end" in shown.refusal(100.0 + GRACE_S)
    shown.seen = True
    assert shown.refusal(100.0 + GRACE_S) == ""
    assert "just appeared" in shown.refusal(100.0)


KINDS = [value.name for value in attention_pb2.AttentionKind.DESCRIPTOR.values]
OPTIONS = [{"label": "bash"}, {"label": "fish"}, {"label": "zsh"}]


def test_several_questions_are_answered_one_after_the_other_by_number_or_in_words() -> None:
    shown = Shown(request("QUESTION", {"questions": [{"question": "a", "options": OPTIONS}, {"question": "b"}]}), 0)
    assert not shown.choose(4)
    assert not shown.choose(2)
    assert shown.question == {"question": "b"}
    assert "2 of 2" in hints(shown)
    body = "\n".join(each.text for each in body_lines(shown.request, answers=shown.answers))
    assert "a  ✓ fish" in body
    assert "1)" not in body  # an answered question has no choices
    assert shown.reply("my own words")
    assert shown.answers == ["fish", "my own words"]


def test_where_several_may_be_chosen_numbers_tick_and_a_confirmation_sends() -> None:
    shown = Shown(request("QUESTION", {"question": "a", "options": OPTIONS, "multiSelect": True}), 0)
    assert not shown.confirm()
    for number in (3, 1, 2, 2):
        assert not shown.choose(number)
    body = "\n".join(each.text for each in body_lines(shown.request, answers=shown.answers, chosen=shown.chosen))
    assert re.findall(r"\d\) \[(.)\] (\w+)", body) == [("x", "bash"), (" ", "fish"), ("x", "zsh")]
    assert shown.confirm()
    assert shown.answers == ["bash, zsh"]


def test_ones_own_words_are_sent_with_the_ticked_choices() -> None:
    shown = Shown(request("QUESTION", {"question": "a", "options": OPTIONS, "multiSelect": True}), 0)
    shown.choose(3)
    shown.choose(1)
    assert shown.confirm("and my own")
    assert shown.answers == ["bash, zsh, and my own"]


@pytest.mark.parametrize(
    ("offers", "data", "rules"),
    [
        ([], {"command": "make"}, ["Bash(make)"]),
        ([["Bash(git commit *)"]], {"command": "git commit -m x"}, ["Bash(git commit *)", "Bash(git commit -m x)"]),
        (
            [["Bash(cd *)", "Bash(make *)"], ["Bash(make)"]],
            {"command": "make"},
            ["Bash(cd *)\nBash(make *)", "Bash(make)"],
        ),
        ([], {"x": 1}, ["Bash"]),
        ([], None, []),
    ],
)
def test_the_daemons_offers_come_before_the_exact_call(offers: list[list[str]], data: Any, rules: list[str]) -> None:
    offered = [attention_pb2.RuleOffer(rules=each) for each in offers]
    assert suggested_rules(request("PERMISSION", data, tool="Bash", offers=offered)) == rules


@pytest.mark.parametrize("kind", [name for name in KINDS if not name.endswith("UNSPECIFIED")])
def test_every_kind_of_request_says_which_keys_answer_it(kind: str) -> None:
    assert "y " in hints(Shown(request(kind.removeprefix("ATTENTION_KIND_")), 0)) or kind.endswith(
        ("QUESTION", "TRUST")
    )
