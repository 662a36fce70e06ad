"""Read, check and combine configuration files, and show the result."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, cast

from ramet.toml import loads

from rametd.config.kinds import RefusedError, Setting, toml, toml_key
from rametd.config.model import SETTINGS, Config
from rametd.domain.errors import BadConfigError
from rametd.domain.models import UNATTENDED
from rametd.platform.files import read_regular

DEFAULT = "default"
OWNER_FILE = "owner file"
REPOSITORY_FILE = "repository file"
LARGEST = 1 << 20
"""Maximum bytes of a configuration file."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text of a configuration file, and its name in reports."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path, *, inside: Path | None = None) -> Self:
        """Read a file; a missing file counts as empty. Raises BadConfigError if it cannot be read,
        is no regular file or is too large.

        ``inside``: the repository's directory. A symbolic link that leads out of it is refused.
        """
        try:
            if inside is not None and not Path(os.path.realpath(path, strict=True)).is_relative_to(inside.resolve()):
                message = f"{path} is a link that leads out of the repository"
                raise BadConfigError(message, hint="replace it by a file", file=str(path))
            data = read_regular(path, LARGEST)
            if data is None:
                message = f"{path} is not a regular file of at most {LARGEST >> 20} MiB"
                raise BadConfigError(message, hint="replace it by a file, or remove it", file=str(path))
            return cls(str(path), data.decode().replace("\r\n", "\n"))
        except (FileNotFoundError, NotADirectoryError):
            return cls(str(path), "")
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}"
            raise BadConfigError(message, hint="make it readable, or remove it", file=str(path)) from error
        except UnicodeDecodeError as error:
            message = f"{path} is not UTF-8 text (byte {error.start})"
            raise BadConfigError(message, hint="save it as UTF-8", file=str(path)) from error


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or warning about a configuration file, for ``config check``."""

    file: str
    line: int  # 0 where unknown
    key: str  # "" for the file as a whole
    text: str
    hint: str = ""
    fatal: bool = True  # a warning otherwise

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


@dataclass(frozen=True, slots=True)
class Effective:
    """A setting with its value as TOML and its origin, for ``config show``."""

    setting: Setting
    value: str
    origin: str


def load(owner: Path, repository: Path | None = None, *, home: Path) -> Config:
    """Load the owner's file and, if given, the file of a trusted repository. ``home`` replaces "~".

    Raises BadConfigError with the first problem and the number of others.
    """
    return combine(
        Source.read(owner), None if repository is None else Source.read(repository, inside=repository.parent), home=home
    )


def combine(owner: Source, repository: Source | None = None, *, home: Path) -> Config:
    """Combine the texts of configuration files, as `load` does."""
    config, problems = _combine(owner, repository, home)
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        first = fatal[0]
        more = f" (and {len(fatal) - 1} more: rametctl config check)" if len(fatal) > 1 else ""
        raise BadConfigError(
            f"{first}{more}", hint=first.hint or "correct it", file=first.file, key=first.key, line=str(first.line)
        )
    return config


def check(owner: Source, repository: Source | None = None, *, home: Path) -> tuple[Problem, ...]:
    """All problems and warnings, those of the owner's file first."""
    return tuple(_combine(owner, repository, home)[1])


def effective(config: Config) -> Iterator[Effective]:
    """All settings with value and origin, in order of declaration."""
    for item in SETTINGS:
        value: Any = config
        for name in item.field.split("."):
            value = getattr(value, name)
        if value is not None and item.kind.shown is not None:
            value = item.kind.shown(value)
        yield Effective(item, toml(value), config.origins.get(item.key, DEFAULT))


def items(source: Source) -> dict[str, str]:
    """Settings of a repository's file by key, each as one line of TOML; commands of ``run`` count
    one by one.

    `from_items` joins the lines to an equivalent file. Settings that a repository may not set, and
    files that are not TOML, yield nothing: `check` reports them.
    """
    try:
        document = loads(source.text)
    except tomllib.TOMLDecodeError:
        return {}
    found: dict[str, str] = {}
    for item in SETTINGS:
        value: Any = document
        for name in item.path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None or not item.repository:
            continue
        if item.key != item.path and isinstance(value, dict):  # a table of free names
            found |= {(key := f"{item.path}.{toml_key(name)}"): f"{key} = {toml(one)}" for name, one in value.items()}
        else:
            found[item.path] = f"{item.path} = {toml(value)}"
    return found


def from_items(name: str, found: Mapping[str, str]) -> Source:
    return Source(name, "\n".join(found.values()))


