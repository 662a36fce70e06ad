"""The JSON schema of `plan.toml`, built from the table of keys; the package contains it as
``ramet/plan.schema.json``."""

import json
from typing import Any

from rametd.plans.keys import PLAN, THREAD, keys_of


def schema() -> dict[str, Any]:
    """JSON schema for editors and for programs that write plans."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plan.toml",
        "description": "A plan of Ramet: threads of work with their own paths, an order of landing, and checks.",
        "type": "object",
        "additionalProperties": False,
        "required": [THREAD],
        "properties": {
            PLAN: _table(PLAN, "Settings that the threads share."),
            THREAD: {"type": "array", "minItems": 1, "items": _table(THREAD, "One piece of work.", "id")},
        },
    }


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _table(name: str, description: str, *required: str) -> dict[str, Any]:
    properties = {key.name: {"description": key.meaning, **key.schema} for key in keys_of(name).values()}
    table: dict[str, Any] = {
        "description": description,
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    if required:
        table["required"] = list(required)
    return table
