"""Archive a session: move its worktree to the shelf. Everything else stays. `Restorer` moves it
back."""

import asyncio
from dataclasses import replace
from functools import partial

import structlog
from ramet.v1 import event_pb2, session_pb2

from rametd.domain.errors import RefNotFoundError, WrongStateError
from rametd.domain.models import Hold, Session, WorktreeKind
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import State
from rametd.git import Shelved
from rametd.platform.files import tree_bytes
from rametd.services import events
from rametd.services.agents.supervisor import Supervisor
from rametd.services.archiving.integrity import last_intact
from rametd.services.archiving.steps import (
    archive_ref,
    log_warnings,
    note_removal,
    recorded_under,
    refuse_around,
    undo_or_fail,
    wind_down,
)
from rametd.services.core import Core
from rametd.services.hooks import SessionHooks
from rametd.services.lifecycle import change_state
from rametd.services.operations import new_operation
from rametd.services.repos import info_of
from rametd.services.sessions import Sessions
from rametd.services.views import one_session_message
from rametd.services.worktrees.places import unlink_by_name
from rametd.store import Unit

log = structlog.get_logger()

Archived = session_pb2.ArchiveSessionResponse
AT_REST = frozenset({State.IDLE, State.PAUSED, State.LOST, State.FAILED})


def check_state(session: Session, *, force: bool) -> None:
    """Raise `WrongStateError` for an archived session and, without ``force``, for one at work."""
    if session.state == State.ARCHIVED:
        raise WrongStateError(
            f"{session.name} is archived already", hint=f"`rametctl restore {session.reference}` restores it"
        )
    if session.state not in AT_REST and not force:
        raise WrongStateError(f"{session.name} is {session.state}", hint="add --stop to end its turn first")


class Archiver:
    def __init__(self, core: Core, hooks: SessionHooks, supervisor: Supervisor, sessions: Sessions) -> None:
        self._core = core
        self._hooks = hooks
        self._supervisor = supervisor
        self._sessions = sessions
        core.operations.handle(Kind.ARCHIVE, partial(undo_or_fail, core), self._complete)

    async def archive(self, session_id: str, *, force: bool, caller: Caller) -> Archived:
        """Archive a session. Raise `WrongStateError` as `check_state` does."""
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.get(session_id))
        check_state(session, force=force)
        if session.state not in AT_REST:
            await core.store.read(lambda reader: refuse_around(reader, session))  # before anything is stopped
            await self._sessions.stop(session_id, caller.principal)

        def admit(unit: Unit, failed: Operation | None) -> None:
            now = unit.sessions.get(session_id)
            refuse_around(unit, now)
            if failed is None:
                # Since we looked, a prompt may have arrived, or another call may have archived the
                # session and moved its worktree.
                check_state(now, force=force)

        archived: Archived = await core.operations.run(new_operation(Kind.ARCHIVE, session_id, caller), admit)
        return archived

    async def _complete(self, operation: Operation) -> Archived:
        """Archive the session. An earlier run may have done any of the steps."""
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.get(operation.session_id))
        warnings = await wind_down(core, self._hooks, self._supervisor, operation, session)
        shelved: Shelved | None = None
        freed = 0
        if session.worktree_kind == WorktreeKind.OWN:
            shelved, freed, more = await self._shelve(operation, session)
            warnings += more
        await self._copy(session.id, shelved)
        return await core.store.write(lambda unit: self._archived(unit, operation, shelved, freed, warnings))

    async def _copy(self, session_id: str, shelved: Shelved | None) -> None:
        """Record the archive in the session's index file. Without it, a rebuilt database would show
        a session that has lost its worktree."""
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.get(session_id))
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        commit = shelved.snapshot.id if shelved is not None else ""
        ready = session.worktree_kind != WorktreeKind.OWN
        archived = replace(
            session,
            state=State.ARCHIVED,
            before_archive=session.last_state,
            worktree_ready=ready,
            archive_commit=commit,
        )
        await asyncio.to_thread(core.index.write, repo, archived)
        core.failpoint.hit("archive.recorded")

    async def _shelve(self, operation: Operation, session: Session) -> tuple[Shelved | None, int, list[str]]:
        """Move the worktree to the shelf; the branch stays. Return its snapshot, the freed bytes,
        and warnings."""
        core, ref = self._core, archive_ref(session.id)
        info = await info_of(core, session)
        last, warnings = await last_intact(core, info, session)
        before = await asyncio.to_thread(tree_bytes, session.worktree)
        shelved: Shelved | None = None
        async with recorded_under(core, info, operation, session, ref):
            try:
                shelved = await core.git.snapshots.record(info, session.id, ref, session.worktree, session.branch, last)
                warnings += shelved.warnings
            except RefNotFoundError as error:
                log.warning("nothing is left to archive", session=session.id, error=error.message)
            core.failpoint.hit("archive.kept")
            await note_removal(core, operation, session)
            snapshot = shelved.snapshot if shelved is not None else None
            warnings += await core.git.snapshots.shelve(info, snapshot, session.worktree)
        shelf = core.git.snapshots.shelf_of(session.worktree)
        freed = max(0, before - await asyncio.to_thread(tree_bytes, shelf))
        warnings = log_warnings(operation, warnings)
        await asyncio.to_thread(unlink_by_name, session.worktree)
        core.failpoint.hit("archive.tree-removed")
        return shelved, freed, warnings

    def _archived(
        self, unit: Unit, operation: Operation, shelved: Shelved | None, freed: int, warnings: list[str]
    ) -> Archived:
        session = unit.sessions.get(operation.session_id)
        principal = operation.principal
        # A prompt may have arrived meanwhile: it stays queued and starts a turn after the restore.
        if session.state not in AT_REST:
            session = change_state(unit, session, State.PAUSED, hold=Hold.STOPPED, principal=principal)
        reason = (
            ""
            if session.worktree_kind == WorktreeKind.OWN
            else f"{session.worktree} was not created by Ramet and stays as it is"
        )
        ref, commit = (archive_ref(session.id), shelved.snapshot.id) if shelved is not None else ("", "")
        session = change_state(
            unit,
            session,
            State.ARCHIVED,
            reason=reason,
            principal=principal,
            worktree_ready=session.worktree_kind != WorktreeKind.OWN,
            archive_commit=commit,
            before_archive=session.last_state,
        )
        archived = event_pb2.SessionArchived(ref=ref, freed_bytes=freed, commit=commit)
        events.log(unit, session, archived, principal)
        answer = Archived(session=one_session_message(unit, session), ref=ref, freed_bytes=freed, warnings=warnings)
        unit.operations.finish(operation, answer.SerializeToString())
        return answer
