"""The prompt of the dashboard: keys, pastes, images."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from ramet.v1 import event_pb2, session_pb2, worktree_pb2
from rametctl.dashboard.dialogs import Ask, Form
from rametctl.dashboard.widgets import Prompt
from textual import events
from textual.widgets import Input

from tests.support.client import World
from tests.support.dashboard import (
    COMMAND,
    PATCH,
    WAITING,
    WORKING,
    answered,
    asks,
    blocks,
    screen,
)
from tests.support.eventually import eventually
from tests.support.fake_state import Refusal


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


async def test_attached_it_shows_one_session_and_escape_interrupts(world: World) -> None:
    session = world.state.session("fix", state=WORKING)
    world.state.session("other")
    async with screen(world, only=session.id) as shown:
        await shown.shows("fix  Conversation", "ctrl-q detach", "· esc interrupts")
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


EDITED: list[tuple[list[str], str]] = [
    ([*"abcd", "backspace", "backspace", *"XY"], "abXY"),
    ([*"abc", "left", "left", *"X", "delete", *"Y"], "aXYc"),
    ([*"ab", "home", *"X"], "Xab"),
    ([*"one", "space", *"two", "ctrl+w", *"X"], "one X"),
]


@pytest.mark.parametrize("place", ["prompt", "attached", "dialog", "form"])
@pytest.mark.parametrize(("keys", "text"), EDITED)
async def test_editing_keys_that_arrive_with_text_are_applied_in_their_order(
    world: World, place: str, keys: list[str], text: str
) -> None:
    session = world.state.session("fix")
    async with screen(world, only=session.id if place == "attached" else "") as shown:
        await shown.shows("fix  Conversation")
        await shown.press(*{"prompt": ["r"], "dialog": ["f"], "form": ["n"]}.get(place, []))
        await eventually(lambda: shown.app.focused is not None, within=20)
        if place == "form":
            await shown.press("tab")
        field = shown.app.focused
        shown.burst(*keys)
        await shown.pilot.pause()
        assert (field.value if isinstance(field, Input) else field.text) == text  # type: ignore[union-attr]


async def test_a_prompt_typed_ahead_in_one_read_is_a_paste_that_is_ignored(world: World) -> None:
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world) as shown:
        await shown.ready()
        shown.burst("ryip\n")
        await shown.shows("pasted text is ignored here")
        assert not {each.method for each in world.state.calls} & {"SendPrompt", "ResolveRequest"}


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


async def test_enter_writes_to_an_opened_session_on_another_tab(world: World) -> None:
    world.state.session("fix", turns=1)
    async with screen(world) as shown:
        await shown.shows("fix")
        await shown.press("tab", "enter")
        await shown.shows("enter write")
        assert not shown.app._prompt.has_focus
        await shown.press("enter", *"jx", "enter")
        await eventually(lambda: [each.prompt for each in world.state.called("SendPrompt")] == ["jx"], within=20)


async def test_the_next_tab_takes_no_key_from_a_prompt_that_is_being_written(world: World) -> None:
    world.state.session("fix", turns=1)
    async with screen(world) as shown:
        await shown.shows("fix")
        await shown.press("r", *"fix", "tab")
        assert shown.app._tab == "Diff"
        await shown.press(*"xAy")
        assert (shown.app._prompt.text, shown.app._prompt.has_focus, len(shown.app.screen_stack)) == ("fixxAy", True, 1)
        await shown.press("tab", *" it", "enter")
        await eventually(lambda: [each.prompt for each in world.state.called("SendPrompt")] == ["fixxAy it"], within=20)


@pytest.mark.parametrize("key", ["r", "f", "n"])
async def test_text_that_is_not_sent_is_lost_only_by_a_second_key(world: World, key: str) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press(key)
        await eventually(lambda: shown.app.focused is not None, within=20)
        await shown.press(*"wait", "escape", "q")
        await shown.shows("1 draft would be lost; q again quits")
        assert shown.app.is_running
        shown.now += 60
        await shown.press("q")
        assert shown.app.is_running, "the first key is long ago"
        await shown.press("q")
        await eventually(lambda: not shown.app.is_running, within=20)


async def test_attached_the_key_that_detaches_says_that_a_draft_would_be_lost(world: World) -> None:
    session = world.state.session("fix")
    async with screen(world, only=session.id) as shown:
        await shown.shows("fix  Conversation")
        await shown.press(*"wait", "ctrl+q")
        await shown.shows("1 draft would be lost; ctrl-q again quits")
        await shown.press("ctrl+q")
        await eventually(lambda: not shown.app.is_running, within=20)


@pytest.mark.parametrize("key", ["f", "n"])
async def test_a_file_is_completed_in_the_text_of_a_dialog(world: World, tmp_path: Path, key: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "quickstart.md").touch()
    await (await asyncio.create_subprocess_exec("git", "-C", tree, "init", "-q")).wait()
    world.state.session("fix", worktree=str(tree))
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press(key)
        dialog = await shown.dialog(Ask if key == "f" else Form)
        await eventually(lambda: dialog.focused is not None, within=20)
        prompt = dialog.query_one(Prompt)
        await shown.press(*"see @qui", "tab")
        await eventually(lambda: prompt.text == "see @quickstart.md ", within=20)
        assert prompt.has_focus
