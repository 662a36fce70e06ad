"""Lines, tables, and characters that never reach a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet.visible import visible
from rametctl.app import App
from rametctl.console.lines import Span, cell_width, line, truncated
from rametctl.console.output import Output
from rametctl.errors import ClientError


def output(**environ: str) -> Output:
    return Output(io.StringIO(), io.StringIO(), environ)


@given(st.text())
def test_nothing_printable_controls_a_terminal(text: str) -> None:
    shown = visible(text)
    assert not any(ord(char) < 0x20 and char != "\n" for char in shown)
    assert not any(0x7F <= ord(char) < 0xA0 for char in shown)


def test_what_would_reorder_or_hide_a_command_on_the_screen_is_shown() -> None:
    assert (
        visible("rm \u202egpj.x\u202c a\u200bb")
        == "rm \N{REPLACEMENT CHARACTER}gpj.x\N{REPLACEMENT CHARACTER} a\N{REPLACEMENT CHARACTER}b"
    )


def test_an_escape_sequence_is_shown_as_its_picture() -> None:
    assert visible("\x1b[31mred\x07\ttab\r\n") == "␛[31mred␇    tab\n"


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_a_truncated_text_fits(text: str, width: int) -> None:
    assert cell_width(truncated(text, width)) <= width


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("é", 1), ("e\N{COMBINING ACUTE ACCENT}", 1)])
def test_wide_characters_take_two_columns_and_marks_none(text: str, width: int) -> None:
    assert cell_width(text) == width


def test_a_table_is_aligned_over_wide_names() -> None:
    rows: list[list[Span]] = [[("日本", ""), ("1", "")], [("a", ""), ("12", "")]]
    lines = output().table(["NAME", "N"], rows, shrink=[], right=frozenset({"N"}))
    assert [item.text for item in lines] == ["NAME   N", "日本   1", "a     12"]


def test_without_a_terminal_nothing_is_cut_or_coloured() -> None:
    out = output()
    out.show(line(("x" * 300, "red"), indent=2))
    assert isinstance(out.stdout, io.StringIO)
    assert out.stdout.getvalue() == "  " + "x" * 300 + "\n"


def test_hints_are_for_terminals_only() -> None:
    out = output()
    out.hint("try this")
    assert isinstance(out.stdout, io.StringIO)
    assert out.stdout.getvalue() == ""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("fix is working", "fix is working"),
        ("there is no session 'fix'", "there is no session 'fix'"),
        ("it is working", "fix: it is working"),
        ("fixed it is not", "fix: fixed it is not"),
    ],
)
def test_one_failure_among_several_names_its_session_once(message: str, said: str) -> None:
    def act(name: str) -> str:
        if name == "fix":
            raise ClientError(message)
        return name

    out = output()
    assert App(out).for_each(["fix", "docs"], act) == 1
    assert isinstance(out.stderr, io.StringIO)
    assert out.stderr.getvalue() == f"rametctl: {said}\n"
