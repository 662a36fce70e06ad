"""The terminal's input: keys, and text that was pasted where the terminal does not say so."""

import math
import os
import selectors
import time
import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

TYPED_AT_ONCE = 4
"""Most characters that count as keys when they arrive in one piece: a person types one at a
time."""
HELD_DOWN = 2
"""Most different characters of a piece that are keys held down on a slow line, however many."""
PIECE = 4096
"""Most bytes of a piece."""
SAME_PIECE_S = 0.002
"""Seconds within which bytes have arrived at once."""
SAME_PASTE_S = 0.05
"""Seconds after a piece of a paste in which the next piece belongs to it."""
WRITTEN = {"enter": "\n", "ctrl+j": "\n", "tab": "\t"}


class Keyboard(LinuxDriver):
    """The driver of Textual, with its own reading: a byte that is no UTF-8 ends nothing, and a
    burst of characters is a paste."""

    _pasted_at = -math.inf

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(0.1):
                    data = os.read(self.fileno, PIECE)
                    if not data:
                        return  # the terminal is gone
                    while selector.select(SAME_PIECE_S) and len(data) < PIECE:  # the terminal may deliver it in two
                        if not (more := os.read(self.fileno, PIECE)):
                            break
                        data += more
                    for message in self.grouped(list(parser.feed(decode(data))), time.monotonic()):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def grouped(self, messages: list[Message], now: float) -> Iterable[Message]:
        """Return the messages of one read at ``now``, as one paste where they are pasted text."""
        texts = [_written(each) for each in messages]
        text = "".join(each for each in texts if each is not None)
        burst = (len(texts) > TYPED_AT_ONCE and len(set(texts)) > HELD_DOWN) or any(map(_joins, text))
        if text and None not in texts and (burst or now - self._pasted_at < SAME_PASTE_S):
            self._pasted_at = now
            return [events.Paste(text)]
        return messages


def _written(message: Message) -> str | None:
    """The text that a key writes; None for another key or message."""
    if not isinstance(message, events.Key) or message.character is None:
        return None
    return WRITTEN.get(message.key) or (
        message.character if message.is_printable or _joins(message.character) else None
    )


def _joins(char: str) -> bool:
    """Whether a character joins others, as in emoji and in Persian: a text field takes it in a
    paste, and not as a key."""
    return unicodedata.category(char) == "Cf"
