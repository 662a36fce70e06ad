"""The daemon process: it takes the locks, opens store and git, starts services and server,
recovers, serves, and stops."""

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog
from grpc_health.v1 import health_pb2
from ramet.paths import Directories, state_holder, user_home
from ramet.v1 import event_pb2
from ramet.words import plural

from rametd import config as configuration
from rametd import shutdown
from rametd.agents.registry import kinds_of
from rametd.api.daemon import Facts
from rametd.domain.errors import AlreadyRunningError, RametError
from rametd.domain.models import UNATTENDED, NewEvent
from rametd.environment import EnvironmentFiles, Variables, build
from rametd.failpoints import Failpoint
from rametd.git import Git
from rametd.keeper.executor import COMMAND_VARIABLE
from rametd.keeper.local import LocalExecutor
from rametd.keeper.place import Place
from rametd.listening import Listening
from rametd.parts import assemble, forbid_bypass
from rametd.platform import cgroups
from rametd.platform.inotify import watching
from rametd.platform.locks import DirectoryLock
from rametd.platform.notify import Notifier, watchdog_interval
from rametd.platform.runtime import Runtime, accepts
from rametd.platform.state import make_private, state_lock
from rametd.services import events
from rametd.services.core import Core
from rametd.services.hub import Hub
from rametd.services.index import SessionIndex
from rametd.services.live import LiveAgent
from rametd.services.operations import Operations
from rametd.services.tokens import Tokens
from rametd.serving import report_health, server_factory
from rametd.store import Reader, Rebuilt, RecoveredSession, Store

log = structlog.get_logger()

STOP_GRACE_S = 2.0
LOCK_POLL_S = 0.05
CONFIG_POLL_S, CONFIG_POLL_WATCHED_S = 2.0, 60.0
"""Seconds between looks at the configuration file, without and with a watch of its directory."""
CONFIG_SETTLE_S = 0.25
"""Seconds after a change in that directory: an editor writes a file in several steps."""


