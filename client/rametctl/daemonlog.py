"""Reading the daemon's log file: its end, and what is added to it, over rotation."""

import os
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path

POLL = 0.2
"""Seconds between two looks at the file."""


def tail(path: Path, lines: int) -> list[str]:
    """The last ``lines`` lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return [text.rstrip("\n") for text in deque(file, maxlen=lines)]


def follow_file(path: Path, lines: int) -> Generator[str, None, None]:
    """The last ``lines`` lines, then whole lines as they are written, without an end.

    A file that is rotated away is read to its end first, then the new one from its beginning.
    """
    file = path.open(encoding="utf-8", errors="replace")
    try:
        yield from (text.rstrip("\n") for text in deque(file, maxlen=lines))
        rest = ""
        while True:
            if chunk := file.read():
                *whole, rest = (rest + chunk).split("\n")
                yield from whole
            elif _is_other(path, file.fileno()):
                file.close()
                file = path.open(encoding="utf-8", errors="replace")
                rest = ""
            else:
                time.sleep(POLL)
    finally:
        file.close()


def _is_other(path: Path, descriptor: int) -> bool:
    """Whether the name leads to another file by now; not while there is none in the middle of a rotation."""
    try:
        return not os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
