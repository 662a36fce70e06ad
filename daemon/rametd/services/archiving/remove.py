"""Remove a session. A removal that would lose work is refused; any other can be undone until its
entry in the trash expires."""

import asyncio
from dataclasses import replace
from functools import partial

import structlog
from ramet.v1 import event_pb2, session_pb2

from rametd.domain.errors import NotFoundError, RefNotFoundError, WrongStateError
from rametd.domain.models import Session, TrashEntry, WorktreeKind
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import State
from rametd.git import TRASH, RepositoryInfo, Shelved
from rametd.services import events
from rametd.services.agents.stopping import destroy_processes
from rametd.services.agents.supervisor import Supervisor
from rametd.services.agents.transcripts import Transcripts
from rametd.services.archiving.at_risk import at_risk, with_unstored, work_at_risk
from rametd.services.archiving.belongings import belongings
from rametd.services.archiving.integrity import last_intact, lost_archive
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
from rametd.services.landing import entries as landing_entries
from rametd.services.messages import stamp
from rametd.services.operations import new_operation
from rametd.services.predecessors import settle_successors
from rametd.services.repos import info_of
from rametd.services.views import one_session_message
from rametd.services.worktrees.checkpoints import drop_checkpoints
from rametd.services.worktrees.places import unlink_by_name
from rametd.store import Unit, dump_session

log = structlog.get_logger()

Removed = session_pb2.DeleteSessionResponse
"""The stored answer: a retry after a crash gets the same warnings."""


