"""The facts of an agent's lines, and that no line can do harm."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rametd.agents.base import (
    Activity,
    Answered,
    Background,
    ControlAsked,
    ControlCancelled,
    ControlSettled,
    Doing,
    Fact,
    Frame,
    Initialized,
    LimitReported,
    PromptReturned,
    PromptSeen,
    Said,
    TurnBegan,
)
from rametd.agents.claude.control import TOOL_KINDS
from rametd.agents.claude.frames import READERS, SYSTEM_READERS, TEXT_LIMIT, read_frame

from tests.support.agents import SCRIPTED
from tests.support.contract import GOLDEN, converse, kinds

# By kind, as in `tests.support.contract`: the payload of a recorded frame, and its facts.
MEANING: dict[str, tuple[str, set[type[Fact]]]] = {
    "assistant:text": ("assistant_message", {Said, Doing}),
    "assistant:tool_use": ("assistant_message", {Said, Doing}),
    "background_tasks_changed": ("background_task", {Background}),
    "can_use_tool": ("control_line", {ControlAsked}),
    "command_lifecycle": ("agent_notice", {PromptSeen}),
    "control_response:commands": ("control_line", {Initialized}),
    "control_response": ("control_line", {ControlSettled}),
    "hook_callback": ("control_line", {ControlAsked}),
    "init": ("turn_started", {TurnBegan, PromptSeen}),
    "mcp": ("control_line", {ControlAsked}),
    "result": ("turn_ended", {Answered}),
    "session_state_changed": ("agent_notice", {Activity}),
    "status": ("agent_notice", set()),
    "task_notification": ("background_task", set()),
    "task_started": ("background_task", set()),
    "task_updated": ("background_task", set()),
    "user:replay": ("user_message", {PromptSeen}),
    "user": ("user_message", set()),
}

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(st.characters(codec=None))
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
FIELDS = (
    *("subtype", "message", "request", "response", "request_id", "uuid", "isReplay", "result_index", "is_error", "errors", "result"),
    *("model_usage_since_last_result", "rate_limit_info", "event", "state", "tasks", "command_uuid", "user_message_uuids", "patch"),
    *("attempt", "retry_delay_ms", "error", "status", "duration_ms", "content", "input", "tool_name", "resetsAt", "costUSD"),
    *("inputTokens", "type", "id", "text", "delta", "terminal_reason", "permission_suggestions", "commands", "tool_use_id"),
)  # fmt: skip
shaped = st.recursive(
    leaves
    | st.sampled_from(["text", "tool_use", "tool_result", "can_use_tool", "initialize", "idle", "aborted_tools"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=25,
)
messages = st.builds(
    lambda kind, subtype, rest: {**rest, "type": kind, **({"subtype": subtype} if subtype else {})},
    st.sampled_from([*READERS, "unheard_of"]),
    st.sampled_from(["", *SYSTEM_READERS]),
    st.dictionaries(st.sampled_from(FIELDS), shaped, max_size=8),
)


def read(message: Any) -> Frame:
    line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
    return read_frame("one", 1, 10, 10 + len(line), line)


def stays_whole(frame: Frame, line: bytes) -> None:
    """Check that the store accepts a frame: its event as protobuf, its strings as UTF-8."""
    assert frame.line == line
    assert type(frame.event).FromString(frame.event.SerializeToString()) == frame.event
    assert frame.event.WhichOneof("payload")
    repr(frame.facts).encode()
    for fact in frame.facts:
        if isinstance(fact, ControlAsked) and fact.question is not None:
            json.loads(fact.question.input.encode())


@given(messages)
@example({"type": "result", "result_index": 1e300, "model_usage_since_last_result": {"m": {"inputTokens": 10**30}}})
@example({"type": "result", "result_index": float("inf"), "duration_ms": float("inf")})
@example({"type": "system", "subtype": "api_retry", "attempt": 1 << 40, "retry_delay_ms": 1 << 90})
@example({"type": "assistant", "message": {"content": [{"type": "text", "text": "\ud800"}]}})
@example({"type": "control_request", "request": {"subtype": "can_use_tool", "input": {"\ud800": 1}}})
@example({"type": "rate_limit_event", "rate_limit_info": {"resetsAt": float("inf")}})
@example({"type": "result", "subtype": "error", "errors": ["\ud83d"]})
def test_no_message_however_wrong_its_fields_can_raise(message: dict[str, Any]) -> None:
    line = json.dumps(message).encode() + b"\n"
    stays_whole(read(line), line)


@given(anything)
@example({"type": "\ud800"})
def test_no_json_can_raise(value: Any) -> None:
    line = json.dumps(value).encode() + b"\n"
    stays_whole(read(line), line)


@given(st.binary(max_size=200))
@example(b"[" * 200_000)
@example(b'{"type":' * 50_000)
@example(b"1" * 5000)
@example(b"\xff\xfe{\x00}\x00")
def test_no_bytes_can_raise(line: bytes) -> None:
    stays_whole(read(line), line)


def test_a_line_without_a_message_is_stored_as_noise() -> None:
    frame = read(b"Segmentation fault\n")
    assert (frame.event.agent_noise.text, frame.facts, frame.control) == ("Segmentation fault", (), None)


def test_a_message_of_an_unknown_type_is_stored_as_a_notice() -> None:
    frame = read({"type": "brand_new", "subtype": "thing"})
    assert (frame.event.agent_notice.type, frame.event.agent_notice.subtype, frame.facts) == ("brand_new", "thing", ())


def test_a_frame_has_its_offset_in_the_journal() -> None:
    frame = read({"type": "x"})
    assert (frame.start, frame.end, frame.event.offset, frame.event.generation) == (10, 10 + len(frame.line), 10, 1)


def test_an_aborted_turn_and_a_failed_one_are_distinguished() -> None:
    aborted = read({"type": "result", "subtype": "error_during_execution", "terminal_reason": "aborted_tools"}).facts[0]
    failed = read({"type": "result", "subtype": "success", "is_error": True, "result": "Invalid API key"}).facts[0]
    assert isinstance(aborted, Answered)
    assert isinstance(failed, Answered)
    assert (aborted.is_error, aborted.aborted) == (True, True)
    assert (failed.is_error, failed.aborted, failed.text) == (True, False, "Invalid API key")


def test_a_background_shell_does_not_keep_a_turn_open_and_a_subagent_does() -> None:
    names = ("local_bash", "local_agent", "local_workflow")
    tasks = [*({"task_id": name, "task_type": name, "description": f"a {name}"} for name in names), 7]
    (fact,) = read({"type": "system", "subtype": "background_tasks_changed", "tasks": tasks}).facts
    assert fact == Background(2, tuple((name, f"a {name}") for name in names))


def test_a_cancelled_control_request_is_a_fact() -> None:
    assert read({"type": "control_cancel_request", "request_id": "r"}).facts == (ControlCancelled("r"),)


def test_a_limit_shows_when_it_ends() -> None:
    info = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": 1_700_000_000, "utilization": 1.0}
    frame = read({"type": "rate_limit_event", "rate_limit_info": info})
    assert frame.facts == (LimitReported("rejected", 1_700_000_000),)
    assert frame.event.rate_limit.reset_time.seconds == 1_700_000_000


def test_a_cost_comes_from_what_was_used_since_the_last_result() -> None:
    use = {
        "m": {
            "costUSD": 0.5,
            "inputTokens": 1,
            "outputTokens": 2,
            "cacheReadInputTokens": 3,
            "cacheCreationInputTokens": 4,
        }
    }
    frame = read({"type": "result", "subtype": "success", "total_cost_usd": 99.0, "model_usage_since_last_result": use})
    assert frame.event.turn_ended.cost_usd == 0.5
    tokens = frame.event.turn_ended.tokens
    assert (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write) == (1, 2, 3, 4)


def test_every_kind_of_frame_that_the_real_agent_sends_has_a_meaning() -> None:
    recorded = json.loads(GOLDEN.read_text())
    assert [kind for kind in recorded if kind not in MEANING and kind.partition(":")[0] not in MEANING] == []


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Yield every kind of frame, from the scripted agent, whose frames are compared with the real
    one's."""
    home: Path = tmp_path_factory.mktemp("talk")
    return asyncio.run(converse(home, SCRIPTED, 0))


