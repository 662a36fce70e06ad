"""Lines of the Agent Client Protocol: the facts of each, in the order in which agents send them."""

import json
from typing import Any

import pytest
from rametd.agents.acp import v1
from rametd.agents.base import (
    Answered,
    ControlAsked,
    ControlSettled,
    ConversationOpened,
    Fact,
    Frame,
    Initialized,
    StartRefused,
    TurnShown,
)
from rametd.agents.values import reason_of

OPEN = v1.State(session="s").dump()


def read(*messages: Any, stored: bytes = OPEN) -> list[Frame]:
    reader, frames, start = v1.Reader("one", 1, stored), [], 0
    for message in messages:
        line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        frames.append(reader.read(start, start + len(line), line))
        start += len(line)
    return frames


def facts(frames: list[Frame], kind: type) -> list[Fact]:
    return [fact for frame in frames for fact in frame.facts if isinstance(fact, kind)]


def update(sort: str, **fields: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": sort, **fields}}}


def ask(identity: object, **call: Any) -> dict[str, Any]:
    options = [{"optionId": "y", "kind": "allow_once"}]
    return {"id": identity, "method": "session/request_permission", "params": {"toolCall": call, "options": options}}


@pytest.mark.parametrize(
    "line", [b"starting\n", b"[1]\n", b"\n", b'{"id": 1\n', b"{}\n", b'{"method": 5}\n', b"[" * 9999 + b"\n"]
)
def test_a_line_that_means_nothing_is_read_as_nothing(line: bytes) -> None:
    (frame,) = read(line)
    assert frame.facts == ()


@pytest.mark.parametrize(
    ("call", "tool", "given"),
    [
        ({"kind": "execute", "rawInput": {"command": "ls"}}, "Bash", {"command": "ls"}),
        ({"kind": "execute", "rawInput": {"command": ["echo", "a b"]}}, "Bash", {"command": "echo 'a b'"}),
        ({"kind": "execute", "title": "rm x"}, "Bash", {"command": "rm x"}),
        (
            {"kind": "edit", "content": [{"type": "diff", "path": "/w/a", "oldText": None, "newText": "n"}]},
            "Write",
            {"file_path": "/w/a", "content": "n"},
        ),
        (
            {"kind": "edit", "content": [{"type": "diff", "path": "/w/a", "oldText": "o", "newText": "n"}]},
            "Edit",
            {"file_path": "/w/a", "old_string": "o", "new_string": "n"},
        ),
        ({"kind": "delete", "locations": [{"path": "/w/a"}]}, "Edit", {"file_path": "/w/a"}),
        ({"kind": "other", "title": "ramet_list_sessions"}, "mcp__ramet__list_sessions", {}),
        ({"kind": "execute", "title": "ramet_list_sessions"}, "Bash", {"command": "ramet_list_sessions"}),
    ],
)
def test_a_call_is_shown_in_the_syntax_of_rules(call: dict[str, Any], tool: str, given: dict[str, Any]) -> None:
    assert v1.tool_of(call) == (tool, given)


def test_every_path_of_a_call_is_judged() -> None:
    call = {"kind": "move", "locations": [{"path": "/w/a"}, {"path": "/w/b"}]}
    assert [given["file_path"] for _, given in v1.uses_of(call)] == ["/w/a", "/w/b"]


@pytest.mark.parametrize("identity", [0, "0", None])
def test_an_answer_has_the_id_of_the_request_with_its_type(identity: object) -> None:
    (frame,) = read(ask(identity, toolCallId="t", kind="execute"))
    (asked,) = facts([frame], ControlAsked)
    assert isinstance(asked, ControlAsked)
    assert json.loads(v1.response(asked.id, result={}))["id"] == identity
    assert v1.key_of(0) != v1.key_of("0")


def test_a_permission_has_its_calls_earlier_details_and_reads_the_same_alone() -> None:
    before = update("tool_call", toolCallId="t", kind="execute", rawInput={"command": "ls"})
    asked = facts(read(before, ask(1, toolCallId="t")), ControlAsked)[0]
    assert isinstance(asked, ControlAsked)
    (again,) = read(asked.frame)
    assert again.control is not None
    assert v1.tool_of(again.control["params"]["toolCall"]) == ("Bash", {"command": "ls"})


@pytest.mark.parametrize(
    ("answer", "failed", "aborted"),
    [
        ({"result": {"stopReason": "end_turn"}}, False, False),
        ({"result": {"stopReason": "cancelled"}}, False, True),
        ({"result": {"stopReason": "refusal"}}, True, False),
        ({"error": {"code": -32603, "message": "broken"}}, True, False),
    ],
)
def test_the_answer_to_a_prompt_ends_its_turn(answer: dict[str, Any], failed: bool, aborted: bool) -> None:
    frames = read(ask(1, toolCallId="t"), {"id": "prompt", **answer})
    (ended,) = facts(frames, Answered)
    assert isinstance(ended, Answered)
    assert (ended.is_error, ended.aborted, ended.costs[0].cost_usd) == (failed, aborted, None)
    assert facts(frames, ControlSettled), "no request is open after the turn"


def test_words_in_pieces_become_one_message_before_what_ends_it() -> None:
    words = [update("agent_message_chunk", content={"type": "text", "text": each}) for each in ("He", "llo")]
    frames = read(*words, {"id": "prompt", "result": {"stopReason": "end_turn"}})
    (said,) = frames[-1].before
    assert [block.text for block in said.assistant_message.blocks] == ["Hello"]
    assert frames[-1].event.turn_ended.text == "Hello"


def test_a_history_begins_no_turn_and_has_its_last_prompt() -> None:
    lines = [update("user_message_chunk", content={"type": "text", "text": each}) for each in ("fi", "rst")]
    lines.append(update("agent_message_chunk", content={"type": "text", "text": "ok"}))
    frames = read(*lines, {"id": "session:load:old", "result": {}}, stored=v1.State().dump())
    assert not facts(frames, TurnShown)
    assert facts(frames, ConversationOpened) == [ConversationOpened("old")]
    assert "first" in repr(frames[-1].facts[-1])


@pytest.mark.parametrize(("code", "login"), [(-32000, True), (-32603, False)])
def test_a_session_that_is_not_opened_says_whether_a_login_is_missing(code: int, login: bool) -> None:
    frames = read({"id": "session:new:", "error": {"code": code, "message": "no"}}, stored=v1.State().dump())
    assert facts(frames, StartRefused) == [StartRefused("no", login=login)]


def test_images_of_a_prompt_come_before_its_text() -> None:
    line = json.loads(v1.complete(v1.prompt("id", "look", [b"GIF89a"]), "ses"))
    image = {"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"}
    assert line["params"]["prompt"] == [image, {"type": "text", "text": "look"}]


def test_a_stored_prompt_gets_its_session_and_keeps_text_that_looks_like_the_mark() -> None:
    line = json.loads(v1.complete(v1.prompt("id", v1.NO_SESSION.decode()), "ses"))
    assert line["params"] == {"sessionId": "ses", "prompt": [{"type": "text", "text": v1.NO_SESSION.decode()}]}


@pytest.mark.parametrize("kind", ["fetch", "search", "execute", "edit", "read", "delete", "move", "switch_mode"])
def test_a_title_makes_no_call_one_of_our_own_tools(kind: str) -> None:
    tool, _ = v1.tool_of({"kind": kind, "title": "https://ramet.example/get_diff"})
    assert not tool.startswith("mcp__ramet__")


OF_CODEX = {"server": "ramet", "tool": "spawn_session", "arguments": {"prompt": "x"}}


@pytest.mark.parametrize(
    ("call", "ours"),
    [
        ({"title": "mcp.ramet.spawn_session", "rawInput": OF_CODEX}, True),
        ({"title": "mcp__ramet__spawn_session", "rawInput": {"prompt": "x"}}, True),
        ({"title": "ramet_spawn_session", "kind": "other", "rawInput": {"prompt": "x"}}, True),
        ({"_meta": {"toolName": "ramet_list_sessions"}}, True),
        ({"title": "mcp.x.ramet_list_sessions", "rawInput": {"server": "x", "tool": "ramet_list_sessions"}}, False),
        ({"title": "paramet_list_sessions"}, False),
        ({"title": "ramet_list_sessions of the project", "kind": "other"}, False),
        ({"title": "ramet_list_sessions", "kind": "other", "rawInput": {"command": "rm x", "parentDir": "/"}}, False),
        ({"title": "github_create", "rawInput": {"name": "ramet_list_sessions"}}, False),
        ({"title": "github_create", "rawInput": {"server": "ramet", "tool": "ramet_list_sessions"}}, False),
    ],
)
def test_only_a_call_that_is_nothing_else_is_one_of_our_own_tools(call: dict[str, Any], ours: bool) -> None:
    assert v1.tool_of(call)[0].startswith("mcp__ramet__") == ours


@pytest.mark.parametrize("result", [{"sessionId": "old"}, {}, None])
def test_a_loaded_session_keeps_its_id_whether_or_not_the_answer_repeats_it(result: object) -> None:
    frames = read({"id": "session:load:old", "result": result}, stored=v1.State().dump())
    assert facts(frames, ConversationOpened) == [ConversationOpened("old")]


def test_an_error_without_an_id_answers_no_prompt() -> None:
    refused = {"id": None, "error": {"code": -32601, "message": "Method not found: session/cancel"}}
    assert facts(read(refused), Answered) == []


def test_options_that_come_before_the_session_count() -> None:
    options = [{"id": "mode", "category": "mode", "options": []}]
    frames = read(update("config_option_update", configOptions=options), stored=v1.State().dump())
    (known,) = facts(frames, Initialized)
    assert isinstance(known, Initialized)
    assert v1.State.load_from(known.reply).options == {"mode": "mode"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"message": "no such model"}, "no such model"),
        (
            {"message": "Internal error", "data": {"details": "invalid mode: auto"}},
            "Internal error: invalid mode: auto",
        ),
        ({"message": "Internal error", "data": "the terminal is gone"}, "Internal error: the terminal is gone"),
        ({"message": "it is gone", "data": {"message": "gone"}}, "it is gone"),
        ({"data": 7}, ""),
    ],
)
def test_a_refusal_is_printed_with_its_details(error: dict[str, Any], reason: str) -> None:
    assert reason_of(error) == reason
