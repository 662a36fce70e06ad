"""Evaluate rules on a shell text: on all commands in it, on the commands that those run, and on the
files that they name."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from urllib.parse import unquote

from rametd.rules.escapes import escapes, git_verb, may_escape
from rametd.rules.files import Pattern, Place
from rametd.rules.model import Call, Effect, Rule, Verdict
from rametd.rules.parsing import CHANGERS, READING, ParsedRule
from rametd.rules.shell import Command, Script, read
from rametd.rules.tree import Tree, braces
from rametd.rules.words import Word
from rametd.rules.wrappers import EXECUTING, SHELLS, base, inner, launched, runs_another

# Commands that show the contents of the files that they name, and commands that change such files.
# `cp` does both.
_READERS = frozenset(
    [
        "7z", "ack", "ag", "awk", "base32", "base64", "bat", "batcat", "bzcat", "cat", "cmp", "cp", "cpio", "curl", "cut",
        "dd", "diff", "egrep", "emacs", "expand", "fgrep", "file", "fmt", "fold", "gawk", "grep", "head", "hexdump", "iconv",
        "install", "jq", "less", "ln", "look", "mapfile", "mawk", "more", "mv", "nano", "nl", "od", "openssl", "paste", "pax",
        "pr", "readarray", "rev", "rg", "rsync", "scp", "sed", "shuf", "sort", "source", "split", "strings", "tac", "tail",
        "tar", "tee", "ugrep", "uniq", "vi", "view", "vim", "wc", "xargs", "xxd", "xz", "xzcat", "yq", "zcat", "zip",
        "zstdcat"
    ]
)  # fmt: skip
_WRITERS = frozenset(
    [
        "chmod", "chown", "cp", "cpio", "csplit", "dd", "ed", "emacs", "ex", "git", "install", "ln", "mkdir", "mkfifo",
        "mknod", "mktemp", "mv", "nano", "patch", "perl", "pax", "rename", "rm", "rmdir", "rsync", "scp", "sed", "setfacl",
        "shred", "split", "sponge", "tar", "tee", "touch", "truncate", "unlink", "unzip", "vi", "vim", "wget"
    ]
)  # fmt: skip
# Commands that neither show nor change the contents of the files that they name.
_QUIET = frozenset(
    [
        ":", "[", "[[", "basename", "cd", "command", "date", "dirname", "du", "echo", "exit", "export", "false", "hash",
        "kill", "ls", "popd", "printf", "pushd", "pwd", "readlink", "realpath", "sleep", "stat", "test", "true", "type",
        "unset", "wait", "whereis", "which", "whoami"
    ]
)  # fmt: skip
# Options with which such a command does, because their value is a file of names or dates: long
# options, and letters.
_QUIET_UNLESS = {"date": ("--file", "f"), "du": ("--files0-from --exclude-from", "X")}
_SHOWING_WRITERS = frozenset({"csplit", "ed", "ex", "git", "patch", "perl", "unzip", "wget"})  # they show files too
_WRITES_BY_OPTION = frozenset({"curl", "shuf", "sort", "tree", "xxd", "yq", "find"})
_FETCHERS = frozenset({"curl", "wget"})  # they name a file after the last part of an address
# Commands whose operands contain commands that may name files.
_PROGRAMMABLE = frozenset({"duckdb", "emacs", "ex", "gnuplot", "mysql", "psql", "sqlite3", "vi", "view", "vim"})
_SEARCHERS = frozenset({"ack", "ag", "rg", "ugrep"})  # without an operand, they search the working directory
_GREPS = frozenset({"grep", "egrep", "fgrep"})
_GIT_WRITERS = frozenset(
    {"am", "apply", "bundle", "checkout", "checkout-index", "clean", "mv", "read-tree", "restore", "rm", "stash"}
)
_GIT_CONFIG_FILE = re.compile(r"-[A-Za-z]*f.*|--fil?e?(?:=.*)?")
_GOING = frozenset({"cd", "pushd"})
# In some shells, operands of these are arithmetic, in which a subscript may run commands: `[
# 'a[$(x)]' -eq 0 ]`.
_CALCULATING = frozenset({"[", "printf", "test"})
_DEPTH = 16  # nesting of commands that run commands
_MOST_BASES = 8  # possible working directories
_MOST_OPERANDS = 500  # compared with patterns of paths
_MOST_PARTS = 8  # of a word

_Words = tuple[Word, ...]
_Withheld = Sequence[tuple[Rule, ParsedRule]]


class Judge:
    """One call of a shell tool, parsed once and compared with many rules."""

    def __init__(self, call: Call, place: Place) -> None:
        command = call.input.get("command")
        self._known = isinstance(command, str)
        self._text = command.strip() if isinstance(command, str) else ""
        self._unconfined = bool(call.input.get("dangerouslyDisableSandbox"))
        self._start = call.directory
        self._script = read(self._text)
        self._unreadable: list[str] = []
        self._place = replace(place, bases=self._bases(place))
        self._tree = Tree(self._place)

    # Deny and ask: commands

    def touched(self, rule: ParsedRule) -> bool:
        """Whether the rule names any command of the text, also one behind wrappers."""
        if rule.exact and rule.exact == self._text:
            return True
        return bool(rule.words) and any(
            self._names(rule, tuple(word.text for word in words)) for words in self._everything
        )

    @property
    def unreadable(self) -> str:
        """Why the text may hide a command; "" if all commands were found."""
        _ = self._everything  # fills the list
        return next(iter(self._unreadable), self._script.unreadable)

    @cached_property
    def _everything(self) -> frozenset[_Words]:
        found: set[_Words] = set()
        fed, seen = set[str](), set[str]()
        texts = {self._text}
        for _ in range(_DEPTH):
            for text in texts:
                fed |= self._collect(read(text), found, _DEPTH)
            seen |= texts
            # A shell without a script argument runs its input: here-documents and printed text.
            if not any(_reads_commands(words) for words in found):
                break
            if not fed:
                self._unreadable.append("a shell reads its commands from elsewhere")
            printed = {
                " ".join(word.text for word in words[1:])
                for words in found
                if base(words[0].text) in {"echo", "printf"}
            }
            texts = (fed | printed) - seen
        return frozenset(found)

    def _collect(self, script: Script, found: set[_Words], depth: int) -> set[str]:
        """Add the words of every command, also nested ones, to ``found``; return the texts of
        here-documents."""
        fed = set(script.feeds)
        if script.unreadable:
            self._unreadable.append(script.unreadable)
        for command in script.commands:
            for words in _spelled(command):
                fed |= self._collect_words(words, found, depth)
        return fed

    def _collect_words(self, words: _Words, found: set[_Words], depth: int) -> set[str]:
        fed: set[str] = set()
        if words in found:
            return fed
        found.add(words)
        name = base(words[0].text)
        if not words[0].written_out:
            self._unreadable.append("the name of a command is not written out")
        if name == "alias" or (name in {"hash", "enable"} and len(words) > 1 and words[1].text.startswith("-")):
            self._unreadable.append(f"`{name}` gives a command another name")
        for other in launched([word.text for word in words]):
            rest = words[other.start :]
            if not depth:
                self._unreadable.append("too many commands run each other")
            elif other.script is not None:
                if any(word.open for word in rest):
                    self._unreadable.append("a script is not written out")
                fed |= self._collect(read(other.script), found, depth - 1)
            else:
                # `xargs` adds words from its input, which may name anything below the directory,
                # like `{}` of find.
                more = (Word("{}", literal=False),) if name in {"xargs", "parallel"} else ()
                fed |= self._collect_words(rest + more, found, depth - 1)
        return fed

    def _names(self, rule: ParsedRule, words: Sequence[str]) -> bool:
        name = base(words[0]).removeprefix("=")  # zsh takes `=name` for the program of that name
        wanted, called = self._place.fold(base(rule.words[0])), self._place.fold(name)
        if wanted != called and not (re.search(r"[*?\[]", name) and fnmatchcase(wanted, called)):
            return False
        if not rule.prefix:
            return tuple(rule.words[1:]) == tuple(words[1:])
        # Options may precede a subcommand (`git -C x push`), and the rule's options may occur
        # anywhere (`git push origin --force`).
        options = [word for word in rule.words[1:] if word.startswith("-")]
        return all(option in words for option in options) and _follows(
            [w for w in rule.words[1:] if w not in options], words
        )

    # Deny and ask: paths

    def reaches(self, pattern: Pattern, *, edits: bool) -> bool:
        """Whether the text shows (or with ``edits`` changes) a path that it names and the pattern
        covers."""
        return any(map(pattern.matcher(self._place, tree=True), self._changed_paths if edits else self._shown_paths))

    def may_reach(self, pattern: Pattern, *, edits: bool) -> str:
        """Reason why a command may show or change files of the pattern without naming them, "" if
        none may."""
        _, unclear, directories = self._changed if edits else self._shown
        if self._script.unreadable or unclear:
            return self._script.unreadable or unclear
        for path in directories:
            if self._tree.holds(path, [pattern]):
                return f"`{path}` holds some of it" if path != "." else "the directory holds some of it"
        return ""

    @cached_property
    def _shown_paths(self) -> set[Path]:
        return {meaning for path in self._shown[0] for meaning in self._place.meanings(path)}

    @cached_property
    def _changed_paths(self) -> set[Path]:
        return {meaning for path in self._changed[0] for meaning in self._place.meanings(path)}

    @cached_property
    def _shown(self) -> tuple[set[str], str, list[str]]:
        operands = [words for words in self._everything if _shows(words)]
        sure = [words for words in operands if base(words[0].text) in _READERS or _searches(words)]
        return self._operands(operands, sure, [word for command in self._commands for word in command.reads])

    @cached_property
    def _changed(self) -> tuple[set[str], str, list[str]]:
        operands = [words for words in self._everything if _changes(words)]
        paths, unclear, directories = self._operands(
            operands, operands, [word for command in self._commands for word in command.writes]
        )
        unnamed = next((words[0].text for words in operands if _writes_unnamed(words)), "")
        return paths, unclear or (unnamed and f"`{unnamed}` may write files that it does not name"), directories

    @cached_property
    def _commands(self) -> list[Command]:
        """Commands in the text, and in scripts for other shells in it."""
        return [command for text in (self._text, *self._scripts) for command in read(text).commands]

    @cached_property
    def _scripts(self) -> list[str]:
        texts = [[word.text for word in words] for words in self._everything]
        return [other.script for words in texts for other in launched(words) if other.script is not None]

    def _operands(
        self, commands: Iterable[_Words], sure: Sequence[_Words], redirected: Iterable[Word]
    ) -> tuple[set[str], str, list[str]]:
        """Return the named paths, the reason why other paths may be used too, "" if not, and
        directories whose contents may be used.

        ``sure``: commands that certainly use files; consider only their unknown operands and
        directories.
        """
        found, unclear, directories = set[str](), "", list[str]()
        known = set(map(id, sure))
        for words in commands:
            certain = id(words) in known
            for word in words[1:]:
                if word.text == "{}" and certain:
                    directories.append(".")
                if word.open and certain:
                    unclear = unclear or "a variable or a substitution says which files"
                paths, complete = self._paths(word, base(words[0].text))
                found |= paths
                if certain:
                    directories += [path for path in paths if path and not path.startswith("-")]
                    unclear = unclear or ("" if complete else "a glob matches too much to look at")
            if certain and _searches(words) and not _names_a_place(words):
                directories.append(".")
        for word in redirected:
            found |= self._paths(word)[0]
            if word.open:
                unclear = unclear or "a variable or a substitution says which file"
        if len(found) > _MOST_OPERANDS:
            return set(), "it names too many files", []
        return found, unclear, list(dict.fromkeys(directories))

    def _paths(self, word: Word, name: str = "") -> tuple[set[str], bool]:
        """Paths that a word of the command ``name`` may name, also as the value of an option: `dd
        of=x`, `-d@x`, `-aFx`, `HEAD:x`."""
        text = word.text
        # The value may follow a letter of a bundle, and `=`, `:`, `@` or `<`.
        texts = {text, *_bundled(text)}
        texts |= {text[match.end() :] for match in islice(re.finditer(r"[=:@<]+", text), _MOST_PARTS)}
        texts |= {each.lstrip("@<=") for each in texts}
        if name == "curl":
            texts |= {each.partition(";")[0] for each in texts}
        if name in _PROGRAMMABLE:
            texts |= set(islice(re.findall(r"[^\s'\"(),;]+", text), _MOST_OPERANDS))
        if name in _FETCHERS:
            texts.add(re.split(r"[?#]", text)[0].rpartition("/")[2])
        address = re.search(r"file:(?://[^/]*)?(/.*)", text, re.IGNORECASE)
        if address is not None:
            texts |= self._tree.expand(unquote(address[1]))[0]  # curl expands braces and brackets itself
        texts.discard("")
        if not word.pattern:
            return texts, True
        found, complete = set[str](), True
        for each in texts:
            paths, all_of_them = self._tree.expand(each)
            found |= paths
            complete = complete and all_of_them
        return found, complete

    def _bases(self, place: Place) -> tuple[Path, ...]:
        """Directories in which commands may run: the agent's, the worktree's top, and targets of
        `cd` and `-C`."""
        bases = [self._start, place.worktree]
        for words in self._everything:
            texts = [word.text for word in words]
            goals = texts[1:] if base(texts[0]) in _GOING else []
            goals += [goal for option, goal in pairwise(texts) if option in {"-C", "--directory"}]
            goals += [text.partition("=")[2] for text in texts if text.startswith(("--directory=", "--chdir="))]
            for goal in goals:
                bases += [
                    reading for each in bases[:_MOST_BASES] for reading in replace(place, bases=(each,)).readings(goal)
                ]
        return tuple(dict.fromkeys(bases))[:_MOST_BASES]

    # Allow

    def exactly(self, rules: Sequence[tuple[Rule, ParsedRule]]) -> Verdict | None:
        """ALLOW if a rule contains exactly this text, else None."""
        if not self._text or self._unconfined or (self._moved and self._relative):
            return None
        found = next((rule for rule, parsed in rules if parsed.exact == self._text), None)
        return Verdict(Effect.ALLOW, found, f"{found.text} allows it") if found is not None else None

    def allowed(self, rules: Sequence[tuple[Rule, ParsedRule]], withheld: _Withheld = ()) -> Verdict:
        """ALLOW if rules cover every command; else no effect, with the reason.

        ``withheld``: rules that deny or ask about paths. A command that may reach such paths, by an
        expansion or by a directory that contains them, is not covered.
        """
        if not self._known or not self._text:
            return Verdict(None, None, "there is no command to judge")
        if self._unconfined:
            return Verdict(None, None, "it asks to run outside the sandbox")
        if (exact := self.exactly(rules)) is not None:
            return exact
        if not self._inside("."):
            return Verdict(None, None, "the agent's directory is outside its worktree")
        if self._script.doubts:
            return Verdict(None, None, f"it cannot be judged by rules: {self._script.doubts[0]}")
        used: list[Rule] = []
        going = sum(bool(command.words) and command.words[0].text in _GOING for command in self._script.commands)
        for command in self._script.commands:
            found, size = next(
                ((rule, len(parsed.words)) for rule, parsed in rules if self._covers(parsed, command, going=going)),
                (None, 0),
            )
            if found is None:
                shown = " ".join(word.text for word in command.words[:4])
                return Verdict(None, None, f"no rule covers `{shown}`")
            if (protected := self._protected(command, size)) is not None:
                return Verdict(None, None, f"it may change {protected}, which decides which commands run")
            hidden = self._hidden(command, withheld)
            if hidden is not None:
                return Verdict(None, None, f"it may reach what {hidden.text} withholds")
            used.append(found)
        if not used:
            return Verdict(None, None, "there is no command to judge")
        return Verdict(Effect.ALLOW, used[0], f"{', '.join(dict.fromkeys(rule.text for rule in used))} allows it")

    @property
    def _moved(self) -> bool:
        """Whether the agent's directory is not the worktree's top: a relative name is then another
        program."""
        return self._place.resolve(self._start) != self._place.resolve(self._place.worktree)

    @property
    def _relative(self) -> bool:
        names = [command.words[0].text for command in self._script.commands if command.words]
        return any("/" in name and not name.startswith("/") for name in names)

    def _protected(self, command: Command, size: int) -> str | None:
        """An operand after the rule's ``size`` words that names a protected file, if the command
        changes files."""
        if not _changes(command.words) or base(command.words[0].text) == "sed":  # no prefix covers `sed -i`
            return None
        for word in command.words[size:]:
            for path in self._paths(word, base(command.words[0].text))[0]:
                if any(map(self._place.protects, self._place.meanings(path))):
                    return word.text
        return None

    def _hidden(self, command: Command, withheld: _Withheld) -> Rule | None:
        """The rule about paths that the command may circumvent."""
        for rule, parsed in withheld:
            if parsed.pattern is None:
                continue
            if not (_shows if parsed.tool in READING else _changes)(command.words, unknown=True):
                continue
            for word in command.words[1:]:
                if not word.written_out or self._tree.holds(word.text, [parsed.pattern]):
                    return rule
        return None

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
        if (going or self._moved) and "/" in name and not name.startswith("/"):
            return False  # in another directory it is another program
        if not rule.prefix:
            return True
        if (
            name in CHANGERS
            or (name == "printf" and _has(texts, "-v"))
            or (name in {"test", "["} and _has(texts, "-v", "-R"))
            or (name in _CALCULATING and any("[" in text and re.search(r"[$`]", text) for text in texts[1:]))
        ):
            return False
        if name in _GOING and not (
            going == 1 and len(texts) == 2 and command.words[1].literal and self._inside(texts[1])
        ):
            return False
        # The rule must name the command that a wrapper runs, or it would allow anything. So no
        # expansion may hide the beginning of that command.
        if may_escape(command.words, size) or escapes(texts, size) is not None:
            return False
        if _runs_words(base(name)) and not all(word.literal for word in command.words):
            return False
        return all(other.start < size for other in inner(texts))

    def _inside(self, path: str) -> bool:
        top = self._place.resolve(self._place.worktree)
        return not path.startswith(("-", "+", "~")) and self._place.resolve(self._start / path).is_relative_to(top)


def _has(words: Sequence[str], *options: str) -> bool:
    return any(word.startswith(options) for word in words[1:])


def _runs_words(name: str) -> bool:
    return runs_another(name) or name in EXECUTING


def _searches(words: _Words) -> bool:
    """Whether a command searches a directory, even without naming one."""
    name, texts = base(words[0].text), [word.text for word in words[1:]]
    if name == "git":
        return "grep" in texts
    if name in _GREPS:
        return any(re.match(r"-[A-Za-z]*[rR]|--(?:dereference-)?recursive|--directories=", text) for text in texts)
    return name in _SEARCHERS


def _names_a_place(words: _Words) -> bool:
    """Whether a search names a path: an operand after its pattern."""
    return sum(not word.text.startswith("-") for word in words[1:]) > (2 if base(words[0].text) == "git" else 1)


def _shows(words: _Words, *, unknown: bool = True) -> bool:
    """Whether a command shows the files that it names; with ``unknown``, also whether it may."""
    name = base(words[0].text) if words else ""
    return name in _READERS or (unknown and not _is_quiet(words) and name not in _WRITERS - _SHOWING_WRITERS)


def _is_quiet(words: _Words) -> bool:
    """Whether a command neither shows nor changes the contents of the files that it names."""
    name = base(words[0].text)
    long, letters = _QUIET_UNLESS.get(name, ("", ""))
    for word in words[1:] if long else ():
        stem = word.text.partition("=")[0]
        if len(stem) > 2 and any(option.startswith(stem) for option in long.split()):
            return False
        if re.match(rf"-[A-Za-z0-9]*[{letters}]", word.text):
            return False
    return name in _QUIET


def _changes(words: _Words, *, unknown: bool = False) -> bool:
    """Whether a command changes the files that it names; with ``unknown``, also whether it may."""
    name = base(words[0].text) if words else ""
    texts = [word.text for word in words]
    if name == "git":
        verb = git_verb(texts)
        files = texts[verb : verb + 1] == ["config"] and any(map(_GIT_CONFIG_FILE.fullmatch, texts[verb:]))
        return unknown or files or any(text in _GIT_WRITERS for text in texts[1:]) or escapes(texts) is not None
    if name == "uniq":
        return sum(not text.startswith("-") for text in texts[1:]) > 1
    if name in _WRITES_BY_OPTION and escapes(texts) is not None:
        return True
    return name in _WRITERS or (unknown and not _is_quiet(words) and name not in _READERS)


def _writes_unnamed(words: _Words) -> bool:
    """Whether a command writes files whose names are in its input: archives and patches."""
    name, texts = base(words[0].text), [word.text for word in words[1:]]
    if name == "git":
        verb, *rest = texts[git_verb(["git", *texts]) - 1 :] or [""]
        return (
            verb in {"am", "apply", "checkout-index"}
            or (verb == "stash" and rest[:1] in (["pop"], ["apply"], ["branch"]))
            or (verb == "read-tree" and any(re.match(r"-[A-Za-z]*u", text) for text in rest))
        )
    if name == "tar":
        old = texts[:1] and re.fullmatch(r"[A-Za-z]*x[A-Za-z]*", texts[0])  # `tar xf`
        return bool(old) or any(re.match(r"--(?:extract|get)|-[A-Za-z]*x", text) for text in texts)
    if name == "unzip":
        return not any(re.match(r"-[A-Za-z]*[lptvzZ]", text) for text in texts)
    return name in {"cpio", "patch", "pax"} and not any(text == "--dry-run" for text in texts)


def _bundled(text: str) -> list[str]:
    """Values that may follow the letters of a bundle of short options: `env`, `nv` and `v` of
    `-aenv`."""
    if not text.startswith("-") or text.startswith("--"):
        return []
    letters = re.match(r"-[A-Za-z0-9]*", text)
    return [text[i:] for i in range(2, min(letters.end() if letters else 0, _MOST_PARTS) + 1)]


def _spelled(command: Command) -> Iterator[_Words]:
    """The words as written, and as a shell may expand them: an expansion yields any number of
    words."""
    if not command.words:
        return
    yield command.words
    taken: list[Word] = []
    for word in command.words:
        if word.literal or (word.quoted and not word.pattern):
            taken.append(word)
        else:
            texts = [part for text in braces(word.text) for part in ([text] if word.quoted else text.split())]
            taken += [replace(word, text=text) for text in texts]
    if taken:
        yield tuple(taken)


def _reads_commands(words: _Words) -> bool:
    return base(words[0].text) in SHELLS and all(word.text.startswith("-") for word in words[1:])


def _follows(subcommand: Sequence[str], words: Sequence[str]) -> bool:
    """Whether ``subcommand`` follows the command's name, apart from options with or without a
    value."""
    at = {1}
    for part in subcommand:
        reach, todo = set[int](), list(at)
        while todo:
            i = todo.pop()
            if i >= len(words) or i in reach:
                continue
            reach.add(i)
            if words[i].startswith("-"):
                todo += [i + 1, i + 2]
        at = {i + 1 for i in reach if words[i] == part}
    return bool(at)
