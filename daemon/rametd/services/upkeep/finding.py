"""A difference between what should be and what is, and how it is mended."""

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
    """As in the contract; ``fix`` mends it without risk, None where that cannot be done."""

    severity: str
    code: str
    subject: str
    session_id: str
    message: str
    advice: str
    fix: Fix | None = None
    fixed: bool = False


async def mend(found: Finding) -> Finding:
    """The finding as it is after its fix, where it has one."""
    if found.fix is None:
        return found
    try:
        await found.fix()
    except (RametError, OSError) as error:
        log.warning("not mended", code=found.code, subject=found.subject, error=str(error))
        return replace(found, advice=f"it could not be mended: {error}")
    return replace(found, fixed=True)


def shell(*words: str | Path) -> str:
    """A command as it can be pasted into a shell: names and paths may have spaces."""
    return shlex.join(str(word) for word in words)
