"""Kinds of settings: accepted values, and conversion from and to TOML."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

from ramet.environment import NEVER

from rametd.domain.models import Mode

T = TypeVar("T")

AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
KNOWN_AGENTS = ("opencode", "codex", "droid", "gemini", "qwen", "pi", "goose", "copilot", "claude-acp")
"""Agents of which Ramet knows the command; `[agents.NAME]` need not name it."""


class RefusedError(ValueError):
    """Raised for a value of the right form that is refused; the text says why."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value. ``parse`` converts a value from tomllib. It raises ValueError for another
    form, and RefusedError with the reason."""

    accepts: str  # completes "expected …"
    parse: Callable[[object], T]
    unit: str = ""
    shown: Callable[[T], object] | None = None  # for `config show`: hides the secret part of a value


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: the single source for reading, checking, showing and documenting it."""

    key: str  # dotted; a table of free names ends in ".NAME"
    field: str  # dotted path of the value in `Config`
    kind: Kind[Any]
    default: Any
    meaning: str
    repository: bool  # whether a repository's `.ramet.toml` may set it
    fallback: Any = None  # if set, replaces an invalid value, with a warning

    @property
    def path(self) -> str:
        """Dotted path of the value in the file."""
        return self.key.removesuffix(".NAME")


def setting(kind: Kind[T], default: T, meaning: str, *, repository: bool = False, fallback: T | None = None) -> T:
    """Declare a setting as a field of a configuration dataclass."""
    metadata = {"kind": kind, "default": default, "meaning": meaning, "repository": repository, "fallback": fallback}
    return field(default_factory=lambda: default, metadata=metadata)


def declared(section: type, prefix: str = "") -> Iterator[Setting]:
    """Settings of a configuration dataclass and its sections, in order."""
    for item in fields(section):
        if "kind" in item.metadata:
            path = prefix + item.name
            keys = {NAMED_COMMANDS: f"{path}.NAME", NAMED_AGENTS: f"{prefix}NAME"}
            yield Setting(key=keys.get(item.metadata["kind"], path), field=path, **item.metadata)
        elif is_dataclass(item.type):
            yield from declared(cast("type", item.type), f"{prefix}{item.name}.")


def toml(value: object) -> str:
    """TOML text of a value; ``unset`` for None, which TOML lacks."""
    match value:
        case None:
            return "unset"
        case bool():
            return str(value).lower()
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
        case tuple() | list():
            return "[" + ", ".join(toml(item) for item in value) + "]"
        case Mapping():
            return "{" + ", ".join(f"{toml_key(name)} = {toml(item)}" for name, item in value.items()) + "}"
        case float():
            return '"never"' if value == math.inf else f"{value:.15g}"
        case _:
            return str(value)


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def whole(least: int, most: int, unit: str = "") -> Kind[int]:
    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return Kind(f"a whole number from {least} to {most}", parse, unit)


