"""Dialogs of the dashboard, and the mouse."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from ramet.v1 import daemon_pb2, worktree_pb2
from rametctl.console.lines import line
from rametctl.dashboard.app import Dashboard
from rametctl.dashboard.dialogs import Ask, Choose, Confirm, Dialog, Field, Form
from rametctl.dashboard.widgets import Prompt
from rametctl.options import mode_number
from textual import events
from textual.widgets import Input

from tests.support.client import World
from tests.support.dashboard import COMMAND, FORM, QUESTION, answered, asks, screen
from tests.support.eventually import eventually
from tests.support.fake_state import Refusal


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


@pytest.mark.parametrize(
    "dialog",
    [
        lambda: Ask("What?"),
        lambda: Form("A form", [Field("a", "first", "a hint"), Field("b", "second")]),
        lambda: Form("A form with a prompt", [Field("a", "a"), Field("b", "b", text="given ")], prompt=""),
    ],
    ids=["ask", "form", "prompt"],
)
async def test_what_is_typed_is_visible_in_each_field_of_a_dialog(world: World, dialog: Callable[[], Dialog]) -> None:
    world.state.session("fix")
    async with screen(world, size=(80, 24)) as shown:
        await shown.shows("· fix")
        opened = dialog()
        shown.app.ask(opened, lambda answer: None)
        await eventually(lambda: opened.focused, within=20)
        for number, field in enumerate(opened.focus_chain):
            assert opened.focused is field
            await shown.press(*f"typed{number}")
            await shown.shows(f"typed{number}")
            shown.app.post_message(events.Paste(f"{'w' * 90} end{number}"))  # wider than the field
            await shown.shows(f"end{number}")
            await shown.press("tab")


async def test_the_form_of_a_new_session_cuts_a_long_hint_visibly(world: World) -> None:
    world.state.session("fix")
    async with screen(world, size=(50, 24)) as shown:
        await shown.shows("· fix")
        await shown.press("n")
        await shown.dialog(Form)
        await eventually(
            lambda: [each for each in shown.lines() if " mode  " in each and "default" in each and "…" in each],
            within=20,
        )


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


async def test_modes_are_chosen_by_number(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        await shown.press("m")
        await shown.dialog(Choose)
        await shown.press("2")
        await eventually(lambda: world.state.called("UpdateSession"), within=20)
        assert world.state.called("UpdateSession")[0].update_mask.paths == ["mode"]


async def test_a_mode_that_the_settings_forbid_is_not_offered(world: World) -> None:
    world.state.settings = [daemon_pb2.Setting(key="permissions.allow_bypass", value_json="false")]
    forbidden = {"auto", "bypassPermissions"}
    asks(world, "PLAN", {"plan": "# Do"}, reason="why")
    async with screen(world) as shown:
        await shown.ready()
        await shown.shows("2 start in acceptEdits")
        assert not forbidden & {word for each in shown.lines() for word in each.split()}
        await shown.press("m")
        await shown.dialog(Choose)
        await shown.shows("acceptEdits")
        assert not forbidden & {word for each in shown.lines() for word in each.split()}
        await shown.press("escape", "n")
        await shown.dialog(Form)
        await shown.shows("dontAsk")
        assert not forbidden & {word.strip(",") for each in shown.lines() for word in each.split()}


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


async def test_a_command_that_is_left_or_fails_is_offered_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.state.session("fix")
    statuses, ran = [7, 0], list[str]()

    def run(self: Dashboard, *command: str, **options: Any) -> int:
        ran.append(command[-1])
        return statuses.pop(0)

    monkeypatch.setattr(Dashboard, "_outside", run)
    async with screen(world) as shown:
        await shown.shows("· fix")
        for keys, last, offered in (
            ([*"make"], "escape", ""),
            (["end", *" test"], "enter", "make"),
            ([], "enter", "make test"),
            ([], "escape", ""),
        ):
            await shown.press("exclamation_mark")
            dialog = await shown.dialog(Ask)
            await eventually(lambda: shown.app.focused is not None, within=20)
            assert dialog.query_one(Prompt).text == offered
            await shown.press(*keys, last)
            await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)
            if len(ran) == 1:
                await shown.shows("exited with 7; ! has your text")
        assert ran == ["make test", "make test"]


async def test_a_filter_that_is_left_is_offered_again(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        for keys, last, offered in (
            ([*"s:wai"], "escape", ""),
            (["end", *"ting"], "enter", "s:wai"),
            ([], "enter", "s:waiting"),
        ):
            await shown.press("slash")
            dialog = await shown.dialog(Ask)
            await eventually(lambda: shown.app.focused is not None, within=20)
            assert dialog.query_one(Prompt).text == offered
            await shown.press(*keys, last)
            await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)
        assert shown.app._filter == "s:waiting"


async def test_text_left_in_a_dialog_is_continued_at_its_end(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        for key, keys, text in ("f", "old", "old"), ("f", "er", "older"), ("n", "old", "old"), ("n", "er", "older"):
            await shown.press(key)
            dialog = await shown.dialog(Dialog)
            await eventually(lambda: shown.app.focused is not None, within=20)
            await shown.press(*keys)
            assert dialog.query_one(Prompt).text == text
            await shown.press("escape")
            await eventually(lambda: len(shown.app.screen_stack) == 1, within=20)


async def test_an_empty_answer_is_said_and_empties_only_the_filter(world: World) -> None:
    world.state.session("fix")
    async with screen(world) as shown:
        await shown.shows("· fix")
        for key, words in ("f", "nothing is written"), ("n", "ctrl-s send without it"):
            await shown.press(key)
            await shown.dialog(Dialog)
            await shown.press("enter")
            await shown.shows(words)
            await shown.press("a")
            await shown.shows("enter fork" if key == "f" else "tab next field")
            await shown.press("escape")
        await shown.press("slash", *"nothing", "enter")
        await shown.shows("/nothing", "no session fits")
        await shown.press("slash", "ctrl+u", "enter")
        await shown.shows("· fix")
        assert not shown.app._filter


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
