"""What is under way with a session, and the refusals that follow from it. By rows and kinds, never by words."""

from rametd.domain.errors import WrongStateError
from rametd.domain.models import Session
from rametd.domain.operations import Caller, Kind, Operation
from rametd.services.ids import new_id
from rametd.store import Reader, load_session


def new_operation(kind: Kind, session_id: str, caller: Caller, **data: str) -> Operation:
    """An operation that is not stored yet."""
    return Operation(
        id=new_id(),
        kind=kind,
        session_id=session_id,
        request_id=caller.request_id,
        principal=caller.principal,
        method=caller.method,
        digest=caller.digest,
        data=data,
    )


def refuse_busy(reader: Reader, session: Session) -> None:
    """Raises `WrongStateError` while an exclusive operation has the session."""
    if (found := reader.operations.exclusive(session.id)) is not None:
        raise busy_error(session.name, found)


def refuse_other(reader: Reader, session_id: str, name: str, kind: Kind) -> None:
    """The same, but for an operation of one ``kind``."""
    if (found := reader.operations.exclusive(session_id)) is not None and found.kind != kind:
        raise busy_error(name, found)


def busy_error(name: str, operation: Operation) -> WrongStateError:
    return WrongStateError(f"{name} is {operation.doing}", hint="wait until that is done, then try again")


def refuse_landing(reader: Reader, session: Session, branch: str = "") -> None:
    """Raises `WrongStateError` while a merge queue moves the session's branch, or the ``branch`` that it is to be restored on, and its files with that."""
    moved = (session.repo_id, branch or session.branch)
    for operation in reader.operations.list(kinds=(Kind.LAND,)):
        if (operation.data["repo"], operation.data["target"]) == moved:
            raise WrongStateError(f"work is landing on {moved[1]} at this moment", hint="try again")


def holder_of(reader: Reader, repo_id: str, branch: str) -> Operation | None:
    """The exclusive operation of the session that has a branch checked out, or is about to."""
    for operation in reader.operations.all_exclusive():
        if operation.kind == Kind.RESTORE:
            session = load_session(operation.data["session"])
            found = (session.repo_id, operation.data["branch"])
        elif (here := reader.sessions.find(operation.session_id)) is not None:
            found = (here.repo_id, here.branch)
        else:
            continue
        if found == (repo_id, branch):
            return operation
    return None


def session_of(reader: Reader, operation: Operation) -> Session | None:
    """The session as it is, or as it is to be restored."""
    session = reader.sessions.find(operation.session_id)
    if session is None and "session" in operation.data:
        return load_session(operation.data["session"])
    if session is None and (entry := reader.trash.get(operation.session_id)) is not None:
        return load_session(entry.session)
    return session


def name_of(reader: Reader, operation: Operation) -> str:
    session = session_of(reader, operation)
    return session.name if session is not None else operation.session_id


def unfinished(operation: Operation) -> str:
    """Why a failed operation waits to be tried again; "" for one that is under way."""
    return f"its {operation.traits.noun} could not be finished: {operation.failed}" if operation.failed else ""
