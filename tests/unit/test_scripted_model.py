import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet_demo.scripted.messages import events, message
from ramet_demo.scripted.model import read_routes, working_directory


def assembled(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content that a client builds from the events of a message."""
    blocks: list[dict[str, Any]] = []
    arguments = ""
    for kind, data in events(whole):
        if kind == "content_block_start":
            blocks.append(dict(data["content_block"]))
            arguments = ""
        elif kind == "content_block_delta":
            delta = data["delta"]
            arguments += delta.get("partial_json", "")
            for key in ("text", "thinking", "signature"):
                if key in delta:
                    blocks[-1][key] += delta[key]
        elif kind == "content_block_stop" and arguments:
            blocks[-1]["input"] = json.loads(arguments)
    return blocks


STEPS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(),
        "thinking": st.text(),
        "tools": st.lists(
            st.fixed_dictionaries({"tool": st.just("Bash"), "input": st.dictionaries(st.text(), st.text())}), max_size=3
        ),
    },
)


@given(STEPS)
def test_the_events_of_a_message_spell_the_complete_message(step: dict[str, Any]) -> None:
    whole = message("m", step)
    assert assembled(whole) == whole["content"]
    assert [kind for kind, _ in events(whole)][-2:] == ["message_delta", "message_stop"]


def test_the_usage_of_a_step_is_sent_at_the_start_and_at_the_end() -> None:
    whole = message("m", {"text": "a", "usage": {"input_tokens": 7, "output_tokens": 9}})
    sent = dict(events(whole))
    assert sent["message_start"]["message"]["usage"]["input_tokens"] == 7
    assert sent["message_delta"]["usage"]["output_tokens"] == 9


@pytest.mark.parametrize("text", ["# Env\n - Primary working directory: /w/x y\n - z", "Working directory: /w/x y"])
def test_the_working_directory_is_found_in_the_clis_messages(text: str) -> None:
    assert working_directory({"messages": [{"role": "system", "content": text}]}) == "/w/x y"
    assert working_directory({"system": [{"type": "text", "text": text}], "messages": []}) == "/w/x y"
    assert working_directory({"messages": [{"role": "user", "content": text}]}) == "/w/x y"
    assert working_directory({"messages": [{"role": "assistant", "content": text}]}) == "."


def test_routes_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    path.write_text(json.dumps([{"when": "Fix It", "steps": [{"text": "fixed"}]}]))
    assert read_routes(path) == [("fix it", [{"text": "fixed"}])]
