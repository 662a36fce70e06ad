"""Answers to requests in the dashboard."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from ramet.v1 import attention_pb2, session_pb2
from rametctl.dashboard.dialogs import Ask, Dialog
from rametctl.dashboard.widgets import Prompt
from rametctl.options import mode_number

from tests.support.client import World
from tests.support.dashboard import COMMAND, QUESTION, answered, asks, resolution, screen
from tests.support.eventually import eventually
from tests.support.fake_state import Refusal

ANSWERS: list[tuple[str, str, Any, list[str], Callable[[attention_pb2.Resolution], bool]]] = [
    ("yes", "PERMISSION", COMMAND, ["y"], lambda r: r.approve.scope == attention_pb2.APPROVAL_SCOPE_UNSPECIFIED),
    ("session", "PERMISSION", COMMAND, ["s"], lambda r: r.approve.scope == attention_pb2.APPROVAL_SCOPE_SESSION),
    ("no", "PERMISSION", COMMAND, ["d", *"no!", "enter"], lambda r: r.deny.message == "no!"),
    ("plan", "PLAN", {"plan": "# Do"}, ["y"], lambda r: r.HasField("approve")),
    ("plan-mode", "PLAN", {"plan": "# Do"}, ["2"], lambda r: bool(r.approve.mode)),
    ("plan-no", "PLAN", {"plan": "# Do"}, ["d", *"less", "enter"], lambda r: r.deny.message == "less"),
    ("choice", "QUESTION", {"question": "q", "options": [{"label": "a"}, {"label": "b"}]}, ["2"], lambda r: list(r.reply.answers) == ["b"]),
    (
        "several", "QUESTION", {"question": "q", "multiSelect": True, "options": [{"label": "a"}, {"label": "b"}]}, ["2", "1", "enter"],
        lambda r: list(r.reply.answers) == ["a, b"],
    ),
    ("words", "QUESTION", {"question": "q"}, ["t", *"hm", "enter"], lambda r: list(r.reply.answers) == ["hm"]),
    ("review", "REVIEW", None, ["y"], lambda r: r.HasField("approve")),
    ("review-no", "REVIEW", None, ["d", *"more", "enter"], lambda r: r.deny.message == "more"),
    (
        "form", "ELICITATION", {"message": "Where?", "requested_schema": {"properties": {"region": {"type": "string"}}, "required": ["region"]}},
        ["y", *"eu", "enter"], lambda r: json.loads(r.approve.updated_input_json) == {"region": "eu"},
    ),
    ("trouble", "TROUBLE", {"command": "rametctl resume asks"}, ["y"], lambda r: r.HasField("approve")),
    ("login-no", "LOGIN", None, ["d"], lambda r: r.HasField("deny")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "keys", "right"), [pytest.param(*row[1:], id=row[0]) for row in ANSWERS])
async def test_a_request_is_answered_in_the_conversation(
    world: World, kind: str, data: Any, keys: list[str], right: Callable[[attention_pb2.Resolution], bool]
) -> None:
    asks(world, kind, data, tool="Bash" if kind == "PERMISSION" else "", reason="why")
    async with screen(world) as shown:
        await shown.ready()
        await shown.press(keys[0])
        if keys[0] in "dty" and keys[1:]:
            await shown.dialog(Dialog)
        await shown.press(*keys[1:])
        assert right(await answered(world))


TICKS = {"question": "q", "multiSelect": True, "options": [{"label": "a"}, {"label": "b"}]}


async def test_ticks_are_sent_with_ones_own_words_also_after_a_refusal(world: World) -> None:
    asks(world, "QUESTION", TICKS)
    world.state.refusals["ResolveRequest"] = [Refusal("FAILED_PRECONDITION", "not now", "WRONG_STATE")]
    async with screen(world) as shown:
        await shown.ready()
        await shown.press("2", "t")
        await shown.dialog(Ask)
        await shown.shows("sent with your ticks: b")
        await shown.press(*"hm", "enter")
        await shown.shows("t has your text")
        await shown.press("t")
        await shown.dialog(Ask)
        await shown.shows("hm")
        await shown.press("end", "enter")
        await eventually(lambda: len(world.state.called("ResolveRequest")) == 2, within=20)
        assert [[*call.resolution.reply.answers] for call in world.state.called("ResolveRequest")] == [["b, hm"]] * 2


async def test_always_shows_the_rule_and_takes_it_as_edited(world: World) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash", offers=[attention_pb2.RuleOffer(rules=["Bash(make *)"])])
    async with screen(world) as shown:
        await shown.ready()
        await shown.press("a")
        dialog = await shown.dialog(Ask)
        assert dialog.query_one(Prompt).text == "Bash(make *)"
        await shown.press("backspace", "backspace", *"t*)", "enter")
        approval = (await answered(world)).approve
        assert (approval.scope, list(approval.rules)) == (attention_pb2.APPROVAL_SCOPE_ALWAYS, ["Bash(make t*)"])


async def test_no_key_counts_for_what_has_just_appeared(world: World) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world) as shown:
        await eventually(lambda: shown.app._shown is not None and shown.app._shown.seen, within=20)
        await shown.press("y")
        await shown.shows("this has just appeared")
        assert not world.state.called("ResolveRequest")


@pytest.mark.parametrize(("later", "counts"), [(0.2, False), (0.4, True)])
async def test_a_key_counts_sooner_for_a_request_that_the_person_moved_to(
    world: World, later: float, counts: bool
) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    world.state.session("other", state=session_pb2.SESSION_STATE_FAILED)
    async with screen(world) as shown:
        await shown.shows("other  Conversation")
        await shown.press("j")
        await eventually(lambda: shown.app._shown is not None and shown.app._shown.seen, within=20)
        shown.now += later
        await shown.press("y")
        await shown.shows("approved" if counts else "this has just appeared")
        assert bool(world.state.called("ResolveRequest")) == counts


async def test_an_answer_on_its_way_is_not_overtaken_by_the_next_key(world: World) -> None:
    asks(world, "PLAN", {"plan": "1. Fix it."})
    async with screen(world) as shown:
        await shown.ready()
        shown.burst("2", "y")
        await shown.shows("asks: continues in acceptEdits")
        assert resolution(world).approve.mode == mode_number("acceptEdits")


async def test_a_long_command_must_be_read_to_its_end_first(world: World) -> None:
    asks(world, "PERMISSION", {"command": "\n".join(f"echo {number}" for number in range(80))}, tool="Bash")
    async with screen(world, size=(100, 24)) as shown:
        await shown.shows("echo 0")
        shown.now += 10
        await shown.press("y")
        await shown.shows("read it to its end first")
        for _ in range(30):
            await shown.press("J")
            await shown.pilot.pause()
        await shown.shows("echo 79")
        await shown.ready()
        await shown.press("y")
        assert (await answered(world)).HasField("approve")


@pytest.mark.parametrize(
    ("state", "keys", "note"),
    [
        (session_pb2.SESSION_STATE_ARCHIVED, "LPAmfipSo!rUW", "fix is archived; run: rametctl restore fix"),
        (None, "LPAxmfipSo!rUCW", "no session is selected"),
    ],
)
async def test_a_key_that_does_not_apply_says_why(world: World, state: Any, keys: str, note: str) -> None:
    if state is not None:
        world.state.session("fix", state=state, turns=1)
    async with screen(world, size=(80, 24)) as shown:
        if state == session_pb2.SESSION_STATE_ARCHIVED:
            await shown.press("slash", *"s:archived", "enter")
        await shown.shows("no sessions here" if state is None else "fix  Conversation")
        shown.now += 1
        for key in keys:
            shown.app.note(f"before {key}")
            await shown.press(key)
            await shown.shows(note)


async def test_the_last_of_several_questions_is_asked_again_after_a_refusal(world: World) -> None:
    first, second = QUESTION["questions"][0], {**QUESTION["questions"][0], "question": "And?"}
    asks(world, "QUESTION", {"questions": [first, second]})
    world.state.refusals["ResolveRequest"] = [Refusal("FAILED_PRECONDITION", "not now", "WRONG_STATE")]
    async with screen(world) as shown:
        await shown.ready()
        await shown.press("1", "2")
        await shown.shows("not now")
        await shown.press("1")
        await eventually(lambda: len(world.state.called("ResolveRequest")) == 2, within=20)
        answers = [[*call.resolution.reply.answers] for call in world.state.called("ResolveRequest")]
        assert answers == [["A", "B"], ["A", "A"]]


async def test_answers_and_ticks_stay_while_the_cursor_is_elsewhere_and_can_be_given_again(world: World) -> None:
    world.state.session("other", state=session_pb2.SESSION_STATE_FAILED)
    asks(world, "QUESTION", {"questions": [{**QUESTION["questions"][0], "question": "First?"}, TICKS]})
    async with screen(world) as shown:
        await shown.shows("other  Conversation")
        await shown.press("j")
        await shown.shows("First?")
        await shown.ready()
        await shown.press("1", "2")
        await shown.shows("2 of 2", "✓ A", "[x] b")
        await shown.press("k")
        await shown.shows("other  Conversation")
        await shown.press("j")
        await shown.shows("2 of 2", "✓ A", "[x] b")
        await shown.ready()
        await shown.press("backspace")
        await shown.shows("1 of 2")
        await shown.press("2")
        await shown.shows("✓ B", "[x] b")
        await shown.press("enter")
        assert list((await answered(world)).reply.answers) == ["B", "b"]
