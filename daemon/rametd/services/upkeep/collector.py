"""`gc`: remove landed, stale and long-archived sessions, and leftovers without a session.

It keeps working sessions, everything that Ramet did not create, and everything with work that
exists nowhere else. Removed sessions are in the trash.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ramet.v1 import event_pb2
from ramet.words import plural

from rametd.domain.errors import NotFoundError, RametError
from rametd.domain.models import BackgroundCommand, NewEvent, Repo, Session, WorktreeKind
from rametd.domain.operations import Caller, Operation
from rametd.domain.states import State
from rametd.domain.text import first_line
from rametd.git import TRASH, Registration
from rametd.keeper.place import Place
from rametd.platform.files import tree_bytes
from rametd.services import events
from rametd.services.archiving.at_risk import describe, work_at_risk
from rametd.services.archiving.remove import Remover
from rametd.services.core import Core
from rametd.services.landing import trees as landing_trees
from rametd.services.landing.landed import landed
from rametd.services.operations import unfinished
from rametd.services.repos import info_of
from rametd.services.upkeep.orphaned import DAY_S, KEPT, Garbage, orphaned, orphaned_agents
from rametd.services.upkeep.scene import is_orphan, take_scene
from rametd.services.views import in_background
from rametd.store import Reader, Unit

LONG_ARCHIVED_S = 30 * DAY_S
SHOWN_COMMAND = 60
"""Characters of a background command in a reason."""


AT_ONCE = 4
"""Sessions that are judged at the same time; each takes some processes of git."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What the store knows of a session: its row, its exclusive operation, the commands in its
    background, and whether a prompt waits."""

    session: Session
    operation: Operation | None
    running: tuple[BackgroundCommand, ...]
    prompted: bool


def _stands(reader: Reader, repo: Repo) -> list[Stand]:
    operations = {each.session_id: each for each in reader.operations.all_exclusive()}
    return [
        Stand(each, operations.get(each.id), in_background(reader, each.id), bool(reader.prompts.open(each.id)))
        for each in reader.sessions.list(repo_id=repo.id, include_archived=True)
    ]


class Collector:
    def __init__(self, core: Core, remover: Remover) -> None:
        self._core = core
        self._remover = remover

    async def collect(self, repo: Repo | None, *, dry_run: bool, principal: str) -> list[Garbage]:
        """Judge everything and, unless ``dry_run``, remove what can be removed. The result lists
        sessions that stay, with the reason."""
        core = self._core
        repos = await core.store.read(lambda reader: reader.repos.list() if repo is None else [repo])
        found: list[Garbage] = []
        for each in repos:
            found += [item async for item in self._of(each)]
        if repo is None:
            found += [item async for item in orphaned_agents(core)]
        return found if dry_run else [await self._remove(item, principal) for item in found]

    async def _of(self, repo: Repo) -> AsyncIterator[Garbage]:
        core = self._core
        known: Sequence[Registration] | None = None
        with suppress(RametError):  # the verdict on each session names it
            known = await core.git.worktrees.registrations(await info_of(core, repo))
        stands = await core.store.read(lambda reader: _stands(reader, repo))
        turn = asyncio.Semaphore(AT_ONCE)

        async def judged(stand: Stand) -> Garbage:
            session = stand.session
            async with turn:
                try:
                    verdict, reason = await self._judge(stand, known)
                except RametError as error:
                    verdict, reason = KEPT, error.message
                own = session.worktree_kind == WorktreeKind.OWN and session.state != State.ARCHIVED
                size = await asyncio.to_thread(tree_bytes, session.worktree) if own else 0
            return Garbage("session", session.name, session.id, repo.name, verdict, reason, size)

        for item in await asyncio.gather(*map(judged, stands)):
            yield item
        try:
            scene = await take_scene(core, repo, Counter())
        except NotFoundError:
            return
        async for item in orphaned(scene):
            yield item

    async def _judge(self, stand: Stand, known: Sequence[Registration] | None) -> tuple[str, str]:
        core, session = self._core, stand.session
        now = core.clock()
        if stand.operation is not None:
            return KEPT, unfinished(stand.operation) or f"it is {stand.operation.doing}"
        if session.worktree_kind != WorktreeKind.OWN:
            kind = "adopted" if session.worktree_kind == WorktreeKind.ADOPTED else "in place"
            return KEPT, f"Ramet did not create its worktree: {kind}"
        if session.state == State.ARCHIVED:
            days = round((now - session.update_time) / DAY_S)
            since = f"archived {plural(days, 'day')} ago" if days else "archived today"
            if now - session.update_time < core.config.retention.archive:
                more = (
                    "" if now - session.update_time < LONG_ARCHIVED_S else "; retention.archive says when gc removes it"
                )
                return KEPT, since + more
            if risk := await work_at_risk(core, session, known):
                return KEPT, f"{since}, but has {describe(risk)}"
            return "archived", since
        if session.state != State.IDLE:
            return KEPT, f"it is {session.state}"
        if stand.running:
            return KEPT, f"`{first_line(stand.running[0].description, SHOWN_COMMAND)}` runs in its background"
        if stand.prompted:
            return KEPT, "it has a queued prompt"
        if risk := await work_at_risk(core, session, known):
            return KEPT, describe(risk)
        answer = await landed(core, session, risk=risk)
        if answer and session.turns:
            return "merged", answer.reason
        idle = now - session.update_time
        if idle >= core.config.retention.stale:
            return "stale", f"idle for {plural(round(idle / DAY_S), 'day')}, and has no work of its own"
        # Before its first turn, a session is on its target because its work has not begun.
        waits = "; before its first turn, gc removes it only after retention.stale" if answer else ""
        return KEPT, answer.reason + waits

    async def _remove(self, item: Garbage, principal: str) -> Garbage:
        """Remove one item. If it has changed since it was judged, keep it, with the reason."""
        if not item.is_removable:
            return item
        try:
            if item.kind == "session":
                return await self._remove_session(item, principal)
            return replace(item, removed=True) if await self._remove_leftover(item) else item
        except RametError as error:
            return replace(item, verdict=KEPT, reason=error.message)

    async def _remove_session(self, item: Garbage, principal: str) -> Garbage:
        session = await self._core.store.read(lambda reader: reader.sessions.find(item.session_id))
        if session is None:
            return item
        removed = await self._remover.remove(session, force=False, caller=Caller(principal))
        return replace(item, removed=True, warnings=tuple(removed.warnings))

    async def _remove_leftover(self, item: Garbage) -> bool:
        core = self._core
        if item.kind == "agent":
            for handle in await asyncio.to_thread(core.executor.discover):
                if Place.from_handle(handle).name == item.name:
                    await core.executor.destroy(handle)
            return True
        repo = await core.store.read(lambda reader: reader.repos.by_name(item.repo)[0])
        info = await info_of(core, repo)
        if item.kind == "worktree" and landing_trees.NAME.fullmatch(Path(item.name).name):
            if Path(item.name) not in {tree.path for tree in await landing_trees.unused(core, repo)}:
                return False
            await core.git.landing.remove_tree(info, Path(item.name))
            return True
        if item.kind == "worktree":
            tree = Path(item.name)

            def note(unit: Unit) -> None:
                unit.sessions.record_id(tree.name)  # so that its trash expires
                unit.events.append(_removed_event(repo, tree))

            await core.store.write(note)
            shelved = await core.git.snapshots.record(info, tree.name, f"{TRASH}{tree.name}", tree, "")
            return not await core.git.snapshots.shelve(info, shelved.snapshot, tree)
        if item.kind == "branch":
            return await core.git.branches.delete(info, item.name, item.commit) is None
        # Since it was judged, the session may have been restored and archived again.
        if not await core.store.read(lambda reader: is_orphan(reader, item.name)):
            return False
        await core.git.snapshots.drop(info, item.name, item.commit)
        return True


def _removed_event(repo: Repo, tree: Path) -> NewEvent:
    return events.make(event_pb2.WorktreeRemoved(path=str(tree)), session_id=tree.name, repo_id=repo.id)
