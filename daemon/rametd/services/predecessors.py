"""What sessions that wait for others (`after`) may begin on. Everything here runs inside one unit of work.

A predecessor that has ended a turn well and is removed is crossed off; one that is removed before keeps holding its successors, for
what they build on is not there. The person lets them go on with `resume`, or brings the predecessor back from the trash.
"""

from rametd.domain.models import DAEMON, Hold, Session
from rametd.domain.states import State
from rametd.services.lifecycle import log_update
from rametd.services.views import in_background
from rametd.store import Reader, Unit

DONE_STATES = frozenset({State.IDLE, State.ARCHIVED})


def is_done(reader: Reader, session: Session) -> bool:
    """Whether it has ended its work well; one whose turn was interrupted, also by a pause that is about to follow, has not."""
    ended = session.state in DONE_STATES and session.turns > 0 and session.hold != Hold.INTERRUPTED
    return ended and not reader.prompts.open(session.id) and not in_background(reader, session.id)


def blocked_by(reader: Reader, session: Session) -> str | None:
    """Why a session may not start yet, or None."""
    for identity in session.after:
        before = reader.sessions.find(identity)
        if before is None:
            entry = reader.trash.get(identity)
            name = entry.name if entry is not None else identity
            back = f"`rametctl restore {name}` brings it back, " if entry is not None else ""
            return (
                f"held: {name}, which goes before it, was removed before it was done: {back}"
                f"`rametctl resume {session.name}` goes on without it"
            )
        if is_done(reader, before):
            continue
        if before.state == State.FAILED:
            return f"held: {before.name}, which goes before it, failed"
        if running := in_background(reader, before.id):
            return f"waits for {before.name}, in whose background `{running[0].description}` runs"
        return f"waits for {before.name}"
    return None


def settle_successors(unit: Unit, removed: Session) -> None:
    """A session that is done is removed: nobody waits for it any more."""
    if is_done(unit, removed):
        for session in unit.sessions.list(repo_id=removed.repo_id, include_archived=True):
            if removed.id in session.after:
                _cross_off(unit, session, {removed.id}, DAEMON)


def let_go(unit: Unit, session: Session, principal: str) -> Session:
    """The person lets a session go on without predecessors that are gone."""
    gone = {identity for identity in session.after if unit.sessions.find(identity) is None}
    return _cross_off(unit, session, gone, principal) if gone else session


def _cross_off(unit: Unit, session: Session, gone: set[str], principal: str) -> Session:
    session = unit.sessions.update(session.id, after=tuple(each for each in session.after if each not in gone))
    log_update(unit, session, ["after"], principal)
    return session