def test_every_recorded_kind_of_frame_has_its_meaning(conversation: list[dict[str, Any]]) -> None:
    for message, kind in zip(conversation, kinds(conversation), strict=True):
        bare = kind.removeprefix("system:")
        wanted = MEANING.get(bare) or MEANING[bare.partition(":")[0]]
        frame = read(message)
        payload, facts = frame.event.WhichOneof("payload"), {type(fact) for fact in frame.facts}
        if message.get("state") == "queued":  # the agent has it only in memory: no receipt
            facts |= {PromptSeen}
        if message.get("state") == "cancelled":
            wanted = (wanted[0], {PromptReturned})
        if bare == "init":  # a turn without a prompt names none
            facts |= {PromptSeen}
        if any(name in json.dumps(message) for name in TOOL_KINDS) and bare == "assistant:tool_use":
            facts |= {Doing}  # a call that asks a person is its request, and no work
        assert (kind, payload, facts) == (kind, *wanted)
        assert (frame.control is None) == (not message["type"].startswith("control_"))


def test_an_answer_to_initialize_is_recorded_without_its_lists() -> None:
    reply = {
        "commands": [{"name": "x"}] * 500,
        "models": [{}],
        "account": {"email": "x"},
        "hook_on_failure_supported": True,
    }
    line = {"type": "control_response", "response": {"subtype": "success", "request_id": "1", "response": reply}}
    (fact,) = read_frame("one", 1, 0, 1, json.dumps(line).encode()).facts
    assert fact == Initialized(b'{"hook_on_failure_supported": true}')


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": [{"type": "text", "text": "\n I look.\nAt it."}]}, "I look."),
        ({"content": [{"type": "tool_use", "name": "Edit", "input": {"file_path": "/w/a.py"}}]}, "Edit /w/a.py"),
        ({"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls\nrm"}}]}, "Bash ls …"),
        (
            {"content": [{"type": "tool_use", "name": "mcp__ramet__spawn_session", "input": {"prompt": 7}}]},
            "ramet spawn_session",
        ),
        ({"content": [{"type": "text", "text": "so"}, {"type": "thinking", "thinking": "hm"}]}, "so"),
        ({"content": [{"type": "text", "text": ""}, "noise"]}, None),
        ({"content": [{"type": "tool_use", "name": "AskUserQuestion", "input": {}}]}, None),
    ],
)
def test_what_an_agent_does_now_is_its_last_call_or_words(message: dict[str, Any], words: str | None) -> None:
    facts = read({"type": "assistant", "message": message}).facts
    assert [fact.words for fact in facts if isinstance(fact, Doing)] == ([] if words is None else [words])
    of_a_subagent = {"type": "assistant", "message": message, "parent_tool_use_id": "call"}
    assert not any(isinstance(fact, Doing) for fact in read(of_a_subagent).facts)


@pytest.mark.parametrize(
    ("error", "stored", "words"),
    [
        ("authentication_failed", "authentication_failed", "authentication failed"),
        ("unknown", "", "the model did not answer"),
        (None, "", "the model did not answer"),
    ],
)
def test_a_retry_is_said_in_words(error: str | None, stored: str, words: str) -> None:
    found = read({"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10, "error": error})
    assert found.facts == (Doing(f"retrying: {words} (2 of 10)"),)
    assert found.event.api_retry.error == stored


def test_an_answer_that_no_message_could_hold_is_cut_in_its_event_and_says_so() -> None:
    words = "x" * (TEXT_LIMIT + 7)
    said = read({"type": "assistant", "message": {"content": [{"type": "text", "text": words}]}}).event
    ended = read({"type": "result", "subtype": "success", "result": words}).event
    for text in (said.assistant_message.blocks[0].text, ended.turn_ended.text):
        assert text == words[:TEXT_LIMIT] + "\n… 7 more characters"
