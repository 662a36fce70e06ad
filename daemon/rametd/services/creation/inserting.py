"""The two units of work of a creation: its operation, with which a spare becomes the creation's, and the session's row, which ends the operation."""

from ramet.v1 import event_pb2

from rametd.domain.errors import ChangedError
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.domain.operations import Kind, Operation
from rametd.domain.spares import Spare
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.creation.start import require_alone
from rametd.services.creation.wanted import Made, NewSession, Start
from rametd.services.delivery import add_prompt
from rametd.services.ids import new_id
from rametd.services.ownership.claims import check_claims
from rametd.services.views import one_session_message
from rametd.store import Unit


def operation_of(session: Session, info: RepositoryInfo, start: Start, spare: Spare | None) -> Operation:
    """What a later daemon must know to undo the creation; of a spare the commit that it stands at too."""
    return Operation(
        id=new_id(),
        kind=Kind.CREATE,
        session_id=session.id,
        data={
            "repo": str(info.common_dir),
            "worktree": str(session.worktree),
            "branch": session.branch,
            "created_at": start.commit if start.new_branch else "",
            "kind": start.kind,
            **({"spare": spare.commit, "commit": start.commit, "repo_id": spare.repo_id} if spare is not None else {}),
        },
        create_time=session.create_time,
    )


def begin(unit: Unit, repo: Repo, made: Made, spare: Spare | None) -> None:
    if made.start.worktree is not None:
        require_alone(unit, repo, made.start.worktree)
    if spare is not None and not unit.spares.remove(spare.id):
        raise ChangedError("the spare was taken by somebody else", hint="try again")
    unit.operations.begin(made.operation)


def insert(unit: Unit, session: Session, new: NewSession, operation: Operation) -> Session:
    """Store it with all that comes with it. Returns it as it is then."""
    new.admit(unit, session)
    if not session.forked_from:  # a fork is its original once more, until the person says whose what is
        parent = unit.sessions.find(session.parent_id) if session.parent_id else None
        check_claims(unit, session.repo_id, new.owns, new.forbids, parent=parent, tree=new.tree)
    unit.sessions.insert(session)
    created = event_pb2.SessionCreated(session=one_session_message(unit, session))
    tree = event_pb2.WorktreeCreated(path=str(session.worktree), branch=session.branch, commit=session.base_commit)
    for payload in (created, tree) if session.worktree_kind == WorktreeKind.OWN else (created,):
        unit.events.append(
            events.make(payload, session_id=session.id, repo_id=session.repo_id, principal=new.principal)
        )
    if new.prompt:
        add_prompt(unit, session, new.prompt, new.principal)
    unit.operations.finish(operation)
    stored = unit.sessions.get(session.id)
    new.remember(unit, stored)
    return stored
