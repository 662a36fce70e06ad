"""The shell's own words: a reader of POSIX sh and bash that says which simple commands a text may run.

It does not build a syntax tree. A permission rule needs two things of a text: the words of *every* simple command in it, wherever
it stands, and whether there is anything that cannot be judged from the words alone. The second are the *doubts*; without a doubt
the commands found are all that can run. With one, they are a best effort, good enough to deny by and never to allow by.

Source: POSIX.1-2024, XCU 2 (token recognition, quoting, redirection, reserved words) and the bash 5 manual for what it adds.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>|&>|<<<|<<-|<<|<&|<>|<\(|>>|>&|>\||>\(|[;|&()<>]")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "|&", "&", ";;", ";&", ";;&"})
_BLANK = " \t"
_META = " \t\n;&|()<>"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"\{(?:([A-Za-z_][A-Za-z0-9_]*)|[0-9@*#?$!-])\}")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8}))", re.DOTALL
)
_ESCAPED = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRANSPARENT = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!"})
_OPAQUE = frozenset({"for", "select", "case", "esac", "function", "coproc", "[["})
_DEPTH = 25


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quote removal. ``text`` is what runs only if ``literal``; else it is a guess at what an expansion yields."""

    text: str
    literal: bool = True
    quoted: bool = False
    assigns: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, the files it redirects from and to, and what here-documents and here-strings feed it."""

    words: tuple[Word, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """Every simple command of a text, and why it cannot be judged by them alone (empty: it can)."""

    commands: tuple[Command, ...]
    doubts: tuple[str, ...]


class _NotUnderstoodError(Exception):
    """Reading stopped; never leaves this module."""


@lru_cache(maxsize=512)
def read(text: str) -> Script:
    """The commands of a shell text. Never raises: what it cannot read is a doubt, and is searched crudely for commands."""
    reader = _Reader(text)
    if _CONTROL.search(text):
        reader.doubt("a control character")
    try:
        reader.script()
    except _NotUnderstoodError as error:
        reader.doubt(f"not understood: {error}")
        reader.commands += _crude(text)
    return Script(tuple(reader.commands), tuple(dict.fromkeys(reader.doubts)))


def _crude(text: str) -> list[Command]:
    """Whatever looks like commands in a text that cannot be read: a shell runs the lines before the one it trips over."""
    pieces = (re.sub(r"[\\'\"]", "", piece).split() for piece in re.split(r"[;&|\n(){}`]", text))
    return [Command(tuple(Word(word, literal=False) for word in piece)) for piece in pieces if piece]


class _Reader:
    def __init__(self, text: str, at: int = 0, parent: "_Reader | None" = None) -> None:
        self.text, self.at = text, at
        self.depth = parent.depth + 1 if parent else 0
        # Shared: a command substitution's commands are the text's commands, and it sees the text's variables.
        self.commands: list[Command] = parent.commands if parent else []
        self.doubts: list[str] = parent.doubts if parent else []
        self.values: dict[str, str] = parent.values if parent else {}
        self._heredocs: list[tuple[Word, bool, list[str]]] = []
        self._reset()
        if self.depth > _DEPTH:
            raise _NotUnderstoodError("nested too deeply")

    def _reset(self) -> None:
        self._words: list[Word] = []
        self._reads: list[str] = []
        self._writes: list[str] = []
        self._feeds: list[str] = []
        self._redirected_first = False

    def doubt(self, why: str) -> None:
        self.doubts.append(why)

    # Commands

    def script(self, *, nested: bool = False) -> None:
        """Read to the end of the text, or to the parenthesis that closes a ``nested`` one."""
        groups = 0
        while self._skip_blanks():
            char = self.text[self.at]
            if char == "\n":
                self._end()
                self.at += 1
                self._read_heredocs()
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif match := _OPERATOR.match(self.text, self.at):
                self.at = match.end()
                operator = match[0]
                if operator == ")":
                    self._end()
                    if not groups and nested:
                        return self._finish()
                    if not groups:
                        raise _NotUnderstoodError("a parenthesis closes what was not opened")
                    groups -= 1
                elif operator == "(":
                    if self._words or self._redirected_first:
                        self.doubt("a function, an array or a pattern in parentheses")
                    if self.text.startswith("(", self.at):
                        self.doubt("arithmetic")
                    self._end()
                    groups += 1
                elif operator in _SEPARATORS:
                    if operator == "&":
                        self.doubt("something in the background")
                    elif operator in {";;", ";&", ";;&"}:
                        self.doubt("a case")
                    self._end()
                else:
                    self._redirect(operator)
            else:
                start = self.at
                self._words.append(self._word())
                if self.text[self.at : self.at + 1] in ("<", ">"):
                    self._descriptor(self.text[start : self.at])
        if nested or groups:
            raise _NotUnderstoodError("a parenthesis is not closed")
        self._end()
        self._finish()

    def _finish(self) -> None:
        if self._heredocs:
            raise _NotUnderstoodError("a here-document without its text")

    def _skip_blanks(self) -> bool:
        """Go to the next token; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] in _BLANK:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                return True
        return False

    def _end(self) -> None:
        words, opaque = self._words, ""
        # A reserved word is one only unquoted and before everything else, redirections included.
        while words and words[0].literal and not words[0].quoted and not self._redirected_first:
            name = words[0].text
            if name in _OPAQUE or name.startswith("(("):
                opaque = f"`{name}`"
            if name in _TRANSPARENT or name == "coproc":
                words = words[1:]
            elif name == "function":
                words = words[2:]
            elif name == "time" and not (len(words) > 1 and words[1].text.startswith("-")):
                words = words[1:]
            else:
                break
        if opaque:
            self.doubt(opaque)
        while words and words[0].assigns:
            self.doubt("an assignment of a variable")
            name, _, value = words[0].text.partition("=")
            self.values[name] = value
            words = words[1:]
        if words or self._reads or self._writes or self._feeds:
            # The list of fed texts is filled when the here-document is read, which is later than the command's end.
            self.commands.append(Command(tuple(words), tuple(self._reads), tuple(self._writes), tuple(self._feeds)))
        self._reset()

    # Redirections

    def _descriptor(self, raw: str) -> None:
        """The word just read touches a redirection: ``2>`` names a descriptor and is no word, ``{name}>`` sets a variable."""
        if raw.isdigit():
            self._words.pop()
        elif re.fullmatch(r"\{[A-Za-z_]\w*(\[.*\])?\}", raw):
            self.doubt("an assignment of a variable")

    def _redirect(self, operator: str) -> None:
        if operator in {"<(", ">("}:
            self.doubt("a process substitution")
            self._nested()
            self._words.append(Word("", literal=False))
            return
        self._redirected_first = self._redirected_first or not self._words
        if not self._skip_blanks() or self.text[self.at] in _META:
            raise _NotUnderstoodError("a redirection to nowhere")
        target = self._word()
        if operator in {"<<", "<<-"}:
            if not target.literal:
                raise _NotUnderstoodError("a here-document whose end is not plain")
            self._heredocs.append((target, operator == "<<-", self._feeds))
        elif operator == "<<<":
            self._feeds.append(target.text)
        elif operator in {"<&", ">&"} and target.literal and re.fullmatch(r"[0-9]+-?|-", target.text):
            pass
        else:
            (self._reads if operator == "<" else self._writes).append(target.text)
            if target != Word("/dev/null"):
                self.doubt("a redirection to a file" if operator != "<" else "a redirection from a file")

    def _read_heredocs(self) -> None:
        for end, tabs, feeds in self._heredocs:
            lines: list[str] = []
            while True:
                if self.at >= len(self.text):
                    raise _NotUnderstoodError("a here-document without its end")
                line, newline, _ = self.text[self.at :].partition("\n")
                self.at += len(line) + len(newline)
                line = line.lstrip("\t") if tabs else line
                if line == end.text:
                    break
                lines.append(line + "\n")
            body = "".join(lines)
            self._feed(feeds, body)
            if not end.quoted and re.search(r"[$`\\]", body):
                self.doubt("a here-document with expansions")
                if "\\\n" in body:
                    raise _NotUnderstoodError("a continued line in a here-document")
                _Reader(body, parent=self)._quoted_text(None, [])
        self._heredocs = []

    def _feed(self, feeds: list[str], body: str) -> None:
        """A here-document's text comes after its command was recorded: record it as fed to all that this line holds."""
        feeds.append(body)
        self.commands.append(Command((), feeds=(body,)))

    # Words

    def _word(self) -> Word:
        parts: list[str] = []
        literal, quoted, assigns = True, False, False
        while self.at < len(self.text) and (char := self.text[self.at]) not in _META:
            self.at += 1
            if char == "\\":
                if self.at >= len(self.text):
                    raise _NotUnderstoodError("a backslash at the end")
                escaped = self.text[self.at]
                self.at += 1
                if escaped != "\n":
                    parts.append(escaped)
                    quoted = True
            elif char == "'":
                end = self.text.find("'", self.at)
                if end < 0:
                    raise _NotUnderstoodError("a quote is not closed")
                parts.append(self.text[self.at : end])
                self.at, quoted = end + 1, True
            elif char == '"':
                literal = self._quoted_text('"', parts) and literal
                quoted = True
            elif char in "$`":
                if char == "$" and self.text[self.at : self.at + 1] in ("'", '"'):
                    quoted = True
                literal = self._expansion(char, parts, quoted=False) and literal
            else:
                if char == "=" and not quoted and literal and not assigns:
                    assigns = _ASSIGNED.fullmatch("".join(parts)) is not None
                # Globs, braces and tildes are expanded; a lone brace is a reserved word.
                if char in "*?[" or (char == "~" and (not parts or parts[-1] in ":=")) or char in "{":
                    literal = False
                parts.append(char)
        text = "".join(parts)
        return Word(text, literal or (text == "{" and not quoted), quoted, assigns)

    def _quoted_text(self, end: str | None, parts: list[str]) -> bool:
        """The inside of double quotes, or of a here-document (``end`` is None). False if something in it is expanded."""
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
            raise _NotUnderstoodError("a quote is not closed")
        return literal

    def _expansion(self, sign: str, parts: list[str], *, quoted: bool) -> bool:
        """What follows ``$`` or a backquote. True if it stands for itself."""
        text, following = self.text, self.text[self.at : self.at + 1]
        if sign == "`":
            self._backquoted()
        elif following == "(":
            self.at += 1
            self.doubt("a command substitution")
            self._nested()
        elif following == "{":
            if match := _PARAMETER.match(text, self.at):
                self.at = match.end()
                parts.append(self.values.get(match[1] or "", ""))
            else:
                self._modified_parameter()
        elif following == "'" and not quoted:
            return self._ansi(parts)
        elif following == '"' and not quoted:
            self.at += 1
            self._quoted_text('"', parts)
        elif match := _NAME.match(text, self.at):
            self.at = match.end()
            parts.append(self.values.get(match[0], ""))
        elif following and following in "0123456789@*#?$!-":
            self.at += 1
        elif following == "[" or text.startswith("\\\n", self.at):
            raise _NotUnderstoodError("an odd use of $")
        else:
            parts.append("$")
            # Other shells expand more ($+x, $~x): only before an end is it surely itself.
            return following in ("", '"') or following in _META
        return False

    def _nested(self) -> None:
        inner = _Reader(self.text, self.at, parent=self)
        inner.script(nested=True)
        self.at = inner.at

    def _backquoted(self) -> None:
        self.doubt("a command substitution")
        match = re.compile(r"((?:[^\\`]|\\.)*)`", re.DOTALL).match(self.text, self.at)
        if match is None:
            raise _NotUnderstoodError("a backquote is not closed")
        self.at = match.end()
        _Reader(re.sub(r"\\([$`\\\"])", r"\1", match[1]), parent=self).script()

    def _modified_parameter(self) -> None:
        """``${name…}``: its inside may run commands (which are found) and may assign."""
        self.doubt("a parameter expansion that does more than read")
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != "}":
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                self.at += 1
            elif char == '"':
                self._quoted_text('"', [])
            elif char in "$`":
                self._expansion(char, [], quoted=True)
            elif char == "'":
                raise _NotUnderstoodError("a quote in a parameter expansion")
        if self.at >= len(self.text):
            raise _NotUnderstoodError("a brace is not closed")
        self.at += 1

    def _ansi(self, parts: list[str]) -> bool:
        """``$'…'``. False, though nothing is expanded: a shell without this quoting reads other words."""
        match = re.compile(r"'((?:[^\\']|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if match is None:
            raise _NotUnderstoodError("a quote is not closed")
        self.at = match.end()
        parts.append(_ESCAPE.sub(_unescaped, match[1]).partition("\0")[0])
        return False


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return _ESCAPED.get(match[1], match[1])
    code = int(match[2], 8) & 0xFF if match[2] else int(match[3] or match[4] or match[5], 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
