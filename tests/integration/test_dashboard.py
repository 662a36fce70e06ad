"""The dashboard's keys and states, with a fake daemon."""

import asyncio
import json
import math
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ramet.v1 import attention_pb2, event_pb2, session_pb2, worktree_pb2
from rametctl.__main__ import application
from rametctl.console.lines import Line, line
from rametctl.dashboard.app import Dashboard
from rametctl.dashboard.dialogs import Ask, Choose, Confirm, Dialog, Form, Help
from rametctl.dashboard.keyboard import Keyboard
from rametctl.dashboard.widgets import Lines, Prompt
from rametctl.options import mode_number
from textual import events
from textual.driver import Driver
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import eventually
from tests.support.fake_state import BEGAN, Call, Refusal

GOLDEN = Path(__file__).parents[1] / "support" / "golden" / "dashboard"
NAMED = {"enter": "\r", "escape": "\x1b", "space": " "}
"""Keys with a name, and their characters."""
WAITING, WORKING = session_pb2.SESSION_STATE_WAITING, session_pb2.SESSION_STATE_WORKING


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


class Screen:
    """The dashboard in a test: presses keys and reads lines."""

    def __init__(self, app: Dashboard, pilot: "Pilot[None]") -> None:
        self.app = app
        self.pilot = pilot
        self.now = 1000.0
        app.clock = lambda: self.now

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    def burst(self, *reads: str) -> None:
        """Deliver reads of the terminal faster than the dashboard handles them: each is the name of
        a key, or characters that arrive at once."""
        keyboard = object.__new__(Keyboard)
        for number, read in enumerate(reads):
            keys = [read] if read in NAMED else ["enter" if each == "\n" else each for each in read]
            messages: list[Message] = [events.Key(key, NAMED.get(key, key)) for key in keys]
            for message in keyboard.grouped(messages, float(number)):
                message.set_sender(self.app)
                assert self.app._driver is not None
                self.app._driver.send_message(message)

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    async def shows(self, *texts: str) -> None:
        def look() -> bool:
            lines = self.lines()
            missing = [text for text in texts if not any(text in line for line in lines)]
            assert not missing, f"{missing} not in\n" + "\n".join(lines)
            return True

        await eventually(look, within=20)

    async def ready(self) -> None:
        """Wait until keys may answer the request on the screen."""
        await eventually(lambda: self.app._shown is not None and self.app._shown.seen, within=20)
        self.now += 10

    async def dialog(self, kind: type) -> Any:
        """Return the dialog once its fields exist."""
        await eventually(lambda: isinstance(self.app.screen, kind) and self.app.screen.is_mounted, within=20)
        return self.app.screen


@asynccontextmanager
async def screen(world: World, *, size: tuple[int, int] = (120, 30), only: str = "") -> AsyncIterator[Screen]:
    with mock.patch.dict("os.environ", world.environ, clear=True):
        client = application([])
        app = Dashboard(client, only=only)
        async with app.run_test(size=size) as pilot:
            await eventually(lambda: app.view is not None and app.view.ready.is_set(), within=20)
            yield Screen(app, pilot)
        for connection in client.connections:
            connection.close()


def resolution(world: World) -> attention_pb2.Resolution:
    (call,) = world.state.called("ResolveRequest")
    return call.resolution  # type: ignore[no-any-return]


async def answered(world: World) -> attention_pb2.Resolution:
    await eventually(lambda: world.state.called("ResolveRequest"), within=20)
    return resolution(world)


def asks(world: World, kind: str, data: Any = None, **fields: Any) -> attention_pb2.AttentionRequest:
    session = world.state.session("asks", state=WAITING)
    return world.state.request(
        session,
        kind=attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}"),
        input_json=json.dumps(data) if data is not None else "",
        **fields,
    )


COMMAND = {"command": "make test"}


def blocks(method: str, until: threading.Event) -> Callable[[Call], None]:
    """Return a handler of calls that blocks those of ``method``."""

    def on_call(call: Call) -> None:
        if call.method == method:
            until.wait(20)

    return on_call


async def test_it_lists_the_sessions_in_groups_and_shows_the_first_that_needs_the_person(world: World) -> None:
    world.state.session("busy", state=WORKING, now="Edit a.py")
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world) as shown:
        await shown.shows(
            "Needs you 1", "? asks", "Working 1", "▸ busy", "Edit a.py", "permission: Bash", "$ make test"
        )
        await shown.press("j")
        await shown.shows("working")
        await shown.press("k", "question_mark")
        await shown.dialog(Help)
        await shown.press("escape", "question_mark", "q")
        await shown.shows("$ make test")


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
        await shown.shows("$ make test")
        await shown.press("k")
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


