"""The list of the dashboard: groups, order, and rows that fit with any text."""

import subprocess
import sys
from typing import Any

import pytest
from ramet.v1 import attention_pb2, landing_pb2, session_pb2, worktree_pb2
from rametctl.console.lines import cell_width, safe
from rametctl.dashboard.keys import GROUPS, markdown
from rametctl.dashboard.rows import Filter, Known, Row, arrange, group_of, session_line, top_line

S = session_pb2.Session


def session(name: str, state: str = "idle", **fields: Any) -> S:
    number = session_pb2.SessionState.Value(f"SESSION_STATE_{state.upper()}")
    return S(id=name, name=name, repo="shop", repo_id="r1", state=number, agent="claude", **fields)


def request(kind: str, at: int = 0) -> attention_pb2.AttentionRequest:
    made = attention_pb2.AttentionRequest(
        id=f"{kind}{at}", kind=attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}")
    )
    made.create_time.seconds = at
    return made


CHANGED = worktree_pb2.GetDiffResponse(files=[worktree_pb2.FileChange(path="a")], additions=3, deletions=1)
GROUPED = [
    (session("a", "working"), Known(), "Working"),
    (session("a", "queued"), Known(), "Working"),
    (session("a", "lost"), Known(), "Working"),
    (session("a", "waiting"), Known(), "Needs you"),
    (session("a", "failed"), Known(), "Needs you"),
    (session("a", "working"), Known(requests={"a": [request("PERMISSION")]}), "Needs you"),
    (session("a"), Known(requests={"a": [request("CONFLICT")]}), "Needs you"),
    (session("a", turns=1), Known(requests={"a": [request("REVIEW")]}), "Ready to land"),
    (session("a", turns=1), Known(counts={"a": CHANGED}), "Ready to land"),
    (session("a", turns=1), Known({"a": [request("REVIEW")]}, counts={"a": worktree_pb2.GetDiffResponse()}), "Idle"),
    (session("a", turns=1), Known(), "Idle"),
    (session("a", turns=1), Known({"a": [request("REVIEW")]}, comparing={"a"}), "Idle"),
    (session("a", "paused"), Known(), "Paused"),
    (session("a", turns=1, landed_reason="merged"), Known(counts={"a": CHANGED}), "Done"),
    (session("a"), Known(pull_requests={"a": landing_pb2.PullRequest(state="merged")}), "Done"),
    (session("a", "archived"), Known(), "Done"),
]


@pytest.mark.parametrize(("one", "known", "group"), GROUPED)
def test_a_session_is_in_the_group_of_what_is_to_be_done_with_it(one: S, known: Known, group: str) -> None:
    assert group_of(one, known) == group


def test_what_waits_longest_comes_first_and_the_order_of_others_does_not_jump() -> None:
    sessions = [
        session("old", "working"),
        session("late", "waiting"),
        session("first", "waiting"),
        session("new", "working"),
    ]
    known = Known(requests={"late": [request("PERMISSION", 20)], "first": [request("QUESTION", 10)]})
    rows = arrange(sessions, known, filtered=Filter())
    assert [row.session_id or f"{row.title} {row.count}" for row in rows] == [
        "Needs you 2", "first", "late", "Working 2", "old", "new",
    ]  # fmt: skip
    for each in sessions:  # frequent changes move no row
        each.cost_usd, each.now = 5, "something else"
    assert arrange(sessions, known, filtered=Filter()) == rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["fix login", "docs"]),
        ("login", ["fix login"]),
        ("s:wait", ["docs"]),
        ("s:needs", ["docs"]),
        ("s:archived", ["gone"]),
        ("a:claude fix", ["fix login"]),
        ("a:codex", []),
        ("r:sho", ["fix login", "docs"]),
        ("s:idle s:waiting", ["fix login", "docs"]),
        ("x:y", []),
    ],
)
def test_a_filter_takes_words_states_agents_and_repositories(text: str, names: list[str]) -> None:
    sessions = [session("fix login"), session("docs", "waiting"), session("gone", "archived")]
    rows = arrange(sessions, Known(), filtered=Filter.parse(text))
    assert sorted(row.session_id for row in rows if row.session_id) == sorted(names)


def test_children_are_listed_below_their_parent_and_threads_below_their_plan() -> None:
    sessions = [session("top"), session("other", plan_id="p1"), session("child", parent_id="top")]
    family = arrange(sessions, Known(), filtered=Filter(), by="family")
    assert [(row.session_id, row.depth) for row in family] == [("top", 0), ("child", 1), ("other", 0)]
    plans = arrange(sessions, Known(), filtered=Filter(), by="plan")
    assert [row.session_id or row.title for row in plans] == ["p1", "other", "no plan", "top", "child"]
    raced = [session("alone"), session("one", contest="c"), session("judge", judges="c"), session("two", contest="c")]
    contests = arrange(raced, Known(), filtered=Filter(), by="contest")
    assert [row.session_id or row.title for row in contests] == ["c", "one", "judge", "two", "no contest", "alone"]


HOSTILE = [
    "x",
    "a" * 300,
    "日本語" * 40,
    "\x1b[31mred\x07\n\ttab",
    "[bold]markup[/]",
    "e\u0301" * 50,
    "👩‍👩‍👧" * 20,
    "",
]


@pytest.mark.parametrize("width", [20, 34, 50, 80, 110])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_row_is_one_line_as_wide_as_the_list_whatever_it_says(text: str, width: int) -> None:
    one = session("a", "working", now=text, cost_usd=12.5, turns=3)
    one.name, one.repo, one.agent = text, text, "codex"
    known = Known(
        requests={"a": [request("REVIEW")]}, counts={"a": CHANGED}, conflicts=frozenset({"a"}),
        pull_requests={"a": landing_pb2.PullRequest(number=1234, checks=landing_pb2.CHECKS_STATE_FAILED)},
    )  # fmt: skip
    row = session_line(one, Row("a", depth=2, group="Working"), known, width=width, now=0, repo=True)
    shown = safe(row).text
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert cell_width(shown) <= width


def test_the_head_says_who_needs_the_person_and_that_the_daemon_is_away() -> None:
    sessions = [session("a", "waiting", cost_usd=1.25), session("b"), session("c", "archived")]
    head = top_line(sessions, Known(), where="shop", width=80, outage=None).text
    assert all(part in head for part in ("2 sessions", "1 needs you", "$1.25"))
    unpriced = [*sessions, session_pb2.Session(id="u", state=session_pb2.SESSION_STATE_IDLE)]
    assert "$1.25 + unknown" in top_line(unpriced, Known(), where="shop", width=80, outage=None).text
    assert "cost unknown" in top_line(unpriced[-1:], Known(), where="shop", width=80, outage=None).text
    assert "the daemon is away (3s)" in top_line(sessions, Known(), where="shop", width=80, outage=3.0).text


def test_no_key_means_two_things_and_all_are_documented() -> None:
    keys = [each for group in GROUPS.values() for key in group for each in key.key.split(",")]
    assert len(keys) == len(set(keys))
    text = markdown()
    assert all(key.words in text for group in GROUPS.values() for key in group)


def test_only_the_dashboards_screen_imports_textual() -> None:
    """Textual takes a third of a second to import, so `rametctl ls` must not import it."""
    code = (
        "import sys, rametctl.__main__, rametctl.cli, rametctl.dashboard, rametctl.view.model\n"
        "from rametctl.commands import attach, ls, top\n"
        "from rametctl.dashboard import answering, keys, panes, rows\n"
        "sys.exit('textual' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
