"""A reader of POSIX sh and bash texts that finds all simple commands that a text may run.

It does not build a syntax tree. Permission rules need the words of *every* simple command, and the
*doubts*: constructs whose effect these words do not determine. Without doubts, no other command can
run. With doubts, the commands are a best effort, by which a rule may deny, but never allow.

Source: POSIX.1-2024, XCU 2 (token recognition, quoting, redirection, reserved words) and the bash 5
manual for what it adds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile

from rametd.rules.words import BLANK, META, NotUnderstoodError, Word, WordReader

_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>|&>|<<<|<<-|<<|<&|<>|<\(|>>|>&|>\||>\(|[;|&()<>]")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "|&", "&", ";;", ";&", ";;&"})
_DOUBTFUL = {"&": "something in the background", ";;": "a case", ";&": "a case", ";;&": "a case"}
_MOST = 5000  # commands in one text: more would take too long
_LONGEST = 64 << 10  # bytes of a text; longer ones are not analysed
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRANSPARENT = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!"})
_OPAQUE = frozenset({"for", "select", "case", "esac", "function", "coproc", "[["})


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, and the files of its redirections."""

    words: tuple[Word, ...]
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """All simple commands of a text, the doubts about it, and its here-documents (``feeds``)."""

    commands: tuple[Command, ...]
    doubts: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    unreadable: str = ""
    """Why ``commands`` may be incomplete; "" if the whole text was read."""


@lru_cache(maxsize=64)
def read(text: str) -> Script:
    """Find the commands of a shell text. Never raises: an unreadable text has a doubt, and a rough
    search for its commands."""
    if len(text.encode(errors="replace")) > _LONGEST:
        why = f"it is longer than {_LONGEST >> 10} KiB"
        return Script((), (why,), unreadable=why)
    reader, unreadable = _Reader(text), ""
    if _CONTROL.search(text):
        reader.doubt("a control character")
    try:
        reader.script()
    except NotUnderstoodError as error:
        unreadable = f"not understood: {error}"
        reader.doubt(unreadable)
        reader.commands += _crude(text)
    return Script(tuple(reader.commands), tuple(dict.fromkeys(reader.doubts)), tuple(reader.feeds), unreadable)


def _crude(text: str) -> list[Command]:
    """Rough search for commands in an unreadable text: a shell runs the lines before the one that
    it cannot parse."""
    pieces = (re.sub(r"[\\'\"]", "", piece).split() for piece in re.split(r"[;&|\n(){}`]", text.replace("\\\n", "")))
    return [
        Command(tuple(Word(word, literal=False) for word in words))
        for piece in pieces
        if (words := list(_unled(piece)))
    ]


def _unled(words: list[str]) -> Iterator[str]:
    """The words without leading reserved words and assignments."""
    return dropwhile(lambda word: word in _TRANSPARENT or re.match(r"[A-Za-z_]\w*\+?=", word) is not None, words)


