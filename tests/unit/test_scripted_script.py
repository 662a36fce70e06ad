import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet_demo.scripted.conversation import fold, next_step
from ramet_demo.scripted.script import Route, fill, steps_in

STEPS = st.lists(st.fixed_dictionaries({"text": st.text(max_size=20)}), max_size=5)


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def results(*texts: str) -> dict[str, Any]:
    message = user(*texts)
    return {
        **message,
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "DO:[]"}, *message["content"]],
    }


def replied() -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": "…"}]}


def do(*steps: dict[str, Any]) -> str:
    return f"go DO:{json.dumps(steps)} please"


@given(STEPS, st.text(alphabet=st.characters(exclude_characters="["), max_size=20))
def test_a_script_is_found_in_any_text(steps: list[dict[str, Any]], around: str) -> None:
    assert steps_in(f"{around}DO:{json.dumps(steps)}{around}") == steps


def test_several_scripts_in_one_prompt_run_one_after_the_other() -> None:
    assert steps_in(do({"text": "a"}) + do({"text": "b"})) == [{"text": "a"}, {"text": "b"}]


@pytest.mark.parametrize("text", ["", "DO it", "DO: [1]", "DO:[", 'DO:[{"text": }]'])
def test_text_without_a_well_formed_script_is_plain_text(text: str) -> None:
    assert steps_in(text) is None


def test_the_prompt_of_a_sub_agent_inside_a_script_is_not_taken_for_one() -> None:
    inner = do({"text": "inner"})
    assert steps_in(do({"tool": "Task", "input": {"prompt": inner}})) == [{"tool": "Task", "input": {"prompt": inner}}]


def test_a_route_serves_prompts_that_contain_its_words() -> None:
    routes = [Route("a --version flag", [{"text": "routed"}])]
    assert steps_in("Please add a --version Flag.", routes) == [{"text": "routed"}]
    assert steps_in("Please add a --help flag.", routes) is None


def test_the_working_directory_is_filled_in_at_any_depth() -> None:
    assert fill({"a": ["$CWD/x", 1, {"b": "$CWD"}], "c": None}, "/w") == {"a": ["/w/x", 1, {"b": "/w"}], "c": None}


def test_a_step_without_content_belongs_to_the_next_one() -> None:
    assert fold([{"sleep": 1}, {"error": 529}, {"text": "a"}]) == [{"sleep": 1, "error": 529, "text": "a"}]
    assert fold([{"text": "a"}, {"error": 401}]) == [{"text": "a"}, {"error": 401, "text": "done"}]


@given(STEPS)
def test_every_reply_takes_one_step_and_then_it_is_done(steps: list[dict[str, Any]]) -> None:
    messages = [user(do(*steps))]
    for step in steps:
        assert next_step(messages) == step
        messages += [replied(), results()]
    assert next_step(messages) == {"text": "done"}


def test_a_prompt_without_a_script_is_answered_ok() -> None:
    assert next_step([user("hello")]) == {"text": "ok"}
    assert next_step([{"role": "user", "content": "hello"}]) == {"text": "ok"}


@pytest.mark.parametrize("text", ["<system-reminder>x</system-reminder>", "Continue from where you left off."])
def test_text_that_is_no_prompt_does_not_restart_a_script(text: str) -> None:
    script = do({"text": "a", "tool": "Bash"}, {"text": "b"})
    assert next_step([user(script), replied(), results(text)]) == {"text": "b"}
    assert next_step([user(script), replied(), user(text)]) == {"text": "b"}


def test_a_new_prompt_drops_what_an_older_one_left() -> None:
    assert next_step([user(do({"text": "a"}, {"text": "b"})), replied(), user(do({"text": "c"}))]) == {"text": "c"}


def test_an_interrupt_drops_the_rest() -> None:
    script = do({"tool": "Bash"}, {"text": "b"})
    stopped = results("[Request interrupted by user for tool use]", "hello")
    assert next_step([user(script), replied(), stopped]) == {"text": "ok"}


def test_a_prompt_typed_during_a_turn_is_answered_in_that_turn() -> None:
    messages = [
        user(do({"tool": "A"}, {"tool": "B"}, {"text": "b"})),
        replied(),
        results(do({"text": "c"}, {"text": "d"})),
    ]
    expected: list[dict[str, Any]] = [{"tool": "B"}, {"text": "b\nc"}, {"text": "d"}]
    for step in expected:
        assert next_step(messages) == step
        messages += [replied(), results()]
