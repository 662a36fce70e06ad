"""The trash: what was removed, until it is brought back, emptied, or expires."""

import asyncio

import structlog
from ramet.v1 import event_pb2, worktree_pb2

from rametd.domain.errors import AmbiguousError, NotFoundError, RametError, TrashEntryNotFoundError, WrongStateError
from rametd.domain.models import Intent, TrashEntry, WorktreeKind
from rametd.git import CHECKPOINTS, COMMITS
from rametd.services.core import Core
from rametd.services.departures.back import TRASH
from rametd.services.ids import new_id
from rametd.services.leaving import DROP, leaving
from rametd.services.lookup import SHORTEST_PREFIX
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.services.views import stamp
from rametd.services.worktrees.checkpoints import drop_checkpoints
from rametd.services.worktrees.places import folder_aside
from rametd.store import Reader, Unit, load_session

log = structlog.get_logger()


def find_entry(reader: Reader, name: str, repo_id: str | None = None) -> TrashEntry:
    """By id, name where it is the only one, or unique prefix of an id. Raises `TrashEntryNotFoundError`, `AmbiguousError`."""
    exact = reader.trash.get(name)
    if exact is not None:
        return exact
    short = name.rpartition("/")[2]
    named = [entry for entry in reader.trash.list(repo_id) if entry.name in {name, short}]
    found = named or (reader.trash.find_by_prefix(name) if len(name) >= SHORTEST_PREFIX else [])
    if len(found) == 1:
        return found[0]
    if not found:
        raise _not_there(reader, name, short, repo_id)
    matches = ", ".join(f"{entry.name} ({entry.id})" for entry in found)
    raise AmbiguousError(f"{name!r} fits several in the trash: {matches}", hint="use the id", matches=matches)


def _not_there(reader: Reader, name: str, short: str, repo_id: str | None) -> RametError:
    """Of what is brought back already, by a call whose answer somebody did not get, that is said."""
    found = reader.sessions.find(name)
    for session in (found,) if found is not None else reader.sessions.by_name(short, repo_id):
        told = reader.events.list(session_id=session.id, kinds=("session_restored",), limit=1, newest=True)
        if told and event_pb2.Event.FromString(told[0].payload).session_restored.origin == TRASH:
            again = f"`rametctl show {session.name}` shows it"
            return WrongStateError(f"{session.name} was brought back already", hint=again)
    return TrashEntryNotFoundError(f"nothing called {name!r} is in the trash", hint="`rametctl trash ls` shows what is")


def message(reader: Reader, entry: TrashEntry) -> worktree_pb2.TrashEntry:
    return worktree_pb2.TrashEntry(
        id=entry.id,
        session_id=entry.session_id,
        repo=reader.repos.get(entry.repo_id).name,
        name=entry.name,
        branch=entry.branch,
        ref=entry.ref,
        bytes=entry.bytes,
        create_time=stamp(entry.create_time),
        expire_time=stamp(entry.expire_time),
    )


async def drop(core: Core, entry: TrashEntry) -> None:
    """Forget what a removed session had. Nothing is done for one that is in the trash no more; raises `WrongStateError` while it is brought back."""
    new = Intent(new_id(), DROP, entry.session_id, {}, core.clock())

    def begin(unit: Unit) -> Intent | None:
        if unit.trash.get(entry.id) is None:
            return None
        found = leaving(unit, entry.session_id)
        if found is not None and found.kind != DROP:
            raise WrongStateError(f"{entry.name} is being brought back", hint="wait until that is done")
        return found or unit.intents.add(new)

    intent: Intent | None = new
    try:
        intent = await core.store.write(begin)
        if intent is None:
            return
        await _forget(core, entry)
    except BaseException:  # also when the caller hangs up, be it while the intent is stored: nobody is to wait for it
        await asyncio.shield(undo_drop(core, intent or new))
        raise

    def done(unit: Unit) -> None:
        unit.trash.remove(entry.id)
        unit.intents.remove(intent.id)

    await core.store.write(done)


async def undo_drop(core: Core, intent: Intent) -> None:
    """Leave the entry as far as it is dropped: the same call, or its expiry, drops the rest."""
    await write_for_sure(core.store, lambda unit: unit.intents.remove(intent.id))


async def _forget(core: Core, entry: TrashEntry) -> None:
    """Refs and files go before the row, so that nothing is left that no row knows of."""
    repo = await core.store.read(lambda reader: reader.repos.get(entry.repo_id))
    try:
        info = await info_of(core, repo)
    except NotFoundError as error:
        log.warning("repository of dropped trash is gone", trash=entry.id, error=error.message)
    else:
        if entry.ref:
            await core.git.drop_trash(info, entry.id)
        await core.git.drop_refs(info, f"{CHECKPOINTS}{entry.session_id}/", f"{COMMITS}{entry.session_id}/")
    await drop_checkpoints(core, entry.session_id)
    core.failpoint.hit("trash.dropped")
    session = load_session(entry.session)
    if session.worktree_kind == WorktreeKind.OWN:
        await core.git.delete_tree(folder_aside(session.worktree))
    await asyncio.to_thread(core.environments.delete, entry.session_id)
