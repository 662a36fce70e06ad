"""Line numbers of keys and list items in a TOML text, which tomllib does not report.

tomllib has read the text before, so it is valid TOML (v1.0.0). This scanner follows only keys,
tables, strings and lists, and skips values.
"""

import re
import tomllib
from bisect import bisect_right

Path = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(
    r'"{3}(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'{3}.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_WORD = re.compile(r"[^,\]}\n#]+")


def lines_of(text: str) -> dict[Path, int]:
    """Line numbers (from 1) by path, such as ``("threads", 0, "owns", 1)``."""
    return _Scanner(text.replace("\r\n", "\n")).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [match.end() for match in re.finditer("\n", text)]
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}  # of arrays of tables

    def run(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip(_SPACE) < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _header(self) -> Path:
        start, array = self._at, self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        parts = self._key()
        self._at += 2 if array else 1
        path: Path = ()
        for part in parts[:-1]:
            path = (*path, part)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        path = (*path, parts[-1])
        if array:
            self._note(path, start)
            number = self._counts[path] = self._counts.get(path, 0) + 1
            path = (*path, number - 1)
        elif path in self._counts:
            path = (*path, self._counts[path] - 1)
        self._note(path, start)
        return path

    def _pair(self, table: Path) -> None:
        start = self._at
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path, start)
        self._at += 1  # =
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            match = _KEY.match(self._text, self._at)
            assert match is not None, "tomllib has read it"
            self._at = match.end()
            name = match[0]
            parts.append(tomllib.loads(f"key = {name}")["key"] if name[0] in "\"'" else name)
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        match self._text[self._at]:
            case "[":
                self._items(path, "]", keyed=False)
            case "{":
                self._items(path, "}", keyed=True)
            case '"' | "'":
                string = _STRING.match(self._text, self._at)
                assert string is not None, "tomllib has read it"
                self._at = string.end()
            case _:
                self._skip(_WORD)

    def _items(self, path: Path, end: str, *, keyed: bool) -> None:
        self._at += 1
        number = 0
        while self._text[self._skip(_SPACE)] != end:
            if keyed:
                self._pair(path)
            else:
                self._note((*path, number), self._at)
                self._value((*path, number))
                number += 1
            if self._text[self._skip(_SPACE)] == ",":
                self._at += 1
        self._at += 1

    def _skip(self, what: re.Pattern[str]) -> int:
        if match := what.match(self._text, self._at):
            self._at = match.end()
        return self._at

    def _note(self, path: Path, start: int) -> None:
        self._lines.setdefault(path, bisect_right(self._starts, start) + 1)
