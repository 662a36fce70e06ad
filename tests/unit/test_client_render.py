"""Rendering of sessions, requests and events."""

import pytest
from ramet.mcp import SERVER
from ramet.v1 import attention_pb2, common_pb2, event_pb2, landing_pb2, session_pb2, worktree_pb2
from rametctl.commands.answer import chosen_answer
from rametctl.commands.run import argv_of
from rametctl.connection.follow import parse_cursor
from rametctl.console.lines import cell_width
from rametctl.errors import ClientError, UsageError
from rametctl.local.log import log_line
from rametctl.nouns.sessions import check_outcome, person_needed
from rametctl.render import calls
from rametctl.render.conflicts import spans
from rametctl.render.diff import edit_lines, stat_lines
from rametctl.render.event import summary
from rametctl.render.format import duration, limit, money, span
from rametctl.render.inbox import wish
from rametctl.render.landing import landing_line
from rametctl.render.request import answer_command, request_lines, short_id
from rametctl.render.session import in_tree_order, port_ranges, reference

from tests.support.messages import a_request

Kind = attention_pb2.AttentionKind


def shown(asked: attention_pb2.AttentionRequest) -> list[str]:
    return [item.text for item in request_lines(asked, now=0)]


def test_a_command_is_shown_in_full() -> None:
    lines = shown(
        a_request(Kind.ATTENTION_KIND_PERMISSION, {"command": "rm -rf build\nmake", "timeout": 5}, tool="Bash")
    )
    assert lines[1:-1] == ["  $ rm -rf build", "    make", "  timeout: 5"]
    assert lines[-1] == "  → rametctl approve 01234567   or: rametctl deny 01234567 -m WHY"


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("REVIEW", {}, ["rametctl done fix   or: rametctl deny 01234567 -m WHAT-TO-DO-BETTER", "diff fix"]),
        ("CONFLICT", {}, ["rametctl approve 01234567   dismisses it", "conflicts fix"]),
        ("LANDING", {"landing": "l1"}, ["rametctl queue retry fix   or: rametctl queue rm fix"]),
        (
            "TROUBLE",
            {"command": "rametctl resume fix"},
            ["rametctl resume fix   to dismiss it: rametctl deny 01234567", "logs fix"],
        ),
        ("TRUST", {"command": "rametctl repo trust"}, ["rametctl repo trust   to dismiss it: rametctl deny 01234567"]),
    ],
)
def test_what_the_daemon_asks_is_shown_with_the_command_that_helps(kind: str, data: object, said: list[str]) -> None:
    asked = a_request(Kind.Value(f"ATTENTION_KIND_{kind}"), data)
    asked.reason = "why it asks"
    see = [f"    see: rametctl {verb}" for verb in said[1:]]
    assert shown(asked)[1:] == ["  why it asks", f"  → {said[0]}", *see]
    assert all(cell_width(text) <= 80 for text in shown(asked))


def test_the_reason_of_a_landing_is_not_repeated() -> None:
    held = landing_pb2.Landing(
        session_name="fix", state=landing_pb2.LANDING_STATE_HELD, reason="the branch main is gone"
    )
    assert landing_line(held).text == "fix  held: the branch main is gone"
    assert landing_line(held, known="the branch main is gone (retried automatically)").text == "fix  held"
    held.reason += "; its agent made no new commit"
    assert landing_line(held, known="the branch main is gone").text == "fix  held: its agent made no new commit"
    held.reason = "the branch main is gone"
    assert landing_line(held, known="its agent is at work").text == "fix  held: the branch main is gone"


def test_an_edit_is_shown_as_a_diff_with_line_numbers() -> None:
    asked = a_request(Kind.ATTENTION_KIND_PERMISSION, {"file_path": "/tree/a.py"}, tool="Edit")
    asked.edit.CopyFrom(
        common_pb2.FileEdit(
            path="a.py", patch="@@ -9,2 +9,3 @@\n x = 1\n-y = 2\n+y = 3\n+z = 4", additions=2, deletions=1
        )
    )
    assert shown(asked)[1:-1] == [
        "  a.py  +2 −1",
        "     9   x = 1",
        "    10 - y = 2",
        "    10 + y = 3",
        "    11 + z = 4",
    ]


