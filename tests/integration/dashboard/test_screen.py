"""The list, the tabs and the painting of the dashboard."""

import asyncio
import json
import math
import os
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from ramet.v1 import attention_pb2, event_pb2, session_pb2
from rametctl.console.lines import Line, line
from rametctl.dashboard.dialogs import Help
from textual.driver import Driver

from tests.support.client import World
from tests.support.dashboard import (
    COMMAND,
    WAITING,
    WORKING,
    asks,
    screen,
)
from tests.support.eventually import eventually
from tests.support.fake_state import BEGAN


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


async def test_the_foot_says_how_to_reach_the_next_session_that_needs_the_person(world: World) -> None:
    world.state.session("busy", state=WORKING)
    asks(world, "PERMISSION", COMMAND, tool="Bash")
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("? asks", "space answer")
        await shown.press("G")
        await shown.shows("N answer next")
        await shown.press("N")
        await shown.shows("$ make test", "space answer")


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


GOLDEN = Path(__file__).parents[2] / "support" / "golden" / "dashboard"


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


async def test_the_words_of_an_empty_list_are_not_cut_off(world: World) -> None:
    world.state.session("fix")
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("· fix")
        await shown.press("slash", *"nothing", "enter")
        await shown.shows("no session fits")
        words = " ".join(each.partition("│")[0] for each in shown.lines()).split()
        assert " ".join(words).count("no session fits; / changes the filter") == 1


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


async def test_the_whole_screen_is_drawn_after_a_suspension(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        with mock.patch.object(shown.app, "action_redraw") as redraw:
            shown.app.post_message(Driver.SignalResume())  # as the driver does after SIGCONT
            await eventually(lambda: redraw.called, within=20)


async def test_nothing_is_black_or_white_which_a_light_or_a_dark_terminal_would_hide(world: World) -> None:
    for number in range(100):
        world.state.session(f"idle-{number}")
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("idle-0")
        for keys in ([*"rtext"], ["left"], ["escape", "n", *"text"], ["left"], ["tab", *"name"], ["left"]):
            await shown.press(*keys)
            await shown.pilot.pause()
            hidden = [
                (segment.text, segment.style)
                for strip in shown.app.screen._compositor.render_strips()
                for segment in strip
                if segment.style is not None
                for colour in (segment.style.color, segment.style.bgcolor)
                if colour is not None and colour.number in {0, 7, 15}
            ]
            assert not hidden, keys


async def test_the_first_session_is_selected_and_stays_on_the_screen_with_its_age(world: World) -> None:
    for number in range(100):
        session = world.state.session(f"idle-{number}")
        session.since.FromSeconds(int(time.time()) - 7200)
    world.state.request(session, tool="Bash", reason="asks")
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("? idle-99", "asks")
        await eventually(lambda: shown.app._selected == session.id, within=20)  # known a moment after the list
        assert all(line.split("│")[0].rstrip(" ▁▂▃▄▅▆▇█").endswith("2h") for line in shown.lines()[5:20])
        session.attention = 0
        world.state.requests.clear()
        world.state.event(session, request_closed=event_pb2.RequestClosed())  # it moves to the end of the list
        await eventually(lambda: shown.app._list.cursor > 24, within=20)
        await shown.shows("· idle-99")
        assert shown.app._selected == session.id


@pytest.mark.parametrize(
    ("repo_path", "everywhere", "note"),
    [
        ("", False, "not in a repository: all repositories are shown"),
        ("", True, ""),
        ("/new", False, "this repository has no sessions yet: all repositories are shown"),
    ],
)
async def test_a_dashboard_that_shows_more_than_was_asked_for_says_so(
    world: World, repo_path: str, everywhere: bool, note: str
) -> None:
    world.state.session("fix")
    async with screen(world, repo_path=repo_path, everywhere=everywhere) as shown:
        await shown.shows("all repositories", "· fix", note)
        assert any("are shown" in line for line in shown.lines()) == bool(note)
