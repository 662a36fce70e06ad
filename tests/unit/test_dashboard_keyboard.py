"""Which keys of one read are typed, and which are a paste."""

import pytest
from rametctl.dashboard.keyboard import SAME_PASTE_S, Keyboard
from textual import events
from textual._xterm_parser import XTermParser

READS = [
    ("y", None),
    ("jk\t\t", None),
    ("jjjjjjjj", None),  # held down
    ("jjjkkkjj", None),
    ("\x1b[B\x1b[B\x1b[A\x1b[A\x1b[B", None),
    ("r\x1b[Bxyzq", None),
    ("\x03\x04\x05\x06\x07", None),
    ("remove", "remove"),
    ("yes\tno\r", "yes\tno\n"),
    ("yes\nno\n", "yes\nno\n"),
    ("日本語です", "日本語です"),
    ("é", None),
    ("\u26a0\ufe0f", None),  # an emoji in colour: both are keys that write
    (
        "\U0001f9d1\u200d\U0001f4bb",
        "\U0001f9d1\u200d\U0001f4bb",
    ),  # a joined emoji: a text field takes no joiner as a key
    ("\u200c", "\u200c"),  # between letters of Persian
]


@pytest.mark.parametrize(("read", "pasted"), READS)
def test_a_burst_of_characters_is_a_paste_and_keys_are_keys(read: str, pasted: str | None) -> None:
    messages = [each for each in XTermParser().feed(read) if isinstance(each, events.Key)]
    grouped = list(object.__new__(Keyboard).grouped(list(messages), 0.0))
    if pasted is None:
        assert grouped == messages
    else:
        assert [each.text for each in grouped if isinstance(each, events.Paste)] == [pasted]
        assert len(grouped) == 1


@pytest.mark.parametrize(("later", "paste"), [(SAME_PASTE_S / 2, True), (SAME_PASTE_S * 2, False)])
def test_the_end_of_a_paste_in_a_read_of_its_own_belongs_to_it(later: float, paste: bool) -> None:
    keyboard = object.__new__(Keyboard)
    list(keyboard.grouped(list(XTermParser().feed("rm -rf")), 7.0))
    (last,) = keyboard.grouped(list(XTermParser().feed("\r")), 7.0 + later)
    assert isinstance(last, events.Paste) == paste
