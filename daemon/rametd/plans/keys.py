"""All keys of `plan.toml`: parser, JSON schema and documentation of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rametd.config.kinds import BOOLEAN, COMMANDS, MONEY, Kind, one_of, string
from rametd.domain.models import Mode

ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}"
PLAN = "plan"
THREAD = "threads"

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of `[plan]`, of `[[threads]]`, or of both: then the plan's value is the default for
    threads."""

    name: str
    tables: frozenset[str]
    kind: Kind[Any]
    schema: Schema
    meaning: str


def _identity(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    return _WORD.parse(value)


def _identities(value: object) -> tuple[str, ...]:
    return tuple(_identity(item) for item in (value if isinstance(value, list) else [value]))


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_TEXT.parse(item) for item in value)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    return value


def _order(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        raise ValueError
    return value


_WORD = string(ID_PATTERN, "")
_TEXT = Kind("text", _text)
_ID = Kind("a whole number, or up to 48 letters, digits, dots, - and _", _identity)
_IDS = Kind("the id of a thread, or a list of them", _identities)
_ORDER = Kind("a whole number", _order)
_PATTERNS = Kind("a list of gitignore-style patterns", _patterns)
_MODE = Kind(one_of(*Mode).accepts, lambda value: Mode(cast("str", value)))

_TEXT_SCHEMA: Schema = {"type": "string"}
_LINE_SCHEMA: Schema = {"type": "string", "minLength": 1}
_ID_SCHEMA: Schema = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{ID_PATTERN}$"}],
}
_IDS_SCHEMA: Schema = {"anyOf": [*_ID_SCHEMA["anyOf"], {"type": "array", "items": _ID_SCHEMA}]}
_PATTERNS_SCHEMA: Schema = {"type": "array", "items": _TEXT_SCHEMA}
_COMMANDS_SCHEMA: Schema = {"anyOf": [_LINE_SCHEMA, {"type": "array", "items": _LINE_SCHEMA}]}

_BOTH = frozenset({PLAN, THREAD})
_PLAN = frozenset({PLAN})
_THREAD = frozenset({THREAD})

TITLE_WORDS = ("plan", "id", "name", "branch", "goal", "position", "total")
"""Placeholders in a title."""

KEYS = (
    Key("id", _THREAD, _ID, _ID_SCHEMA, "Names the thread in the plan. Required."),
    Key(
        "name",
        _BOTH,
        _TEXT,
        _LINE_SCHEMA,
        "Of the plan: its name, by default the file's. Of a thread: the name of its session, by default its id or, if that is a number, the last part of its branch.",
    ),
    Key("branch", _THREAD, _TEXT, _LINE_SCHEMA, "The branch to create; by default the configured prefix and the name."),
    Key(
        "goal",
        _BOTH,
        _TEXT,
        _TEXT_SCHEMA,
        "Goal of the thread, or of the whole plan. Ramet shows it to the agent and to the agents of other threads.",
    ),
    Key("prompt", _THREAD, _TEXT, _TEXT_SCHEMA, "First prompt of the agent; by default the goal. Without either, the session is idle."),
    Key("prompt_file", _THREAD, _TEXT, _LINE_SCHEMA, "A file with the prompt; relative to the plan."),
    Key("base", _BOTH, _TEXT, _LINE_SCHEMA, "Branch, tag or commit to start from; by default the one that is checked out."),
    Key("target", _PLAN, _TEXT, _LINE_SCHEMA, "The branch on which all threads land; by default the base."),
    Key("owns", _THREAD, _PATTERNS, _PATTERNS_SCHEMA, "Patterns of paths that only this thread may change, as in a .gitignore file."),
    Key("forbids", _THREAD, _PATTERNS, _PATTERNS_SCHEMA, "Patterns of paths that the thread must not change."),
    Key("merge_order", _THREAD, _ORDER, {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}, "Lower lands first; by default the id if it is a number, else the position in the file."),
    Key("after", _THREAD, _IDS, _IDS_SCHEMA, "Threads that must complete their work before this one starts; they also land first."),
    Key("model", _BOTH, _TEXT, _LINE_SCHEMA, "Model; by default the agent's own."),
    Key("mode", _BOTH, _MODE, {"enum": [str(mode) for mode in Mode]}, "Permission mode; by default as configured."),
    Key("agent", _BOTH, _TEXT, _LINE_SCHEMA, "Kind of agent; by default claude."),
    Key("budget", _BOTH, MONEY, {"type": "number", "exclusiveMinimum": 0}, "Maximum cost of each thread in dollars."),
    Key("check", _BOTH, COMMANDS, _COMMANDS_SCHEMA, "Commands that must succeed before a thread lands; by default as configured."),
    Key(
        "title",
        _BOTH,
        _TEXT,
        _LINE_SCHEMA,
        f"Title of the pull request, with {', '.join(f'{{{word}}}' for word in TITLE_WORDS)}; by default the goal.",
    ),
    Key("chain", _PLAN, BOOLEAN, {"type": "boolean"}, "Whether the base of each pull request is the previous thread's branch instead of the target."),
    Key("draft", _PLAN, BOOLEAN, {"type": "boolean"}, "Whether to open pull requests as drafts; by default as configured."),
    Key("remote", _PLAN, _TEXT, _LINE_SCHEMA, "The remote to push branches to; by default that of the target, else origin."),
)  # fmt: skip


def keys_of(table: str) -> dict[str, Key]:
    """Keys of `[plan]` or `[[threads]]` by name."""
    return {key.name: key for key in KEYS if table in key.tables}
