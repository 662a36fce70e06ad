"""DaemonService."""

import asyncio
import json
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from ramet.v1 import common_pb2, daemon_pb2, daemon_pb2_grpc

from rametd.agents import registry
from rametd.agents.claude.kind import Claude
from rametd.agents.presets import Preset
from rametd.api.context import environment
from rametd.api.interceptor import CONTRACT_VERSION
from rametd.api.repo import absolute
from rametd.config import REPOSITORY_FILE, Effective, Setting, effective, load
from rametd.domain.models import Tokens
from rametd.environment import Variables, build
from rametd.platform.memory import resident_bytes
from rametd.services import repos
from rametd.services.core import Core
from rametd.services.messages import stamp, to_message, tokens_message
from rametd.services.trust.contents import SETTINGS_FILE
from rametd.services.trust.settings import problem_of, settings_of
from rametd.services.views import MODES
from rametd.store import Grouping, Reader, Spent

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that stay the same while the daemon runs."""

    version: str
    pid: int
    socket: Path
    config_file: Path
    home: Path
    log_file: Path
    database: Path
    start_time: float


AT_ONCE = 2
"""Maximum number of programs to inspect at the same time; some take half a gigabyte."""

GROUPINGS = {
    daemon_pb2.COST_GROUPING_SESSION: Grouping.SESSION,
    daemon_pb2.COST_GROUPING_DAY: Grouping.DAY,
    daemon_pb2.COST_GROUPING_MODEL: Grouping.MODEL,
}


class DaemonServicer(daemon_pb2_grpc.DaemonServiceServicer):
    def __init__(
        self,
        core: Core,
        facts: Facts,
        serving: Callable[[], bool],
        configure: Callable[[], Awaitable[None]],
        shut_down: Callable[[], None],
    ) -> None:
        self._core = core
        self._configure = configure
        self._facts = facts
        self._serving = serving
        self._shut_down = shut_down

    async def GetInfo(self, request: daemon_pb2.GetInfoRequest, context: Context) -> daemon_pb2.GetInfoResponse:
        core, facts = self._core, self._facts
        seq = await core.store.read(lambda reader: reader.events.last_seq())
        quarantined = core.store.quarantined
        return daemon_pb2.GetInfoResponse(
            version=facts.version,
            contract_version=CONTRACT_VERSION,
            instance_id=core.instance_id,
            cursor=common_pb2.Cursor(epoch=core.store.epoch, seq=seq),
            pid=facts.pid,
            socket=str(facts.socket),
            state_dir=str(core.state_dir),
            serving=self._serving(),
            start_time=stamp(facts.start_time),
            log_file=str(facts.log_file),
            read_only=core.store.read_only,
            quarantine=str(quarantined) if quarantined else "",
        )

    async def Shutdown(self, request: daemon_pb2.ShutdownRequest, context: Context) -> daemon_pb2.ShutdownResponse:
        response = daemon_pb2.ShutdownResponse(pid=self._facts.pid, agents_alive=len(self._core.live))
        self._shut_down()
        return response

    async def GetConfig(self, request: daemon_pb2.GetConfigRequest, context: Context) -> daemon_pb2.GetConfigResponse:
        facts = self._facts
        await self._configure()  # so that this call tells when a change of the file is in effect
        answer = daemon_pb2.GetConfigResponse(owner_file=str(facts.config_file))
        if not request.repo_path:
            config = await asyncio.to_thread(load, facts.config_file, home=facts.home)
        else:
            info = await self._core.git.discover(absolute(request.repo_path))
            repo = await self._core.store.read(lambda reader: repos.known_or_new(self._core, reader, info))
            registered = await self._core.store.read(lambda reader: reader.repos.by_common_dir(info.common_dir))
            answer.repo_file = str(repo.root / SETTINGS_FILE)
            answer.repo = repo.name if registered is not None else ""
            if not repo.trusted:
                answer.repo_problem = await problem_of(self._core, repo)
            settings = await settings_of(self._core, repo, info)
            config = settings.config
            if not repo.trusted:  # from the owner's present file
                config = await asyncio.to_thread(load, facts.config_file, home=facts.home)
            if settings.untrusted is not None:
                answer.withheld.extend(
                    setting_message(each)
                    for each in effective(settings.untrusted)
                    if each.origin == REPOSITORY_FILE and any(sets(key, each.setting) for key in settings.changed)
                )
        answer.settings.extend(setting_message(each) for each in effective(config))
        return answer

    async def GetCosts(self, request: daemon_pb2.GetCostsRequest, context: Context) -> daemon_pb2.GetCostsResponse:
        grouping = GROUPINGS.get(request.grouping, Grouping.SESSION)

        def work(reader: Reader) -> daemon_pb2.GetCostsResponse:
            names: dict[str, str] = {}
            found = reader.ledger.by(grouping)
            if request.grouping == daemon_pb2.COST_GROUPING_REPO:
                found = by_repo(reader, found)
            elif grouping == Grouping.SESSION:
                names = {entry.session_id: entry.name for entry in reader.trash.list()}
                names |= {session.id: session.name for session in reader.sessions.list(include_archived=True)}
            if grouping != Grouping.DAY:
                found.sort(key=lambda spent: -(spent.cost_usd or 0.0))
            costs = [
                daemon_pb2.Cost(
                    key=names.get(spent.key, spent.key),
                    cost_usd=spent.cost_usd if spent.cost_usd or not spent.unpriced else None,
                    unpriced=spent.unpriced,
                    tokens=tokens_message(spent.tokens) if spent.tokens != Tokens() else None,
                )
                for spent in found
            ]
            total = reader.ledger.total()
            return daemon_pb2.GetCostsResponse(costs=costs, total_usd=total.cost_usd, unpriced=total.unpriced)

        return await self._core.store.read(work)

    async def GetStatistics(
        self, request: daemon_pb2.GetStatisticsRequest, context: Context
    ) -> daemon_pb2.GetStatisticsResponse:
        counts, events, requests, spent = await self._core.store.read(
            lambda reader: (
                reader.sessions.counts(),
                reader.events.last_seq(),
                sum(reader.requests.open_counts().values()),
                reader.ledger.total().cost_usd,
            )
        )
        return daemon_pb2.GetStatisticsResponse(
            sessions={state.value: count for state, count in counts.items()},
            agents_alive=len(self._core.live),
            events=events,
            open_requests=requests,
            cost_usd=spent,
            resident_bytes=await asyncio.to_thread(resident_bytes),
            database_bytes=(await asyncio.to_thread(self._facts.database.stat)).st_size,
        )

    async def ListAgents(
        self, request: daemon_pb2.ListAgentsRequest, context: Context
    ) -> daemon_pb2.ListAgentsResponse:
        core = self._core
        presets = registry.chosen(core.config, request.names)
        answer = daemon_pb2.ListAgentsResponse(agents=[kind_message(each) for each in presets])
        if not (request.inspect or request.start):
            return answer
        around = build(core.daemon_environment, Variables(environment.get()), core.config.agents.claude.pass_env)
        claude = core.kinds["claude"]
        assert isinstance(claude, Claude)
        few = asyncio.Semaphore(AT_ONCE)

        async def look(preset: Preset, message: daemon_pb2.KindOfAgent) -> None:
            async with few:
                found = await registry.inspected(preset, claude, around, start=request.start)
            message.installed, message.path, message.problem = found.installed, found.path, found.problem
            message.version = found.version
            if found.logged_in is not None:
                message.logged_in = found.logged_in

        await asyncio.gather(*(look(*each) for each in zip(presets, answer.agents, strict=True)))
        return answer


def kind_message(preset: Preset) -> daemon_pb2.KindOfAgent:
    return to_message(
        daemon_pb2.KindOfAgent,
        preset,
        login_command=preset.login,
        install_command=preset.install,
        capabilities=preset.capabilities.names(),
        modes=[MODES[mode] for mode in preset.modes],
        tried=bool(preset.tried),
    )


def by_repo(reader: Reader, spent: list[Spent]) -> list[Spent]:
    """Add up sums by session to sums by name of repository; "" for sessions that no longer
    exist."""
    names = {repo.id: repo.name for repo in reader.repos.list()}
    repos = {entry.session_id: entry.repo_id for entry in reader.trash.list()}
    repos |= {session.id: session.repo_id for session in reader.sessions.list(include_archived=True)}
    sums: dict[str, Spent] = {}
    for each in spent:
        key = names.get(repos.get(each.key, ""), "")
        before = sums.get(key, Spent(key, 0.0, False, Tokens()))
        cost, tokens = before.cost_usd + each.cost_usd, before.tokens + each.tokens
        sums[key] = Spent(key, cost, before.unpriced or each.unpriced, tokens)
    return [sums[key] for key in sorted(sums)]


def sets(key: str, setting: Setting) -> bool:
    """Return whether an item of a repository's file is a setting's value, or one in its table."""
    return key == setting.path or key.startswith(f"{setting.path}.")


def setting_message(each: Effective) -> daemon_pb2.Setting:
    value = None if each.value == "unset" else tomllib.loads(f"value = {each.value}")["value"]
    return daemon_pb2.Setting(
        key=each.setting.key,
        value_json=json.dumps(value, default=str),
        origin=each.origin,
        description=each.setting.meaning,
        unit=each.setting.kind.unit,
    )