class Remover:
    def __init__(self, core: Core, hooks: SessionHooks, supervisor: Supervisor) -> None:
        self._core = core
        self._hooks = hooks
        self._supervisor = supervisor
        core.operations.handle(Kind.REMOVE, partial(undo_or_fail, core), self._complete)

    async def remove(self, session: Session, *, force: bool, caller: Caller) -> Removed:
        """Remove a session. Without ``force``, raise `WorkAtRiskError` with a list of the work, and
        `WrongStateError` for a session at work."""
        core = self._core
        begun = await core.store.read(lambda reader: reader.operations.exclusive(session.id))
        # A removal that is under way was checked when it began.
        judged = force or begun is None or begun.kind != Kind.REMOVE
        if judged and not force:
            if session.state in {State.STARTING, State.WORKING, State.WAITING}:
                raise WrongStateError(f"{session.name} is {session.state}", hint="add --stop to end its turn first")
            risk = await work_at_risk(core, session)
            if risk:
                raise at_risk(session, await with_unstored(core, session, risk))
        new = new_operation(Kind.REMOVE, session.id, caller, force="yes" if force else "")

        def admit(unit: Unit, failed: Operation | None) -> None:
            refuse_around(unit, session)
            if failed is None and not judged:
                # The removal was undone since we looked, so its work is at risk again.
                raise WrongStateError(f"the removal of {session.name} failed meanwhile", hint="run it again")

        removed: Removed = await core.operations.run(new, admit)
        return removed

    async def _complete(self, operation: Operation) -> Removed:
        """Remove the session. An earlier run may have done any of the steps."""
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.get(operation.session_id))
        warnings = await wind_down(core, self._hooks, self._supervisor, operation, session)
        entry: TrashEntry | None = None
        if session.worktree_kind != WorktreeKind.OWN:
            # Ramet did not create this checkout: worktree and branch stay, and need no snapshot.
            entry = self._entry(session)
        else:
            try:
                info = await info_of(core, session)
            except NotFoundError as error:
                log.warning("repository of a removed session is gone", session=session.id, error=error.message)
            else:
                entry, more = await self._shelve(operation, session, info)
                warnings += more
            core.failpoint.hit("remove.worktree-removed")
            await asyncio.to_thread(unlink_by_name, session.worktree)
        if entry is None:  # else they stay as long as the entry in the trash
            await asyncio.to_thread(core.environments.delete, session.id)
            await Transcripts(core).forget(session.id)
            await drop_checkpoints(core, session.id)
        await asyncio.to_thread(core.index.delete, session.id)
        await destroy_processes(core, session.id)
        core.failpoint.hit("remove.processes-destroyed")
        removed = await core.store.write(lambda unit: self._forget(unit, session, entry, operation, warnings))
        core.failpoint.hit("remove.forgotten")
        core.live.schedule()
        return removed

    async def _shelve(
        self, operation: Operation, session: Session, info: RepositoryInfo
    ) -> tuple[TrashEntry | None, list[str]]:
        """Move the worktree to the shelf and delete the branch. Return the entry of the trash, and
        warnings."""
        core, git = self._core, self._core.git
        if session.state == State.ARCHIVED:  # its snapshot moves to the trash first
            await note_removal(core, operation, session)
        async with recorded_under(core, info, operation, session, f"{TRASH}{session.id}"):
            shelved, warnings = await self._record(session, info)
            core.failpoint.hit("remove.trashed")
            await note_removal(core, operation, session)
            snapshot = shelved.snapshot if shelved is not None else None
            warnings += await git.snapshots.shelve(info, snapshot, session.worktree)
            # If there is no snapshot, a branch that was created meanwhile stays: nothing records
            # its commits.
            if session.created_branch and shelved is not None and shelved.branch_commit:
                why = await git.branches.delete(info, session.branch, shelved.branch_commit)
                warnings += [why] if why is not None else []
        warnings = log_warnings(operation, warnings)
        if shelved is None:
            return None, warnings
        size = await git.snapshots.size(info, shelved.snapshot, session.worktree)
        return self._entry(session, shelved, size), warnings

    async def _record(self, session: Session, info: RepositoryInfo) -> tuple[Shelved | None, list[str]]:
        """Take the snapshot for the trash, or move that of the archive there. Return it, None if no
        files are left, with warnings about lost objects."""
        core, ref = self._core, f"{TRASH}{session.id}"
        warnings: list[str] = []
        if session.state == State.ARCHIVED:
            if words := await lost_archive(core, info, session):
                warnings.append(f"{words}; {archive_ref(session.id)} stays as it is")
            elif (moved := await core.git.snapshots.move(info, archive_ref(session.id), ref)) is not None:
                tip = await core.git.branches.tip(info, session.branch)
                # The branch, which is deleted too, may have newer commits of a person.
                await core.git.snapshots.keep_commits(info, session.id, *([tip] if tip is not None else []))
                return Shelved(moved, tip or str(moved.facts.get("branch", ""))), warnings
        last, lost = await last_intact(core, info, session)
        warnings += lost
        try:
            shelved = await core.git.snapshots.record(info, session.id, ref, session.worktree, session.branch, last)
        except RefNotFoundError as error:
            log.warning("nothing is left to record", session=session.id, error=error.message)
            return None, warnings
        return shelved, [*warnings, *shelved.warnings]

    def _entry(self, session: Session, shelved: Shelved | None = None, size: int = 0) -> TrashEntry:
        now = self._core.clock()
        return TrashEntry(
            id=session.id,
            repo_id=session.repo_id,
            session_id=session.id,
            name=session.name,
            branch=session.branch,
            ref=f"{TRASH}{session.id}" if shelved is not None else "",
            commit=shelved.snapshot.id if shelved is not None else "",
            branch_commit=shelved.branch_commit if shelved is not None else "",
            bytes=size,
            session=dump_session(session),
            create_time=now,
            expire_time=now + self._core.config.retention.trash,
        )

    def _forget(
        self, unit: Unit, session: Session, entry: TrashEntry | None, operation: Operation, warnings: list[str]
    ) -> Removed:
        # Not earlier: if a removal fails, its landing stays in the queue.
        target = landing_entries.leave(unit, session.id, operation.principal)
        removed = Removed(
            session=one_session_message(unit, session),
            trash_ref=entry.ref if entry else "",
            expire_time=stamp(entry.expire_time) if entry else None,
            landing_target=target,
            warnings=warnings,
        )
        if entry is not None and unit.trash.get(entry.id) is None:
            unit.trash.add(replace(entry, belongings=belongings(unit, session)))
        settle_successors(unit, session)
        payload = event_pb2.SessionRemoved(name=session.name, branch=session.branch, trash_ref=removed.trash_ref)
        tree = event_pb2.WorktreeRemoved(path=str(session.worktree))
        gone = session.worktree_kind == WorktreeKind.OWN and session.state != State.ARCHIVED
        for each in (*((tree,) if gone else ()), payload):
            events.log(unit, session, each, operation.principal)
        unit.sessions.delete(session.id)
        unit.rules.remove_session(session.id)
        unit.operations.finish(operation, removed.SerializeToString())
        return removed
