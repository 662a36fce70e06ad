"""Sessions that wait for others (`after`). Everything here runs in one unit of work.

After the removal of a predecessor whose last turn was successful, its successors no longer wait for
it. One that is removed or archived earlier still holds them, because they need its work: the person
continues them with `resume`, or restores the predecessor.
"""

import shlex

from rametd.domain.models import DAEMON, Hold, Session
from rametd.domain.states import State
from rametd.services.lifecycle import log_update
from rametd.services.views import in_background
from rametd.store import Reader, Unit


def is_done(reader: Reader, session: Session) -> bool:
    """Whether a session has finished its work. One whose last turn was interrupted has not, nor one
    whose turn a pause is about to interrupt."""
    state, hold, _ = session.last_state
    ended = state == State.IDLE and session.turns > 0 and hold != Hold.INTERRUPTED
    return ended and not reader.prompts.open(session.id) and not in_background(reader, session.id)


def blocked_by(reader: Reader, session: Session) -> str | None:
    """Why a session may not start yet; None if it may."""
    for identity in session.after:
        before = reader.sessions.find(identity)
        if before is not None and is_done(reader, before):
            continue
        if before is None or before.state == State.ARCHIVED:
            entry = reader.trash.get(identity) if before is None else before
            name = entry.name if entry is not None else identity
            back = f"restore it with `rametctl restore {shlex.quote(name)}`, or " if entry is not None else ""
            return (
                f"held: {name}, which it waits for, was {'removed' if before is None else 'archived'} before it was done: {back}"
                f"continue without it: `rametctl resume {session.reference}`"
            )
        if before.state == State.FAILED:
            return f"held: {before.name}, which it waits for, failed"
        if running := in_background(reader, before.id):
            return f"waits for {before.name}, in whose background `{running[0].description}` runs"
        return f"waits for {before.name}"
    return None


def settle_successors(unit: Unit, removed: Session) -> None:
    """Remove a finished session from the predecessors of others."""
    if is_done(unit, removed):
        for session in unit.sessions.list(repo_id=removed.repo_id, include_archived=True):
            if removed.id in session.after:
                _cross_off(unit, session, {removed.id}, DAEMON)


def let_go(unit: Unit, session: Session, principal: str) -> Session:
    """Let a session continue without predecessors that were removed or archived before they were
    done."""
    found = {identity: unit.sessions.find(identity) for identity in session.after}
    gone = {
        identity
        for identity, before in found.items()
        if before is None or (before.state == State.ARCHIVED and not is_done(unit, before))
    }
    return _cross_off(unit, session, gone, principal) if gone else session


def _cross_off(unit: Unit, session: Session, gone: set[str], principal: str) -> Session:
    session = unit.sessions.update(session.id, after=tuple(each for each in session.after if each not in gone))
    log_update(unit, session, ["after"], principal)
    return session
