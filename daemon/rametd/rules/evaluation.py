"""Evaluate a list of rules on one tool call: deny, then ask, then allow.

A rule that denies or asks applies if it matches *any* part of the call; in a shell text it also
finds commands behind wrappers, in substitutions and in scripts for other shells. Rules allow a
shell text only if they cover *every* command in it, and only if the text can be analysed. If a text
may hide a command or path that a rule denies or asks about, Ramet asks the person.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pathspec import GitIgnoreSpec

from rametd.rules import web
from rametd.rules.commands import Judge
from rametd.rules.files import Place
from rametd.rules.model import Call, Effect, Rule, Verdict
from rametd.rules.parsing import AGENTS, EDITING, READING, SHELL_TOOLS, ParsedRule, parse
from rametd.rules.tree import Tree, braces

_TREES = frozenset({"Glob", "Grep", "LS"})
_PATH_KEYS = ("file_path", "notebook_path", "path")
_Pair = tuple[Rule, ParsedRule]


def realpath(path: Path) -> Path:
    """Resolve symlinks of the existing part of a path; normalize the rest."""
    return Path(os.path.realpath(path))


def evaluate(
    rules: Iterable[Rule],
    call: Call,
    *,
    resolve: Callable[[Path], Path] = realpath,
    home: Path | None = None,
    ignore_case: bool = False,
) -> Verdict:
    """Evaluate ``rules`` on ``call``. Raises BadRuleError for an invalid rule.

    ``home``: the directory that ``~`` means to the agent (None: the daemon's). ``ignore_case``: the
    file system ignores case.
    """
    known: dict[Path, Path] = {}

    def resolved(path: Path) -> Path:
        if path not in known:
            known[path] = resolve(path)
        return known[path]

    bases = tuple(dict.fromkeys((call.directory, call.worktree)))
    place = Place(call.worktree, home or Path.home(), resolved, ignore_case, bases)
    by_effect: dict[Effect, list[_Pair]] = {effect: [] for effect in Effect}
    for rule in rules:
        by_effect[rule.effect].append((rule, parse(rule.text, rule.effect)))
    judge = Judge(call, place) if call.tool in SHELL_TOOLS else None
    for effect, verb in ((Effect.DENY, "denies"), (Effect.ASK, "asks about")):
        for rule, parsed in by_effect[effect]:
            if _touches(parsed, call, place, judge):
                return Verdict(effect, rule, f"{rule.text} {verb} it")
    withheld = by_effect[Effect.DENY] + by_effect[Effect.ASK]
    if judge is not None:
        allowing = [(rule, parsed) for rule, parsed in by_effect[Effect.ALLOW] if parsed.tool in _shells(call.tool)]
        return judge.exactly(allowing) or _unsure(judge, withheld) or judge.allowed(allowing, withheld)
    hidden = _may_show(withheld, call, place)
    if hidden is not None and _text(call, "output_mode") == "content":
        return Verdict(Effect.ASK, hidden, f"the search may show what {hidden.text} withholds")
    for rule, parsed in by_effect[Effect.ALLOW]:
        if _covers(parsed, call, place):
            if hidden is not None:
                return Verdict(None, None, f"the search may show what {hidden.text} withholds")
            return Verdict(Effect.ALLOW, rule, f"{rule.text} allows it")
    return Verdict(None, None, f"no rule covers this use of {call.tool}")


def _unsure(judge: Judge, withheld: list[_Pair]) -> Verdict | None:
    """ASK if a shell text may hide a command or path that a rule denies or asks about."""
    for rule, parsed in withheld:
        why = ""
        if parsed.pattern is not None:
            why = judge.may_reach(parsed.pattern, edits=parsed.tool in EDITING)
        elif parsed.tool in SHELL_TOOLS and not parsed.bare:
            why = judge.unreadable
        if why:
            return Verdict(Effect.ASK, rule, f"it may reach what {rule.text} withholds: {why}")
    return None


def _shells(tool: str) -> frozenset[str]:
    """Tools whose rules apply to a tool: commands that are allowed in Bash are allowed in Monitor,
    but not vice versa."""
    return frozenset({"Bash", tool})


def _family(parsed: ParsedRule) -> frozenset[str]:
    """Tools that a rule applies to. As in Claude Code, ``Edit`` means all editing tools and
    ``Read`` all reading ones."""
    if parsed.tool == "Edit":
        return EDITING
    if parsed.tool == "Read":
        return READING
    if parsed.tool in AGENTS:
        return AGENTS
    return SHELL_TOOLS if parsed.tool == "Bash" else frozenset({parsed.tool})


def _touches(parsed: ParsedRule, call: Call, place: Place, judge: Judge | None) -> bool:
    """Whether a rule that denies or asks matches any part of the call."""
    if parsed.tool == "*":
        return True
    if parsed.tool.startswith("mcp"):
        return call.tool == parsed.tool or call.tool.startswith(parsed.tool + "__")
    if judge is not None and parsed.pattern is not None:
        return judge.reaches(parsed.pattern, edits=parsed.tool in EDITING)
    family = EDITING if parsed.tool in EDITING and parsed.pattern else _family(parsed)
    if call.tool not in family:
        return False
    if parsed.bare:
        return True
    if parsed.pattern is not None:
        tree = call.tool in _TREES
        return any(parsed.pattern.touches(path, place, tree=tree) for path in _paths(call, spelled=True))
    if judge is not None:
        return judge.touched(parsed)
    if parsed.tool == "WebFetch":
        return any(web.covers(parsed.value, host) for host in web.hosts(_text(call, "url")))
    return parsed.value in _values(call)


def _covers(parsed: ParsedRule, call: Call, place: Place) -> bool:
    """Whether a rule that allows covers the whole call."""
    if parsed.tool.startswith("mcp__"):
        # A rule for a server does not cover tools of another server whose name continues after two
        # underscores.
        rest = call.tool.removeprefix(parsed.tool + "__")
        return call.tool == parsed.tool or (rest != call.tool and "__" not in rest and parsed.tool.count("__") == 1)
    if call.tool not in _family(parsed):
        return False
    if parsed.bare:
        return True
    if parsed.pattern is not None:
        tree, edits = call.tool in _TREES, call.tool in EDITING
        paths = _paths(call, spelled=False)
        return bool(paths) and all(parsed.pattern.allows(path, place, tree=tree, edits=edits) for path in paths)
    if parsed.tool == "WebFetch":
        host = web.host(_text(call, "url"))
        return host is not None and web.covers(parsed.value, host)
    return _values(call) == {parsed.value}


def _text(call: Call, key: str) -> str:
    value = call.input.get(key)
    return value if isinstance(value, str) else ""


def _values(call: Call) -> set[str]:
    """Type of agent, or name of skill, in the call."""
    keys = ("subagent_type",) if call.tool in AGENTS else ("skill", "command")
    return {_text(call, key) for key in keys} - {""}


def _paths(call: Call, *, spelled: bool) -> tuple[str, ...]:
    """Paths that a file tool uses; none if unknown. ``spelled``: also paths that the pattern of a
    search may name."""
    paths = tuple(path for key in _PATH_KEYS if (path := _text(call, key)))
    if call.tool not in _TREES:
        return paths
    paths = paths or (".",)
    glob = _text(call, "pattern") if call.tool == "Glob" else _text(call, "glob")
    if spelled:
        return (
            paths
            + tuple(f"{path.rstrip('/')}/{glob}" for path in paths if glob)
            + ((glob,) if glob.startswith(("/", "~")) else ())
        )
    climbs = glob.startswith(("/", "~")) or ".." in glob.replace("{", "/").replace(",", "/").replace("}", "/").split(
        "/"
    )
    return () if climbs else paths


def _may_show(withheld: list[_Pair], call: Call, place: Place) -> Rule | None:
    """A rule that withholds files below the searched directory, if any."""
    if call.tool not in _TREES:
        return None
    tree, paths = Tree(place), _paths(call, spelled=False)
    glob = _text(call, "glob") if call.tool == "Grep" else ""
    names = braces(glob) if glob else []
    only = GitIgnoreSpec.from_lines(names) if names and not names[0].startswith("!") else None
    for rule, parsed in withheld:
        about = parsed.tool in READING and call.tool in _family(parsed)
        if about and parsed.pattern and any(tree.holds(path, [parsed.pattern], only) for path in paths):
            return rule
    return None