class Daemon:
    """One run of the daemon. The caller computes ``directories`` from ``environ``, the environment
    of the process.

    ``patience``: seconds to wait for a lock whose holder does not listen. ``on_stop`` is called
    when the run begins to end.
    """

    def __init__(
        self,
        directories: Directories,
        environ: Mapping[str, str],
        failpoint: Failpoint | None = None,
        *,
        patience: float = 0.0,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._directories = directories
        self._environ = environ
        self._failpoint = failpoint or Failpoint()
        self._patience = patience
        self._on_stop = on_stop
        self._stop = asyncio.Event()
        self._again, self._news = False, asyncio.Event()  # apply the configuration file even if unchanged
        self._configured: tuple[int, ...] = ()  # stamp of the configuration file in effect
        self._configuring = asyncio.Lock()
        self._serving = False
        self._start_time = time.time()

    def reload(self) -> None:
        """Read the configuration file again."""
        self._again = True
        self._news.set()

    def stop(self) -> None:
        """End the run; agents continue under their keepers."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`. Raises `AlreadyRunningError`, `RuntimeDirectoryError`,
        `BadConfigError`, `NewerDatabaseError`."""
        places = self._directories
        notifier = Notifier.from_environ(self._environ)
        home = user_home(self._environ)
        self._configured = _stamp(places.config_file)
        owner = configuration.Source.read(places.config_file)
        config = configuration.combine(owner, home=home)
        for warning in config.warnings:
            log.warning("configuration", warning=warning)
        async with AsyncExitStack() as stack:
            for sentence in make_private(places):
                log.warning("state directory", warning=sentence)
            runtime = await self._locked(stack)
            # From here on, no other daemon touches this state: the lock also waits for the threads
            # of `asyncio.to_thread`, whose files the next daemon must not find half written.
            threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
            asyncio.get_running_loop().set_default_executor(threads)
            stack.push_async_callback(_finish, threads)
            core = await stack.enter_async_context(self._core(owner, config))
            commands = LocalExecutor(places.home / "commands", places.runtime, variable=COMMAND_VARIABLE)
            stack.push_async_callback(commands.aclose)
            parts = assemble(core, commands)
            configure = partial(self._configure, core)
            create, healthy = server_factory(parts, self._facts(), lambda: self._serving, configure, self.stop)
            await report_health(healthy, health_pb2.HealthCheckResponse.NOT_SERVING)  # the default is SERVING
            listening = Listening(runtime, create)
            stack.push_async_callback(listening.stop, STOP_GRACE_S)
            await listening.bind()
            watching = asyncio.create_task(listening.watch(), name="socket")
            stack.callback(watching.cancel)
            await parts.recover(stack)
            scheduling = asyncio.create_task(parts.scheduler.run(), name="scheduler")
            stack.callback(scheduling.cancel)
            scheduling.add_done_callback(self._scheduler_done)
            core.live.schedule()
            self._serving = True
            await report_health(healthy, health_pb2.HealthCheckResponse.SERVING)
            core.recovered.set()
            notifier.ready(f"serving {plural(len(core.live), 'agent')}")
            log.info("serving", socket=str(runtime.socket), agents=len(core.live), pid=os.getpid())
            parts.begin(stack)
            reloading = asyncio.create_task(self._follow_configuration(core), name="configuration")
            stack.callback(reloading.cancel)
            watchdog = asyncio.create_task(self._watchdog(notifier), name="watchdog")
            stack.callback(watchdog.cancel)
            await self._stop.wait()
            self._on_stop()
            notifier.stopping()
            log.info("stopping")
            await healthy.enter_graceful_shutdown()
            stopped = event_pb2.DaemonStopped(instance_id=core.instance_id)
            await core.store.write(lambda unit: unit.events.append(events.make(stopped)))

    async def _locked(self, stack: AsyncExitStack) -> Runtime:
        """Lock the state directory, then the runtime directory; return the latter. The order
        matters: a daemon that may not run must not touch the runtime directory of another one.
        """
        places = self._directories
        end = time.monotonic() + self._patience
        while True:
            try:
                with ExitStack() as attempt:
                    state: DirectoryLock = attempt.enter_context(state_lock(places.home))
                    runtime = attempt.enter_context(Runtime.acquire(places.runtime, start_time=self._start_time))
                    state.write({"pid": os.getpid(), "socket": str(runtime.socket)})
                    stack.push(attempt.pop_all())
                return runtime
            except AlreadyRunningError:
                _, elsewhere = state_holder(places.home)
                if any(accepts(path) for path in (places.socket, elsewhere) if path is not None):
                    raise
                if time.monotonic() > end or self._stop.is_set():
                    raise
                # The holder is stopping, or will bind its removed socket again.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), LOCK_POLL_S)

    @asynccontextmanager
    async def _core(self, owner: configuration.Source, config: configuration.Config) -> AsyncIterator[Core]:
        places = self._directories
        instance_id = secrets.token_hex(8)
        release = version("ramet")
        index = SessionIndex(places.home / "index")
        executor = LocalExecutor(places.home / "agents", places.runtime)
        store = await Store.open(
            places.home / "ramet.db", keepers=lambda: recovered(index, executor), describe=describe_rebuilt
        )
        git = Git(build(self._environ, Variables()))
        hub = Hub(store)
        try:
            store.on_damaged = self._damaged
            store.on_read_only = self._read_only
            fence = await store.begin_run(instance_id, os.getpid(), release)
            started = event_pb2.DaemonStarted(instance_id=instance_id, version=release, pid=os.getpid())
            await store.write(lambda unit: unit.events.append(events.make(started)))
            for repo, trusted in await store.read(
                lambda reader: [(each, reader.repos.trusted(each.id)) for each in reader.repos.list()]
            ):
                git.trust(repo.common_dir, trusted.digests)
            group = cgroups.find()
            core = Core(
                config=config,
                store=store,
                git=git,
                executor=executor,
                kinds=kinds_of(config, self._environ),
                environments=EnvironmentFiles(places.secrets),
                index=index,
                tokens=Tokens.load(places.secrets / "token.key"),
                hub=hub,
                state_dir=places.home,
                runtime_dir=places.runtime,
                owner=owner,
                home=user_home(self._environ),
                fence=fence,
                instance_id=instance_id,
                daemon_environment=self._environ,
                operations=Operations(store, self._failpoint),
                cgroup_of=group.agent_cgroup if group is not None else cgroups.none,
                clock=time.time,
                failpoint=self._failpoint,
            )
            yield core
        finally:
            hub.close()
            await executor.aclose()
            await git.aclose()
            await store.aclose()

    async def _follow_configuration(self, core: Core) -> None:
        """Apply the configuration file whenever it changes, or when `reload` is called."""
        loop, file = asyncio.get_running_loop(), self._directories.config_file
        while True:
            news = asyncio.Event()  # set by a reload at once, by a change in the directory when it has settled
            self._news = news
            async with watching(str(file.parent), partial(loop.call_later, CONFIG_SETTLE_S, news.set)) as watched:
                again, self._again = self._again, False
                await self._configure(core, again=again)
                linked = await asyncio.to_thread(file.is_symlink)  # then another directory changes
                limit = CONFIG_POLL_WATCHED_S if watched and not linked else CONFIG_POLL_S
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), limit)

    async def _configure(self, core: Core, *, again: bool = False) -> None:
        """Apply the configuration file if it has changed, or with ``again``. Log the errors of an
        invalid file, which changes nothing."""
        file = self._directories.config_file
        async with self._configuring:
            stamp = await asyncio.to_thread(_stamp, file)
            if stamp == self._configured and not again:
                return
            try:
                owner = await asyncio.to_thread(configuration.Source.read, file)
                config = configuration.combine(owner, home=core.home)
            except RametError as error:
                log.warning("the former configuration stays in effect", error=error.message)
                self._configured = stamp
                return
            core.owner, core.config = owner, config
            for call in list(core.on_configured):
                call()
            if not config.permissions.allow_bypass:
                await core.store.write_for_sure(forbid_bypass)
                await self._end_bypass(core)
            core.live.schedule()
            # Set this last: if a client cancels its call before, the next poll applies the file.
            self._configured = stamp
            log.info("configuration applied", file=str(file))

    async def _end_bypass(self, core: Core) -> None:
        """Set the modes of all attached agents. End an agent that bypasses permissions afterwards;
        its program starts again in the new mode."""

        async def end(agent: LiveAgent) -> None:
            try:
                await agent.follow_settings()
            except (RametError, TimeoutError) as error:
                if await core.store.read(lambda reader: _bypasses(reader, agent.session_id)):
                    log.warning("an agent that kept its former mode ends", session=agent.session_id, error=str(error))
                    await agent.end("", STOP_GRACE_S)  # without an intent: an interrupted turn is resumed

        answers = await asyncio.gather(*(end(agent) for agent in core.live), return_exceptions=True)
        for error in answers:
            if error is not None:
                log.error("an agent could not be ended", error=str(error))

    def _facts(self) -> Facts:
        places = self._directories
        return Facts(
            version=version("ramet"),
            pid=os.getpid(),
            socket=places.socket,
            config_file=places.config_file,
            home=user_home(self._environ),
            log_file=places.logs / "rametd.log",
            database=places.home / "ramet.db",
            start_time=self._start_time,
        )

    async def _watchdog(self, notifier: Notifier) -> None:
        interval = watchdog_interval(self._environ, pid=os.getpid())
        while interval is not None:
            notifier.watchdog()
            await asyncio.sleep(interval)

    def _scheduler_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Without a scheduler no session starts again; the service manager restarts the daemon.
            log.critical("the scheduler failed", exc_info=error)
            self.stop()

    def _damaged(self, words: str) -> None:
        log.critical("the database is damaged; the next start quarantines and rebuilds it", error=words)
        self.stop()

    def _read_only(self, begins: bool) -> None:
        if begins:
            log.error("the disk is full: the database is read-only until there is room")
        else:
            log.info("the disk has room again")