async def test_a_prompt_is_sent_recalled_and_left(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("enter", *"hi", "shift+enter", *"you", "enter")
        await eventually(lambda: [call.prompt for call in world.state.called("SendPrompt")] == ["hi\nyou"], within=20)
        await shown.press("up")
        assert shown.app._prompt.text == "hi\nyou"
        await shown.press("down")
        assert shown.app._prompt.text == ""
        await shown.press("escape", "j", "q")


def _leaves_the_filter(world: World, fix: session_pb2.Session) -> None:
    fix.state = WORKING
    world.state.event(fix, state_changed=event_pb2.StateChanged(new_state=WORKING))


def _is_removed(world: World, fix: session_pb2.Session) -> None:
    del world.state.sessions[fix.id]
    world.state.event(fix, session_removed=event_pb2.SessionRemoved(name="fix"))


@pytest.mark.parametrize("happens", [_leaves_the_filter, _is_removed])
async def test_a_prompt_goes_to_the_session_that_it_was_typed_for_or_stays(
    world: World, happens: Callable[[World, session_pb2.Session], None]
) -> None:
    fix, other = world.state.session("fix", state=WAITING), world.state.session("other", state=WAITING)
    async with screen(world) as shown:
        await shown.shows("? fix", "? other")
        await shown.press("slash", *"s:waiting", "enter")
        await shown.shows("/s:waiting")
        await shown.press("r", *"he")
        happens(world, fix)
        await eventually(lambda: [row.session_id for row in shown.app._rows if row.session_id] == [other.id], within=20)
        await shown.press("y", "enter")
        if happens is _is_removed:
            await shown.shows("not sent: the session was removed", "gone: it was removed")
            assert (shown.app._prompt.text, world.state.called("SendPrompt")) == ("hey", [])
        else:
            await eventually(lambda: world.state.called("SendPrompt"), within=20)
            assert [(each.session, each.prompt) for each in world.state.called("SendPrompt")] == [(fix.id, "hey")]
        await shown.press("escape")
        await eventually(lambda: shown.app._selected == other.id, within=20)
        await shown.press("p")  # possibly meant for fix
        await shown.shows("another session has just been selected")
        shown.now += 1
        await shown.press("p")
        await eventually(lambda: [each.session for each in world.state.called("PauseSession")] == [other.id], within=20)


@pytest.mark.parametrize(
    ("keys", "method", "note"),
    [
        (["n", *"more", "enter"], "CreateSession", "created made-up"),
        (["U"], "WithdrawPrompts", "fix: taken back; ↑ in a prompt recalls it"),
    ],
)
async def test_work_that_ends_while_a_prompt_is_typed_changes_neither_it_nor_its_session(
    world: World, keys: list[str], method: str, note: str
) -> None:
    world.state.session("fix")
    other = world.state.session("other")
    ends = threading.Event()
    world.state.on_call = lambda call: (
        None if call.method != method or ends.wait(30) else pytest.fail("it took too long")
    )
    async with screen(world) as shown:
        await shown.shows("· fix", "· other")
        await shown.press(*keys)
        await eventually(lambda: world.state.called(method), within=20)
        await shown.press("j", "r", *"he")
        assert (shown.app._selected, shown.app._prompt.text) == (other.id, "he")
        ends.set()
        await shown.shows(note)
        await shown.press("y", "enter")
        await eventually(lambda: world.state.called("SendPrompt"), within=20)
        assert [(each.session, each.prompt) for each in world.state.called("SendPrompt")] == [(other.id, "hey")]


async def test_a_prompt_that_is_taken_back_is_there_to_edit_before_what_was_being_written(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("r", *"then", "escape", "U")
        await eventually(lambda: shown.app._prompt.text == "text newest\nthen", within=20)
        assert shown.app._prompt.has_focus


async def test_an_image_dropped_or_in_the_clipboard_goes_with_its_prompt(world: World, tmp_path: Path) -> None:
    world.state.session("fix")
    (tmp_path / "a b.png").write_bytes(b"\x89PNG dropped")
    clipboard = tmp_path / "bin" / "xclip"
    clipboard.parent.mkdir()
    clipboard.write_text("#!/bin/sh\nprintf '\\211PNG copied'\n")
    clipboard.chmod(0o755)
    path = f"{clipboard.parent}:{os.environ['PATH']}"
    world.extra.update(DISPLAY=":7", PATH=path)
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("r")
        shown.app.post_message(events.Paste(f"'{tmp_path}/a b.png'"))
        await eventually(lambda: shown.app._prompt.text == "[image 1] ", within=20)
        await shown.press("ctrl+v")
        await eventually(lambda: shown.app._prompt.text == "[image 1] [image 2] ", within=20)
        world.state.refusals["SendPrompt"] = [Refusal("FAILED_PRECONDITION", "not now", "WRONG_STATE")]
        await shown.press(*"look", "enter")
        await shown.shows("not now")
        assert shown.app._prompt.text == "[image 1] [image 2] look"
        await shown.press("enter")
        await eventually(lambda: len(world.state.called("SendPrompt")) == 2, within=20)
        *_, sent = world.state.called("SendPrompt")
        assert (sent.prompt, [each.data for each in sent.images]) == (
            "[image 1] [image 2] look", [b"\x89PNG dropped", b"\x89PNG copied"]
        )  # fmt: skip


async def test_an_image_pasted_while_another_prompt_is_sent_goes_with_its_own(world: World, tmp_path: Path) -> None:
    world.state.session("fix")
    (tmp_path / "a.png").write_bytes(b"\x89PNG one")
    (tmp_path / "b.png").write_bytes(b"\x89PNG two")
    released = threading.Event()
    world.state.on_call = blocks("SendPrompt", released)
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("r")
        shown.app.post_message(events.Paste(str(tmp_path / "a.png")))
        await eventually(lambda: shown.app._prompt.text == "[image 1] ", within=20)
        await shown.press("enter")
        shown.app.post_message(events.Paste(str(tmp_path / "b.png")))
        await eventually(lambda: shown.app._prompt.text == "[image 2] ", within=20)
        released.set()
        await shown.shows("sent to fix with 1 image")
        await shown.press("enter")
        await eventually(lambda: len(world.state.called("SendPrompt")) == 2, within=20)
        sent = [[each.data for each in call.images] for call in world.state.called("SendPrompt")]
        assert sent == [[b"\x89PNG one"], [b"\x89PNG two"]]


SIMPLE = [
    ("i", "InterruptSession"), ("p", "PauseSession"), ("A", "ArchiveSession"), ("C", "SendComments"), ("L", "LandSessions"), ("P", "CreatePullRequest"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "method"), SIMPLE)
async def test_an_error_of_an_action_is_a_line(world: World, key: str, method: str) -> None:
    """The daemon with canned answers refuses most of these, as an older daemon would."""
    world.state.session("fix", state=WORKING)
    world.state.refusals[method] = [Refusal("FAILED_PRECONDITION", "not now", "WRONG_STATE", "try later")]
    async with screen(world) as shown:
        await shown.shows("fix")
        await shown.press(key)
        if key in {"A", "L", "P"}:
            await shown.dialog(Confirm)
            await shown.press("y")
        await eventually(
            lambda: any("not now; try later" in line or "older than" in line for line in shown.lines()), within=20
        )


async def test_removing_says_what_would_be_lost_and_needs_a_second_yes(world: World) -> None:
    session = world.state.session("fix")
    world.state.refusals["DeleteSession"] = [Refusal("FAILED_PRECONDITION", "fix holds 1 file", "WORK_AT_RISK")]
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("x")
        await shown.dialog(Confirm)
        await shown.press("n")
        assert not world.state.called("DeleteSession")
        await shown.press("x")
        await shown.dialog(Confirm)
        await shown.press("enter")  # at once, as in a paste
        assert isinstance(shown.app.screen, Confirm)
        shown.now += 1
        await shown.press("enter")
        await eventually(lambda: len(world.state.called("DeleteSession")) == 1, within=20)
        await shown.shows("fix holds 1 file")
        await shown.press("y", "enter")  # it may be meant for something else
        assert isinstance(shown.app.screen, Confirm)
        shown.now += 1
        await shown.press("y")
        await eventually(
            lambda: [call.force for call in world.state.called("DeleteSession")] == [False, True], within=20
        )
        world.state.event(session, session_removed=event_pb2.SessionRemoved(name="fix"))
        await shown.shows("no sessions here")


@pytest.mark.parametrize(
    ("key", "method", "data"),
    [
        ("x", "DeleteSession", {}),
        ("L", "LandSessions", {"files": "a.py"}),
        ("L", "LandSessions", {"upstream": "origin/main", "branch": "main"}),
    ],
)
async def test_a_late_question_does_not_open_over_a_prompt_that_is_typed(
    world: World, key: str, method: str, data: dict[str, str]
) -> None:
    world.state.session("fix")
    world.state.refusals[method] = [Refusal("FAILED_PRECONDITION", "there is more", "WORK_AT_RISK", data=data)]
    ends = threading.Event()
    world.state.on_call = lambda call: None if call.method != method or ends.wait(30) else pytest.fail("too long")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press(key)
        await shown.dialog(Confirm)
        await shown.press("y")
        await eventually(lambda: world.state.called(method), within=20)
        await shown.press("r", *"tr")
        ends.set()
        await shown.shows(f"; {key} asks again what to do")
        await shown.press("y")
        assert (shown.app._prompt.text, len(world.state.called(method))) == ("try", 1)


async def test_a_session_is_created_from_the_form(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("n")
        await shown.dialog(Form)
        await shown.press(*"do it", "tab", *"name1")
        await shown.press("enter")
        await eventually(lambda: world.state.called("CreateSession"), within=20)
        (call,) = world.state.called("CreateSession")
        assert (call.prompt, call.name, call.path) == ("do it", "name1", "/trees/1")


async def test_a_form_that_is_refused_keeps_its_text_and_the_next_one_its_agent_and_mode(world: World) -> None:
    world.state.session("fix")
    world.state.refusals["CreateSession"] = [Refusal("ALREADY_EXISTS", "the name is taken", "NAME_TAKEN")]
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("n")
        await shown.dialog(Form)
        await shown.press(*"do it", "tab", *"fix", *["tab"] * 4, *"plan", "enter")
        await shown.shows("the name is taken")
        await shown.press("n")
        await shown.dialog(Form)
        await shown.shows("do it")
        await shown.press(*" now", "tab", "2", "enter")
        await eventually(lambda: len(world.state.called("CreateSession")) == 2, within=20)
        last = world.state.called("CreateSession")[-1]
        assert (last.prompt, last.name, last.mode) == ("do it now", "fix2", mode_number("plan"))
        await shown.shows("created ")
        await shown.press("g", "n")
        form = await shown.dialog(Form)
        assert (form.query_one(Prompt).text, [each.value for each in form.query(Input)]) == (
            "", ["", "", "", "", "plan", "", "", "1"]
        )  # fmt: skip


async def test_the_form_after_one_that_is_on_its_way_has_only_its_agent_and_mode(world: World) -> None:
    world.state.session("fix")
    ends = threading.Event()
    world.state.on_call = lambda call: (
        None if call.method != "CreateSession" or ends.wait(30) else pytest.fail("it took too long")
    )
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("n")
        await shown.dialog(Form)
        await shown.press(*"one", "tab", *"first", *["tab"] * 4, *"plan", "enter")
        await eventually(lambda: world.state.called("CreateSession"), within=20)
        await shown.press("n")
        form = await shown.dialog(Form)
        await shown.press(*"two")
        assert (form.query_one(Prompt).text, [each.value for each in form.query(Input)]) == (
            "two", ["", "", "", "", "plan", "", "", "1"]
        )  # fmt: skip
        ends.set()


@pytest.mark.parametrize(("key", "method"), [("x", "DeleteSession"), ("A", "ArchiveSession")])
async def test_a_session_at_work_is_put_away_after_a_yes(world: World, key: str, method: str) -> None:
    world.state.session("fix", state=WORKING)
    async with screen(world) as shown:
        await shown.shows("▸ fix")
        await shown.press(key)
        await shown.dialog(Confirm)
        await shown.shows("fix is working")
        assert not world.state.called(method)
        await shown.press("y")
        await eventually(lambda: world.state.called(method), within=20)
        assert bool(world.state.called("StopSession")) == (key == "x")


async def test_a_note_goes_when_the_cursor_moves_to_another_session(world: World) -> None:
    for name in ("one", "two"):
        world.state.session(name)
    async with screen(world) as shown:
        await shown.shows("· one")
        await shown.press("y")
        await shown.shows("it asks nothing")
        await shown.press("j")
        await eventually(lambda: not any("it asks nothing" in line for line in shown.lines()), within=20)


async def test_modes_are_chosen_by_number(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("m")
        await shown.dialog(Choose)
        await shown.press("2")
        await eventually(lambda: world.state.called("UpdateSession"), within=20)
        assert world.state.called("UpdateSession")[0].update_mask.paths == ["mode"]


PATCH = b"""diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,2 +1,3 @@
 one
+two
 three
"""


async def test_a_line_of_the_diff_is_commented(world: World) -> None:
    world.state.session("fix", turns=1)
    world.state.diff = worktree_pb2.GetDiffResponse(
        files=[worktree_pb2.FileChange(path="a.py", additions=1)], patch=PATCH
    )
    async with screen(world) as shown:
        await shown.shows("fix")
        await shown.press("tab")
        await shown.shows("   2 +two")
        await shown.press("enter")
        content = shown.app._content
        content.move_to(next(index for index, place in enumerate(shown.app._places) if place and place.line == 2))
        await shown.press("c")
        dialog = await shown.dialog(Ask)
        assert "a.py:2" in "".join(line for line in shown.lines())
        assert isinstance(dialog.query_one(Lines), Lines)
        ends = threading.Event()
        world.state.on_call = lambda call: (
            None if call.method != "AddComment" or ends.wait(30) else pytest.fail("too long")
        )
        await shown.press(*"why", "enter")
        await shown.press("C")  # during the call that adds the comment
        await eventually(lambda: world.state.called("AddComment"), within=20)
        assert not world.state.called("SendComments")
        ends.set()
        await shown.shows("fix: the comments are sent")
        (comment,) = world.state.called("AddComment")
        assert (comment.path, comment.line, comment.text) == ("a.py", 2, "why")


async def test_no_comments_are_sent_after_one_is_refused_and_its_text_is_offered_again(
    world: World,
) -> None:
    world.state.session("fix", turns=1)
    world.state.diff = worktree_pb2.GetDiffResponse(
        files=[worktree_pb2.FileChange(path="a.py", additions=1)], patch=PATCH
    )
    world.state.refusals["AddComment"] = [Refusal("NOT_FOUND", "there is no a.py", "NOT_FOUND")]
    async with screen(world) as shown:
        await shown.shows("fix")
        await shown.press("enter", "tab")
        await shown.shows("   2 +two")
        await shown.press("c")
        await shown.dialog(Ask)
        await shown.press(*"why", "enter", "C")
        await shown.shows("nothing sent: there is no a.py; c has your text; C sends the others")
        assert not world.state.called("SendComments")
        await shown.press("c")
        dialog = await shown.dialog(Ask)
        await eventually(lambda: dialog.query_one(Prompt).text == "why", within=20)
        await shown.press("enter", "C")
        await shown.shows("fix: the comments are sent")
        assert [each.text for each in world.state.called("AddComment")] == ["why", "why"]


async def test_the_diff_against_another_session_is_chosen_by_name(world: World) -> None:
    world.state.session("fix", turns=1)
    other = world.state.session("other")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("B")
        await shown.dialog(Choose)
        await shown.shows("1 other")
        await shown.press("1")
        await eventually(lambda: [call.against for call in world.state.called("GetDiff")][-1:] == [other.id], within=20)
        await shown.shows("against other")


async def test_land_asks_for_a_commit_message_and_for_consent_to_land_locally(world: World) -> None:
    world.state.session("fix")
    upstream = {"upstream": "origin/main", "branch": "main"}
    world.state.refusals["LandSessions"] = [
        Refusal("FAILED_PRECONDITION", "fix has uncommitted work", "WRONG_STATE", data={"files": "a.py"}),
        Refusal("FAILED_PRECONDITION", "main follows origin", "PROTECTED", data=upstream),
    ]
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("L")
        await shown.shows("Land fix on", "· fix")  # beside the list
        await shown.press("y")
        dialog = await shown.dialog(Ask)
        await shown.press(*"try it", "enter")  # typed for something else
        shown.now += 1
        await eventually(lambda: dialog.query_one(Prompt).has_focus, within=20)
        await shown.press(*"done", "enter")
        await shown.shows("Nothing is pushed.")
        shown.now += 1
        await shown.press("y")
        await eventually(lambda: len(world.state.called("LandSessions")) == 3, within=20)
        last = world.state.called("LandSessions")[-1]
        assert (last.commit_message, last.local) == ("done", True)


async def test_the_question_of_land_and_remove_names_uncommitted_work(world: World) -> None:
    session = world.state.session("fix", turns=1, now="Fixed it.\nAll of it.")
    world.state.diff = worktree_pb2.GetDiffResponse(
        files=[worktree_pb2.FileChange(path=name) for name in ("a.py", "b.py", "c.py", "d.py")], additions=7
    )
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("✓ fix")
        await eventually(lambda: shown.app._uncommitted(session), within=20)
        await shown.press("L")
        dialog = await shown.dialog(Ask)
        await shown.shows("It has uncommitted", "work: a.py, b.py, c.py and 1 more.", "enter land")
        assert dialog.query_one(Prompt).text == "Fixed it."
        await shown.press(*" Well.", "enter")
        await eventually(lambda: world.state.called("LandSessions"), within=20)
        assert [each.commit_message for each in world.state.called("LandSessions")] == ["Fixed it. Well."]
        for data, calls in (({"uncommitted": "a.py"}, [False, True]), ({"inside": "the repository lib"}, [False])):
            world.state.refusals["DeleteSession"] = [Refusal("FAILED_PRECONDITION", "more", "WORK_AT_RISK", data=data)]
            world.state.calls.clear()
            world.state.sessions[session.id] = session
            await shown.press("x")
            await shown.shows("with its work that has not", "landed: 4 files, +7 −0?")
            await shown.press("y")
            await shown.shows("removed fix; u restores it" if calls[-1] else "Remove fix all the same?")
            assert [each.force for each in world.state.called("DeleteSession")] == calls


async def test_removing_does_not_end_a_turn_that_began_during_its_question(world: World) -> None:
    session = world.state.session("fix", turns=1)
    world.state.diff = worktree_pb2.GetDiffResponse(files=[worktree_pb2.FileChange(path="a.py")])
    world.state.refusals["DeleteSession"] = [Refusal("FAILED_PRECONDITION", "fix is working", "WRONG_STATE")]
    async with screen(world) as shown:
        await shown.shows("✓ fix")
        await eventually(lambda: shown.app._changed(session), within=20)
        await shown.press("x")
        await shown.shows("with its work that has not")
        await shown.press("y")
        await shown.shows("fix is working")
        assert [each.force for each in world.state.called("DeleteSession")] == [False]


def _words(lines: list[str]) -> list[str]:
    return " ".join(line.strip("│╭╮╰╯─ ") for line in lines).split()


@pytest.mark.parametrize("width", [200, 80, 50, 36])
async def test_a_dialog_cuts_no_word_at_any_width(world: World, width: int) -> None:
    world.state.session("fix")
    question = (
        "A question that is longer than the dialog is wide, so that it wraps, and wraps once more, to its very end."
    )
    async with screen(world, size=(120, 24)) as shown:
        await shown.shows("· fix")
        shown.app.ask(Confirm(question), lambda answer: None)
        await shown.dialog(Confirm)
        await shown.pilot.resize_terminal(width, 24)

        def whole() -> bool:
            words = _words([line for line in shown.lines() if "│" in line])
            assert set(question.split()) <= set(words), words
            return True

        await eventually(whole, within=20)


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


async def test_changes_made_after_the_last_comparison_can_be_landed(world: World) -> None:
    """The daemon sends no event when the person edits a file of an idle session."""
    session = world.state.session("fix", turns=1)
    async with screen(world) as shown:
        await shown.shows("· fix")
        await eventually(lambda: shown.app._unchanged(session), within=20)
        world.state.diff = worktree_pb2.GetDiffResponse(files=[worktree_pb2.FileChange(path="a.py")])
        for key in "LP":
            await shown.press(key)
            await shown.dialog(Confirm)
            await shown.press("escape")
        with mock.patch.object(Dashboard, "suspend", nullcontext), mock.patch("termios.tcflush"):
            shown.app._outside("true")
        await eventually(lambda: not shown.app._unchanged(session), within=20)


async def test_the_foot_says_how_to_reach_the_next_session_that_needs_the_person(world: World) -> None:
    world.state.session("busy", state=WORKING)
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("? asks", "space answer")
        await shown.press("G")
        await shown.shows("N answer next")
        await shown.press("N")
        await shown.shows("$ make test", "space answer")


async def test_a_file_and_a_command_are_completed_in_the_prompt(world: World, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / ".claude" / "commands" / "db").mkdir(parents=True)
    (tree / ".claude" / "commands" / "db" / "migrate.md").write_text("Migrate")
    (tree / "docs").mkdir()
    for name in ("docs/quickstart.md", "docs/quick-reference.md", "main.py"):
        (tree / name).touch()
    await (await asyncio.create_subprocess_exec("git", "-C", tree, "init", "-q")).wait()
    world.state.session("fix", worktree=str(tree))
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("enter", *"see @doc", "tab")
        await eventually(lambda: shown.app._prompt.text == "see @docs/quick", within=20)
        await shown.shows("@docs/quick-reference.md · @docs/quickstart.md")
        await shown.press("s", "tab")
        await eventually(lambda: shown.app._prompt.text == "see @docs/quickstart.md ", within=20)
        shown.app._prompt.clear()
        await shown.press(*"/db", "tab")
        await eventually(lambda: shown.app._prompt.text == "/db:migrate ", within=20)


async def test_details_have_the_rules_that_hold(world: World) -> None:
    world.state.session("fix")
    allow = attention_pb2.RULE_EFFECT_ALLOW
    world.state.rules["r"] = attention_pb2.PermissionRule(id="r", rule="Bash(make *)", repo="click", effect=allow)
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("shift+tab")
        await shown.shows("1 permission rule", "allow Bash(make *)")


async def test_every_tab_can_be_shown_at_every_size(world: World) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    world.state.event(
        next(iter(world.state.sessions.values())), warning=event_pb2.Warning(message="[bold]careful\x1b[0m")
    )
    async with screen(world, size=(80, 24)) as shown:
        for size in ((80, 24), (40, 10), (200, 50), (20, 5), (120, 30)):
            await shown.pilot.resize_terminal(*size)
            for _ in range(7):
                await shown.press("tab")
                await shown.pilot.pause()
        await shown.shows("Needs you 1", "[bold]careful␛[0m")


async def test_a_daemon_that_dies_is_a_line_that_heals(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await asyncio.to_thread(world.daemon.stop)
        await shown.shows("the daemon is away")
        await shown.press("j", "k", "tab", "tab")
        world.daemon.start()
        await eventually(lambda: not any("the daemon is away" in line for line in shown.lines()), within=20)
        await shown.shows("· fix")


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (200, 50)], ids=lambda size: "x".join(map(str, size)))
async def test_the_screen_is_as_recorded(world: World, size: tuple[int, int]) -> None:
    """Compare the screen as text and as a picture with colours. RAMET_UPDATE_GOLDEN=1 writes both;
    look at them then."""
    busy = world.state.session("docs-quickstart", state=WORKING, now="Edit docs/quickstart.md", cost_usd=0.31, turns=2)
    world.state.session("done", turns=1, now="All tests pass.", cost_usd=0.02)
    world.state.session(
        "日本語の名前", state=session_pb2.SESSION_STATE_PAUSED, state_reason="budget spent: \x1b[31m$2.00"
    )
    asks(world, "PERMISSION", COMMAND, tool="Bash", reason="Run the tests")
    for session in world.state.sessions.values():
        session.since.seconds = BEGAN
    prompt = session_pb2.Prompt(id="p", text="write a quick start", source="owner")
    world.state.event(busy, prompt_queued=event_pb2.PromptQueued(prompt=prompt))
    world.state.event(busy, prompt_received=event_pb2.PromptReceived(prompt_id="p"))
    text = event_pb2.AssistantMessage(blocks=[event_pb2.ContentBlock(text="I begin with **installation**.")])
    world.state.event(busy, assistant_message=text)
    async with screen(world, size=size) as shown:
        shown.app.wall = lambda: BEGAN + 90.0
        await shown.shows("$ make test")
        await shown.press("j")
        await shown.shows("I begin with installation.", "docs-quickstart")
        await eventually(lambda: not shown.app._dirty, within=20)
        await shown.pilot.pause(0.2)
        now = {"txt": "\n".join(shown.lines()) + "\n", "svg": shown.app.export_screenshot(title="ramet") + "\n"}
    for kind, screenshot in now.items():
        if kind == "svg" and size == (120, 30):
            continue  # it has the colours of the other two
        file = GOLDEN / f"{size[0]}x{size[1]}.{kind}"
        if os.environ.get("RAMET_UPDATE_GOLDEN"):
            file.write_text(screenshot)
        assert screenshot == file.read_text()


async def test_pasted_text_is_never_keys_and_its_lines_are_not_sent(world: World) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world) as shown:
        await shown.ready()
        shown.app.post_message(events.Paste("yAx\ny"))
        await shown.press("r")
        await eventually(lambda: shown.app._prompt.has_focus, within=20)
        shown.app.post_message(events.Paste("first\nsecond"))
        await eventually(lambda: shown.app._prompt.text == "first\nsecond", within=20)
        methods = {call.method for call in world.state.calls}
        assert not methods & {"ResolveRequest", "ArchiveSession", "DeleteSession", "SendPrompt"}


async def test_a_key_is_answered_while_paintings_rest_and_before_new_words_are_drawn(world: World) -> None:
    session = world.state.session("fix", state=WORKING)
    async with screen(world) as shown:
        await shown.shows("▸ fix", "working")
        app = shown.app
        await eventually(lambda: app.view and app.view.transcripts[session.id].loaded, within=20)
        app._rests_until = math.inf
        text = event_pb2.AssistantMessage(blocks=[event_pb2.ContentBlock(text="new words")])
        world.state.event(session, assistant_message=text)
        await eventually(lambda: app.view and app.view.transcripts[session.id].fresh, within=20)
        await shown.press("v")
        await shown.shows("arranged by family")
        assert not any("new words" in line for line in shown.lines())
        app._rests_until = 0.0
        await shown.shows("new words")


async def test_a_tab_a_click_a_dialog_and_escape_are_answered_while_paintings_rest(world: World) -> None:
    world.state.session("one")
    world.state.session("two")
    async with screen(world) as shown:
        await shown.shows("· one", "· two", "one  Conversation")
        app = shown.app
        row = next(at for at, each in enumerate(app._rows) if each.session_id and each.session_id != app._selected)
        app._rests_until, app.wall = math.inf, lambda: BEGAN  # no other painting comes between
        await shown.press("tab")
        await shown.shows("against base")
        await shown.pilot.click("#list", offset=(4, row))
        await shown.shows("two ‹ Diff")
        await shown.press("slash", *"one", "enter")
        await shown.shows("all repositories /one")
        await shown.press("r")
        await shown.shows("enter send")
        await shown.press("escape")
        await eventually(lambda: not app._dirty, within=20)
        await shown.shows("? all keys")


async def test_a_row_is_built_once_for_a_painting(world: World) -> None:
    world.state.session("fix")
    made: Counter[int] = Counter()

    def row(index: int) -> Line:
        made[index] += 1
        return line(f"row {index}")

    async with screen(world) as shown:
        await shown.shows("· fix")
        shown.app._rests_until = math.inf  # no other painting comes between
        shown.app._list.show_rows(20, row)
        await shown.shows("row 19")
        assert set(made.values()) == {1}


async def test_the_cursor_stays_at_its_session_when_others_come_and_go_above_it(world: World) -> None:
    first, second = world.state.session("first"), world.state.session("second")
    async with screen(world) as shown:
        await shown.shows("· second")
        await shown.press("j")
        await eventually(lambda: shown.app._selected == second.id, within=20)
        late = world.state.session("late", state=WAITING)
        world.state.event(late, session_created=event_pb2.SessionCreated(session=late))
        del world.state.sessions[first.id]
        world.state.event(first, session_removed=event_pb2.SessionRemoved(name="first"))
        await shown.shows("? late")
        await eventually(lambda: not any("· first" in line for line in shown.lines()), within=20)
        rows = [row.session_id for row in shown.app._rows]
        assert (shown.app._selected, rows[shown.app._list.cursor]) == (second.id, second.id)


async def test_the_list_is_filtered_and_arranged(world: World) -> None:
    world.state.session("one")
    world.state.session("two", parent_id=next(iter(world.state.sessions)))
    async with screen(world) as shown:
        await shown.shows("· one", "· two")
        await shown.press("slash", *"two", "enter")
        await eventually(lambda: not any("· one" in line for line in shown.lines()), within=20)
        await shown.press("escape")
        await shown.shows("· one")
        await shown.press("v")
        await shown.shows("└ two")


async def test_attached_it_shows_one_session_and_escape_interrupts(world: World) -> None:
    session = world.state.session("fix", state=WORKING)
    world.state.session("other")
    async with screen(world, only=session.id) as shown:
        await shown.shows("fix  Conversation", "ctrl-q detach")
        assert not any("other" in line for line in shown.lines())
        await shown.press(*"hello", "enter")
        await eventually(lambda: [call.prompt for call in world.state.called("SendPrompt")] == ["hello"], within=20)
        await shown.press("escape")
        await eventually(lambda: world.state.called("InterruptSession"), within=20)
        await shown.press("ctrl+q")
        await eventually(lambda: not shown.app.is_running, within=20)


async def test_attached_a_letter_is_written_and_answers_only_after_a_blank(world: World) -> None:
    request = asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world, only=request.session_id) as shown:
        await shown.ready()
        await shown.press("y", "backspace")
        assert not world.state.called("ResolveRequest")
        await shown.press("space", "y")
        assert (await answered(world)).HasField("approve")
        await eventually(lambda: shown.app._prompt.has_focus, within=20)


BURSTS: list[tuple[list[str], Callable[[World], bool]]] = [
    (["r", *"yip", "enter"], lambda world: [each.prompt for each in world.state.called("SendPrompt")] == ["yip"]),
    (["enter", *"yip", "enter"], lambda world: [each.prompt for each in world.state.called("SendPrompt")] == ["yip"]),
    (["r", "escape", "y"], lambda world: bool(world.state.called("ResolveRequest"))),
    (["r", "space", "y"], lambda world: bool(world.state.called("ResolveRequest"))),
    (["r", *"xy"], lambda world: not {each.method for each in world.state.calls} & {"DeleteSession", "ResolveRequest"}),
]


@pytest.mark.parametrize(("keys", "right"), BURSTS, ids=lambda each: "-".join(each) if isinstance(each, list) else "")
async def test_keys_typed_ahead_in_separate_reads_mean_what_they_mean_one_by_one(
    world: World, keys: list[str], right: Callable[[World], bool]
) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world) as shown:
        await shown.ready()
        shown.burst(*keys)
        await shown.pilot.pause()
        await eventually(lambda: right(world), within=20)