def _combine(owner: Source, repository: Source | None, home: Path) -> tuple[Config, list[Problem]]:
    values, problems = _read(owner, home, from_repository=False)
    origins = dict.fromkeys(values, OWNER_FILE)
    mode = values.get("permissions.default_mode")
    if mode in UNATTENDED and not values.get("permissions.allow_bypass", False):
        text = f'{mode} needs allow_bypass = true in the table "permissions"'
        problems.append(_problem(owner, "permissions.default_mode", text, hint="set it, or choose another mode"))
    if repository is not None:
        theirs, more = _read(repository, home, from_repository=True)
        problems += more
        if (mode := theirs.get("permissions.default_mode")) in UNATTENDED:
            text = f"a repository cannot make {mode} its default"
            problems.append(_problem(repository, "permissions.default_mode", text, hint="choose another mode"))
        origins |= dict.fromkeys(theirs, REPOSITORY_FILE)
        if "run.NAME" in values and "run.NAME" in theirs:  # the owner's commands stay beside the repository's
            theirs["run.NAME"] = MappingProxyType({**values["run.NAME"], **theirs["run.NAME"]})
        values |= theirs
    warnings = tuple(str(problem) for problem in problems if not problem.fatal)
    sections = {item.field: values[item.key] for item in SETTINGS if item.key in values}
    return _build(Config, "", sections, origins=MappingProxyType(origins), warnings=warnings), problems


def _build(section: type, prefix: str, values: Mapping[str, Any], **extra: object) -> Any:
    arguments = dict(extra)
    for item in fields(section):
        if is_dataclass(item.type):
            arguments[item.name] = _build(cast("type", item.type), f"{prefix}{item.name}.", values)
        elif prefix + item.name in values:
            arguments[item.name] = values[prefix + item.name]
    return section(**arguments)


def _read(source: Source, home: Path, *, from_repository: bool) -> tuple[dict[str, Any], list[Problem]]:
    """Accepted values of one file by key, and problems with the others."""
    try:
        document = loads(source.text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        return {}, [Problem(source.name, int(line[1]) if line else 0, "", f"not TOML: {error}")]
    by_path = {item.path: item for item in SETTINGS}
    tables = {path.rsplit(".", depth)[0] for path in by_path for depth in range(1, path.count(".") + 1)}
    values: dict[str, Any] = {}
    problems: list[Problem] = []

    def walk(table: Mapping[str, Any], prefix: str) -> None:
        for name, raw in table.items():
            path = prefix + name
            if (
                path in by_path and path in tables and isinstance(raw, dict)
            ):  # its own settings, and tables of free names
                own = {each: value for each, value in raw.items() if f"{path}.{each}" in {*by_path, *tables}}
                if free := {each: value for each, value in raw.items() if each not in own and isinstance(value, dict)}:
                    accept(by_path[path], free)
                walk({each: value for each, value in raw.items() if each not in free}, f"{path}.")
            elif path in by_path:
                accept(by_path[path], raw)
            elif path not in tables:
                near = difflib.get_close_matches(path, [*by_path, *tables], n=1)
                hint = f"did you mean {near[0]}?" if near else "`rametctl config show` lists all settings"
                problems.append(_problem(source, path, "there is no such setting", hint=hint))
            elif isinstance(raw, dict):
                walk(raw, f"{path}.")
            else:
                problems.append(_problem(source, path, f"expected a table, found {_excerpt(raw)}"))

    def accept(item: Setting, raw: object) -> None:
        if from_repository and not item.repository:
            hint = "set it in your own configuration: config.toml"
            problems.append(_problem(source, item.path, "only the owner may set this, not a repository", hint=hint))
            return
        try:
            value = item.kind.parse(raw)
        except ValueError as error:
            text = (
                f"expected {item.kind.accepts}, found {_excerpt(raw)}"
                if not isinstance(error, RefusedError)
                else str(error)
            )
            if item.fallback is None:
                problems.append(_problem(source, item.path, text))
                return
            value = item.fallback
            problems.append(_problem(source, item.path, f"{text}; using the strictest, {toml(value)}", fatal=False))
        if isinstance(value, Path) and value.parts[0] == "~":
            value = home.joinpath(*value.parts[1:])
        values[item.key] = value

    walk(document, "")
    return values, problems


def _excerpt(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _problem(source: Source, key: str, text: str, *, hint: str = "", fatal: bool = True) -> Problem:
    return Problem(source.name, _line(source.text, key), key, text, hint, fatal)


def _line(text: str, key: str) -> int:
    """Line number of ``key``, or of the table around it; 0 if neither is found. tomllib does not
    report lines.

    A line in a multi-line string may look like the key: this is only for messages.
    """
    table, around = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\[\]]+?)\s*\]", line):
            table = _bare(header[1])
            path = table
        elif assignment := re.match(r"""\s*([A-Za-z0-9_\-."' ]+?)\s*=""", line):
            path = ".".join(filter(None, (table, _bare(assignment[1]))))
        else:
            continue
        if path == key or path.startswith(f"{key}."):
            return number
        if key.startswith(f"{path}."):
            around = number
    return around


def _bare(key: str) -> str:
    return re.sub(r"""[\s"']""", "", key)
