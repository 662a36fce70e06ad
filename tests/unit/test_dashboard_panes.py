"""Contents of the dashboard's tabs, and the comparison of words in a diff."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet.v1 import event_pb2, plan_pb2, session_pb2, terminal_pb2, worktree_pb2
from rametctl.console.lines import cell_width
from rametctl.dashboard.panes import TABS, Place, Talk, command_rows, detail_rows, diff_rows, fitting, tabs_line
from rametctl.nouns.prompts import word_before
from rametctl.render.diff import changed_words
from rametctl.render.transcript import Ran


@given(name=st.text(min_size=1, max_size=40), tab=st.sampled_from(TABS), width=st.integers(24, 200))
def test_the_tabs_fit_and_none_is_cut(name: str, tab: str, width: int) -> None:
    item = tabs_line(name, tab, width)
    labels = [
        text.strip() for text, style in item.spans if style in {"reverse", "dim"} and text.strip() not in {"", "‹", "›"}
    ]
    assert cell_width(item.text) <= width
    assert tab in labels
    begin = TABS.index(labels[0])
    assert tuple(labels) == TABS[begin : begin + len(labels)]


def test_all_tabs_are_there_where_there_is_room() -> None:
    assert tabs_line("fix-login", "Diff", 80).text.split() == ["fix-login", *TABS]


def test_keys_that_do_not_fit_are_left_out_and_none_is_cut() -> None:
    assert [fitting("a one · b two · c three", width) for width in (30, 22, 15, 3)] == [
        "a one · b two · c three", "a one · b two", "a one · b two", "a one",
    ]  # fmt: skip


PATCHES = [
    (["-a = old(1)", "+a = new(1)"], {0: "old", 1: "new"}),
    (["-one two", "-three four", "+one 2", "+3 four"], {0: "two", 2: "2", 1: "three", 3: "3"}),
    (["-gone", " same"], {}),
    (["-one line", "+two", "+lines"], {}),  # no line replaces another
    (["-nothing of it", "+1234567890"], {}),  # another line, not another word
    (["--- a/x.py", "+++ b/x.py"], {}),  # the head of a file
]


@pytest.mark.parametrize(("texts", "expected"), PATCHES)
def test_changed_words_are_marked_in_lines_that_replace_lines(texts: list[str], expected: dict[int, str]) -> None:
    marked = changed_words(texts)
    found = {at: "".join(text for text, style in spans if "reverse" in style) for at, spans in marked.items()}
    assert found == expected


@given(
    st.lists(
        st.sampled_from(["-", "+", " "]).flatmap(lambda mark: st.text("ab (,", max_size=9).map(mark.__add__)),
        max_size=12,
    )
)
def test_marking_words_changes_no_text(texts: list[str]) -> None:
    for at, spans in changed_words(texts).items():
        assert "".join(text for text, _ in spans) == texts[at]


def test_a_command_has_the_end_of_its_output() -> None:
    command = terminal_pb2.Command(id="c", argv=["make"])
    ran = Ran(1, command, output="".join(f"line {number}\n" for number in range(20)), lines_before=5)
    texts = [item.text.strip() for item in command_rows([command], {"c": ran}, [], 0.0, 80)]
    assert texts[2] == "… 15 lines before; all of it: rametctl logs"
    assert texts[3:] == [f"line {number}" for number in range(10, 20)]


def test_a_queued_prompt_says_whether_it_can_still_be_taken_back() -> None:
    talk = Talk(session_pb2.Session(), {})
    prompts = [session_pb2.Prompt(id=id_, text=f"text {id_}") for id_ in "abc"]
    talk.add(
        [event_pb2.Event(seq=each, prompt_queued=event_pb2.PromptQueued(prompt=prompts[each])) for each in range(3)]
    )
    talk.add([event_pb2.Event(seq=4, prompt_sent=event_pb2.PromptSent(prompt_id="a"))])
    talk.add([event_pb2.Event(seq=5, prompt_withdrawn=event_pb2.PromptWithdrawn(prompt=prompts[1]))])
    texts = ["".join(text for text, _ in each.spans) for each in talk.lines(80)]
    assert texts == [
        "taken back unread: text b",
        "⋯ text a  (sent, not read yet)",
        "⋯ text c  (queued; U takes it back)",
    ]


def test_details_have_the_plan_of_a_thread() -> None:
    answer = session_pb2.GetSessionResponse(session=session_pb2.Session(name="api", thread="api", plan_id="p"))
    plan = plan_pb2.GetPlanResponse(plan=plan_pb2.Plan(name="big"))
    plan.threads.add(thread=plan_pb2.Thread(id="db"), landed=True, place=1)
    plan.threads.add(thread=plan_pb2.Thread(id="api", after=["db"]), session=answer.session, place=2)
    texts = [item.text for item in detail_rows(answer, [], plan, 80)]
    at = texts.index("plan big")
    assert texts[at + 1].startswith("  1. db  landed")
    assert texts[at + 2].startswith("▸ 2. api  ")
    assert texts[at + 2].endswith("after db")


@pytest.mark.parametrize(
    ("text", "word"),
    [("see @do", "@do"), ("@", "@"), ("a@b", ""), ("/rev", "/rev"), ("see /rev", ""), ("@a ", ""), ("", "")],
)
def test_only_a_mention_or_a_command_at_the_start_is_completed(text: str, word: str) -> None:
    assert word_before(text) == word


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ("diff --git a/a.py b/a.py", "a.py"),
        ("diff --git a/x b/y.py b/x b/y.py", "x b/y.py"),
        ("diff --git a/old.py b/new.py", "a/old.py b/new.py"),
        ('diff --git "a/\\303\\244" "b/\\303\\244"', '"a/\\303\\244" "b/\\303\\244"'),
    ],
)
def test_a_diff_names_each_file_once(head: str, shown: str) -> None:
    patch = f"{head}\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n--- a/f\n+++ f\n"
    lines, places = diff_rows(worktree_pb2.GetDiffResponse(patch=patch.encode()), [], 80)
    texts = [each.text.strip() for each in lines if each.text.strip()]
    assert texts[-4:] == [shown, "@@ -1 +1 @@", "--- a/f", "1 +++ f"]
    assert places[-1] == Place("f", 1)
