"""Answers to an MCP server that asks for input: FIELD=VALUE, or one JSON object."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rametctl.errors import UsageError
from rametctl.render.request import fields, required_fields

_TRUE, _FALSE = frozenset({"true", "yes", "y", "1"}), frozenset({"false", "no", "n", "0"})


def content(asked: Any, answers: Sequence[str]) -> dict[str, Any]:
    """Return the object that answers ``asked``, an elicitation's input. Raises UsageError if it
    does not match the schema."""
    if len(answers) == 1 and answers[0].lstrip().startswith("{"):
        return _checked(asked, _object(answers[0]))
    known = fields(asked)
    found: dict[str, Any] = {}
    for answer in answers:
        name, equals, text = answer.partition("=")
        if not equals:
            raise UsageError(f"{answer!r} is not FIELD=VALUE", hint=_hint(known))
        found[name.strip()] = _value(name.strip(), text, known.get(name.strip(), {}))
    return _checked(asked, found)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the answer is not JSON: {error}", hint="or give FIELD=VALUE for each field") from error
    assert isinstance(value, dict)  # it begins with a brace
    return value


def _checked(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    known = fields(asked)
    if unknown := [name for name in found if known and name not in known]:
        raise UsageError(f"unknown field: {', '.join(unknown)}", hint=_hint(known))
    if missing := [name for name in required_fields(asked) if name not in found]:
        raise UsageError(f"{', '.join(missing)} is missing", hint=_hint(known))
    return found


def _hint(known: Mapping[str, Any]) -> str:
    return f"fields are: {', '.join(known)}; see: rametctl inbox" if known else "see: rametctl inbox"


def _value(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    """Convert ``text`` to the type in the schema. Raise UsageError."""
    choices = schema.get("enum")
    if isinstance(choices, list) and text not in [str(choice) for choice in choices]:
        raise UsageError(f"{name} cannot be {text!r}", hint=f"it is one of: {', '.join(map(str, choices))}")
    try:
        match schema.get("type"):
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean" if text.lower() in _TRUE | _FALSE:
                return text.lower() in _TRUE
            case "boolean":
                raise UsageError(f"{name} cannot be {text!r}", hint="it is yes or no")
            case "array":
                return [part.strip() for part in text.split(",") if part.strip()]
            case _:
                return text
    except ValueError as error:
        raise UsageError(f"{name} cannot be {text!r}", hint="it is a number") from error