async def test_a_prompt_typed_ahead_in_one_read_is_a_paste_that_is_ignored(world: World) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world) as shown:
        await shown.ready()
        shown.burst("ryip\n")
        await shown.shows("pasted text is ignored here")
        assert not {each.method for each in world.state.calls} & {"SendPrompt", "ResolveRequest"}


@pytest.mark.parametrize("reads", [[*"do it"], ["do it"], ["do ", "it"], ["do it\n", "now"], ["do it\nnow\n"]])
async def test_reads_before_a_dialog_has_its_field_are_written_in_it(world: World, reads: list[str]) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        shown.burst("f", *reads)
        dialog = await shown.dialog(Ask)
        await eventually(lambda: dialog.query_one(Prompt).text == "".join(reads), within=20)
        assert shown.app.screen is dialog, "a line end sends nothing"


async def test_text_that_a_dialog_handles_after_its_field_got_the_focus_is_written_in_it(world: World) -> None:
    async with screen(world) as shown:
        shown.app.ask(Ask("What?"), lambda answer: None)
        dialog = await shown.dialog(Ask)
        await eventually(lambda: dialog.focused is not None, within=20)
        for fetched in (events.Paste("do"), events.Key("i", "i"), events.Paste("t")):
            dialog._forward_event(fetched)  # as the dashboard did before it had the focus
        await eventually(lambda: dialog.query_one(Prompt).text == "doit", within=20)


