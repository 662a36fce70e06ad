"""The daemon, put together: lock, store, git, keepers, services, server; recovery before anything is served; and the way back."""

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from ramet.paths import Directories, user_home
from ramet.v1 import (
    attention_pb2,
    attention_pb2_grpc,
    daemon_pb2,
    daemon_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    orchestration_pb2,
    orchestration_pb2_grpc,
    repo_pb2,
    repo_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    worktree_pb2,
    worktree_pb2_grpc,
)

from rametd import config as configuration
from rametd.agents.claude.kind import Claude
from rametd.api.attention import AttentionServicer
from rametd.api.calls import Calls
from rametd.api.daemon import DaemonServicer, Facts
from rametd.api.event import EventServicer
from rametd.api.interceptor import Gate
from rametd.api.orchestration import OrchestrationServicer, tool_server
from rametd.api.repo import RepoServicer
from rametd.api.session import SessionServicer
from rametd.api.worktree import WorktreeServicer
from rametd.domain.errors import RametError
from rametd.domain.models import DAEMON, Mode, NewEvent
from rametd.environment import EnvironmentFiles, build
from rametd.failpoints import Failpoint
from rametd.git import Git
from rametd.keeper.local import LocalExecutor
from rametd.keeper.place import Place
from rametd.platform import cgroups
from rametd.platform.notify import Notifier, watchdog_interval
from rametd.platform.runtime import RuntimeLock, socket_umask
from rametd.platform.state import state_lock
from rametd.services import events, housekeeping
from rametd.services.core import Core
from rametd.services.creation import CREATE, Creator
from rametd.services.hub import Hub
from rametd.services.index import SessionIndex
from rametd.services.lifecycle import log_update
from rametd.services.orchestration import Orchestration
from rametd.services.removal import DELETE, Remover
from rametd.services.scheduler import Scheduler
from rametd.services.sessions import Sessions
from rametd.services.supervisor import Supervisor
from rametd.services.tokens import Tokens
from rametd.store import Rebuilt, RecoveredSession, Store, Unit

log = structlog.get_logger()

MESSAGE_LIMIT = 64 << 20
STOP_GRACE_S = 2.0

