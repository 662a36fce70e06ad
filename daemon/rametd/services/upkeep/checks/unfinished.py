"""What was begun with a session and is not done: a removal, an archiving, a restoring that failed and waits to be tried again."""

from collections import Counter
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet

from ramet.words import plural

from rametd.domain.models import Intent, Repo, Session
from rametd.services.core import Core
from rametd.services.departures.back import TRASH
from rametd.services.leaving import ARCHIVE, DELETE, DROP, FAILED, LEAVING, RESTORE, REWIND, SYNC
from rametd.services.upkeep.finding import Finding, shell
from rametd.store import Reader, load_session

LONG_S = 600.0
WORDS = {
    DELETE: ("removal-unfinished", "removal"),
    ARCHIVE: ("archiving-unfinished", "archiving"),
    RESTORE: ("restoring-unfinished", "restoring"),
    REWIND: ("rewind-unfinished", "rewind"),
    SYNC: ("sync-unfinished", "sync"),
    DROP: ("drop-unfinished", "removal from the trash"),
}


async def unfinished(
    core: Core, repo: Repo | None, checked: Counter[str], since: float, going: AbstractSet[str]
) -> AsyncIterator[Finding]:
    """``since`` is when the daemon began: what is older and still there it could not finish when it started, but for that of the sessions ``going``."""
    for intent, session in await core.store.read(_pending):
        if session is None or (repo is not None and session.repo_id != repo.id):
            continue
        checked["unfinished steps"] += 1
        code, what = WORDS[intent.kind]
        again = again_by(intent, session)
        age = core.clock() - intent.create_time
        if why := intent.data.get(FAILED):
            # As it is told on the session, where what to do follows on it.
            message, severity = why.partition("; `rametctl ")[0], "error"
        elif intent.create_time < since and session.id in going:
            message, severity = f"its {what} was cut short, and goes on since the daemon started", "info"
            again = "wait for it; the daemon's log (`rametctl daemon logs`) says what it meets"
        elif intent.create_time < since:
            message, severity = f"its {what} was cut short, and could not be finished when the daemon started", "error"
        elif age > LONG_S:
            message, severity = f"its {what} has been under way for {plural(round(age / 60), 'minute')}", "warning"
            again = "where nothing moves any more, " + again
        else:
            continue
        yield Finding(severity, code, session.name, session.id, message, again)


def _pending(reader: Reader) -> list[tuple[Intent, Session | None]]:
    """With the session as it is, or is to be again where it comes out of the trash."""
    return [(intent, _session_of(reader, intent)) for intent in reader.intents.list() if intent.kind in LEAVING]


def _session_of(reader: Reader, intent: Intent) -> Session | None:
    session = reader.sessions.find(intent.session_id)
    if session is None and intent.kind == RESTORE:
        return load_session(intent.data["session"])
    if session is None and (entry := reader.trash.get(intent.session_id)) is not None:
        return load_session(entry.session)
    return session


def again_by(intent: Intent, session: Session) -> str:
    """What to do, once what the message names is out of the way."""
    if intent.kind == DELETE:
        return f"try again: {shell('rametctl', 'rm', session.name)}"
    if intent.kind == ARCHIVE:
        return f"try again: {shell('rametctl', 'archive', session.name)}"
    if intent.kind == RESTORE and intent.data.get("origin") == TRASH:
        return f"try again: {shell('rametctl', 'trash', 'restore', session.id)}"
    if intent.kind == RESTORE:
        return f"try again: {shell('rametctl', 'restore', session.name)}"
    return "the daemon tries again when it starts: rametctl daemon restart"
