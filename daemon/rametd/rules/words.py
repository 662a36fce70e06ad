"""Words of a shell text: quoting, escapes and expansions by POSIX.1-2024 XCU 2.2, 2.3 and 2.6, and
bash's ``$'…'``."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

BLANK = " \t"
META = " \t\n;&|()<>"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"\{(?:([A-Za-z_][A-Za-z0-9_]*)|[0-9@*#?$!-])\}")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?", re.DOTALL)
_BACKQUOTED = re.compile(r"((?:[^\\`]|\\.)*)`", re.DOTALL)
_ANSI = re.compile(r"'((?:[^\\']|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8}))", re.DOTALL
)
_ESCAPED = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LONE = frozenset({"{", "[", "[["})  # special inside a word, plain as a whole word
_SELF = frozenset({"_", "OPTARG", "REPLY", "argv", "dirstack", "DIRSTACK", "history", "historywords", "reply"})
_LONE_BRACES = re.compile(r"(?:[^*?\[{},.]|\.(?!\.)|\{[^*?\[{},.]*\}|[,}])*")
_DEPTH = 25
_KNOWN = {"PWD": ".", "HOME": "~"}  # working directory and home directory, as spelled in paths


class NotUnderstoodError(Exception):
    """Raised if the text cannot be parsed; `rules.shell` catches it."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quote removal. If ``literal``, ``text`` is exact; otherwise it is a guess at
    the result of an expansion.

    ``pattern``: it contains a glob or braces. ``open``: it contains a variable or substitution of
    unknown value. ``$PWD`` and ``$HOME`` are replaced by ``.`` and ``~``.
    """

    text: str
    literal: bool = True
    quoted: bool = False
    assigns: bool = False
    pattern: bool = False
    open: bool = False

    @property
    def written_out(self) -> bool:
        """Whether the word has no expansion."""
        return not (self.pattern or self.open)


class WordReader(ABC):
    """A cursor in a text that reads one word after another; the subclass reads commands.

    Readers of nested texts share ``doubts`` and ``values`` (variables assigned so far).
    """

    def __init__(self, text: str, at: int = 0, parent: Self | None = None) -> None:
        self.text, self.at = text, at
        self.doubts: list[str] = parent.doubts if parent else []
        self.values: dict[str, str] = parent.values if parent else dict(_KNOWN)
        self._open = False
        self._depth: int = parent._depth if parent else 0
        self._deeper()

    @abstractmethod
    def script(self, *, nested: bool = False) -> None:
        """Read commands to the end of the text, or of a ``nested`` one to its closing
        parenthesis."""

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            raise NotUnderstoodError("nested too deeply")

    def doubt(self, why: str) -> None:
        self.doubts.append(why)

    def inside(self, text: str, at: int = 0) -> Self:
        return type(self)(text, at, self)

    def word(self) -> Word:
        parts: list[str] = []
        literal, quoted, assigns, pattern = True, False, False, False
        self._open = False
        while self.at < len(self.text) and (char := self.text[self.at]) not in META:
            self.at += 1
            if char == "\\":
                if self.at >= len(self.text):
                    raise NotUnderstoodError("a backslash at the end")
                escaped = self.text[self.at]
                self.at += 1
                if escaped != "\n":
                    parts.append(escaped)
                    quoted = True
            elif char == "'":
                end = self.text.find("'", self.at)
                if end < 0:
                    raise NotUnderstoodError("a quote is not closed")
                parts.append(self.text[self.at : end])
                self.at, quoted = end + 1, True
            elif char == '"':
                literal = self.quoted_text('"', parts) and literal
                quoted = True
            elif char in "$`":
                if char == "$" and self.text[self.at : self.at + 1] in ("'", '"'):
                    quoted = True
                literal = self._expansion(char, parts, quoted=False) and literal
            else:
                if char == "=" and not quoted and "=" not in parts:
                    assigns = _ASSIGNED.fullmatch("".join(parts)) is not None
                # Globs, braces and tildes are expanded; a lone brace is a reserved word.
                if char in "*?[{":
                    literal, pattern = False, True
                elif char == "~" and (not parts or parts[-1] in ":="):
                    literal = False
                parts.append(char)
        text = "".join(parts)
        if text in _LONE and not quoted:
            return Word(text)
        # Braces without a comma or a range do not expand, as in `stash@{0}`.
        pattern = pattern and (not _LONE_BRACES.fullmatch(text))
        return Word(text, literal, quoted, assigns, pattern, self._open)

    def quoted_text(self, end: str | None, parts: list[str]) -> bool:
        """Read the inside of double quotes, or of a here-document (``end`` is None). False if it
        contains an expansion."""
        literal = True
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == end:
                return literal
            if char == "\\" and self.text[self.at : self.at + 1] in ("$", "`", '"', "\\", "\n"):
                if self.text[self.at] != "\n":
                    parts.append(self.text[self.at])
                self.at += 1
            elif char in "$`":
                literal = self._expansion(char, parts, quoted=True) and literal
            else:
                parts.append(char)
        if end is not None:
            raise NotUnderstoodError("a quote is not closed")
        return literal

    def _expansion(self, sign: str, parts: list[str], *, quoted: bool) -> bool:
        """Read the expansion after ``$`` or a backquote. True if the sign is literal."""
        text, following = self.text, self.text[self.at : self.at + 1]
        if sign == "`":
            self._backquoted()
        elif following == "(":
            self.at += 1
            self.doubt("a command substitution")
            self._open = True
            self.nested()
        elif following == "{":
            if match := _PARAMETER.match(text, self.at):
                self.at = match.end()
                self._value(match[1] or "", parts)
            else:
                self._modified_parameter()
        elif following == "'" and not quoted:
            return self._ansi(parts)
        elif following == '"' and not quoted:
            self.at += 1
            self.quoted_text('"', parts)
        elif match := _NAME.match(text, self.at):
            self.at = match.end()
            self._value(match[0], parts)
        elif following and following in "0123456789@*#?$!-":
            self.at += 1
            self._open = True
        elif following == "[" or text.startswith("\\\n", self.at):
            raise NotUnderstoodError("an odd use of $")
        else:
            parts.append("$")
            # Other shells expand more ($+x, $~x): `$` is certainly literal only before the end of a
            # word.
            return following in ("", '"') or following in META
        return False

    def _value(self, name: str, parts: list[str]) -> None:
        if name.startswith(("BASH", "ZSH")) or name in _SELF:
            self.doubt("a variable that holds words of the text itself")
        parts.append(self.values.get(name, ""))
        self._open = self._open or name not in _KNOWN

    def nested(self) -> None:
        inner = self.inside(self.text, self.at)
        inner.script(nested=True)
        self.at = inner.at

    def _backquoted(self) -> None:
        self.doubt("a command substitution")
        self._open = True
        match = _BACKQUOTED.match(self.text, self.at)
        if match is None:
            raise NotUnderstoodError("a backquote is not closed")
        self.at = match.end()
        self.inside(re.sub(r"\\([$`\\\"])", r"\1", match[1])).script()

    def _modified_parameter(self) -> None:
        """Read ``${name…}``, which may run commands (they are found) and assign variables."""
        self.doubt("a parameter expansion that does more than read")
        self._open = True
        self.at += 1
        self._deeper()
        while self.at < len(self.text) and self.text[self.at] != "}":
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                self.at += 1
            elif char == '"':
                self.quoted_text('"', [])
            elif char in "$`":
                self._expansion(char, [], quoted=True)
            elif char == "'":
                raise NotUnderstoodError("a quote in a parameter expansion")
        if self.at >= len(self.text):
            raise NotUnderstoodError("a brace is not closed")
        self.at += 1
        self._depth -= 1

    def _ansi(self, parts: list[str]) -> bool:
        """Read ``$'…'``. Return False, although it has no expansion: a shell without this quoting
        reads other words."""
        match = _ANSI.match(self.text, self.at)
        if match is None:
            raise NotUnderstoodError("a quote is not closed")
        self.at = match.end()
        parts.append(_ESCAPE.sub(_unescaped, match[1]).partition("\0")[0])
        return False


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return _ESCAPED.get(match[1], match[1])
    code = int(match[2], 8) & 0xFF if match[2] else int(match[3] or match[4] or match[5], 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
