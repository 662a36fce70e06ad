"""Restore a session from the archive or the trash: branch, worktree, files, conversation, row.

A restore overwrites nothing: if the branch has moved or is taken, it creates a new branch for the
work. Warnings name every difference. The operation stores the chosen branch, so that a restarted
daemon uses the same one.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog
from google.protobuf.message import Message
from ramet.v1 import event_pb2, session_pb2, worktree_pb2

from rametd.domain.errors import (
    BranchTakenError,
    CapReachedError,
    RametError,
    RefNotFoundError,
    RepoNotFoundError,
    TrashEntryNotFoundError,
    WorktreeChangedError,
    WrongStateError,
)
from rametd.domain.models import Hold, Restore, Session, SetupState, TrashEntry, WorktreeKind
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import State
from rametd.git import RepositoryInfo, Snapshot, branch_name
from rametd.services import events, ports
from rametd.services.agents.transcripts import Transcripts
from rametd.services.archiving.belongings import restore_belongings
from rametd.services.archiving.integrity import archived_as, ref_gone
from rametd.services.archiving.steps import archive_ref
from rametd.services.core import Core
from rametd.services.hooks import SessionHooks
from rametd.services.lifecycle import change_state, held_by_person
from rametd.services.operations import new_operation, refuse_landing
from rametd.services.repos import info_of
from rametd.services.views import one_session_message
from rametd.services.worktrees.places import link_by_name
from rametd.store import Reader, Unit, dump_session, load_session

TRASH = "trash"
ARCHIVE = "archive"
"""Origins of a restored session, as in its event."""


def answer_of(origin: str, session: session_pb2.Session, warnings: Sequence[str]) -> Message:
    """Answer to the call that restored the session."""
    if origin == TRASH:
        return worktree_pb2.RestoreTrashResponse(session=session, warnings=warnings)
    return session_pb2.RestoreSessionResponse(session=session, warnings=warnings)


def is_restored(reader: Reader, session_id: str) -> bool:
    session = reader.sessions.find(session_id)
    return session is not None and session.state != State.ARCHIVED


def restored_state(reader: Reader, before: Session, now: Session) -> tuple[State, Hold, str]:
    """State, hold and reason of a restored session. It does not continue by itself: the person
    stopped it by archiving or removing it.

    ``before`` is the session as archived or removed, ``now`` as restored.
    """
    state, hold, reason = before.last_state
    if state == State.FAILED:
        return state, hold, reason
    if state == State.PAUSED and hold == Hold.BUDGET:
        return state, hold, reason
    if state == State.PAUSED and hold == Hold.PERSON:
        return state, hold, held_by_person(now)
    if now.interrupted or reader.prompts.open(now.id):
        return State.PAUSED, Hold.STOPPED, f"restored: `rametctl resume {now.reference}` continues it"
    if state == State.IDLE:
        return state, hold, reason
    return State.IDLE, Hold.NONE, ""


def unrestored(reader: Reader, session: Session, snapshot: Snapshot) -> tuple[str, ...]:
    """Warn of a checkpoint if the branch may no longer have its files."""
    return tuple(
        f"its directory was deleted by hand, and its branch has moved since checkpoint {each.number}: `rametctl rewind {session.reference} {each.number}`"
        " restores the files of that checkpoint"
        for each in reader.checkpoints.list(session.id)
        if each.snapshot == snapshot.facts.get("checkpoint")
    )


def row(unit: Unit, core: Core, session: Session, warnings: list[str]) -> Session:
    """New row of a removed session. Adds to ``warnings`` each value that differs from before."""
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
        warnings.append("its parent session is gone")
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


@dataclass(frozen=True, slots=True)
class Place:
    """Branch and commit to restore on, and whether to create the branch."""

    branch: str
    commit: str
    new: bool
    warnings: tuple[str, ...] = ()


async def place_of(core: Core, info: RepositoryInfo, session: Session, snapshot: Snapshot, *, archived: bool) -> Place:
    """Choose the session's branch if it has not moved, or if it has only moved forward and the
    snapshot has no uncommitted changes; else a new branch.

    Warn of a deleted branch only for an ``archived`` session: a removal always deletes the branch.
    """
    branch = session.branch
    taken, latest = await core.store.read(
        lambda reader: (_holder(reader, session), reader.checkpoints.latest(session.id))
    )
    # The snapshot has neither if the branch was deleted before, under the worktree.
    tip = str(snapshot.facts.get("branch") or snapshot.head or (latest.head if latest else "") or session.base_commit)
    found = {each.name: each for each in await core.git.branches.list(info)}
    here = found.get(branch)
    why = f"session {taken} has branch {branch}" if taken else ""
    if not why and here is None:
        try:
            await core.git.branches.require_free(info, branch, new=True)
        except BranchTakenError as error:
            why = error.message
        else:
            gone = (f"branch {branch} was deleted; it was created again at {tip[:12]}",)
            return Place(branch, tip, new=True, warnings=gone if archived else ())
    if not why and here is not None:
        if here.worktree is not None:
            why = f"branch {branch} is checked out at {here.worktree}"
        elif here.commit == tip:
            return Place(branch, tip, new=False)
        else:
            ahead, _ = await core.git.branches.ahead_behind(info, tip, here.commit)
            moved = f"branch {branch} has moved on from {tip[:12]} to {here.commit[:12]}"
            if not ahead and await _is_clean(core, info, session, snapshot):
                return Place(branch, here.commit, new=False, warnings=(f"{moved}; the worktree has its current files",))
            why = moved
    taken_names = await core.git.branches.names(info)
    other = branch_name(f"{branch}-restored", fallback=f"ramet/{session.id}", taken=taken_names)
    return Place(other, tip, new=True, warnings=(f"{why}: the work is on {other}",))


async def _is_clean(core: Core, info: RepositoryInfo, session: Session, snapshot: Snapshot) -> bool:
    """Whether the snapshot has nothing beyond its branch."""
    if snapshot.branch != session.branch or snapshot.index or snapshot.facts.get("under_way"):
        return False
    return not snapshot.skipped and not await core.git.snapshots.changed(info, snapshot)


def _holder(reader: Reader, session: Session) -> str:
    """The name of the other session that has the branch; "" for none."""
    others = reader.sessions.list(repo_id=session.repo_id)
    return next((each.name for each in others if each.branch == session.branch and each.id != session.id), "")


log = structlog.get_logger()


class Restorer:
    def __init__(self, core: Core, hooks: SessionHooks) -> None:
        self._core = core
        self._hooks = hooks
        core.operations.handle(Kind.RESTORE, self._undo, self._complete)

    async def from_archive(self, session_id: str, caller: Caller) -> session_pb2.RestoreSessionResponse:
        """Restore an archived session. Raise `WrongStateError` if it is not archived,
        `PathTakenError`, and `RefNotFoundError` for a lost snapshot."""
        session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
        if session.state != State.ARCHIVED:
            raise WrongStateError(
                f"{session.name} is not archived: it is {session.state}", hint="there is nothing to restore"
            )
        restored = await self._restore(session, ARCHIVE, archive_ref(session_id), caller)
        assert isinstance(restored, session_pb2.RestoreSessionResponse)
        return restored

    async def from_trash(self, entry: TrashEntry, caller: Caller) -> worktree_pb2.RestoreTrashResponse:
        """Restore a removed session with its id, and with its name unless another session has taken
        it."""
        session = load_session(entry.session)
        restored = await self._restore(session, TRASH, entry.ref, caller, entry.commit, entry.branch_commit)
        assert isinstance(restored, worktree_pb2.RestoreTrashResponse)
        return restored

    async def _restore(
        self, session: Session, origin: str, ref: str, caller: Caller, commit: str = "", later: str = ""
    ) -> Message:
        """``later``: the commit at which a removal deleted the branch, "" if it did not."""
        core = self._core
        place = Place(session.branch, "", new=False)
        newer: list[str] = []
        tree = session.worktree_kind == WorktreeKind.OWN
        if tree:
            info = await self._info(session)
            snapshot = await core.git.snapshots.read(info, ref)
            if snapshot is None:
                raise await ref_gone(core, info, session, ref, commit or await archived_as(core, info, session))
            place = await place_of(core, info, session, snapshot, archived=origin == ARCHIVE)
            if later not in {"", place.commit, snapshot.facts.get("branch")}:
                name = f"git branch NAME {later[:12]}"
                newer = [
                    f"its branch got newer commits after it was archived, up to {later[:12]}: `{name}` creates a branch of them"
                ]
        elif not await asyncio.to_thread(session.worktree.is_dir):
            raise WorktreeChangedError(
                f"the worktree of {session.name} is gone: {session.worktree}",
                hint="Ramet did not create it: move the directory back first",
                worktree=str(session.worktree),
            )
        new = new_operation(
            Kind.RESTORE,
            session.id,
            caller,
            origin=origin,
            ref=ref if tree else "",
            branch=place.branch,
            commit=place.commit,
            new="1" if place.new else "",
            warnings=json.dumps([*place.warnings, *newer]),
            session=dump_session(session),
        )

        def admit(unit: Unit, failed: Operation | None) -> None:
            if failed is not None:
                return
            if origin == TRASH and unit.trash.get(session.id) is None:
                raise TrashEntryNotFoundError(
                    f"{session.name} is not in the trash any more", hint="`rametctl trash ls` lists it"
                )
            if origin == ARCHIVE and unit.sessions.get(session.id).state != State.ARCHIVED:
                # Another call has restored it since the check. A second restore would delete the
                # ref that the first one still needs.
                raise WrongStateError(f"{session.name} was restored already", hint="there is nothing to restore")
            if tree:
                refuse_landing(unit, session, place.branch)

        restored: Message = await core.operations.run(new, admit)
        return restored

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        """Undo a restore that failed; the snapshot stays in the archive or the trash."""
        log.warning("undoing a restore", session=operation.session_id, error=str(error))
        core, data = self._core, operation.data
        session = load_session(data["session"])
        # If the row is stored, the session has its worktree and only the cleanup failed.
        if data["ref"] and not await core.store.read(lambda reader: is_restored(reader, session.id)):
            info = await self._info(session)
            created_at = data["commit"] if data["new"] else None
            await core.git.snapshots.undo_unshelve(info, session.worktree, data["branch"], created_at)
        await core.store.write_for_sure(lambda unit: unit.operations.undo(operation.id))

    async def _info(self, session: Session) -> RepositoryInfo:
        try:
            return await info_of(self._core, session)
        except RepoNotFoundError as error:
            raise RepoNotFoundError(
                f"the repository of {session.name} is gone: {error.message}", hint="move it back first"
            ) from error

    async def _complete(self, operation: Operation) -> Message:
        """Restore the session. An earlier run may have done any of the steps."""
        core = self._core
        session = load_session(operation.data["session"])
        if not await core.store.read(lambda reader: is_restored(reader, session.id)):
            warnings = [*json.loads(operation.data["warnings"]), *await self._unshelve(session, operation.data)]
            core.failpoint.hit("restore.tree-made")
            await core.store.write(lambda unit: self._store(unit, operation, session, warnings))
            core.failpoint.hit("restore.stored")
        restored = await core.store.read(lambda reader: reader.sessions.get(session.id))
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        await asyncio.to_thread(core.index.write, repo, restored)
        if restored.worktree_kind == WorktreeKind.OWN:
            await asyncio.to_thread(link_by_name, restored)
        latest = await core.store.read(lambda reader: reader.operations.get(operation.id)) or operation
        warnings = json.loads(latest.data["warnings"])
        if operation.data["ref"]:
            try:
                await core.git.refs.drop(await self._info(session), operation.data["ref"])
            except RametError as error:  # the session is restored anyway
                log.warning("ref of a restored session not deleted", session=session.id, error=error.message)
        core.failpoint.hit("restore.dropped")
        if restored.worktree_kind == WorktreeKind.OWN:  # a new worktree: it needs setup and a tracker
            self._hooks.created(restored)

        def finish(unit: Unit) -> Message:
            message = one_session_message(unit, unit.sessions.get(session.id))
            answer = answer_of(operation.data["origin"], message, warnings)
            unit.operations.finish(operation, answer.SerializeToString())
            return answer

        answer = await core.store.write(finish)
        core.live.schedule()
        return answer

    async def _unshelve(self, session: Session, data: Mapping[str, str]) -> tuple[str, ...]:
        core = self._core
        if not data["ref"]:
            lost = await Transcripts(core).warning(session)
            return (lost,) if lost else ()
        info = await self._info(session)
        snapshot = await core.git.snapshots.read(info, data["ref"])
        if snapshot is None:
            raise RefNotFoundError(
                f"{data['ref']} is gone", hint="another program deleted it; `rametctl doctor` lists what is left"
            )
        warnings = await core.git.snapshots.unshelve(
            info,
            snapshot,
            session.worktree,
            session.branch,
            data["branch"],
            data["commit"],
            new_branch=bool(data["new"]),
        )
        warnings = (*warnings, *await core.store.read(lambda reader: unrestored(reader, session, snapshot)))
        lost = await Transcripts(core).warning(session)
        return (*warnings, lost) if lost else warnings

    def _store(self, unit: Unit, operation: Operation, session: Session, warnings: list[str]) -> None:
        """Store the restored session. Adds to ``warnings`` each value of its row that differs from
        before."""
        data = operation.data
        own = session.worktree_kind == WorktreeKind.OWN
        created = session.created_branch or bool(data["new"])
        setup = SetupState.RUNNING if own and session.setup else session.setup
        if data["origin"] == TRASH:
            entry = unit.trash.get(session.id)
            unit.trash.remove(session.id)
            unit.sessions.insert(row(unit, self._core, replace(session, branch=data["branch"]), warnings))
            if entry is not None:
                restore_belongings(unit, session.id, entry.belongings)
        else:
            change_state(unit, unit.sessions.get(session.id), State.IDLE, principal=operation.principal)
        back = unit.sessions.update(
            session.id,
            branch=data["branch"],
            created_branch=created,
            worktree_ready=True,
            setup=setup,
            setup_digest="" if own else session.setup_digest,
            landed_reason="",
            archive_commit="",
            before_archive=(),
        )
        unit.restores.put(Restore(back.id, data["origin"], tuple(warnings), unit.now))
        state, hold, reason = restored_state(unit, session, back)
        back = change_state(unit, back, state, reason=reason, hold=hold, principal=operation.principal)
        restored = event_pb2.SessionRestored(origin=data["origin"], warnings=warnings)
        events.log(unit, back, restored, operation.principal)
        unit.operations.advance(operation.id, "stored", {"warnings": json.dumps(warnings)})