async def _finish(threads: ThreadPoolExecutor) -> None:
    """Wait for the threads of the default executor, and replace it by a new one."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
    await loop.run_in_executor(None, threads.shutdown)


def _bypasses(reader: Reader, session_id: str) -> bool:
    agent = reader.agents.latest(session_id)
    return agent is not None and agent.mode in UNATTENDED


def _stamp(file: Path) -> tuple[int, ...]:
    """Changes whenever a file is written or replaced; () for none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def recovered(index: SessionIndex, executor: LocalExecutor) -> Sequence[RecoveredSession]:
    """All sessions, as recorded outside the database: in the index and by the keepers."""
    places = [(Place.from_handle(handle), handle) for handle in executor.discover()]
    return list(index.recover([(place.session, place.generation, handle) for place, handle in places]))


def describe_rebuilt(rebuilt: Rebuilt) -> NewEvent:
    return events.make(event_pb2.StoreRebuilt(quarantine=str(rebuilt.quarantined), sessions=len(rebuilt.sessions)))


async def serve(
    directories: Directories, environ: Mapping[str, str], failpoint: Failpoint | None = None, *, patience: float = 0.0
) -> None:
    """Run until SIGTERM or SIGINT."""
    daemon = Daemon(directories, environ, failpoint, patience=patience, on_stop=shutdown.limit)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    loop.add_signal_handler(signal.SIGHUP, daemon.reload)
    await daemon.run()
