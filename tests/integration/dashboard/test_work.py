"""Actions on a session in the dashboard: land, remove, comment, restore."""

import threading
from contextlib import nullcontext
from unittest import mock

import pytest
from ramet.v1 import attention_pb2, event_pb2, worktree_pb2
from rametctl.dashboard.app import Dashboard
from rametctl.dashboard.dialogs import Ask, Choose, Confirm
from rametctl.dashboard.widgets import Lines, Prompt
from textual import events

from tests.support.client import World
from tests.support.dashboard import PATCH, WORKING, blocks, screen
from tests.support.eventually import eventually
from tests.support.fake_state import Refusal

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


async def test_land_says_that_a_session_has_landed_unless_it_has_new_work(world: World) -> None:
    session = world.state.session("fix", turns=1, branch="ramet/fix", base_ref="main", landed_reason="landed on main")
    async with screen(world) as shown:
        await shown.shows("fix  Conversation")
        await shown.press("L")
        await shown.dialog(Confirm)
        await shown.shows("fix is on main already")
        await shown.press("escape")
        world.state.diff = worktree_pb2.GetDiffResponse(files=[worktree_pb2.FileChange(path="a.py", additions=1)])
        shown.app._compare_again()
        await eventually(lambda: shown.app._uncommitted(session), within=20)
        await shown.press("L")
        await shown.dialog(Ask)
        await shown.shows("Land fix on main?", "It has uncommitted work:")


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
