"""Suggest rules that allow calls like an approved one, the narrowest first. Warn about rules that
allow much."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rametd.domain.errors import BadRuleError
from rametd.rules import web
from rametd.rules.escapes import GUARDED
from rametd.rules.evaluation import evaluate, realpath
from rametd.rules.files import named
from rametd.rules.model import Call, Effect, Rule
from rametd.rules.parsing import AGENTS, EDITING, READING, SHELL_TOOLS, ParsedRule, parse
from rametd.rules.shell import read
from rametd.rules.words import Word
from rametd.rules.wrappers import base, runs_another

# Commands for which no prefix rule is suggested, with the reason.
UNSAFE = {
    **dict.fromkeys(
        ("rm", "rmdir", "mv", "dd", "shred", "truncate", "chmod", "chown", "ln", "mkfs"), "destroys or exposes files"
    ),
    **dict.fromkeys(
        ("find", "fd", "awk", "gawk", "sed", "make", "ssh", "rsync", "tar", "tmux", "screen"),
        "runs commands from its options",
    ),
    **dict.fromkeys(("python", "python3", "node", "deno", "bun", "perl", "ruby", "php", "lua"), "runs any code"),
    **dict.fromkeys(("npx", "bunx", "uvx", "pipx"), "fetches and runs any package"),
    **dict.fromkeys(("curl", "wget", "nc", "scp", "ftp"), "sends data anywhere"),
    **dict.fromkeys(
        ("kill", "pkill", "killall", "shutdown", "reboot", "systemctl", "launchctl", "crontab", "at"),
        "reaches outside the work",
    ),
}
UNSAFE_SUBCOMMANDS = {
    **dict.fromkeys((("git", "push"), ("npm", "publish"), ("cargo", "publish"), ("gh", "api")), "publishes"),
    **dict.fromkeys(
        (("git", "reset"), ("git", "clean"), ("git", "checkout"), ("git", "restore"), ("git", "rm")), "loses work"
    ),
    **dict.fromkeys(
        (("git", "config"), ("git", "rebase"), ("git", "submodule"), ("git", "bisect")),
        "runs commands from its options",
    ),
    **dict.fromkeys(
        (("npm", "exec"), ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"), ("go", "run")), "runs any code"
    ),
    **dict.fromkeys(
        (("docker", "run"), ("docker", "exec"), ("podman", "run"), ("kubectl", "exec")), "runs any command elsewhere"
    ),
}
# Commands whose third word names the script.
_RUNNERS = frozenset(
    {
        ("python", "-m"),
        ("python3", "-m"),
        ("npm", "run"),
        ("pnpm", "run"),
        ("yarn", "run"),
        ("bun", "run"),
        ("uv", "run"),
        ("poetry", "run"),
        ("docker", "compose"),
    }
)
_MODULES = frozenset(
    (python, "-m", module) for python in ("python", "python3") for module in ("pytest", "unittest", "mypy")
)
_FILTERS = ("cat", "cd", "echo", "grep", "head", "ls", "pwd", "tail", "true", "wc")
"""Commands that only read or print. In a line of several commands, an approval allows them too."""
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_:-]*", re.ASCII)
_LONGEST = 500


def caution(text: str) -> str:
    """Warning for the person about an allowing rule that covers more than it seems to; "" if it
    does not."""
    parsed = parse(text, Effect.ALLOW)
    if not parsed.prefix or parsed.tool not in SHELL_TOOLS:
        return ""
    name = base(parsed.words[0])
    why = next((said for words, said in UNSAFE_SUBCOMMANDS.items() if words == parsed.words[:2]), None) or (
        UNSAFE.get(name) if len(parsed.words) == 1 else None
    )
    if why is None and name in GUARDED and len(parsed.words) == 1:
        why = "has options that run commands or write files"
    if why is None:
        return ""
    asked = (
        f"; options of {name} that are known to run commands or write files are still asked about"
        if name in GUARDED
        else ""
    )
    return f"{text}: `{' '.join(parsed.words[:2])}` {why}{asked}"


def suggest(
    call: Call,
    *,
    resolve: Callable[[Path], Path] = realpath,
    home: Path | None = None,
    ignore_case: bool = False,
) -> tuple[str, ...]:
    """Suggest rules that allow this call and similar ones; none if only a person can judge it."""

    def covers(text: str) -> bool:
        try:
            rule = Rule("", Effect.ALLOW, text)
            return evaluate([rule], call, resolve=resolve, home=home, ignore_case=ignore_case).effect is Effect.ALLOW
        except BadRuleError:
            return False

    return tuple(text for text in dict.fromkeys(_candidates(call, resolve)) if covers(text))


def offers(call: Call, asked: Sequence[str] = (), **where: Any) -> tuple[tuple[str, ...], ...]:
    """Sets of rules that an approval can store, the best first. Each set allows this call; the last
    may be the exact call.

    ``asked`` are rules that the agent's program suggests; ``where`` is as for `suggest`. The
    program allows commands that only read by itself, so add rules for those in the line to a
    suggested rule.
    """

    def covers(rules: Sequence[str]) -> bool:
        allowing = [Rule("", Effect.ALLOW, text) for text in rules]
        return evaluate(allowing, call, **where).effect is Effect.ALLOW

    narrow = suggest(call, **where)
    exact = tuple(text for text in narrow if call.tool in SHELL_TOOLS and not parse(text, Effect.ALLOW).prefix)
    wide: list[tuple[str, ...]] = [(text,) for text in narrow if text not in exact]
    parts = _parts(call)
    if parts and all(parts) and covers(parts):
        wide.append(parts)
    readers = tuple(f"Bash({name}:*)" for name in _FILTERS if f"Bash({name}:*)" in parts)
    for text in asked:
        if _is_rule(text) and text not in exact:
            wide += [rules for rules in ((text,), (text, *readers)) if covers(rules)][:1]
    wide += [(text,) for text in exact if call.tool in SHELL_TOOLS]
    unique: dict[frozenset[ParsedRule], tuple[str, ...]] = {}
    for rules in wide:
        unique.setdefault(frozenset(map(parse, rules)), rules)
    return tuple(unique.values())


def completed(text: str, tool: str) -> str:
    """Complete a rule that a person wrote for a call of ``tool``: ``git commit *`` means ``Bash(git
    commit:*)``."""
    text = text.strip()
    if re.fullmatch(r"\w+\(.*\)|mcp__\w+|[A-Z]\w*", text, re.DOTALL):
        return text
    return f"{tool}({text.removesuffix(' *')}:*)" if tool in SHELL_TOOLS and text.endswith(" *") else f"{tool}({text})"


def is_whole_line(text: str) -> bool:
    """Whether a rule is the exact text of several commands, which is unlikely to match again."""
    parsed = parse(text, Effect.ALLOW)
    if parsed.tool not in SHELL_TOOLS or parsed.prefix:
        return False
    script = read(parsed.exact)
    return bool(script.doubts) or len(script.commands) != 1 or bool(script.commands[0].writes)


def _is_rule(text: str) -> bool:
    try:
        parse(text, Effect.ALLOW)
    except BadRuleError:
        return False
    return True


def _parts(call: Call) -> tuple[str, ...]:
    """A prefix rule for each command of a line, "" for a command without a safe prefix."""
    text = str(call.input.get("command", "")) if call.tool in SHELL_TOOLS else ""
    script = read(text)
    if script.doubts or len(script.commands) < 2 or len(text) > _LONGEST:
        return ()
    found = []
    for each in script.commands:
        names = [word.text for word in each.words]
        found.append(f"Bash({names[0]}:*)" if names and names[0] in _FILTERS else _prefix(names, each.words))
    return tuple(dict.fromkeys(found))


def _candidates(call: Call, resolve: Callable[[Path], Path]) -> Iterator[str]:
    if call.tool in SHELL_TOOLS:
        yield from _commands(call)
    elif call.tool in EDITING | READING:
        yield from _files(call, resolve)
    elif call.tool == "WebFetch":
        if host := web.host(str(call.input.get("url", ""))):
            yield f"WebFetch(domain:{host})"
    elif call.tool in AGENTS:
        yield f"{call.tool}({call.input.get('subagent_type', '')})"
    elif call.tool == "Skill":
        yield f"Skill({call.input.get('skill', '')})"
    else:
        yield call.tool


def _commands(call: Call) -> Iterator[str]:
    text = str(call.input.get("command", "")).strip()
    if "\n" in text or len(text) > _LONGEST or text.endswith("*"):
        return
    yield f"Bash({text})"
    script = read(text)
    if script.doubts or len(script.commands) != 1:
        return
    words = script.commands[0].words
    if prefix := _prefix([word.text for word in words], words):
        yield prefix


def _prefix(names: Sequence[str], words: Sequence[Word]) -> str:
    """A rule for all commands that begin like this one; "" if it would allow too much."""
    size = 3 if tuple(names[:2]) in _RUNNERS else 2
    if (
        len(words) < size
        or (base(names[0]) in UNSAFE and tuple(names[:3]) not in _MODULES)
        or runs_another(base(names[0]))
        or tuple(names[:2]) in UNSAFE_SUBCOMMANDS
    ):
        return ""
    plain = all(word.literal and (_SUBCOMMAND.fullmatch(word.text) or word.text == "-m") for word in words[1:size])
    if plain and names[size - 1] not in UNSAFE and re.fullmatch(r"[\w./-]+", names[0]):
        return f"Bash({' '.join(names[:size])}:*)"
    return ""


def _files(call: Call, resolve: Callable[[Path], Path]) -> Iterator[str]:
    tool = "Edit" if call.tool in EDITING else "Read"
    path = next(
        (value for key in ("file_path", "notebook_path", "path") if isinstance(value := call.input.get(key), str)), "."
    )
    top, real = resolve(call.worktree), resolve(call.directory / path)
    anchor, names = ("/", real.relative_to(top).parts) if real.is_relative_to(top) else ("//", real.parts[1:])
    directory = call.tool in {"Glob", "Grep", "LS"}
    if names and not directory:
        yield f"{tool}({named('/'.join(names), anchor)})"
    parent = names if directory else names[:-1]
    if parent:
        yield f"{tool}({named('/'.join(parent), anchor)}/**)"
