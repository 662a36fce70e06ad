"""Removing a session: refused while that would lose work, complete otherwise, and undoable for thirty days."""

import asyncio
from pathlib import Path

import structlog
from ramet.v1 import event_pb2, session_pb2

from rametd.domain.errors import NotFoundError, RametError, RefNotFoundError, WorkAtRiskError, WrongStateError
from rametd.domain.models import Intent, Session, TrashEntry
from rametd.domain.states import State
from rametd.git.repository import RepositoryInfo
from rametd.git.risk import Risk
from rametd.keeper.executor import Handle
from rametd.keeper.place import Place
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.places import unlink_by_name
from rametd.services.repos import info_of
from rametd.services.supervisor import Supervisor
from rametd.services.views import one_session_message, stamp
from rametd.store import Reader, Unit, dump_session

log = structlog.get_logger()

DELETE = "delete"
LISTED = 20
END_GRACE_S = 1.0


Removed = session_pb2.DeleteSessionResponse
"""The answer; it is stored with what it tells, so that a caller who asks again after a crash gets it too."""


class Remover:
    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self._running: dict[str, asyncio.Task[Removed]] = {}  # by session

    async def remove(
        self, session: Session, *, force: bool, principal: str, request_id: str = "", digest: bytes = b""
    ) -> Removed:
        """Raises `WorkAtRiskError` with a list unless ``force``, `WrongStateError` while it is at work unless ``force``.

        ``request_id`` and ``digest`` are the call's, to be remembered with its answer.
        """
        core = self._core
        if not force:
            if session.state in {State.STARTING, State.WORKING, State.WAITING}:
                raise WrongStateError(
                    f"{session.name} is {session.state}", hint=f"`rametctl stop {session.name}` first, or add --force"
                )
            risk = await self._risk(session)
            if risk:
                raise WorkAtRiskError(
                    f"{session.name} holds work that exists nowhere else: {describe(risk)}",
                    hint="merge or push it, or add --force: it goes to the trash and can be brought back",
                    uncommitted="\n".join(risk.uncommitted[:LISTED]),
                    untracked="\n".join(risk.untracked[:LISTED]),
                    commits="\n".join(f"{commit[:10]} {subject}" for commit, subject in risk.unique_commits[:LISTED]),
                )
        data = {"principal": principal, "request_id": request_id, "digest": digest.hex()}
        new = Intent(new_id(), DELETE, session.id, data, core.clock())
        intent = await core.store.write(lambda unit: removal_of(unit, session.id) or unit.intents.add(new))
        core.failpoint.hit("remove.intended")
        # A second caller waits for the first one's removal; one that hangs up does not cut it off.
        task = self._running.get(session.id)
        if task is None:
            task = self._running[session.id] = asyncio.create_task(self.complete(intent), name=f"remove-{session.id}")
            task.add_done_callback(lambda _: self._running.pop(session.id, None))
        return await asyncio.shield(task)

    async def _risk(self, session: Session) -> Risk:
        repo = await self._core.store.read(lambda reader: reader.repos.get(session.repo_id))
        try:
            info = await info_of(self._core, repo)
        except NotFoundError as error:
            # Nothing can be saved into it: what lies in the worktree stays there, and that is told.
            if await asyncio.to_thread(session.worktree.exists):
                raise WorkAtRiskError(
                    f"the repository of {session.name} is gone, so that nothing of {session.worktree} can be saved into it",
                    hint="move the repository back, or add --force: the session is removed and that directory stays",
                ) from error
            return Risk((), (), ())
        branch = session.branch if session.created_branch else ""
        if not branch:
            risk = await self._core.git.work_at_risk(info, session.worktree, session.branch, session.base_commit)
            return Risk(risk.uncommitted, risk.untracked, ())  # a branch that was there before us stays
        return await self._core.git.work_at_risk(info, session.worktree, branch, session.base_commit)

    async def complete(self, intent: Intent) -> Removed:
        """Carry a removal through; a daemon that finds the intent calls it again, and every step may have been done before."""
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.get(intent.session_id))
        await self._end_agent(session)
        core.failpoint.hit("remove.agent-ended")
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        entry: TrashEntry | None = None
        try:
            info = await info_of(core, repo)
        except NotFoundError as error:
            log.warning("repository of a removed session is gone", session=session.id, error=error.message)
        else:
            entry = await self._trash(session, info)
            core.failpoint.hit("remove.trashed")
            removal = await core.git.remove_worktree(
                info, session.worktree, session.branch, delete_branch=session.created_branch
            )
            for kept in removal.kept:
                log.warning("removal left something", session=session.id, what=kept)
        core.failpoint.hit("remove.worktree-removed")
        await asyncio.to_thread(unlink_by_name, session.worktree)
        await asyncio.to_thread(core.environments.delete, session.id)
        await asyncio.to_thread(core.index.delete, session.id)
        await self._destroy_processes(session)
        core.failpoint.hit("remove.processes-destroyed")
        removed = await core.store.write(lambda unit: self._forget(unit, session, entry, intent))
        core.failpoint.hit("remove.forgotten")
        core.wake()
        return removed

    async def _trash(self, session: Session, info: RepositoryInfo) -> TrashEntry | None:
        """Keep the work; None where neither the worktree nor the branch is left."""
        core = self._core
        try:
            record = await core.git.trash(info, session.id, session.worktree, session.branch)
        except RefNotFoundError as error:
            log.warning("nothing is left to keep", session=session.id, error=error.message)
            return None
        now = core.clock()
        return TrashEntry(
            id=session.id,
            repo_id=session.repo_id,
            session_id=session.id,
            name=session.name,
            branch=session.branch,
            ref=record.ref,
            commit=record.commit,
            branch_commit=record.branch_commit or "",
            bytes=record.size,
            session=dump_session(session),
            create_time=now,
            expire_time=now + core.config.retention.trash,
        )

    async def _end_agent(self, session: Session) -> None:
        """End its process. Without a runner there may be one too: recovery completes removals before it takes up any agent, and a
        process may run whose handle a killed daemon had not stored yet."""
        await self._supervisor.settled(session.id)
        runner = self._core.runners.get(session.id)
        if runner is not None:
            await runner.end("remove", END_GRACE_S)
        else:
            for handle in await self._handles(session):
                await self._core.executor.end(handle, END_GRACE_S, epoch=self._core.fence)

    async def _handles(self, session: Session) -> list[Handle]:
        """All processes that the session ever had and that left something, on record or not."""
        found = await asyncio.to_thread(self._core.executor.discover)
        return [handle for handle in found if Place.from_handle(handle).session == session.id]

    async def _destroy_processes(self, session: Session) -> None:
        for handle in await self._handles(session):
            try:
                await self._core.executor.destroy(handle)
            except RametError as error:
                log.warning("agent directory stays", session=session.id, error=error.message)

    def _forget(self, unit: Unit, session: Session, entry: TrashEntry | None, intent: Intent) -> Removed:
        removed = Removed(
            session=one_session_message(unit, session),
            trash_ref=entry.ref if entry else "",
            expire_time=stamp(entry.expire_time) if entry else None,
        )
        if entry is not None and unit.trash.get(entry.id) is None:
            unit.trash.add(entry)
        payload = event_pb2.SessionRemoved(name=session.name, branch=session.branch, trash_ref=removed.trash_ref)
        tree = event_pb2.WorktreeRemoved(path=str(session.worktree))
        for each in (tree, payload):
            unit.events.append(
                events.make(each, session_id=session.id, repo_id=session.repo_id, principal=intent.data["principal"])
            )
        unit.sessions.delete(session.id)
        unit.rules.remove_session(session.id)
        unit.intents.remove(intent.id)
        if request_id := intent.data.get("request_id"):
            unit.calls.put(
                request_id, "DeleteSession", bytes.fromhex(intent.data["digest"]), removed.SerializeToString()
            )
        return removed


def removal_of(reader: Reader, session_id: str) -> Intent | None:
    """The removal of a session that is under way, or that failed and is to be tried again."""
    return next((intent for intent in reader.intents.list(session_id) if intent.kind == DELETE), None)


def describe(risk: Risk) -> str:
    """One line that names what would be lost."""
    parts = []
    for paths, what in ((risk.uncommitted, "uncommitted"), (risk.untracked, "untracked")):
        if paths:
            parts.append(f"{len(paths)} {what} ({shortened([Path(path).name or path for path in paths])})")
    if risk.unique_commits:
        commits = [f"{commit[:8]} {subject}" for commit, subject in risk.unique_commits]
        noun = "commit" if len(commits) == 1 else "commits"
        parts.append(f"{len(commits)} {noun} on no other branch ({shortened(commits)})")
    return ", ".join(parts)


def shortened(names: list[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
