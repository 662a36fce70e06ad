"""`doctor`: compare the rows with worktrees, branches, agents, ports, refs and links. Each
difference has a stable code.

Diagnosing changes nothing. A fix exists only if it cannot lose work; everything else gets advice.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ramet.words import plural

from rametd.config import Source, combine
from rametd.domain.errors import RametError
from rametd.domain.models import Repo, Session
from rametd.platform.listeners import listeners
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.upkeep.checks.directories import directories, environments, notifications, root_directories
from rametd.services.upkeep.checks.refs import branches, refs
from rametd.services.upkeep.checks.sessions import agents, keepers, sessions, unfinished
from rametd.services.upkeep.checks.worktrees import worktrees
from rametd.services.upkeep.scene import Finding, Scene, apply_fix, known_ids, shell, take_scene

ORDER = {"error": 0, "warning": 1, "info": 2}


STALE_LOCK_S = 600.0


async def records(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    for message in await core.store.read(lambda reader: reader.health.problems()):
        yield Finding(
            "error", "database-damaged", str(core.state_dir / "ramet.db"), "", message,
            "restart the daemon (`rametctl daemon restart`): it quarantines the database and rebuilds it",
        )  # fmt: skip
    checked["database"] = 1
    paths = await asyncio.to_thread(lambda: sorted((core.state_dir / "index").glob("*.json")))
    known = await core.store.read(known_ids)
    for path in paths:
        checked["index files"] += 1
        if path.stem not in known:

            async def unlink(path: Path = path) -> None:
                await asyncio.to_thread(core.index.delete, path.stem)

            message = "it is the copy of a session that is gone"
            yield Finding("info", "index-unknown", str(path), path.stem, message, "doctor --fix deletes it", unlink)


async def settings(core: Core) -> AsyncIterator[Finding]:
    """Report an invalid configuration file of the owner, which the running daemon does not use."""
    file = Path(core.owner.name)
    try:
        combine(await asyncio.to_thread(Source.read, file), home=core.home)
    except RametError as error:
        advice = "fix it (`rametctl config edit`); until then the former settings stay in effect"
        yield Finding("warning", "config-broken", str(file), "", error.message, advice)


async def ports(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    sessions = await core.store.read(lambda reader: reader.sessions.list(include_archived=True))
    blocks = sorted(
        ((each.port_base, each.port_count, each) for each in sessions if each.port_count), key=lambda block: block[:2]
    )
    last: tuple[int, Session] | None = None
    for base, count, session in blocks:
        checked["ports"] += count
        if last is not None and base < last[0]:
            message = f"{last[1].name} has its ports from {base} on too"
            advice = f"give it other ports: {shell('rametctl', 'rm', session.name, '--force')} && {shell('rametctl', 'trash', 'restore', session.id)}"
            yield Finding("error", "ports-shared", session.name, session.id, message, advice)
        last = (base + count, session)
    found = await asyncio.to_thread(
        listeners, frozenset(port for base, count, _ in blocks for port in range(base, base + count))
    )
    at_work = await core.store.read(
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
                message = f"{who} listens on its port {port}, but the session runs nothing"
                advice = "end that program, or the session's server cannot use the port"
                yield Finding("warning", "port-foreign", session.name, session.id, message, advice)


async def mirrors(scene: Scene) -> AsyncIterator[Finding]:
    for remote in await scene.core.git.upkeep.mirrored(scene.info):
        message = (
            f"it is a mirror: `git fetch --prune` deletes branches that {remote} does not have, and all of refs/ramet/"
        )
        beside = f"+refs/heads/*:refs/remotes/{remote}/*"
        change = shell("git", "-C", scene.info.root, "config", "--replace-all", f"remote.{remote}.fetch", beside)
        advice = f"fetch its branches beside yours: {change}\nor never use --prune there (fetch.prune, remote.{remote}.prune)"
        yield Finding("warning", "remote-mirrored", remote, "", message, advice)


async def locks(scene: Scene) -> AsyncIterator[Finding]:
    for path, changed in scene.inventory.locks:
        scene.checked["locks"] += 1
        age = scene.core.clock() - changed
        if age > STALE_LOCK_S:
            message = f"git's lock file is {_long(age)} old: its git was killed, or hangs"
            advice = f"if no git runs there: {shell('rm', path)}"
            yield Finding("warning", "lock-stale", str(path), "", message, advice)


def _long(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 120:
        return plural(round(minutes), "minute")
    return plural(round(minutes / 60), "hour") if minutes < 48 * 60 else plural(round(minutes / 1440), "day")


OF_A_REPOSITORY = (sessions, worktrees, directories, branches, refs, locks, mirrors)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: list[Finding]
    checked: dict[str, int]


class Doctor:
    """Finds differences. It exists since the start of the daemon: of older operations, only those
    that `Operations` recovers still run."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self._since = core.clock()

    async def diagnose(self, repo: Repo | None, *, fix: bool) -> Diagnosis:
        """Check one repository, or everything. With ``fix``, repair what can be repaired without
        risk."""
        checked: Counter[str] = Counter()
        findings = [found async for found in self._look(repo, checked)]
        if fix:
            findings = [await apply_fix(found) for found in findings]
        findings.sort(key=lambda found: (ORDER[found.severity], found.code, found.subject))
        return Diagnosis(findings, dict(checked))

    async def _look(self, repo: Repo | None, checked: Counter[str]) -> AsyncIterator[Finding]:
        core = self._core
        repos = await core.store.read(lambda reader: reader.repos.list() if repo is None else [repo])
        scenes: list[Scene] = []
        for each in repos:
            checked["repositories"] += 1
            try:
                scene = await take_scene(core, each, checked)
            except RametError as error:
                yield await self._missing(each, error)
                continue
            scenes.append(scene)
            for check in OF_A_REPOSITORY:
                async for found in check(scene):
                    yield found
        async for found in agents(core, self._supervisor, repo, checked):
            yield found
        async for found in environments(core, repo, checked):
            yield found
        async for found in unfinished(core, repo, checked, self._since, core.operations.recovering):
            yield found
        if repo is None:
            for findings in (
                keepers(core, checked),
                ports(core, checked),
                records(core, checked),
                settings(core),
                notifications(core, checked),
            ):
                async for found in findings:
                    yield found
            async for found in root_directories(core, repos, scenes, checked):
                yield found

    async def _missing(self, repo: Repo, error: RametError) -> Finding:
        sessions = await self._core.store.read(
            lambda reader: reader.sessions.list(repo_id=repo.id, include_archived=True)
        )
        advice = "move it back"
        if not sessions:
            advice = f"move it back, or unregister it: {shell('rametctl', 'repo', 'rm', repo.name)}"
        return Finding("error" if sessions else "warning", "repository-missing", repo.name, "", error.message, advice)
