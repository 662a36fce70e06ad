"""What is told of a session that is back, and what its row can be again."""

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
"""Where a session is brought back from, as its event says it."""


def answer_of(origin: str, session: session_pb2.Session, warnings: Sequence[str]) -> Message:
    """What the call is answered that asked for it."""
    if origin == TRASH:
        return worktree_pb2.RestoreTrashResponse(session=session, warnings=warnings)
    return session_pb2.RestoreSessionResponse(session=session, warnings=warnings)


def is_back(reader: Reader, session_id: str) -> bool:
    session = reader.sessions.find(session_id)
    return session is not None and session.state != State.ARCHIVED


def not_laid(reader: Reader, session: Session, snapshot: Snapshot) -> tuple[str, ...]:
    """A checkpoint that has files which the branch, as it is, may not have."""
    return tuple(
        f"its directory was deleted by hand, and its branch is not as it was at checkpoint {each.number}: `rametctl rewind {session.name} {each.number}`"
        " brings back the files of then"
        for each in reader.checkpoints.list(session.id)
        if each.snapshot == snapshot.facts.get("checkpoint")
    )


def row(unit: Unit, core: Core, session: Session, warnings: list[str]) -> Session:
    """The row of a removed session as it can be again; adds to ``warnings`` what cannot be the same."""
    name, number = session.name, 2
    while unit.sessions.by_name(name, session.repo_id):
        name, number = f"{session.name}-{number}", number + 1
    if name != session.name:
        warnings.append(f"another session is called {session.name} now: this one is {name}")
    wanted = (session.port_base, session.port_count)
    base, count = 0, 0
    try:
        base, count = ports.allocate(unit, core.config, wanted) if session.port_count else wanted
    except CapReachedError as error:
        warnings.append(f"it has no ports: {error.message}")
    else:
        if (base, count) != wanted:
            warnings.append(f"its ports are taken: it has those from {base} on instead of {session.port_base}")
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
