"""Choosing an answer with keys."""

import os
import pty
from collections.abc import Iterator

import pytest
from rametctl.console.choosing import OTHER, Choice, read_key

LABELS = ["red", "green", "blue"]


def pressed(*keys: str, several: bool = False) -> Choice:
    choice = Choice(LABELS, several=several)
    made = [choice.press(key) for key in keys]
    assert not any(made[:-1])
    assert made[-1]
    return choice


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], "red"),
        (["down", "enter"], "green"),
        (["3"], "blue"),
        (["down", "up", "enter"], "red"),
        (["up", "enter"], None),  # above the top is the answer in words
        (["space", "enter"], "red"),  # one choice needs no mark
        (["9", "enter"], "red"),
    ],
)
def test_one_choice_is_taken_by_arrows_or_its_number(keys: list[str], answer: str | None) -> None:
    assert pressed(*keys).answer == answer


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["space", "down", "down", "space", "enter"], "red, blue"),
        (["2", "1", "enter"], "red, green"),
        (["2", "2", "down", "enter"], "blue"),
        (["up", "space", "enter"], None),
    ],
)
def test_several_choices_are_marked_and_named_in_their_order(keys: list[str], answer: str | None) -> None:
    assert pressed(*keys, several=True).answer == answer


def test_the_list_shows_the_cursor_and_the_marked_labels() -> None:
    choice = Choice(LABELS, several=True)
    choice.press("2")
    shown = [each.text for each in choice.lines()]
    assert shown[:4] == ["  1) [ ] red", "❯ 2) [x] green", "  3) [ ] blue", f"  {OTHER}"]


@pytest.fixture
def keyboard() -> Iterator[tuple[int, int]]:
    person, program = pty.openpty()
    yield person, program
    os.close(person)
    os.close(program)


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        (b"\x1b[A", "up"),
        (b"\x1bOB", "down"),
        (b"\x1b", "leave"),
        (b"j", "down"),
        (b"2", "2"),
        (b"q", "leave"),
        (b" ", "space"),
    ],
)
def test_keys_have_names(keyboard: tuple[int, int], typed: bytes, key: str) -> None:
    import tty

    person, program = keyboard
    tty.setraw(program)
    os.write(person, typed)
    assert read_key(program) == key