async def test_a_paste_before_the_field_of_a_late_dialog_has_the_focus_is_written_in_it(world: World) -> None:
    answers: list[str] = []
    async with screen(world) as shown:
        ask = Ask("What?")
        ask.late = True
        shown.app.ask(ask, answers.append)
        dialog = await shown.dialog(Ask)
        shown.burst("meant for something else")
        await shown.pilot.pause()
        assert dialog.focused is None
        shown.now += 10  # it accepts keys, and focuses its field at its next check
        shown.burst("do it\n", "now")
        await eventually(lambda: dialog.query_one(Prompt).text == "do it\nnow", within=20)
        assert (shown.app.screen, answers) == (dialog, [])


async def test_the_end_of_the_conversation_stays_visible_when_a_panel_opens_below(world: World) -> None:
    session = world.state.session("fix", state=WORKING)
    for number in range(60):
        text = event_pb2.AssistantMessage(blocks=[event_pb2.ContentBlock(text=f"step {number}")])
        world.state.event(session, assistant_message=text)
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("step 59")
        await shown.press("r")
        await shown.shows("step 59", "enter send")
        request = world.state.request(
            session, kind=attention_pb2.ATTENTION_KIND_PERMISSION, tool="Bash", input_json=json.dumps(COMMAND)
        )
        world.state.event(session, request_opened=event_pb2.RequestOpened(request=request))
        await shown.shows("step 59", "$ make test")
        await shown.pilot.resize_terminal(80, 18)
        await eventually(lambda: shown.app._content.at_end, within=20)