def one_of(*names: str) -> Kind[str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind("one of " + ", ".join(f'"{name}"' for name in names), parse)


def some_of(*names: str) -> Kind[tuple[str, ...]]:
    """A list of some of the names."""

    def parse(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(item in names for item in value):
            raise ValueError
        return tuple(dict.fromkeys(value))

    return Kind("a list of " + ", ".join(f'"{name}"' for name in names), parse)


def optional(kind: Kind[T]) -> Kind[T | None]:
    """The same kind for a setting that is unset by default."""
    return Kind(kind.accepts, kind.parse, kind.unit, kind.shown)  # type: ignore[arg-type]


def strings(pattern: str, accepts: str) -> Kind[tuple[str, ...]]:
    """A list of strings, each a full match of ``pattern``."""
    compiled = re.compile(pattern, re.DOTALL)

    def parse(value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError
        return tuple(_string(item, compiled) for item in value)

    return Kind(f"a list of {accepts}", parse)


def string(pattern: str, accepts: str) -> Kind[str]:
    compiled = re.compile(pattern)
    return Kind(accepts, lambda value: _string(value, compiled))


def _string(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value) or "\0" in value:
        raise ValueError
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _duration(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value)):
        seconds = float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
    else:
        raise ValueError
    if not (math.isfinite(seconds) and 1 <= seconds <= 10 * 365 * 86400):
        raise ValueError
    return seconds


def _size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := re.fullmatch(r"(\d+)\s*([KMG])i?B?", value)):
        size = int(match[1]) << {"K": 10, "M": 20, "G": 30}[match[2]]
    else:
        raise ValueError
    if not 1 << 20 <= size <= 1 << 40:
        raise ValueError
    return size


def _money(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError
    return float(value)


def _path(value: object) -> Path | None:
    if not isinstance(value, str) or not value.startswith(("/", "~/")) or "\0" in value:
        raise ValueError
    return Path(value)


def _commands(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError
    return tuple(_command(item) for item in items)


def _command(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value


def _named_commands(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}", name) for name in value):
        raise ValueError
    return MappingProxyType({name: _command(command) for name, command in value.items()})


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The owner's settings of an agent of the Agent Client Protocol. None and empty values do not
    change those of a known agent."""

    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[Mode, str] = field(default_factory=dict)


def _named_agents(value: object) -> Mapping[str, AgentSettings]:
    if not isinstance(value, dict):
        raise ValueError
    return MappingProxyType({name: _agent(name, table) for name, table in value.items()})


def _agent(name: str, table: object) -> AgentSettings:
    """Raises `RefusedError`, which names the agent and the key."""
    if not AGENT_NAME.fullmatch(name):
        raise RefusedError(f"an agent's name has only lower-case letters, digits and -, not {name!r}")
    if not isinstance(table, dict):
        raise RefusedError(f"agents.{name}: there is no such setting, and an agent is a table: [agents.{name}]")
    if more := sorted(table.keys() - {"command", "env", "modes"}):
        raise RefusedError(f"agents.{name}: an agent has command, env and modes, not {more[0]}")
    if "command" not in table and name not in KNOWN_AGENTS:
        known = ", ".join(KNOWN_AGENTS)
        raise RefusedError(f"agents.{name}: command is missing; without one it must be one of {known}")
    try:
        command = _argv(table["command"]) if "command" in table else None
    except ValueError:
        raise RefusedError(f"agents.{name}.command: expected {ARGV.accepts}") from None
    env, modes = table.get("env", {}), table.get("modes", {})
    if not isinstance(env, dict) or not all(isinstance(text, str) and "\0" not in text for text in env.values()):
        raise RefusedError(f"agents.{name}.env: expected a table of texts, each under the name of a variable")
    for variable in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise RefusedError(f"agents.{name}.env: {variable!r} is not the name of a variable")
        if any(fnmatchcase(variable, never) for never in NEVER):
            raise RefusedError(f"agents.{name}.env: {variable} is never passed on: it belongs to another process")
    if not isinstance(modes, dict) or not all(isinstance(text, str) for text in modes.values()):
        raise RefusedError(f"agents.{name}.modes: expected a table of texts, each under the name of a permission mode")
    if strange := sorted(modes.keys() - set(Mode)):
        raise RefusedError(f"agents.{name}.modes: {strange[0]} is not a permission mode; those are {', '.join(Mode)}")
    return AgentSettings(
        command, MappingProxyType(dict(env)), MappingProxyType({Mode(mode): text for mode, text in modes.items()})
    )


def _agents_shown(agents: Mapping[str, AgentSettings]) -> dict[str, dict[str, object]]:
    """Omit the values of variables, which may be keys."""
    return {
        name: {
            **({"command": agent.command} if agent.command else {}),
            **({"env": dict.fromkeys(agent.env, "…")} if agent.env else {}),
            **({"modes": {str(mode): text for mode, text in agent.modes.items()}} if agent.modes else {}),
        }
        for name, agent in agents.items()
    }


def _inside(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    for item in value:
        if not isinstance(item, str) or not item or "\0" in item or item.startswith("/"):
            raise ValueError
        if {"..", ".git"} & set(PurePosixPath(item).parts):
            raise ValueError
    return tuple(value)


def _or_never(value: object) -> float:
    return math.inf if value == "never" else _duration(value)


def _url(value: object) -> str:
    text = _string(value, re.compile(r"https?://[^\s\x00-\x1f\x7f]+"))
    parts = urlsplit(text)
    if not parts.hostname or parts.username or parts.fragment:
        raise ValueError
    return text


def _url_shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(_command(item) for item in value)


BOOLEAN = Kind("true or false", _boolean)
DURATION = Kind(
    'a duration such as "90s", "10m", "2h", "30d", or a number of seconds, from one second on', _duration, "seconds"
)
DURATION_OR_NEVER = Kind(f'{DURATION.accepts}, or "never"', _or_never, "seconds")
SIZE = Kind('a size such as "64MiB" or a number of bytes, from 1 MiB on', _size, "bytes")
MONEY = Kind("an amount above zero", _money, "US dollars")
PATH = Kind('an absolute path, or one that begins with "~/"', _path)
COMMANDS = Kind("a shell command or a list of them", _commands)
NAMED_COMMANDS = Kind("a table of shell commands, each under a name of letters, digits, - and _", _named_commands)
PATTERNS_INSIDE = Kind("a list of paths or globs inside the repository, none of them in .git", _inside)
URL = Kind("a URL that begins with https:// or http://, without a password", _url, shown=_url_shown)
SECRET = Kind("a text without blanks", string(r"[!-~]+", "").parse, shown=lambda value: "…")
ARGV = Kind("a program and its arguments, as a list of strings", _argv)
NAMED_AGENTS = Kind("a table of agents, each with command, env and modes", _named_agents, shown=_agents_shown)
