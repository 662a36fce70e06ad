"""Rules in Claude's own syntax: ``Tool``, ``Tool(specifier)``, ``mcp__server``,
``mcp__server__tool``."""

import re
from dataclasses import dataclass
from functools import lru_cache

from rametd.domain.errors import BadRuleError
from rametd.rules import web
from rametd.rules.files import Pattern
from rametd.rules.model import Effect
from rametd.rules.shell import read
from rametd.rules.wrappers import SHELLS, base, inner, runs_another

SHELL_TOOLS = frozenset({"Bash", "Monitor"})
EDITING = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
READING = frozenset({"Read", "NotebookRead", "Glob", "Grep", "LS"})
AGENTS = frozenset({"Agent", "Task"})
_SPECIFIED = SHELL_TOOLS | EDITING | READING | AGENTS | {"WebFetch", "Skill"}
_NEEDS_SPECIFIER = (SHELL_TOOLS | EDITING | READING | {"WebFetch"}) - {"Monitor"}

_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_MCP = re.compile(r"mcp__[A-Za-z0-9._-]{1,200}")

# Builtins that may change the meaning of later words, or run the value of a variable.
CHANGERS = frozenset(
    [
        ".",
        "alias",
        "bind",
        "builtin",
        "coproc",
        "declare",
        "enable",
        "eval",
        "exec",
        "export",
        "fc",
        "function",
        "getopts",
        "hash",
        "let",
        "local",
        "mapfile",
        "popd",
        "read",
        "readarray",
        "readonly",
        "set",
        "shopt",
        "source",
        "trap",
        "typeset",
        "unalias",
        "unset",
        "wait",
    ]
)


@dataclass(frozen=True, slots=True)
class ParsedRule:
    """A parsed rule.

    ``tool`` is a name, ``mcp__server``, ``mcp__server__tool``, or ``*``; a bare tool sets no other
    field. For a shell: ``words`` of the command (empty if the text is not one plain command, and
    then matches only as a whole, as ``exact``), and ``prefix`` if more words may follow. For files:
    ``pattern``. ``value``: a domain, a type of agent or the name of a skill.
    """

    tool: str
    exact: str = ""
    words: tuple[str, ...] = ()
    prefix: bool = False
    pattern: Pattern | None = None
    value: str = ""

    @property
    def bare(self) -> bool:
        return not (self.exact or self.words or self.pattern or self.value)


@lru_cache(maxsize=4096)
def parse(text: str, effect: Effect = Effect.ALLOW) -> ParsedRule:
    """Parse one rule. Raises BadRuleError with a hint. A rule that allows has more restrictions
    than one that denies or asks."""
    rule = text.strip()
    if not rule:
        raise _bad(text, "a rule is empty", "write Tool(specifier), such as Bash(git status:*) or Edit(src/**)")
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", rule):
        raise _bad(text, "a rule holds a control character", "remove it")
    name, opening, rest = rule.partition("(")
    if (not opening and ")" in name) or (opening and (not rest.endswith(")") or not _balanced(rest[:-1]))):
        raise _bad(text, "its parentheses do not match", "a rule is Tool or Tool(specifier)")
    specifier = rest[:-1].strip()
    if name == "*" or name.startswith("mcp__"):
        if opening:
            raise _bad(
                text,
                f"{name} takes nothing in parentheses",
                "MCP tools are named whole: mcp__server or mcp__server__tool",
            )
        return _bare(text, name, effect) if name == "*" else _mcp(text, name, effect)
    if not _NAME.fullmatch(name):
        raise _bad(
            text,
            f"no tool has a name like {name!r}",
            "tools are written as Claude does: Bash, Edit, WebFetch, mcp__server__tool",
        )
    if not opening or specifier in {"*", ":*", "**", "domain:*"}:
        return _bare(text, name, effect)
    if not specifier:
        raise _bad(text, "its parentheses are empty", f"write a specifier for {name}, or leave the parentheses out")
    if name in SHELL_TOOLS:
        return _shell(text, name, specifier, effect)
    if name in EDITING | READING:
        return ParsedRule(name, pattern=Pattern.parse(text, specifier, allows=effect is Effect.ALLOW))
    if name == "WebFetch":
        return ParsedRule(name, value=web.domain(text, specifier, allows=effect is Effect.ALLOW))
    if name in AGENTS or name == "Skill":
        if not re.fullmatch(r"[\w.:-]+", specifier):
            raise _bad(text, f"{specifier!r} is no name", f"write {name}(name), without a wildcard")
        return ParsedRule(name, value=specifier)
    raise _bad(text, f"{name} takes nothing in parentheses", f"only {', '.join(sorted(_SPECIFIED))} do")


def _bad(text: str, why: str, hint: str) -> BadRuleError:
    return BadRuleError(f"rule {text!r}: {why}", hint=hint, rule=text)


def _balanced(specifier: str) -> bool:
    depth = 0
    for char in re.sub(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"", "", specifier, flags=re.DOTALL):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def _bare(text: str, name: str, effect: Effect) -> ParsedRule:
    if effect is Effect.ALLOW and (name == "*" or name in _NEEDS_SPECIFIER or name == "Monitor"):
        raise _bad(
            text, "it would allow everything", "say which: Bash(npm test:*), Edit(src/**), WebFetch(domain:example.com)"
        )
    return ParsedRule(name)


def _mcp(text: str, name: str, effect: Effect) -> ParsedRule:
    named = name.removesuffix("__*")
    if named in {"mcp", "mcp__*", "mcp__"} and effect is not Effect.ALLOW:
        return ParsedRule("mcp")
    if not _MCP.fullmatch(named) or named.endswith("__") or "*" in named:
        why = "it would allow everything" if set(named[3:]) <= set("_*") else "an MCP tool has no such name"
        raise _bad(text, why, "write mcp__server for all tools of a server, mcp__server__tool for one")
    return ParsedRule(named)


def _shell(text: str, tool: str, specifier: str, effect: Effect) -> ParsedRule:
    command, prefix = specifier, False
    for ending in (":*", " *"):
        if specifier.endswith(ending):
            command, prefix = specifier.removesuffix(ending).strip(), True
            break
    script = read(command)
    one = script.commands[0] if len(script.commands) == 1 and not script.doubts else None
    plain = one is not None and bool(one.words) and all(word.literal for word in one.words)
    words = tuple(word.text for word in one.words) if one and plain else ()
    if not command or not script.commands:
        raise _bad(text, "it names no command", "write the command's first words: Bash(git status:*)")
    if any(char in re.sub(r"\\.|'[^']*'|\"[^\"]*\"", "", command) for char in "*"):
        raise _bad(text, "a * may only stand at the end", "write the first words and :* after them, or quote the *")
    if not prefix:
        return ParsedRule(tool, exact=command, words=words)
    if not plain:
        raise _bad(
            text,
            "only the first words of one plain command may stand before :*",
            "leave out operators, variables and redirections",
        )
    if effect is Effect.ALLOW:
        name = base(words[0])
        wraps = runs_another(name) and not any(found.start < len(words) for found in inner(words))
        of_a_file = name in SHELLS and len(words) > 1 and not words[1].startswith("-")
        if name in CHANGERS or (wraps and not of_a_file):
            raise _bad(
                text,
                f"`{name}` runs any command after it, so this would allow everything",
                "name the command that it may run",
            )
    return ParsedRule(tool, words=words, prefix=True)
