"""Choose an answer with the arrow keys, on a terminal."""

import os
import select
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rametctl.console.lines import cropped, line

if TYPE_CHECKING:
    from rametctl.console.lines import Line
    from rametctl.console.output import Output

OTHER = "something else …"
ESCAPE_PAUSE = 0.1
"""Seconds within which the rest of an arrow key's sequence follows its escape."""
_KEYS = {"\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down", "\r": "enter", "\n": "enter",
         " ": "space", "\x1b": "leave", "q": "leave", "\x03": "interrupt", "\x04": "leave", "": "leave"}  # fmt: skip


class Choice:
    """State of a choice: the marked labels and the position of the cursor."""

    def __init__(self, labels: Sequence[str], *, several: bool) -> None:
        self.labels = [*labels, OTHER]
        self.several = several
        self.at = 0
        self.marked: set[int] = set()

    def press(self, key: str) -> bool:
        """Process a key; return whether the choice is complete."""
        last = len(self.labels) - 1
        if key == "up":
            self.at = (self.at - 1) % len(self.labels)
        elif key == "down":
            self.at = (self.at + 1) % len(self.labels)
        elif key.isdecimal() and 1 <= int(key) <= last:
            self.at = int(key) - 1
            if self.several:
                self.marked ^= {self.at}
            return not self.several
        elif key == "space" and self.several and self.at != last:
            self.marked ^= {self.at}
        return key == "enter"

    @property
    def answer(self) -> str | None:
        """Return the chosen labels, joined by commas; None for an answer in words."""
        if self.at == len(self.labels) - 1 and not self.marked:
            return None
        return ", ".join(self.labels[index] for index in sorted(self.marked or {self.at}))

    def lines(self) -> "Iterator[Line]":
        for index, label in enumerate(self.labels):
            box = ("[x] " if index in self.marked else "[ ] ") if self.several and label != OTHER else ""
            number = f"{index + 1}) " if index < len(self.labels) - 1 else ""
            here = index == self.at
            yield line(("❯ " if here else "  ", "cyan"), (number, "cyan"), (f"{box}{label}", "bold" if here else ""))
        keys = "↑↓ move, space mark, enter choose" if self.several else "↑↓ move, enter choose, or a number"
        yield line((f"  {keys}, esc cancel", "dim"))


def choose(output: "Output", keyboard: int, question: str, labels: Sequence[str], *, several: bool) -> str | None:
    """Ask one question on ``output`` with the keys of the terminal ``keyboard``; None if the person
    leaves."""
    output.show(line((question, "bold")))
    if not labels:
        return _typed(output)
    choice = Choice(labels, several=several)
    drawn = 0
    with _raw(keyboard):
        while True:
            if drawn:
                output.stdout.write(f"\x1b[{drawn}A\x1b[J")
            shown = [cropped(each, output.width) for each in choice.lines()]
            output.show(*shown)
            drawn = len(shown)
            key = read_key(keyboard)
            if key == "interrupt":
                raise KeyboardInterrupt
            if key == "leave":
                return None
            if choice.press(key):
                break
    return choice.answer if choice.answer is not None else _typed(output)


def read_key(keyboard: int) -> str:
    """Read the next key; return its name, or its character."""
    text = os.read(keyboard, 1).decode("latin-1")
    if text == "\x1b":
        while select.select([keyboard], [], [], ESCAPE_PAUSE)[0] and len(text) < 3:
            text += os.read(keyboard, 1).decode("latin-1")
    return _KEYS.get(text, text)


def _typed(output: "Output") -> str | None:
    output.stdout.write("> ")
    output.stdout.flush()
    try:
        return input().strip() or None
    except EOFError:
        return None


@contextmanager
def _raw(keyboard: int) -> Iterator[None]:
    """Read single keys without echo; output keeps its line ends."""
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        mode = termios.tcgetattr(keyboard)
        mode[3] &= ~termios.ISIG
        termios.tcsetattr(keyboard, termios.TCSADRAIN, mode)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
