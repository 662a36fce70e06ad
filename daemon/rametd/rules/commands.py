"""Rules against a shell's text: every command in it, and what those commands run in turn."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from rametd.rules.files import Place
from rametd.rules.model import Call, Effect, Rule, Verdict
from rametd.rules.parsing import CHANGERS, ParsedRule
from rametd.rules.shell import Command, Script, read
from rametd.rules.wrappers import SHELLS, base, inner

# Commands whose operands are files that they show, and files that they change (Claude Code knows about the same ones).
_READERS = frozenset(
    [
        "awk",
        "base64",
        "bat",
        "cat",
        "cp",
        "cut",
        "diff",
        "dd",
        "egrep",
        "fgrep",
        "grep",
        "head",
        "hexdump",
        "jq",
        "less",
        "more",
        "nl",
        "od",
        "rg",
        "sed",
        "sort",
        "strings",
        "tac",
        "tail",
        "xxd",
    ]
)
_WRITERS = frozenset(
    [
        "chmod",
        "chown",
        "cp",
        "dd",
        "install",
        "ln",
        "mkdir",
        "mv",
        "patch",
        "rm",
        "rmdir",
        "sed",
        "shred",
        "tee",
        "touch",
        "truncate",
        "unlink",
    ]
)
_GOING = frozenset({"cd", "pushd"})
_DEPTH = 8


class Judge:
    """One call of a shell tool, read once and put to many rules."""

    def __init__(self, call: Call, place: Place) -> None:
        command = call.input.get("command")
        self._known = isinstance(command, str)
        self._text = command.strip() if isinstance(command, str) else ""
        self._unconfined = bool(call.input.get("dangerouslyDisableSandbox"))
        self._place = place
        self._script = read(self._text)

    # Deny and ask

    def touched(self, rule: ParsedRule) -> bool:
        """Whether any command, behind whatever wrappers, is one that the rule names."""
        if rule.exact and rule.exact == self._text:
            return True
        return bool(rule.words) and any(self._names(rule, words) for words in self._everything)

    @cached_property
    def read(self) -> frozenset[str]:
        """Paths that the text seems to show to the agent."""
        return self._operands(_READERS) | {path for command in self._script.commands for path in command.reads}

    @cached_property
    def written(self) -> frozenset[str]:
        """Paths that the text seems to change."""
        return self._operands(_WRITERS) | {path for command in self._script.commands for path in command.writes}

    def _operands(self, names: frozenset[str]) -> frozenset[str]:
        found: set[str] = set()
        for words in self._everything:
            if base(words[0]) in names:
                # An option's value after `=` is an operand too, as in `dd of=x`.
                found.update(part for word in words[1:] for part in (word, word.partition("=")[2]) if part)
        return frozenset(found)

    @cached_property
    def _everything(self) -> frozenset[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        fed, seen = set[str](), set[str]()
        texts = {self._text}
        for _ in range(_DEPTH):
            for text in texts:
                fed |= self._collect(read(text), found, _DEPTH)
            seen |= texts
            # A shell without a script of its own runs what it is fed: here-documents, and what is printed.
            if not any(_reads_commands(words) for words in found):
                break
            printed = {" ".join(words[1:]) for words in found if base(words[0]) in {"echo", "printf"}}
            texts = (fed | printed) - seen
        return frozenset(found)

    def _collect(self, script: Script, found: set[tuple[str, ...]], depth: int) -> set[str]:
        """Add the words of every command, whatever runs it; returns the texts of here-documents on the way."""
        fed = set(script.feeds)
        for command in script.commands:
            for words in _spelled(command):
                fed |= self._collect_words(words, found, depth)
        return fed

    def _collect_words(self, words: tuple[str, ...], found: set[tuple[str, ...]], depth: int) -> set[str]:
        fed: set[str] = set()
        if words in found:
            return fed
        found.add(words)
        for other in inner(words) if depth else ():
            if other.script is not None:
                fed |= self._collect(read(other.script), found, depth - 1)
            else:
                fed |= self._collect_words(other.words, found, depth - 1)
        return fed

    def _names(self, rule: ParsedRule, words: Sequence[str]) -> bool:
        name = base(words[0])
        wanted, called = self._place.fold(base(rule.words[0])), self._place.fold(name)
        if wanted != called and not (re.search(r"[*?\[]", name) and fnmatchcase(wanted, called)):
            return False
        if not rule.prefix:
            return tuple(rule.words[1:]) == tuple(words[1:])
        # Options may stand before a subcommand (`git -C x push`), and the rule's own anywhere (`git push origin --force`).
        options = [word for word in rule.words[1:] if word.startswith("-")]
        return all(option in words for option in options) and _follows(
            [w for w in rule.words[1:] if w not in options], words
        )

    # Allow

    def allowed(self, rules: Sequence[tuple[Rule, ParsedRule]]) -> Verdict:
        """Whether every command is covered by a rule; no effect, and the reason, if not."""
        if not self._known or not self._text:
            return Verdict(None, None, "there is no command to judge")
        if self._unconfined:
            return Verdict(None, None, "it asks to run outside the sandbox")
        for rule, parsed in rules:
            if parsed.exact == self._text:
                return Verdict(Effect.ALLOW, rule, f"{rule.text} allows it")
        if self._script.doubts:
            return Verdict(None, None, f"it cannot be judged by rules: {self._script.doubts[0]}")
        used: list[Rule] = []
        going = sum(bool(command.words) and command.words[0].text in _GOING for command in self._script.commands)
        for command in self._script.commands:
            found = next((rule for rule, parsed in rules if self._covers(parsed, command, going=going)), None)
            if found is None:
                shown = " ".join(word.text for word in command.words[:4])
                return Verdict(None, None, f"no rule covers `{shown}`")
            used.append(found)
        if not used:
            return Verdict(None, None, "there is no command to judge")
        return Verdict(Effect.ALLOW, used[0], f"{', '.join(dict.fromkeys(rule.text for rule in used))} allows it")

    def _covers(self, rule: ParsedRule, command: Command, *, going: int) -> bool:
        size = len(rule.words)
        if not size or len(command.words) < size or (not rule.prefix and len(command.words) != size):
            return False
        if any(
            not word.literal or word.text != wanted for word, wanted in zip(command.words, rule.words, strict=False)
        ):
            return False
        texts = [word.text for word in command.words]
        name = texts[0]
        if going and "/" in name and not name.startswith("/"):
            return False  # elsewhere it is another program
        if not rule.prefix:
            return True
        if (
            name in CHANGERS
            or (name == "printf" and _has(texts, "-v"))
            or (name in {"test", "["} and _has(texts, "-v", "-R"))
        ):
            return False
        if name in _GOING and not (
            going == 1 and len(texts) == 2 and command.words[1].literal and self._inside(texts[1])
        ):
            return False
        # What a wrapper runs must stand in the rule itself, or the rule would allow anything.
        return all(other.start < size for other in inner(texts))

    def _inside(self, path: str) -> bool:
        top = self._place.resolve(self._place.worktree)
        return not path.startswith(("-", "+", "~")) and self._place.resolve(self._place.worktree / path).is_relative_to(
            top
        )


def _has(words: Sequence[str], *options: str) -> bool:
    return any(word.startswith(options) for word in words[1:])


def _spelled(command: Command) -> Iterator[tuple[str, ...]]:
    """The words as written, and as a shell may take them: an expansion yields any number of words, none included."""
    if not command.words:
        return
    yield tuple(word.text for word in command.words)
    taken: list[str] = []
    for word in command.words:
        if word.literal or word.quoted:
            taken.append(word.text)
        elif word.text.startswith("{") and word.text.endswith("}") and "," in word.text:
            taken += filter(None, word.text[1:-1].split(","))
        else:
            taken += word.text.split()
    if taken:
        yield tuple(taken)


def _reads_commands(words: Sequence[str]) -> bool:
    return base(words[0]) in SHELLS and all(word.startswith("-") for word in words[1:])


def _follows(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether ``wanted`` comes right after the command's name, options (with or without a value) aside."""
    at = {1}
    for want in wanted:
        reach, todo = set[int](), list(at)
        while todo:
            i = todo.pop()
            if i >= len(words) or i in reach:
                continue
            reach.add(i)
            if words[i].startswith("-"):
                todo += [i + 1, i + 2]
        at = {i + 1 for i in reach if words[i] == want}
    return bool(at)