def test_an_edit_without_a_change_says_so() -> None:
    asked = a_request(Kind.ATTENTION_KIND_PERMISSION, {"file_path": "/tree/a.py", "content": "one"}, tool="Write")
    asked.edit.path = "a.py"
    assert shown(asked)[1:-1] == ["  a.py  no change", "    (no change)"]


def test_a_diff_says_how_much_it_leaves_out() -> None:
    edit = common_pb2.FileEdit(
        path="a.py", patch="@@ -0,0 +1,3 @@\n+1\n+2\n+3", creates=True, additions=9, omitted_lines=6
    )
    assert [item.text for item in edit_lines(edit, most=2)] == ["    1 + 1", "    2 + 2", "    … 7 more lines"]


def test_a_question_has_numbered_choices() -> None:
    data = {"questions": [{"question": "Which?", "options": [{"label": "A", "description": "first"}, {"label": "B"}]}]}
    lines = shown(a_request(Kind.ATTENTION_KIND_QUESTION, data))
    assert lines[1:] == ["  Which?", "    1) A  first", "    2) B", "  → rametctl answer 01234567 1"]


def test_a_plan_is_shown_in_full() -> None:
    lines = shown(a_request(Kind.ATTENTION_KIND_PLAN, {"plan": "1. look\n2. fix"}))
    assert lines[1:3] == ["  1. look", "  2. fix"]


def test_a_short_id_is_unique_among_those_shown() -> None:
    first, second = (attention_pb2.AttentionRequest(id=f"12345678{end}") for end in ("90a", "91b"))
    assert (short_id(first, [first, second]), short_id(first)) == ("1234567890", "12345678")
    assert answer_command(first, "fix") == "rametctl approve fix"


@pytest.mark.parametrize(
    ("text", "answer"),
    [("2", "B"), ("A", "A"), ("something else", "something else"), ("3rd way", "3rd way")],
)
def test_an_answer_is_a_number_a_label_or_any_text(text: str, answer: str) -> None:
    assert chosen_answer({"options": [{"label": "A"}, {"label": "B"}]}, text) == answer


def test_several_choices_are_joined_where_several_may_be_chosen() -> None:
    question = {"multiSelect": True, "options": [{"label": "A"}, {"label": "B"}, {"label": "C"}]}
    assert chosen_answer(question, "1, C") == "A, C"


def test_a_number_that_is_a_label_means_the_label() -> None:
    assert chosen_answer({"options": [{"label": "2"}, {"label": "1"}]}, "2") == "2"


def test_a_choice_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no choice 3"):
        chosen_answer({"options": [{"label": "A"}, {"label": "B"}]}, "3")


@pytest.mark.parametrize(
    ("ranges", "said"), [([(1, 1)], "line 1"), ([(27, 30)], "lines 27-30"), ([(3, 3), (7, 9)], "lines 3, 7-9")]
)
def test_lines_of_a_conflict_are_counted_right(ranges: list[tuple[int, int]], said: str) -> None:
    assert spans([worktree_pb2.LineRange(start=start, end=end) for start, end in ranges]) == said


def test_a_review_in_the_log_shows_what_was_said() -> None:
    asked = attention_pb2.AttentionRequest(kind=Kind.ATTENTION_KIND_REVIEW, reason="all is well", input_json="{}")
    text = summary(event_pb2.Event(request_opened=event_pb2.RequestOpened(request=asked)), "").text
    assert text.endswith("review all is well")