class _Reader(WordReader):
    def __init__(self, text: str, at: int = 0, parent: "_Reader | None" = None) -> None:
        super().__init__(text, at, parent)
        self.commands: list[Command] = parent.commands if parent else []
        self.feeds: list[str] = parent.feeds if parent else []
        self._heredocs: list[tuple[Word, bool]] = []  # (end word, whether tabs are stripped)
        self._groups = 0
        self._cases = 0
        self._piped = False
        self._reset()

    def _reset(self) -> None:
        self._words: list[Word] = []
        self._reads: list[Word] = []
        self._writes: list[Word] = []
        self._plain: int | None = None  # words from this index on follow a redirection: none of them is reserved
        self._split: list[int] = []  # positions of `&>` among the words

    # Commands

    def script(self, *, nested: bool = False) -> None:
        """Read commands to the end of the text, or to the closing parenthesis of a ``nested``
        one."""
        while self._skip_blanks():
            start, char = self.at, self.text[self.at]
            if char == "\n":
                self._end()
                self.at += 1
                self._read_heredocs()
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif match := _OPERATOR.match(self.text, self.at):
                self.at = match.end()
                if match[0] == ")":
                    self._end()  # first: the command may be the `esac` that ends a case
                    if nested and not self._groups and not self._cases:
                        return self._finish()
                self._operator(match[0])
            else:
                word = self.word()
                if word == Word("}") and any(each.text not in _TRANSPARENT for each in self._words):
                    self.doubt("a brace that ends a group in zsh")
                self._words.append(word)
                if self.text[self.at : self.at + 1] in ("<", ">"):
                    self._descriptor(self.text[start : self.at])
            if self._heredocs and "\n" in self.text[start : self.at]:
                raise NotUnderstoodError("a line break between a here-document and its text")
        if nested or self._groups:
            raise NotUnderstoodError("a parenthesis is not closed")
        self._end()
        return self._finish()

    def _operator(self, operator: str) -> None:
        if operator == "(":
            if self._words or self._plain is not None:
                self.doubt("a function, an array or a pattern in parentheses")
            if self.text.startswith("(", self.at):
                self.doubt("arithmetic")
            self._end()
            self._groups += 1
        elif operator == ")":
            if self._groups:
                self._groups -= 1
            else:
                self.doubt("a parenthesis closes what was not opened")
        elif operator in _SEPARATORS:
            if operator in _DOUBTFUL:
                self.doubt(_DOUBTFUL[operator])
            self._end()
            self._piped = operator in {"|", "|&"}
        else:
            self._redirect(operator)

    def _finish(self) -> None:
        if self._heredocs:
            raise NotUnderstoodError("a here-document without its text")

    def _skip_blanks(self) -> bool:
        """Move to the next token; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] in BLANK:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                return True
        return False

    def _end(self) -> None:
        # In shells where `&>` is no redirection (dash), `a &>f b` runs `a` and then `b`.
        for at in self._split:
            self.commands += [Command(tuple(part)) for part in (self._words[:at], self._words[at:]) if part]
        words, opaque, timed = self._words, "", False
        # A word is reserved only if it is unquoted and comes first, also before redirections.
        last = len(words) - (len(words) if self._plain is None else self._plain)
        while len(words) > last and words[0].literal and not words[0].quoted:
            name = words[0].text
            if name in _OPAQUE or name.startswith("(("):
                opaque = f"`{name}`"
                self._cases += (name == "case") - (name == "esac")
            if name in _TRANSPARENT or name == "coproc":
                words = words[1:]
            elif name == "function":
                words = words[2:]
            elif name == "time" and not (timed or self._piped or (len(words) > 1 and words[1].text.startswith("-"))):
                # After a pipe, with options, or after another `time` (zsh), `time` is a program.
                words, timed = words[1:], True
            else:
                break
        if opaque:
            self.doubt(opaque)
        if len(self.commands) > _MOST:
            raise NotUnderstoodError("too many commands")
        while words and words[0].assigns:
            self.doubt("an assignment of a variable")
            name, _, value = words[0].text.partition("=")
            self.values[name] = value
            words = words[1:]
        if words or self._reads or self._writes:
            self.commands.append(Command(tuple(words), tuple(self._reads), tuple(self._writes)))
            self._piped = False
        self._reset()

    # Redirections

    def _descriptor(self, raw: str) -> None:
        """Handle a word before a redirection: in ``2>`` it is a descriptor, and ``{name}>`` sets a
        variable."""
        if raw.isdigit():
            self._words.pop()
        elif re.fullmatch(r"\{[A-Za-z_]\w*(\[.*\])?\}", raw):
            self.doubt("an assignment of a variable")

    def _redirect(self, operator: str) -> None:
        if operator in {"<(", ">("}:
            self.doubt("a process substitution")
            self.nested()
            self._words.append(Word("", literal=False, open=True))
            return
        if operator in {"&>", "&>>"}:
            self.doubt("a redirection that is `&` and `>` to other shells")
            self._split.append(len(self._words))
        self._plain = len(self._words) if self._plain is None else self._plain
        if not self._skip_blanks() or self.text[self.at] in META:
            raise NotUnderstoodError("a redirection to nowhere")
        target = self.word()
        if operator in {"<<", "<<-"}:
            if not target.literal:
                raise NotUnderstoodError("a here-document whose end is not plain")
            self._heredocs.append((target, operator == "<<-"))
        elif operator == "<<<":
            self.feeds.append(target.text)
        elif operator in {"<&", ">&"} and target.literal and re.fullmatch(r"[0-9]+-?|-", target.text):
            pass
        else:
            (self._reads if operator == "<" else self._writes).append(target)
            if target != Word("/dev/null"):
                self.doubt("a redirection to a file" if operator != "<" else "a redirection from a file")

    def _read_heredocs(self) -> None:
        for end, tabs in self._heredocs:
            lines: list[str] = []
            while True:
                if self.at >= len(self.text):
                    raise NotUnderstoodError("a here-document without its end")
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = stop + 1
                line = line.lstrip("\t") if tabs else line
                if line == end.text:
                    break
                lines.append(line + "\n")
            body = "".join(lines)
            self.feeds.append(body)
            if not end.quoted and re.search(r"[$`\\]", body):
                self.doubt("a here-document with expansions")
                if "\\\n" in body:
                    raise NotUnderstoodError("a continued line in a here-document")
                self.inside(body).quoted_text(None, [])
        self._heredocs = []