async def test_the_keys_leave_the_prompt_with_its_tab_and_move_in_the_lines_of_the_diff(world: World) -> None:
    world.state.session("fix", turns=1)
    world.state.diff = worktree_pb2.GetDiffResponse(
        files=[worktree_pb2.FileChange(path="a.py", additions=1)], patch=PATCH
    )
    async with screen(world) as shown:
        await shown.shows("fix")
        await shown.press("enter", "tab")
        await shown.shows("   2 +two")
        await shown.press("c")  # without a cursor: the first line of a file
        await shown.dialog(Ask)
        await shown.press("space", "escape", "j")
        place = shown.app._places[shown.app._content.cursor]
        assert place is not None
        assert (place.path, shown.app._prompt.text) == ("a.py", "")
        await shown.press("shift+tab", *"jx")
        assert shown.app._prompt.text == "jx"


async def test_a_contest_is_compared_and_one_is_picked(world: World) -> None:
    first = world.state.session("race-1", contest="race")
    world.state.session("race-2", contest="race", agent="codex")
    judge = world.state.session("race-judge", judges="race", result="Take **race-2**.")
    world.state.session("other")
    async with screen(world) as shown:
        await shown.press("v", "v", "v")
        await shown.shows("arranged by contest", "race 3", "no contest 1")
        await shown.press("shift+tab")
        await shown.shows("2 contenders", "race-2  codex  idle", "advice of race-judge (claude", "Take **race-2**.")
        await shown.press("j", "W")
        await shown.dialog(Choose)
        await shown.shows("Pick race-2 and archive race-1, race-judge")
        await shown.press("1")
        await shown.shows("picked race-2; archived race-1, race-judge")
        assert [each.session for each in world.state.called("ArchiveSession")] == [first.id, judge.id]
        await shown.press("G")  # a session of no contest has no such tab
        await shown.shows("other  Conversation")
        await shown.press("W")
        await shown.shows("other is in no contest")