CONTRACT = tuple(
    service
    for module in (daemon_pb2, repo_pb2, session_pb2, event_pb2, attention_pb2, worktree_pb2, orchestration_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
"""The services of the contract, as descriptors."""


class Daemon:
    """One run of the daemon. ``environ`` is the process's, ``directories`` are computed of it by the caller."""

    def __init__(
        self, directories: Directories, environ: Mapping[str, str], failpoint: Failpoint | None = None
    ) -> None:
        self._directories = directories
        self._environ = environ
        self._failpoint = failpoint or Failpoint()
        self._stop = asyncio.Event()
        self._serving = False
        self._start_time = time.time()

    def stop(self) -> None:
        """End the run; agents go on under their keepers."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`. Raises `AlreadyRunningError`, `RuntimeDirectoryError`, `BadConfigError`, `NewerDatabaseError`."""
        places = self._directories
        notifier = Notifier.from_environ(self._environ)
        home = user_home(self._environ)
        config = configuration.load(places.config_file, home=home)
        for warning in config.warnings:
            log.warning("configuration", warning=warning)
        async with AsyncExitStack() as stack:
            lock = stack.enter_context(RuntimeLock.acquire(places.runtime, start_time=self._start_time))
            places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(state_lock(places.home, lock.socket))
            # From here on no other daemon touches this state.
            core = await stack.enter_async_context(self._core(config))
            supervisor = Supervisor(core)
            scheduler = Scheduler(core, supervisor)
            core.wake, core.reattach, core.after_end = scheduler.wake, supervisor.reattach, supervisor.after_end
            creator, remover = Creator(core), Remover(core, supervisor)
            server, healthy = self._server(core, creator, remover, Sessions(core, supervisor))
            await report_health(healthy, health_pb2.HealthCheckResponse.NOT_SERVING)  # it says SERVING unless told
            with socket_umask():
                server.add_insecure_port(f"unix:{lock.socket}")
                await server.start()
            lock.check_socket()
            stack.push_async_callback(server.stop, STOP_GRACE_S)
            stack.push_async_callback(supervisor.stop)
            await self._recover(core, supervisor, creator, remover)
            scheduling = asyncio.create_task(scheduler.run(), name="scheduler")
            stack.callback(scheduling.cancel)
            scheduling.add_done_callback(self._scheduler_done)
            scheduler.wake()
            self._serving = True
            await report_health(healthy, health_pb2.HealthCheckResponse.SERVING)
            core.recovered.set()
            notifier.ready(f"serving {len(core.runners)} agents")
            log.info("serving", socket=str(lock.socket), agents=len(core.runners), pid=os.getpid())
            warming = asyncio.create_task(core.kinds["claude"].prepare(), name="warm-up")
            stack.callback(warming.cancel)
            cleaning = asyncio.create_task(housekeeping.run(core), name="housekeeping")
            stack.callback(cleaning.cancel)
            watchdog = asyncio.create_task(self._watchdog(notifier), name="watchdog")
            stack.callback(watchdog.cancel)
            await self._stop.wait()
            notifier.stopping()
            log.info("stopping")
            await healthy.enter_graceful_shutdown()
            stopped = event_pb2.DaemonStopped(instance_id=core.instance_id)
            await core.store.write(lambda unit: unit.events.append(events.make(stopped)))

    @asynccontextmanager
    async def _core(self, config: configuration.Config) -> AsyncIterator[Core]:
        places = self._directories
        instance_id = secrets.token_hex(8)
        release = version("ramet")
        index = SessionIndex(places.home / "index")
        executor = LocalExecutor(places.home / "agents", places.runtime)
        store = await Store.open(
            places.home / "ramet.db", keepers=lambda: recovered(index, executor), describe=describe_rebuilt
        )
        git = Git(build(self._environ, {}))
        hub = Hub(store)
        try:
            store.on_damaged = self._damaged
            store.on_read_only = self._read_only
            fence = await store.begin_run(instance_id, os.getpid(), release)
            started = event_pb2.DaemonStarted(instance_id=instance_id, version=release, pid=os.getpid())
            await store.write(lambda unit: unit.events.append(events.make(started)))
            group = cgroups.find()
            core = Core(
                config=config,
                store=store,
                git=git,
                executor=executor,
                kinds={"claude": Claude(config.agents.claude.path)},
                environments=EnvironmentFiles(places.secrets),
                index=index,
                tokens=Tokens.load(places.secrets / "token.key"),
                hub=hub,
                state_dir=places.home,
                runtime_dir=places.runtime,
                config_file=places.config_file,
                home=user_home(self._environ),
                fence=fence,
                instance_id=instance_id,
                daemon_environment=self._environ,
                clock=time.time,
                failpoint=self._failpoint,
            )
            if group is not None:
                core.cgroup_of = group.agent_cgroup
            yield core
        finally:
            hub.close()
            await git.aclose()
            await store.aclose()

    def _server(
        self, core: Core, creator: Creator, remover: Remover, sessions: Sessions
    ) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
        places = self._directories
        server = grpc.aio.server(
            interceptors=[Gate(core, lambda: self._serving)],
            options=[
                ("grpc.max_receive_message_length", MESSAGE_LIMIT),
                ("grpc.max_send_message_length", MESSAGE_LIMIT),
                ("grpc.so_reuseport", 0),
            ],
        )
        facts = Facts(
            version=version("ramet"),
            pid=os.getpid(),
            socket=places.socket,
            config_file=places.config_file,
            home=user_home(self._environ),
            log_file=places.logs / "rametd.log",
            database=places.home / "ramet.db",
            start_time=self._start_time,
        )
        calls = Calls(core)
        orchestration = Orchestration(core, creator, sessions)
        healthy = health.aio.HealthServicer()
        daemon_pb2_grpc.add_DaemonServiceServicer_to_server(
            DaemonServicer(core, facts, lambda: self._serving, self.stop), server
        )
        repo_pb2_grpc.add_RepoServiceServicer_to_server(RepoServicer(core, calls), server)
        session_pb2_grpc.add_SessionServiceServicer_to_server(
            SessionServicer(core, calls, creator, sessions, remover, orchestration), server
        )
        event_pb2_grpc.add_EventServiceServicer_to_server(EventServicer(core), server)
        attention_pb2_grpc.add_AttentionServiceServicer_to_server(AttentionServicer(core, calls), server)
        worktree_pb2_grpc.add_WorktreeServiceServicer_to_server(WorktreeServicer(core), server)
        orchestrating = OrchestrationServicer(core, calls, creator, orchestration)
        orchestration_pb2_grpc.add_OrchestrationServiceServicer_to_server(orchestrating, server)

        async def use_tools(session_id: str, key: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
            return await tool_server(core, orchestrating, session_id).answer(dict(message), key)

        core.use_tools = use_tools
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        reflection.enable_server_reflection(
            [*(service.full_name for service in CONTRACT), health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )
        return server, healthy

    async def _recover(self, core: Core, supervisor: Supervisor, creator: Creator, remover: Remover) -> None:
        """Finish or undo what was begun, then take up every agent."""
        for intent in await core.store.read(lambda reader: reader.intents.list()):
            log.info("unfinished", kind=intent.kind, session=intent.session_id)
            try:
                match intent.kind:
                    case kind if kind == CREATE:
                        await creator.undo(intent)
                    case kind if kind == DELETE:
                        await remover.complete(intent)
            except RametError as error:
                # One repository that is out of reach must not keep all others from being served: the next start tries again.
                log.error("cannot be finished now", kind=intent.kind, session=intent.session_id, error=error.message)
        if not core.config.permissions.allow_bypass:
            await core.store.write(forbid_bypass)
        await supervisor.recover()

    async def _watchdog(self, notifier: Notifier) -> None:
        interval = watchdog_interval(self._environ, pid=os.getpid())
        while interval is not None:
            notifier.watchdog()
            await asyncio.sleep(interval)

    def _scheduler_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nothing would ever start again; a new run, which the service manager makes, can.
            log.critical("the scheduler failed", exc_info=error)
            self.stop()

    def _damaged(self, words: str) -> None:
        log.critical("the database is damaged; the next start quarantines it and builds it anew", error=words)
        self.stop()

    def _read_only(self, begins: bool) -> None:
        if begins:
            log.error("the disk is full: nothing can be recorded until there is room again")
        else:
            log.info("there is room on the disk again")


async def report_health(servicer: health.aio.HealthServicer, status: Any) -> None:
    """Of the server as a whole ("") and of each service."""
    for service in ("", *(each.full_name for each in CONTRACT)):
        await servicer.set(service, status)


def forbid_bypass(unit: Unit) -> None:
    """Bypass was taken back in the configuration: sessions that have it ask from now on; their agents follow as they are taken up."""
    for session in unit.sessions.list(include_archived=True):
        if session.mode == Mode.BYPASS:
            log_update(unit, unit.sessions.update(session.id, mode=Mode.DEFAULT), ["mode"], DAEMON)


def recovered(index: SessionIndex, executor: LocalExecutor) -> Sequence[RecoveredSession]:
    """What is known of all sessions without a database."""
    places = [(Place.from_handle(handle), handle) for handle in executor.discover()]
    return list(index.recover([(place.session, place.generation, handle) for place, handle in places]))


def describe_rebuilt(rebuilt: Rebuilt) -> NewEvent:
    return events.make(event_pb2.StoreRebuilt(quarantine=str(rebuilt.quarantined), sessions=len(rebuilt.sessions)))


async def serve(directories: Directories, environ: Mapping[str, str], failpoint: Failpoint | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    daemon = Daemon(directories, environ, failpoint)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    await daemon.run()
