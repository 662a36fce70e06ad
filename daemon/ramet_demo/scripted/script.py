"""Scripts of a scripted model or agent, written into the prompt itself.

A prompt carries ``DO:[step, step, …]``, a JSON list; the modules that run the steps document their
keys. A step without content of its own (only ``sleep``, ``usage``, ``error``…) belongs to the step
after it.

Do not import heavy modules here: tests start hundreds of scripted agents.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

Step = dict[str, Any]

MARK = "DO:["
QUOTED = "”"
"""After a script: it is another session's, whose task a message quotes."""
_decoder = json.JSONDecoder()


class Route(NamedTuple):
    """Prompts that contain ``when`` (in any letter case) run ``steps``: a script for prompts that
    read like a person's."""

    when: str
    steps: list[Step]


def steps_in(text: str, routes: Iterable[Route] = ()) -> list[Step] | None:
    """Return the steps of a prompt: its own scripts, one after the other, else those of the first
    route; else None.

    A mark that no JSON list follows is plain text, so that a prompt may talk about scripts.
    """
    steps: list[Step] = []
    found, at = False, text.find(MARK)
    while at >= 0:
        try:
            script, end = _decoder.raw_decode(text, at + len(MARK) - 1)
        except ValueError:
            end = at + len(MARK)
        else:
            if not text.startswith(QUOTED, end):
                found = True
                steps += script
        at = text.find(MARK, end)
    if found:
        return steps
    lowered = text.lower()
    return next((list(route.steps) for route in routes if route.when in lowered), None)


def fill(value: Any, cwd: str) -> Any:
    """Return ``value`` with ``$CWD`` replaced in every string, at any depth."""
    if isinstance(value, str):
        return value.replace("$CWD", cwd)
    if isinstance(value, list):
        return [fill(item, cwd) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, cwd) for key, item in value.items()}
    return value