QUESTION = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
FORM = {"message": "Who?", "requested_schema": {"properties": {"age": {"type": "integer"}}, "required": ["age"]}}
DRAFTS: list[tuple[str, str, Any, str, str]] = [
    ("ResolveRequest", "PERMISSION", COMMAND, "d", "why"),
    ("ResolveRequest", "PERMISSION", COMMAND, "a", "why"),
    ("ResolveRequest", "PLAN", {"plan": "do"}, "d", "why"),
    ("ResolveRequest", "QUESTION", QUESTION, "t", "why"),
    ("ResolveRequest", "ELICITATION", FORM, "y", "7"),
    ("", "ELICITATION", FORM, "y", "why"),
    ("ForkSession", "", None, "f", "why"),
    ("CreateSession", "", None, "n", "why"),
    ("LandSessions", "", None, "L", "why"),
]
"""The method that refuses ("" if the client does), kind and input of a request, key, and text."""


@pytest.mark.parametrize(("method", "kind", "data", "key", "text"), DRAFTS)
async def test_text_of_a_dialog_that_is_refused_or_left_is_offered_again(
    world: World, method: str, kind: str, data: Any, key: str, text: str
) -> None:
    if kind:
        asks(world, kind, data, tool="Bash")
    else:
        world.state.session("fix", turns=1, branch="ramet/fix")
    world.state.diff = worktree_pb2.GetDiffResponse(files=[worktree_pb2.FileChange(path="a.py", additions=1)])
    world.state.refusals[method] = [Refusal("FAILED_PRECONDITION", "not now", "WRONG_STATE")]
    async with screen(world) as shown:
        if kind:
            await shown.ready()
        else:
            await shown.shows("✓ fix")

        async def opened() -> tuple[Dialog, Callable[[], str]]:
            await shown.press(key)
            dialog = await shown.dialog(Dialog)
            await eventually(lambda: dialog.focused is not None, within=20)
            field = dialog.focused
            return dialog, lambda: field.text if isinstance(field, Prompt) else field.value

        _, written = await opened()
        before = written()
        await shown.press(*text)
        whole = before + text
        await shown.press("escape")
        await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)
        _, written = await opened()
        assert written() == whole, "closed"
        await shown.press("end", "enter")
        await shown.shows(f"{key} has your text")
        _, written = await opened()
        assert written() == whole, "refused"


