"""Read permission modes from requests."""

from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Mode
from rametd.services.views import MODES_BACK


def mode_of(number: int) -> Mode | None:
    """Return the mode, None if unset. Raise `InvalidInputError` for an unknown number, which a
    newer client may send: a substitute could be looser."""
    if number and number not in MODES_BACK:
        raise InvalidInputError(f"there is no permission mode number {number}", hint="see: rametctl help modes")
    return MODES_BACK.get(number)


def mode_named(name: str) -> Mode | None:
    """Return the mode of a name, also spelled as in answers (``accept_edits``). Raise
    `InvalidInputError` for an unknown one."""
    if not name:
        return None
    spelled = name.replace("_", "").lower()
    if spelled == "manual":  # Claude Code's newer name
        return Mode.DEFAULT
    for mode in Mode:
        if mode.value.lower() == spelled:
            return mode
    raise InvalidInputError(f"there is no mode {name!r}", hint=f"use one of: {', '.join(mode.value for mode in Mode)}")
