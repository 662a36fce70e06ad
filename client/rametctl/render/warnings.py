"""Warnings of several removals in one call, printed besides the answer."""

from collections.abc import Iterable

from rametctl.output import Output


def note_warnings(output: "Output", sessions: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print a line for each warning, with the name of its object; nothing for JSON, which contains them."""
    if output.json_mode:
        return
    for name, warnings in sessions:
        for warning in warnings:
            output.note(f"rametctl: {name}: {warning}")