async def test_text_left_in_a_dialog_is_replaced_by_new_text_and_continued_at_its_end(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        for keys, text in ([*"old"], "old"), (["end", *"er"], "older"), ([*"new"], "new"):
            await shown.press("f")
            dialog = await shown.dialog(Ask)
            await eventually(lambda: shown.app.focused is not None, within=20)
            await shown.press(*keys)
            assert dialog.query_one(Prompt).text == text
            await shown.press("escape")
            await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)


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


async def test_an_empty_answer_is_said_and_empties_only_the_filter(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        for key, words in ("f", "nothing is written"), ("n", "ctrl-s send without it"):
            await shown.press(key)
            await shown.dialog(Dialog)
            await shown.press("enter")
            await shown.shows(words)
            await shown.press("escape")
        await shown.press("slash", *"nothing", "enter")
        await shown.shows("/nothing", "no session fits")
        await shown.press("slash", "ctrl+u", "enter")
        await shown.shows("· fix")
        assert not shown.app._filter


async def test_undo_restores_each_of_two_sessions_once(world: World) -> None:
    one, two = world.state.session("one"), world.state.session("two")
    released = threading.Event()
    world.state.on_call = blocks("RestoreSession", released)
    async with screen(world) as shown:
        await shown.shows("· one", "· two")
        shown.app._undo = [("archive", one.id), ("archive", two.id)]
        await shown.press("u", "u")
        await shown.shows("restoring is under way")
        released.set()
        await shown.shows("is back")
        await shown.press("u")
        await eventually(lambda: not shown.app._undo, within=20)
        assert [each.session for each in world.state.called("RestoreSession")] == [two.id, one.id]


@pytest.mark.parametrize("height", [24, 12])
async def test_a_dialog_shows_its_keys_and_all_of_its_text_at_any_height(world: World, height: int) -> None:
    world.state.session("fix")
    async with screen(world, size=(80, height)) as shown:
        await shown.shows("· fix")
        shown.app.ask(Confirm("Rewind?", [line(f"file {number}") for number in range(40)]), lambda answer: None)
        await shown.shows("y or enter yes", "J scroll down", "file 1")
        for _ in range(20):
            await shown.press("J")
        await shown.shows("file 39", "y or enter yes")
        await shown.press("escape", "question_mark")
        await shown.shows("J scroll down · K scroll up · esc back")
        await shown.press("escape", "n")
        await shown.shows("enter send · tab next field")


async def test_a_comment_without_a_line_changes_nothing(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("tab", "c")
        await shown.shows("there is no line to comment on")
        assert not shown.app.has_class("whole")


async def test_the_review_offers_to_land_what_the_person_edited_elsewhere(world: World) -> None:
    session = world.state.session("fix", turns=1)
    world.state.request(session, kind=attention_pb2.ATTENTION_KIND_REVIEW)
    async with screen(world) as shown:
        await shown.shows("y done · d do better")
        await eventually(lambda: not any("L land" in each for each in shown.lines()[:-1]), within=20)
        world.state.diff = worktree_pb2.GetDiffResponse(files=[worktree_pb2.FileChange(path="a.py", additions=1)])
        shown.app.post_message(events.AppFocus())
        await shown.shows("y done · d do better · L land")


async def test_the_mouse_opens_tabs_answers_and_presses_the_keys_of_hints(world: World) -> None:
    asks(world, "QUESTION", {"questions": [{"question": "Which?", "options": [{"label": "Ab"}, {"label": "Cd"}]}]})
    async with screen(world) as shown:

        async def click(text: str) -> None:
            await shown.shows(text)
            y = next(y for y, each in enumerate(shown.lines()) if text in each)
            await shown.pilot.click(offset=(shown.lines()[y].index(text) + 1, y))

        await shown.ready()
        await click("Diff")
        await eventually(lambda: shown.app._tab == "Diff", within=20)
        await click("n new")
        await shown.dialog(Form)
        await click("esc back")
        await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)
        await click("x remove")
        await shown.dialog(Confirm)
        await click("n or esc no")
        await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)
        await click("Which?")  # no hint
        await click("t your own words")
        await shown.dialog(Ask)
        await click("esc back")
        await click("2) Cd")
        assert (await answered(world)).reply.answers == ["Cd"]


async def test_the_whole_screen_is_drawn_after_a_suspension(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        with mock.patch.object(shown.app, "action_redraw") as redraw:
            shown.app.post_message(Driver.SignalResume())  # as the driver does after SIGCONT
            await eventually(lambda: redraw.called, within=20)
