"""The trash: removed sessions until they are restored, emptied, or expired; and the hourly
cleanup."""

import asyncio

import structlog
from ramet.v1 import worktree_pb2

from rametd.domain.errors import AmbiguousError, NotFoundError, RametError, TrashEntryNotFoundError, WrongStateError
from rametd.domain.models import DAEMON, TrashEntry, WorktreeKind
from rametd.domain.operations import Caller, Kind, Operation
from rametd.git import CHECKPOINTS, COMMITS
from rametd.git import TRASH as TRASH_REFS
from rametd.services.agents.transcripts import Transcripts
from rametd.services.archiving.restore import TRASH
from rametd.services.core import Core
from rametd.services.lookup import SHORTEST_PREFIX
from rametd.services.messages import to_message
from rametd.services.operations import new_operation, refuse_other
from rametd.services.repos import info_of
from rametd.services.worktrees.checkpoints import drop_checkpoints
from rametd.store import Reader, Unit, load_session

PERIOD_S = 3600.0
ANSWERS_STORED_S = 7 * 86400.0
"""How long the store has answers to calls, in seconds."""


log = structlog.get_logger()


def find_entry(reader: Reader, name: str, repo_id: str | None = None, *, near: str | None = None) -> TrashEntry:
    """Find an entry by id, unique name, or unique prefix of an id. Raises
    `TrashEntryNotFoundError`, `AmbiguousError`.

    If several entries have the name, choose the one of the repository ``near``, if it is the only
    one there.
    """
    exact = reader.trash.get(name)
    if exact is not None:
        return exact
    short = name.rpartition("/")[2]
    named = [entry for entry in reader.trash.list(repo_id) if entry.name in {name, short}]
    found = named or (reader.trash.find_by_prefix(name) if len(name) >= SHORTEST_PREFIX else [])
    here = [entry for entry in named if entry.repo_id == near and entry.name == name]
    if len(here) == 1 or len(found) == 1:
        return (here or found)[0]
    if not found:
        raise _missing_entry(reader, name, short, repo_id)
    matches = ", ".join(f"{entry.name} ({entry.id})" for entry in found)
    raise AmbiguousError(f"{name!r} fits several in the trash: {matches}", hint="use the id", matches=matches)


def _missing_entry(reader: Reader, name: str, short: str, repo_id: str | None) -> RametError:
    """Explain a missing entry: an earlier call may have restored it, and its answer got lost."""
    found = reader.sessions.find(name)
    for session in (found,) if found is not None else reader.sessions.by_name(short, repo_id):
        if reader.restores.get(session.id, TRASH) is not None:
            again = f"`rametctl show {session.reference}` shows it"
            return WrongStateError(f"{session.name} was restored already", hint=again)
    return TrashEntryNotFoundError(f"there is no {name!r} in the trash", hint="`rametctl trash ls` lists it")


def message(reader: Reader, entry: TrashEntry) -> worktree_pb2.TrashEntry:
    return to_message(worktree_pb2.TrashEntry, entry, repo=reader.repos.get(entry.repo_id).name)


