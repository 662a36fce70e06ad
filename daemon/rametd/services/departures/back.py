"""A restored session: its new row, and the answer to the call that restored it."""

from collections.abc import Sequence
from dataclasses import replace

from google.protobuf.message import Message
from ramet.v1 import session_pb2, worktree_pb2

from rametd.domain.errors import CapReachedError
from rametd.domain.models import Hold, Session
from rametd.domain.states import State
from rametd.git import Snapshot
from rametd.services import ports
from rametd.services.core import Core
from rametd.store import Reader, Unit

TRASH = "trash"
ARCHIVE = "archive"
"""Origins of a restored session, as in its event."""


def answer_of(origin: str, session: session_pb2.Session, warnings: Sequence[str]) -> Message:
    """Answer to the call that restored the session."""
    if origin == TRASH:
        return worktree_pb2.RestoreTrashResponse(session=session, warnings=warnings)
    return session_pb2.RestoreSessionResponse(session=session, warnings=warnings)


def is_back(reader: Reader, session_id: str) -> bool:
    session = reader.sessions.find(session_id)
    return session is not None and session.state != State.ARCHIVED


def not_laid(reader: Reader, session: Session, snapshot: Snapshot) -> tuple[str, ...]:
    """Warn of a checkpoint whose files the branch may not have by now."""
    return tuple(
        f"its directory was deleted by hand, and its branch has moved since checkpoint {each.number}: `rametctl rewind {session.name} {each.number}`"
        " restores the files of that checkpoint"
        for each in reader.checkpoints.list(session.id)
        if each.snapshot == snapshot.facts.get("checkpoint")
    )


def row(unit: Unit, core: Core, session: Session, warnings: list[str]) -> Session:
    """New row of a removed session; adds to ``warnings`` each value that differs from before."""
    name, number = session.name, 2
    while unit.sessions.by_name(name, session.repo_id):
        name, number = f"{session.name}-{number}", number + 1
    if name != session.name:
        warnings.append(f"the name {session.name} is taken: the session is called {name} now")
    wanted = (session.port_base, session.port_count)
    base, count = 0, 0
    try:
        base, count = ports.allocate(unit, core.config, wanted) if session.port_count else wanted
    except CapReachedError as error:
        warnings.append(f"it has no ports: {error.message}")
    else:
        if (base, count) != wanted:
            warnings.append(f"its ports are taken: they start at {base} instead of {session.port_base}")
    if session.parent_id and unit.sessions.find(session.parent_id) is None:
        warnings.append("the session that spawned it is gone")
    return replace(
        session,
        name=name,
        state=State.IDLE,
        state_reason="",
        hold=Hold.NONE,
        interrupted=session.interrupted or session.state in {State.WORKING, State.WAITING},
        port_base=base,
        port_count=count,
        resume_at=None,
        version=session.version + 1,
        update_time=unit.now,
    )
