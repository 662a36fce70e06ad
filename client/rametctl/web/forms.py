"""Forms that browsers send, answers to them, and the templates."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from ramet.visible import visible
from ramet.words import size

from rametctl.errors import UsageError
from rametctl.options import new_request_id
from rametctl.render.format import age, money


@dataclass(frozen=True)
class Done:
    """The message and the next page of a successful action."""

    note: str = ""
    go: str = ""


@dataclass(frozen=True)
class Form:
    """The body of a request: a JSON object of texts and lists of texts, or a file."""

    params: Mapping[str, str]
    query: Mapping[str, str]
    raw: bytes

    @cached_property
    def values(self) -> dict[str, Any]:
        """The object. Raises UsageError."""
        try:
            found = json.loads(self.raw or b"{}")
            json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate is no text
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UsageError("the form is not a JSON object")
        return found

    def text(self, name: str, *, strip: bool = True) -> str:
        """Return the text of a field, "" if it is missing or no text."""
        value = self.values.get(name, "")
        if not isinstance(value, str):
            return ""
        return value.strip() if strip else value

    def texts(self, name: str) -> list[str]:
        value = self.values.get(name, [])
        return [str(each) for each in (value if isinstance(value, list) else [value])]

    @property
    def request_id(self) -> str:
        """The id that the browser repeats in each attempt."""
        return self.text("request_id") or new_request_id()


@cache
def templates() -> Environment:
    """The templates. Every text in them is escaped; an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"visible": visible, "money": money, "age": age, "size": size, "pair": frozenset}
    return made
