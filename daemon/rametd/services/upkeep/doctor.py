"""Comparing what the rows say with what is there: worktrees, branches, agents, ports, refs, links. Each difference has a stable code.

Reading changes nothing. A fix is offered only where nothing can be lost by it: what may hold work is explained and left alone.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import AgentState, Repo, Session, WorktreeKind
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Inventory
from rametd.git.registrations import Registration
from rametd.git.repository import RepositoryInfo
from rametd.keeper.executor import Handle, Liveness
from rametd.keeper.place import Place
from rametd.platform.listeners import listeners
from rametd.services.agents import endings
from rametd.services.core import Core
from rametd.services.departures.clearing import archive_ref
from rametd.services.landing import trees as landing_trees
from rametd.services.repos import info_of
from rametd.services.upkeep.garbage import IDENTITY, is_orphan, known_ids
from rametd.services.worktrees.places import LINKS, link_by_name
from rametd.store import Unit

log = structlog.get_logger()

STALE_LOCK_S = 600.0
ORDER = {"error": 0, "warning": 1, "info": 2}

Fix = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Finding:
    """As in the contract; ``fix`` mends it without risk, None where that cannot be done."""

    severity: str
    code: str
    subject: str
    session_id: str
    message: str
    advice: str
    fix: Fix | None = None
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: list[Finding]
    checked: dict[str, int]


class Doctor:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def diagnose(self, repo: Repo | None, *, fix: bool) -> Diagnosis:
        """Look at one repository, or at everything; with ``fix`` mend what can be mended without risk."""
        core = self._core
        checked: Counter[str] = Counter()
        findings: list[Finding] = []
        repos = await core.store.read(lambda reader: reader.repos.list() if repo is None else [repo])
        for each in repos:
            findings += [found async for found in self._repo(each, checked)]
        findings += [found async for found in self._agents(repo, checked)]
        if repo is None:
            findings += [found async for found in self._everything(checked)]
        if fix:
            findings = [await _mend(found) for found in findings]
        findings.sort(key=lambda found: (ORDER[found.severity], found.code, found.subject))
        return Diagnosis(findings, dict(checked))

    # ── one repository ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _repo(self, repo: Repo, checked: Counter[str]) -> AsyncIterator[Finding]:
        core = self._core
        checked["repositories"] += 1
        sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo.id, include_archived=True))
        try:
            info = await info_of(core, repo)
            inventory = await core.git.inventory(info)
        except RametError as error:
            severity = "error" if sessions else "warning"
            advice = f"move it back, or forget it with `rametctl repo rm {repo.name}`"
            yield Finding(severity, "repository-missing", repo.name, "", error.message, advice)
            return
        for session in sessions:
            checked["sessions"] += 1
            async for found in self._session(session, info, inventory):
                yield found
        known = await core.store.read(known_ids)
        for found in self._registrations(info, inventory, known, checked):
            yield found
        async for found in self._refs(info, inventory, checked):
            yield found
        async for found in self._locks(inventory, checked):
            yield found

    async def _session(self, session: Session, info: RepositoryInfo, inventory: Inventory) -> AsyncIterator[Finding]:
        core, name = self._core, session.name
        if session.state == State.ARCHIVED:
            if session.worktree_kind == WorktreeKind.OWN and archive_ref(session.id) not in inventory.refs:
                message = f"{archive_ref(session.id)}, which keeps the work of {name}, is gone"
                advice = f"`git fsck --lost-found` in {info.root} may find it; `rametctl rm {name} --force` gives it up"
                yield Finding("error", "archive-ref-missing", name, session.id, message, advice)
            return
        try:
            await core.git.verify_worktree(session.worktree, None)
        except RametError as error:
            exists = await asyncio.to_thread(session.worktree.exists)
            moved = next(
                (
                    each.path
                    for each in inventory.registrations
                    if each.admin_dir.name == session.worktree.name and each.path not in {None, session.worktree}
                ),
                None,
            )
            if moved is not None:
                advice = f"move it back: git worktree move {moved} {session.worktree}"
                yield Finding("error", "worktree-moved", name, session.id, f"its worktree is at {moved} now", advice)
            elif exists:
                advice = (
                    f"`git worktree repair {session.worktree}` mends most of it; `rametctl rm {name}` always completes"
                )
                yield Finding("error", "worktree-broken", name, session.id, error.message, advice)
            else:
                advice = f"`rametctl archive {name}` and `rametctl restore {name}` make it again from its branch; `rametctl rm {name}` removes it"
                yield Finding("error", "worktree-missing", name, session.id, error.message, advice)
            return
        async for found in self._branch(session, inventory):
            yield found
        if session.worktree_kind == WorktreeKind.OWN:
            folder = session.worktree.parent / LINKS
            if not await asyncio.to_thread(_has_link, folder, session.worktree):

                async def link() -> None:
                    await asyncio.to_thread(link_by_name, session)

                message = f"no link in {folder} leads to it"
                yield Finding("info", "link-missing", name, session.id, message, "doctor --fix makes it", link)
        if not await asyncio.to_thread((core.state_dir / "index" / f"{session.id}.json").exists):
            repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))

            async def write() -> None:
                await asyncio.to_thread(core.index.write, repo, session)

            message = "its copy, from which a damaged database would be rebuilt, is missing"
            yield Finding("warning", "index-missing", name, session.id, message, "doctor --fix writes it", write)

    async def _branch(self, session: Session, inventory: Inventory) -> AsyncIterator[Finding]:
        if not session.branch:
            return
        if session.branch not in inventory.tips:
            message = f"branch {session.branch} is gone; its worktree may still hold the work"
            advice = f"make it again: git -C {session.worktree} switch -c {session.branch}"
            yield Finding("error", "branch-missing", session.name, session.id, message, advice)
            return
        place = inventory.checked_out.get(session.branch)
        if place is not None and place.resolve() == session.worktree.resolve():
            return
        where = f"is checked out at {place}" if place is not None else "is checked out nowhere"
        message = f"branch {session.branch} {where}, not in the session's worktree"
        advice = f"look at it: git -C {session.worktree} status; `git switch {session.branch}` there goes back"
        yield Finding("warning", "branch-not-checked-out", session.name, session.id, message, advice)

    def _registrations(
        self, info: RepositoryInfo, inventory: Inventory, known: set[str], checked: Counter[str]
    ) -> list[Finding]:
        """Entries of ours in git's list that no row knows of."""
        findings: list[Finding] = []
        for entry in inventory.registrations:
            checked["worktrees"] += 1
            if not inventory.ours(entry) or entry.path is None:
                continue
            if landing_trees.NAME.fullmatch(entry.path.name) and entry.path.exists():
                continue  # a queue's own; gc says when it may go
            if not (IDENTITY.fullmatch(entry.path.name) or landing_trees.NAME.fullmatch(entry.path.name)):
                continue
            if entry.path.name in known:
                continue
            subject = str(entry.path)
            if entry.path.exists():
                message = "it was made by Ramet, and no session has it"
                advice = "`rametctl gc` tells what is in it; adopt it with `rametctl adopt PATH`, or remove it with git worktree remove -f -f"
                findings.append(Finding("warning", "worktree-unknown", subject, "", message, advice))
            else:
                message = "git has a worktree of ours on its list whose directory is gone, and no session has it"
                fix = self._prune(info, entry)
                findings.append(
                    Finding("warning", "registration-stale", subject, "", message, "doctor --fix takes it off", fix)
                )
        return findings

    def _prune(self, info: RepositoryInfo, entry: Registration) -> Fix:
        async def prune() -> None:
            assert entry.path is not None
            await self._core.git.remove_worktree(info, entry.path, "", delete_branch=False)

        return prune

    async def _refs(self, info: RepositoryInfo, inventory: Inventory, checked: Counter[str]) -> AsyncIterator[Finding]:
        core = self._core
        for ref, commit in inventory.refs.items():
            checked["refs"] += 1
            if not await core.store.read(lambda reader, ref=ref: is_orphan(reader, ref)):  # type: ignore[misc]
                continue
            kept = await core.git.kept(info, ref)
            expired = kept is not None and core.clock() - kept.time > core.config.retention.trash
            safe = expired or await core.git.reachable(info, commit)

            async def drop(ref: str = ref, commit: str = commit) -> None:
                if await core.store.read(lambda reader: is_orphan(reader, ref)):
                    await core.git.drop_ref(info, ref, commit)

            if safe:
                advice = "doctor --fix deletes it: branches have its commits, or it is older than trash is kept"
            else:
                advice = f"look at it: git show --stat {ref}; then git update-ref -d {ref}, or wait until it expires"
            yield Finding(
                "info", "ref-unknown", ref, "", "it keeps something of no session", advice, drop if safe else None
            )
        for entry in await core.store.read(lambda reader: reader.trash.list()):
            repo = await core.store.read(lambda reader, entry=entry: reader.repos.get(entry.repo_id))  # type: ignore[misc]
            if repo.common_dir == info.common_dir and entry.ref and entry.ref not in inventory.refs:
                message = f"{entry.ref}, which keeps what {entry.name} had, is gone"
                advice = f"`git fsck --lost-found` may find {entry.commit[:12]}; `rametctl trash empty {entry.id}` gives it up"
                yield Finding("error", "trash-ref-missing", entry.name, entry.session_id, message, advice)

    async def _locks(self, inventory: Inventory, checked: Counter[str]) -> AsyncIterator[Finding]:
        for path, changed in inventory.locks:
            checked["locks"] += 1
            age = self._core.clock() - changed
            if age > STALE_LOCK_S:
                message = f"git's lock file is {age / 60:.0f} minutes old: a git that was killed left it, or one hangs"
                advice = f"if no git is at work there: rm {path}"
                yield Finding("warning", "lock-stale", str(path), "", message, advice)

    # ── agents, ports, the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _agents(self, repo: Repo | None, checked: Counter[str]) -> AsyncIterator[Finding]:
        core = self._core
        alive = await core.store.read(
            lambda reader: [(agent, reader.sessions.get(agent.session_id)) for agent in reader.agents.alive()]
        )
        with_agent = {session.id for _, session in alive}
        for agent, session in alive:
            if repo is not None and session.repo_id != repo.id:
                continue
            checked["agents"] += 1
            if agent.state != AgentState.LIVE:
                continue
            recovered = await core.executor.recover(Handle(agent.handle))
            if recovered.liveness != Liveness.ALIVE and session.id not in core.runners:
                generation = agent.generation

                async def lose(session: Session = session, generation: int = generation) -> None:
                    await core.store.write(lambda unit: self._lose(unit, session, generation))
                    await core.after_end(session.id)

                message = "its agent is on record as alive, and is not"
                yield Finding(
                    "error", "agent-gone", session.name, session.id, message, "doctor --fix marks it lost", lose
                )
        busy = await core.store.read(lambda reader: reader.sessions.list(states=BUSY_STATES))
        for session in busy:
            if session.id not in with_agent and (repo is None or session.repo_id == repo.id):
                message = f"it is {session.state} without an agent"
                advice = f"`rametctl stop {session.name}`, then `rametctl resume {session.name}`"
                yield Finding("error", "agent-missing", session.name, session.id, message, advice)
        if repo is not None:
            return
        known = await core.store.read(lambda reader: known_ids(reader, trash=False))
        for handle in await asyncio.to_thread(core.executor.discover):
            place = Place.from_handle(handle)
            checked["keepers"] += 1
            if place.session in known:
                continue
            state = (await core.executor.recover(handle)).liveness
            gone = state in {Liveness.EXITED, Liveness.UNKNOWN}

            async def destroy(handle: Handle = handle) -> None:
                await core.executor.destroy(handle)

            message = f"no session has the agent of {place.path}" + ("" if gone else ", and it is alive")
            advice = "doctor --fix removes the directory" if gone else "look at it with ps, and end it by hand"
            severity = "info" if gone else "error"
            yield Finding(
                severity, "agent-unknown", place.name, place.session, message, advice, destroy if gone else None
            )

    def _lose(self, unit: Unit, session: Session, generation: int) -> None:
        endings.record_end(
            unit,
            self._core.kind(session.agent),
            session.id,
            generation,
            record=None,
            stderr_tail="",
            unterminated=b"",
            max_resumes=self._core.config.agents.max_resumes,
        )

    async def _everything(self, checked: Counter[str]) -> AsyncIterator[Finding]:
        core = self._core
        async for found in self._ports(checked):
            yield found
        for message in await core.store.read(lambda reader: reader.health.problems()):
            yield Finding(
                "error", "database-damaged", str(core.state_dir / "ramet.db"), "", message,
                "restart the daemon: it quarantines the database and rebuilds it",
            )  # fmt: skip
        checked["database"] = 1
        known = await core.store.read(known_ids)
        for path in await asyncio.to_thread(lambda: sorted((core.state_dir / "index").glob("*.json"))):
            checked["index files"] += 1
            if path.stem not in known:

                async def unlink(path: Path = path) -> None:
                    await asyncio.to_thread(core.index.delete, path.stem)

                message = "the copy of a session that is no more"
                yield Finding("info", "index-unknown", str(path), path.stem, message, "doctor --fix deletes it", unlink)

    async def _ports(self, checked: Counter[str]) -> AsyncIterator[Finding]:
        sessions = await self._core.store.read(lambda reader: reader.sessions.list(include_archived=True))
        blocks = sorted((each.port_base, each.port_count, each) for each in sessions if each.port_count)
        last: tuple[int, Session] | None = None
        for base, count, session in blocks:
            checked["ports"] += count
            if last is not None and base < last[0]:
                message = f"its ports from {base} on are those of {last[1].name} too"
                advice = f"archive and restore one of them, or remove it: `rametctl rm {session.name}`"
                yield Finding("error", "ports-shared", session.name, session.id, message, advice)
            last = (base + count, session)
        found = await asyncio.to_thread(
            listeners, frozenset(port for base, count, _ in blocks for port in range(base, base + count))
        )
        at_work = await self._core.store.read(
            lambda reader: (
                {agent.session_id for agent in reader.agents.alive()}
                | {command.session_id for command in reader.commands.living()}
            )
        )
        for base, count, session in blocks:
            for port in range(base, base + count):
                listener = found.get(port)
                if listener is not None and session.id not in at_work:
                    who = f"{listener.program} (pid {listener.pid})" if listener.pid else "another user's program"
                    message = f"{who} listens on its port {port}, and nothing of the session runs"
                    advice = "end that program, or the session's server will find the port taken"
                    yield Finding("warning", "port-foreign", session.name, session.id, message, advice)


def _has_link(folder: Path, worktree: Path) -> bool:
    return folder.is_dir() and any(
        link.is_symlink() and link.readlink().name == worktree.name for link in folder.iterdir()
    )


async def _mend(found: Finding) -> Finding:
    if found.fix is None:
        return found
    try:
        await found.fix()
    except (RametError, OSError) as error:
        log.warning("not mended", code=found.code, subject=found.subject, error=str(error))
        return replace(found, advice=f"it could not be mended: {error}")
    return replace(found, fixed=True)