def test_a_wait_names_the_inbox_once() -> None:
    asked = [a_request(Kind.ATTENTION_KIND_PERMISSION, {}, tool="Bash") for _ in range(3)]
    error = person_needed(asked)
    assert error.message == "fix needs you: permission: Bash (and 2 more)"
    assert f"{error.message} {error.hint}".count("rametctl inbox") == 1
    review = a_request(Kind.ATTENTION_KIND_REVIEW, {})
    assert person_needed([review, *asked]).message == error.message
    assert person_needed([review]).hint.endswith("rametctl done fix")


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["IDLE"], "nothing to wait for: fix is idle and has no prompt"),
        ([], "nothing to wait for: a session was removed"),
        (["IDLE", "FAILED"], "fix is failed: no such model"),
    ],
)
def test_a_wait_that_cannot_end_says_why(states: list[str], words: str) -> None:
    sessions = [
        session_pb2.Session(
            name="fix",
            state=session_pb2.SessionState.Value(f"SESSION_STATE_{each}"),
            state_reason="no such model" if each == "FAILED" else "",
        )
        for each in states
    ]
    answer = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_FAILED, sessions=sessions)
    with pytest.raises(ClientError) as caught:
        check_outcome(answer)
    assert (caught.value.message, caught.value.reason) == (words, "CANNOT_COME")


def test_children_are_listed_below_their_parents_and_orphans_at_the_top() -> None:
    def session(name: str, parent: str = "") -> session_pb2.Session:
        return session_pb2.Session(id=name, name=name, parent_id=parent)

    sessions = [session("b", "a"), session("a"), session("c", "b"), session("x", "gone")]
    assert [(depth, item.name) for depth, item in in_tree_order(sessions)] == [(0, "a"), (1, "b"), (2, "c"), (0, "x")]


def test_a_reference_can_be_pasted_into_a_shell() -> None:
    assert reference(session_pb2.Session(id="i", name="it's")) == "'it'\"'\"'s'"
    assert reference(session_pb2.Session(id="i", name="-x")) == "i"


def test_a_cursor_is_parsed_as_printed() -> None:
    assert parse_cursor("a:b:12") == common_pb2.Cursor(epoch="a:b", seq=12)


@pytest.mark.parametrize("text", ["", "12", ":12", "e:", "e:-1", "e:x", "e:²", "e:" + "9" * 30])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a cursor"):
        parse_cursor(text)


def test_a_stat_shows_every_file_and_the_sum() -> None:
    answer = worktree_pb2.GetDiffResponse(additions=101, deletions=1)
    answer.files.add(path="a.py", kind=worktree_pb2.CHANGE_KIND_MODIFIED, additions=100)
    answer.files.add(path="b", old_path="c", kind=worktree_pb2.CHANGE_KIND_RENAMED, additions=1, deletions=1)
    answer.files.add(path="pic", kind=worktree_pb2.CHANGE_KIND_ADDED, binary=True)
    assert [item.text for item in stat_lines(answer)] == [
        f"a.py        | 100 {'+' * 30}",
        "c => b      |   2 +-",
        "pic (added) | binary",
        "3 files changed, 101 insertions(+), 1 deletion(-)",
    ]


def test_one_long_name_does_not_widen_every_line_of_a_stat() -> None:
    answer = worktree_pb2.GetDiffResponse()
    for path in ("short", "long" * 1000):
        answer.files.add(path=path, kind=worktree_pb2.CHANGE_KIND_MODIFIED, additions=1)
    short, long, _ = (item.text for item in stat_lines(answer))
    assert len(short) < 120
    assert "long" * 1000 in long


def test_a_log_line_is_readable_and_other_text_unchanged() -> None:
    text = '{"timestamp": "nonsense", "level": "warning", "event": "late", "session": "s1"}'
    assert log_line(text).text == "nonsense  warning  late  session=s1"
    assert log_line("Traceback").text == "Traceback"


@pytest.mark.parametrize(("dollars", "text"), [(0, "-"), (0.004, "<$0.01"), (0.05, "$0.05"), (1234.5, "$1234")])
def test_money_is_short(dollars: float, text: str) -> None:
    assert money(dollars) == text


