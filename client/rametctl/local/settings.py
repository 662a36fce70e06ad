"""Change one key of a TOML file and leave every other byte as it is."""

import json
import re
import tomllib
from typing import Any

from rametctl.errors import UsageError

_HEADER = re.compile(r"\s*\[([A-Za-z0-9_.\s\"'-]+)\]\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")


def toml_value(text: str) -> str:
    """Return ``text`` if it is a TOML value, else as a TOML string."""
    try:
        tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return json.dumps(text, ensure_ascii=False)
    return text if "\n" not in text else json.dumps(text)


def with_setting(text: str, key: str, value: str) -> str:
    """Return the file with ``key`` set to a TOML ``value``. Raise UsageError if that needs an
    editor."""
    path = key.split(".")
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"config.toml is not TOML: {error}", hint="fix it: rametctl config edit") from error
    expected = _changed(before, path, tomllib.loads(f"x = {value}")["x"])
    for changed in _attempts(text.splitlines(), path, value):
        result = "\n".join(changed) + "\n"
        try:
            if tomllib.loads(result) == expected:
                return result
        except tomllib.TOMLDecodeError:
            continue
    raise UsageError(f"{key} cannot be set in the file as it is", hint="edit it: rametctl config edit")


def _attempts(lines: list[str], path: list[str], value: str) -> "list[list[str]]":
    """Return candidates of the changed lines, the best first: the old line replaced, a line in the
    table, a line at the top."""
    table: list[str] = []
    replaced: list[list[str]] = []
    inserted: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines):
        if (header := _HEADER.fullmatch(line)) is not None:
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            if path[: len(table)] == table and len(table) < len(path):
                rest = ".".join(path[len(table) :])
                inserted.append((len(table), [*lines[: number + 1], f"{rest} = {value}", *lines[number + 1 :]]))
        elif (found := _KEY.match(line)) is not None:
            name = [part.strip() for part in found[1].split(".")]
            if table + name == path:
                replaced.append([*lines[:number], f"{line[: found.end()]} {value}", *lines[number + 1 :]])
    deepest = [changed for _, changed in sorted(inserted, key=lambda each: -each[0])]
    return [*replaced, *deepest, [f"{'.'.join(path)} = {value}", *lines]]


def _changed(tree: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    inner = tree.get(first)
    return {**tree, first: _changed(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}
