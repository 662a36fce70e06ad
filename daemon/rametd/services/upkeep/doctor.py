"""`doctor`: compare the rows with worktrees, branches, agents, ports, refs and links. Each difference has a stable code.

Diagnosing changes nothing. A fix exists only if it cannot lose work; everything else gets advice.
"""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from rametd.domain.errors import RametError
from rametd.domain.models import Repo
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.upkeep.checks.agents import agents, keepers
from rametd.services.upkeep.checks.branches import branches
from rametd.services.upkeep.checks.directories import directories, root_directories
from rametd.services.upkeep.checks.environments import environments
from rametd.services.upkeep.checks.locks import locks
from rametd.services.upkeep.checks.mirrors import mirrors
from rametd.services.upkeep.checks.notifications import notifications
from rametd.services.upkeep.checks.ports import ports
from rametd.services.upkeep.checks.records import records
from rametd.services.upkeep.checks.refs import refs
from rametd.services.upkeep.checks.sessions import sessions
from rametd.services.upkeep.checks.unfinished import unfinished
from rametd.services.upkeep.checks.worktrees import worktrees
from rametd.services.upkeep.finding import Finding, mend, shell
from rametd.services.upkeep.scene import Scene, take_scene

ORDER = {"error": 0, "warning": 1, "info": 2}
OF_A_REPOSITORY = (sessions, worktrees, directories, branches, refs, locks, mirrors)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: list[Finding]
    checked: dict[str, int]


class Doctor:
    """Created when the daemon starts: of older operations, only those that `Operations` recovers still run."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self._since = core.clock()

    async def diagnose(self, repo: Repo | None, *, fix: bool) -> Diagnosis:
        """Check one repository, or everything. With ``fix``, repair what can be repaired without risk."""
        checked: Counter[str] = Counter()
        findings = [found async for found in self._look(repo, checked)]
        if fix:
            findings = [await mend(found) for found in findings]
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
            for whole in (
                keepers(core, checked),
                ports(core, checked),
                records(core, checked),
                notifications(core, checked),
            ):
                async for found in whole:
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