class Trash:
    """Deletes the work of removed sessions for good."""

    def __init__(self, core: Core) -> None:
        self._core = core
        core.operations.handle(Kind.DROP, self._undo, self._complete)

    async def empty(self, response: worktree_pb2.EmptyTrashResponse, caller: Caller) -> None:
        """Drop all entries of ``response``, the call's answer. One unit of work stores their
        operations, so a restarted daemon drops all of them.

        Raises `WrongStateError` while one of them is being restored.
        """
        answer = response.SerializeToString().hex()

        def begin(unit: Unit) -> list[Operation]:
            found = [each for each in response.entries if unit.trash.get(each.id) is not None]
            for each in found:
                refuse_other(unit, each.session_id, each.name, Kind.DROP)
            new = [new_operation(Kind.DROP, each.session_id, caller, answer=answer) for each in found]
            return [unit.operations.exclusive(each.session_id) or unit.operations.begin(each) for each in new]

        async def carry_out() -> None:
            begun = await self._core.store.write(begin)
            self._core.failpoint.hit("drop.intended")
            drops = await asyncio.gather(*map(self._core.operations.resume, begun), return_exceptions=True)
            for error in drops:
                if isinstance(error, BaseException):
                    raise error

        await self._core.operations.detached(carry_out())

    async def drop(self, entry: TrashEntry) -> None:
        """Drop an entry that has expired. Raises `WrongStateError` while it is being restored."""
        new = new_operation(Kind.DROP, entry.session_id, Caller(DAEMON))
        await self._core.operations.run(new, lambda unit, failed: None)

    async def housekeep(self) -> None:
        """Drop expired entries and prune old answers to calls, now and every hour. A failure is
        logged and retried an hour later."""
        core = self._core
        while True:
            now = core.clock()
            try:
                await core.store.write(lambda unit, now=now: unit.calls.prune(now - ANSWERS_STORED_S))  # type: ignore[misc]
                for entry in await core.store.read(lambda reader, now=now: reader.trash.expired(now)):  # type: ignore[misc]
                    await self._drop_expired(entry)
            except RametError as error:
                log.warning("housekeeping", error=error.message)
            await asyncio.sleep(PERIOD_S)

    async def _drop_expired(self, entry: TrashEntry) -> None:
        try:
            await self.drop(entry)
        except RametError as error:  # continue with the other entries
            log.warning("housekeeping", trash=entry.id, error=error.message)

    async def _complete(self, operation: Operation) -> None:
        core = self._core
        if (entry := await core.store.read(lambda reader: reader.trash.get(operation.session_id))) is not None:
            await self._forget(entry)

        def finish(unit: Unit) -> None:
            unit.trash.remove(operation.session_id)
            answer = bytes.fromhex(operation.data.get("answer", ""))
            # The last entry of the call stores its answer.
            unit.operations.finish(operation, None if _others_of_call(unit, operation) else answer)

        await core.store.write(finish)
        core.live.schedule()

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        """Keep the rest of the entry: a repeated call, or its expiry, drops it."""

        def work(unit: Unit) -> None:
            for other in _others_of_call(unit, operation):
                unit.operations.take_over(other, Caller(other.principal))  # the call gets no answer
            unit.operations.undo(operation.id)

        await self._core.store.write_for_sure(work)
        self._core.live.schedule()

    async def _forget(self, entry: TrashEntry) -> None:
        """Delete refs and files before the row: a row must exist for every leftover."""
        core, session = self._core, load_session(entry.session)
        repo = await core.store.read(lambda reader: reader.repos.get(entry.repo_id))
        own = session.worktree_kind == WorktreeKind.OWN
        try:
            info = await info_of(core, repo)
        except NotFoundError as error:
            log.warning("repository of dropped trash is gone", trash=entry.id, error=error.message)
            if own:
                await core.git.worktrees.delete_tree(core.git.snapshots.shelf_of(session.worktree))
        else:
            if own:
                await core.git.snapshots.drop_shelved(info, session.worktree)
            await core.git.refs.drop_all(
                info, *(f"{kind}{entry.session_id}" for kind in (TRASH_REFS, CHECKPOINTS, COMMITS))
            )
        await drop_checkpoints(core, entry.session_id)
        core.failpoint.hit("drop.forgotten")
        await asyncio.to_thread(core.environments.delete, entry.session_id)
        await Transcripts(core).forget(entry.session_id)


def _others_of_call(unit: Unit, operation: Operation) -> list[Operation]:
    """The unfinished other operations of the same call."""
    now = unit.operations.get(operation.id)
    if now is None or not now.request_id:
        return []
    drops = unit.operations.list(kinds=(Kind.DROP,))
    return [each for each in drops if each.request_id == now.request_id and each.id != now.id]
