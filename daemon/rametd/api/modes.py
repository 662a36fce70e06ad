"""Permission modes as callers give them."""

from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Mode
from rametd.services.views import MODES_BACK


def mode_of(number: int) -> Mode | None:
    """None where none was given. One that only a newer client knows is refused: another in its place could be looser."""
    if number and number not in MODES_BACK:
        raise InvalidInputError(f"there is no permission mode number {number}", hint="see: rametctl help modes")
    return MODES_BACK.get(number)  # type: ignore[call-overload, no-any-return]


def mode_named(name: str) -> Mode | None:
    """Also as the answers spell it (``accept_edits``). Raises `InvalidInputError` for a mode that there is not."""
    if not name:
        return None
    spelled = name.replace("_", "").lower()
    if spelled == "manual":  # Claude Code's newer name
        return Mode.DEFAULT
    for mode in Mode:
        if mode.value.lower() == spelled:
            return mode
    raise InvalidInputError(f"there is no mode {name!r}", hint=f"use one of: {', '.join(mode.value for mode in Mode)}")