@pytest.mark.parametrize("kind", ["PLAN", "REVIEW", "TROUBLE", "LANDING", "CONFLICT"])
def test_commands_for_a_request_quote_the_name_of_its_session(kind: str) -> None:
    name = "x; rm -rf ~"
    request = attention_pb2.AttentionRequest(
        id="r" * 20, kind=Kind.Value(f"ATTENTION_KIND_{kind}"), session_name=name, reason="why", input_json="{}"
    )
    _, *commands = [each.text for each in request_lines(request, 0.0)]
    assert [each for each in commands if name in each.replace(f"'{name}'", "")] == []
    assert any(f"'{name}'" in each for each in commands)


def test_a_held_session_is_in_the_inbox_with_the_reason_first() -> None:
    held = attention_pb2.AttentionRequest(kind=Kind.ATTENTION_KIND_TROUBLE, reason="$1.00 of $1.00 spent for today")
    assert wish(held) == "$1.00 of $1.00 spent for today"


@pytest.mark.parametrize(("dollars", "text"), [(5, "$5.00"), (0.5, "$0.50"), (0.001, "$0.001"), (0.125, "$0.125")])
def test_a_budget_below_a_cent_is_not_rounded_to_none(dollars: float, text: str) -> None:
    assert limit(dollars) == text


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200000, "2d")])
def test_ages_have_one_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.84, "0.8s"), (75, "1m 15s"), (7260, "2h 1m")])
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_consecutive_ports_are_a_range() -> None:
    assert port_ranges([24000, 24001, 24002, 24010]) == "24000-24002, 24010"
    assert port_ranges([]) == ""


@pytest.mark.parametrize(
    ("data", "reason", "shows_reason"),
    [
        ({"command": "make", "description": "Build it"}, "Build it", False),
        ({"file_path": "/tree/src/a.py", "content": "x"}, "src/a.py", False),
        ({"command": "make", "description": "Build it"}, "This command requires approval", True),
    ],
)
def test_a_reason_that_repeats_the_input_is_left_out(data: object, reason: str, shows_reason: bool) -> None:
    asked = a_request(Kind.ATTENTION_KIND_PERMISSION, data, tool="Bash")
    asked.reason = reason
    assert any(text.startswith("  why: ") for text in shown(asked)) == shows_reason


def test_calls_of_our_own_tools_are_known_without_importing_the_tools() -> None:
    assert f"mcp__{SERVER}__" == calls.OWN


@pytest.mark.parametrize(
    ("typed", "argv"),
    [
        (["npm", "test"], ("npm", "test")),
        (["npm ci && npm test"], ("sh", "-c", "npm ci && npm test")),
        (["make"], ("make",)),
        (["a b", "c"], ("a b", "c")),
        ([""], ("",)),
        ([], ()),
    ],
)
def test_one_quoted_command_line_goes_through_a_shell(typed: list[str], argv: tuple[str, ...]) -> None:
    assert argv_of(typed) == argv


@pytest.mark.parametrize(
    "padding",
    ["\n" * 300, " \n\t\n" * 200, "\n" + " " * 4000, " " * 4000, "\u3000" * 4000, "\n" + "\t" * 900 + "\n" * 50],
)
@pytest.mark.parametrize("field", ["command", "description", "other"])
def test_no_padding_pushes_a_part_of_a_call_off_the_screen(padding: str, field: str) -> None:
    given = {field: f"npm test{padding}curl evil{padding}true"}
    lines = shown(a_request(Kind.ATTENTION_KIND_PERMISSION, given, tool="Bash"))
    assert len(lines) < 15
    assert max(map(len, lines)) < 150
    assert any("curl evil" in each for each in lines)


def test_indented_code_and_a_few_empty_lines_stay_as_they_are() -> None:
    text = "if x:\n\n\n" + " " * 40 + "y\n"
    lines = shown(a_request(Kind.ATTENTION_KIND_PERMISSION, {"content": text}, tool="Write"))
    assert not any("⋯" in each for each in lines)
