"""What several removals in one call warned of, said beside the answer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rametctl.output import Output


def note_warnings(output: "Output", sessions: Iterable[tuple[str, Iterable[str]]]) -> None:
    """A line for each warning, after the name of what it is about; none where the answer, which has them too, is JSON."""
    if output.json_mode:
        return
    for name, warnings in sessions:
        for warning in warnings:
            output.note(f"rametctl: {name}: {warning}")
