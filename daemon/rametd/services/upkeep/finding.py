"""A difference that doctor found, and its fix."""

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from rametd.domain.errors import RametError

log = structlog.get_logger()

Fix = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Finding:
    """As in the contract. ``fix`` repairs it without risk; None if that is impossible."""

    severity: str
    code: str
    subject: str
    session_id: str
    message: str
    advice: str
    fix: Fix | None = None
    fixed: bool = False


async def mend(found: Finding) -> Finding:
    """Apply the fix, if there is one; return the finding with its result."""
    if found.fix is None:
        return found
    try:
        await found.fix()
    except (RametError, OSError) as error:
        log.warning("not fixed", code=found.code, subject=found.subject, error=str(error))
        return replace(found, advice=f"the fix failed: {error}")
    return replace(found, fixed=True)


def shell(*words: str | Path) -> str:
    """Quote a command for pasting into a shell."""
    return shlex.join(str(word) for word in words)
