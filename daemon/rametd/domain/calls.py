"""Describe an agent's call or request in one line, for lists."""

from collections.abc import Mapping
from typing import Any

from rametd.domain.text import first_line

EDITS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
_SUBJECTS = ("file_path", "notebook_path", "command", "pattern", "url", "query", "skill", "description", "path")
"""Fields of a tool's input that name its object, in order of precedence."""


def describe_call(tool: str, given: Mapping[str, Any]) -> str:
    """Return the tool's name and the object of the call: ``Edit src/app.py``, ``Bash pytest
    -q``."""
    server, _, name = tool.removeprefix("mcp__").partition("__") if tool.startswith("mcp__") else ("", "", tool)
    label = f"{server} {name}".strip()
    return f"{label} {subject}" if (subject := call_subject(tool, given)) else label


def describe_wish(tool: str, given: Mapping[str, Any]) -> str:
    """Describe a requested call: ``wants to run: pytest -q``, ``wants to edit src/app.py``."""
    subject = call_subject(tool, given)
    if tool == "Bash" and subject:
        return f"wants to run: {subject}"
    if tool in EDITS and subject:
        return f"wants to {'write' if tool == 'Write' else 'edit'} {subject}"
    return f"wants to use {tool}: {subject}" if subject else f"wants to use {tool}"


def call_subject(tool: str, given: Mapping[str, Any]) -> str:
    """Return the object of a call in one line; "" if its input names none. An ellipsis marks
    further lines of a command."""
    values = (given.get(field) for field in (("command",) if tool == "Bash" else _SUBJECTS))
    text = next((value.strip() for value in values if isinstance(value, str) and value.strip()), "")
    line = first_line(text)
    return line if tool != "Bash" or line == text or line.endswith("…") else f"{line} …"
