"""Check: operations that failed and wait for a retry, or that take too long."""

from collections import Counter
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet

from ramet.words import plural

from rametd.domain.models import Repo, Session
from rametd.domain.operations import Kind, Operation
from rametd.services.core import Core
from rametd.services.departures.restoring import TRASH
from rametd.services.operations.runner import session_of
from rametd.services.operations.runner import unfinished as why_unfinished
from rametd.services.upkeep.finding import Finding, shell
from rametd.store import Reader

LONG_S = 600.0


async def unfinished(
    core: Core, repo: Repo | None, checked: Counter[str], since: float, recovering: AbstractSet[str]
) -> AsyncIterator[Finding]:
    """``since``: start of the daemon. It failed to recover older operations, except of sessions that it is ``recovering``."""
    for operation, session in await core.store.read(_pending):
        if session is None or (repo is not None and session.repo_id != repo.id):
            continue
        checked["unfinished steps"] += 1
        noun, again = operation.traits.noun, again_by(operation, session)
        age = core.clock() - operation.create_time
        if why := why_unfinished(operation):
            message, severity = why, "error"
        elif operation.create_time < since and session.id in recovering:
            message, severity = f"its {noun} was interrupted, and resumed when the daemon started", "info"
            again = "wait for it; `rametctl daemon logs` shows its progress"
        elif operation.create_time < since:
            message, severity = (
                f"its {noun} was interrupted, and the daemon could not finish it when it started",
                "error",
            )
        elif age > LONG_S:
            message, severity = f"its {noun} has taken {plural(round(age / 60), 'minute')}", "warning"
            again = "if it makes no progress, " + again
        else:
            continue
        yield Finding(severity, operation.traits.code, session.name, session.id, message, again)


def _pending(reader: Reader) -> list[tuple[Operation, Session | None]]:
    return [(operation, session_of(reader, operation)) for operation in reader.operations.all_exclusive()]


def again_by(operation: Operation, session: Session) -> str:
    """How to retry, once the cause is gone."""
    if operation.kind == Kind.RESTORE and operation.data.get("origin") == TRASH:
        return f"retry: {shell('rametctl', 'trash', 'restore', session.id)}"
    if operation.traits.retry:
        return f"retry: {shell('rametctl', *operation.traits.retry, session.name)}"
    return "the daemon retries when it starts: rametctl daemon restart"
