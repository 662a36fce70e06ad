"""What can go: sessions whose work has landed, that nobody has touched for long, or were archived long ago, and what no row knows of.

Nothing goes that holds what exists nowhere else, that is at work, or that is not ours. Sessions go by the `Remover`, so to the trash.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from rametd.domain.errors import NotFoundError, RametError
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.domain.states import State
from rametd.git import Inventory
from rametd.git.repository import RepositoryInfo
from rametd.keeper.executor import Liveness
from rametd.keeper.place import Place
from rametd.platform.disk import tree_bytes
from rametd.services.core import Core
from rametd.services.departures.clearing import archive_ref, work_at_risk
from rametd.services.departures.removal import Remover, describe
from rametd.services.landing import trees as landing_trees
from rametd.services.landing.landed import landed
from rametd.services.leaving import leaving
from rametd.services.repos import info_of
from rametd.services.worktrees.places import folders_of
from rametd.store import Reader

log = structlog.get_logger()

KEPT = "kept"
LONG_ARCHIVED_S = 30 * 86400.0
DAY_S = 86400.0
LANDING_TREE_S = 7 * DAY_S
IDENTITY = re.compile(r"[a-z][a-z0-9]{7}")


@dataclass(frozen=True, slots=True)
class Garbage:
    """As in the contract. ``verdict`` is "kept" for what stays."""

    kind: str
    name: str
    session_id: str
    repo: str
    verdict: str
    reason: str
    bytes: int = 0
    removed: bool = False
    commit: str = ""  # of a branch or ref, as it was judged

    @property
    def goes(self) -> bool:
        return self.verdict != KEPT


class Collector:
    def __init__(self, core: Core, remover: Remover) -> None:
        self._core = core
        self._remover = remover

    async def collect(self, repo: Repo | None, *, dry_run: bool, principal: str) -> list[Garbage]:
        """Everything that can go, and the sessions that stay with the reason; gone already unless ``dry_run``."""
        core = self._core
        repos = await core.store.read(lambda reader: reader.repos.list() if repo is None else [repo])
        found: list[Garbage] = []
        for each in repos:
            found += [item async for item in self._of(each)]
        if repo is None:
            found += [item async for item in self._agents()]
        return found if dry_run else [await self._remove(item, principal) for item in found]

    async def _of(self, repo: Repo) -> AsyncIterator[Garbage]:
        core = self._core
        sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo.id, include_archived=True))
        for session in sessions:
            try:
                verdict, reason = await self._judge(session)
            except RametError as error:
                verdict, reason = KEPT, error.message
            own = session.worktree_kind == WorktreeKind.OWN and session.state != State.ARCHIVED
            size = await asyncio.to_thread(tree_bytes, session.worktree) if own else 0
            yield Garbage("session", session.name, session.id, repo.name, verdict, reason, size)
        try:
            info = await info_of(core, repo)
        except NotFoundError:
            return
        inventory = await core.git.inventory(info)
        known = await core.store.read(known_ids)
        async for item in self._trees(repo, info, inventory, known):
            yield item
        async for item in self._landing_trees(repo):
            yield item
        async for item in self._branches(repo, info, inventory, known):
            yield item
        async for item in self._refs(repo, info, inventory, known):
            yield item

    async def _judge(self, session: Session) -> tuple[str, str]:
        core = self._core
        now = core.clock()
        if await core.store.read(lambda reader: leaving(reader, session.id)) is not None:
            return KEPT, "it is being removed, archived or brought back"
        if session.worktree_kind != WorktreeKind.OWN:
            kind = "adopted" if session.worktree_kind == WorktreeKind.ADOPTED else "in place"
            return KEPT, f"its worktree is not ours: {kind}"
        if session.state == State.ARCHIVED:
            days = f"archived {(now - session.update_time) / DAY_S:.0f} days ago"
            if now - session.update_time < core.config.retention.archive:
                more = "" if now - session.update_time < LONG_ARCHIVED_S else "; retention.archive says when it may go"
                return KEPT, days + more
            if risk := await work_at_risk(core, session):
                return KEPT, f"{days}, but holds {describe(risk)}"
            return "archived", days
        if session.state != State.IDLE or session.id in core.runners:
            alive = "its agent is alive" if session.state == State.IDLE else f"it is {session.state}"
            return KEPT, alive
        if await core.store.read(lambda reader: bool(reader.prompts.open(session.id))):
            return KEPT, "a prompt waits for it"
        if risk := await work_at_risk(core, session):
            return KEPT, describe(risk)
        answer = await landed(core, session)
        if answer and session.turns:
            return "merged", answer.reason
        idle = now - session.update_time
        if idle >= core.config.retention.stale:
            return "stale", f"idle for {idle / DAY_S:.0f} days, and nothing of it can be lost"
        return KEPT, answer.reason

    async def _trees(
        self, repo: Repo, info: RepositoryInfo, inventory: Inventory, known: set[str]
    ) -> AsyncIterator[Garbage]:
        """Directories where worktrees are made that no row knows of, and entries of ours whose directory is gone."""
        core = self._core
        folder = await asyncio.to_thread(lambda: sorted(self._folder(repo)))
        for path in folder:
            if path.name in known:
                continue
            risk = await core.git.work_at_risk(info, path, "", None)
            size = await asyncio.to_thread(tree_bytes, path)
            registered = any(entry.path == path and inventory.ours(entry) for entry in inventory.registrations)
            if risk:
                yield Garbage(
                    "worktree", str(path), "", repo.name, KEPT, f"no session has it; it holds {describe(risk)}", size
                )
            elif registered:
                yield Garbage("worktree", str(path), "", repo.name, "orphaned", "no session has it", size)
            else:
                yield Garbage(
                    "worktree",
                    str(path),
                    "",
                    repo.name,
                    KEPT,
                    "no session has it, and git does not know it as ours",
                    size,
                )

    def _folder(self, repo: Repo) -> Iterator[Path]:
        """Worktrees' directories of one repository; blocks. In a root that the person named there may be anything: only names that are ids."""
        for folder in folders_of(self._core, repo):
            yield from (path for path in folder.iterdir() if IDENTITY.fullmatch(path.name) and path.is_dir())

    async def _landing_trees(self, repo: Repo) -> AsyncIterator[Garbage]:
        """Private worktrees of queues that have been empty for long: the next landing makes them again."""
        core = self._core
        for tree in await landing_trees.unused(core, repo):
            days = (core.clock() - tree.since) / DAY_S
            if tree.since and days * DAY_S < LANDING_TREE_S:
                continue
            reason = f"nothing was landed in it for {days:.0f} days" if tree.since else "no queue has it"
            size = await asyncio.to_thread(tree_bytes, tree.path)
            yield Garbage("worktree", str(tree.path), "", repo.name, "stale", reason, size)

    async def _branches(
        self, repo: Repo, info: RepositoryInfo, inventory: Inventory, known: set[str]
    ) -> AsyncIterator[Garbage]:
        """Branches that we made for a session that is no more."""
        core = self._core
        for branch, path in inventory.made.items():
            if path.name in known or branch in inventory.checked_out:
                continue
            tip = inventory.tips[branch]
            risk = await core.git.work_at_risk(info, path, branch, None)
            targets = await core.git.landing_targets(info, "", branch)
            answer = await core.git.landed(info, tip, "", targets)
            if risk.unique_commits and not answer:
                reason = f"its session is gone; it has {len(risk.unique_commits)} commits of its own"
                yield Garbage("branch", branch, "", repo.name, KEPT, reason)
            else:
                yield Garbage(
                    "branch",
                    branch,
                    "",
                    repo.name,
                    "orphaned",
                    f"its session is gone, and it is {answer.reason}"
                    if answer
                    else "its session is gone, and other branches have its commits",
                    commit=tip,
                )

    async def _refs(
        self, repo: Repo, info: RepositoryInfo, inventory: Inventory, known: set[str]
    ) -> AsyncIterator[Garbage]:
        """What was kept of sessions that no row knows of any more."""
        core = self._core
        now = core.clock()
        for ref, commit in inventory.refs.items():
            kind, identity = (*ref.split("/"), "", "")[2:4]
            if kind not in {"trash", "archive", "checkpoints"} or not await core.store.read(
                lambda reader, ref=ref: is_orphan(reader, ref)  # type: ignore[misc]
            ):
                continue
            kept = await core.git.kept(info, ref)
            age = now - kept.time if kept is not None else 0.0
            if await core.git.reachable(info, commit):
                reason = "nothing needs it, and a branch has its commits"
                yield Garbage("ref", ref, identity, repo.name, "orphaned", reason, commit=commit)
            elif age > core.config.retention.trash:
                reason = f"nothing needs it for {age / DAY_S:.0f} days"
                yield Garbage("ref", ref, identity, repo.name, "orphaned", reason, commit=commit)
            else:
                yield Garbage(
                    "ref", ref, identity, repo.name, KEPT, "no session needs it, but it may hold what nothing else does"
                )

    async def _agents(self) -> AsyncIterator[Garbage]:
        """Directories of keepers whose session is no more."""
        core = self._core
        known = await core.store.read(lambda reader: known_ids(reader, trash=False))
        for handle in await asyncio.to_thread(core.executor.discover):
            place = Place.from_handle(handle)
            if place.session in known:
                continue
            recovered = await core.executor.recover(handle)
            size = await asyncio.to_thread(tree_bytes, Path(place.path))
            if recovered.liveness in {Liveness.ALIVE, Liveness.KEEPER_LOST}:
                yield Garbage(
                    "agent", place.name, place.session, "", KEPT, "no session has it, and it may be alive", size
                )
            else:
                yield Garbage("agent", place.name, place.session, "", "orphaned", "no session has it", size)

    async def _remove(self, item: Garbage, principal: str) -> Garbage:
        """Remove what can go; what has changed since it was judged stays, with the reason."""
        if not item.goes:
            return item
        try:
            if not await self._gone(item, principal):
                return item
        except RametError as error:
            return replace(item, verdict=KEPT, reason=error.message)
        return replace(item, removed=True)

    async def _gone(self, item: Garbage, principal: str) -> bool:
        core = self._core
        if item.kind == "session":
            session = await core.store.read(lambda reader: reader.sessions.find(item.session_id))
            if session is None:
                return False
            await self._remover.remove(session, force=False, principal=principal)
            return True
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
            await core.git.trash(info, Path(item.name).name, Path(item.name), "")
            removal = await core.git.remove_worktree(info, Path(item.name), "", delete_branch=False)
            return not removal.kept
        if item.kind == "branch":
            return await core.git.delete_branch(info, item.name, item.commit) is None
        # An archive that came back may have been archived again since it was judged.
        if not await core.store.read(lambda reader: is_orphan(reader, item.name)):
            return False
        await core.git.drop_ref(info, item.name, item.commit)
        return True


def known_ids(reader: Reader, *, trash: bool = True) -> set[str]:
    """Ids that something may lie on disk for: sessions, spares, intents, and where it counts the trash."""
    ids = {session.id for session in reader.sessions.list(include_archived=True)}
    ids |= {spare.id for spare in reader.spares.list()}
    ids |= {intent.session_id for intent in reader.intents.list()}
    return ids | {entry.id for entry in reader.trash.list()} if trash else ids


def is_orphan(reader: Reader, ref: str) -> bool:
    """Whether a ref of ours keeps something for no row: a trash entry, an archived session, any session's checkpoints."""
    kind, identity = (*ref.split("/"), "", "")[2:4]
    session = reader.sessions.find(identity)
    in_trash = reader.trash.get(identity) is not None
    if any(intent.session_id == identity for intent in reader.intents.list()):
        return False
    match kind:
        case "trash":
            return not in_trash
        case "archive":
            return session is None or ref != archive_ref(session.id) or session.state != State.ARCHIVED
        case "checkpoints":
            return session is None and not in_trash
    return False
