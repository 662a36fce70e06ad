"""The daemon's parts: how they are connected, and the order in which they start and stop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from rametd.agents.base import AgentKind
from rametd.domain.models import DAEMON, UNATTENDED, Mode, RequestKind, Session
from rametd.domain.operations import Caller
from rametd.keeper.executor import Executor
from rametd.services.agents.supervisor import Supervisor
from rametd.services.agents.transcripts import Transcripts
from rametd.services.agents.warm import Warmer
from rametd.services.archiving.archive import Archiver
from rametd.services.archiving.remove import Remover
from rametd.services.archiving.restore import Restorer
from rametd.services.archiving.trash import Trash
from rametd.services.attachments import Attachments
from rametd.services.commands.setup import Setup
from rametd.services.commands.terminals import Terminals
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.forking import Forker
from rametd.services.creation.pool import Pool
from rametd.services.hooks import AgentTools, Resolver, SessionHooks
from rametd.services.landing import entries
from rametd.services.landing.landed import LandedTracker
from rametd.services.landing.queue import LandingQueue
from rametd.services.lifecycle import log_update
from rametd.services.notifications.notifier import Notifier
from rametd.services.orchestration import Orchestration
from rametd.services.ownership.handover import Ownership
from rametd.services.plans.applying import Plans
from rametd.services.plans.cleanup import PlanCleaner
from rametd.services.plans.converge import Converger
from rametd.services.pull_requests.cleanup import PullRequestCleaner
from rametd.services.pull_requests.requests import PullRequests
from rametd.services.pull_requests.tracker import PullRequestTracker
from rametd.services.radar.radar import Radar
from rametd.services.scheduler import Scheduler
from rametd.services.sessions import Sessions, resolve_trouble
from rametd.services.tasks import Tasks
from rametd.services.trackers import Trackers
from rametd.services.trust.withheld import WithheldInbox, resolve_withheld
from rametd.services.upkeep.power import Power
from rametd.services.worktrees.beginnings import Beginnings
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.rewind import Rewinder
from rametd.services.worktrees.sync import Syncer
from rametd.store import Unit

log = structlog.get_logger()

WARM_UP_S = 2.0
"""Seconds after its start at which a daemon that has created no session loads the modules that
agents need."""
REST_S = 5.0
"""Seconds between the failure of a background task and its restart."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All services. `assemble` creates them; the servicers use them."""

    core: Core
    trackers: Trackers
    tools: AgentTools
    resolvers: Mapping[RequestKind, Resolver]
    supervisor: Supervisor
    warmer: Warmer
    scheduler: Scheduler
    sessions: Sessions
    pool: Pool
    creator: Creator
    forker: Forker
    remover: Remover
    archiver: Archiver
    restorer: Restorer
    trash: Trash
    landed: LandedTracker
    checkpointer: Checkpointer
    beginnings: Beginnings
    power: Power
    rewinder: Rewinder
    syncer: Syncer
    terminals: Terminals
    setup: Setup
    orchestration: Orchestration
    ownership: Ownership
    radar: Radar
    withheld: WithheldInbox
    queue: LandingQueue
    pulls: PullRequests
    pull_cleaner: PullRequestCleaner
    plans: Plans
    plan_cleaner: PlanCleaner
    converger: Converger
    notifier: Notifier
    attachments: Attachments

    async def recover(self, stack: AsyncExitStack) -> None:
        """Finish or undo pending operations, then reattach all agents and commands. ``stack`` stops
        the started parts."""
        core = self.core
        for close in (
            self.attachments.close,
            self.warmer.stop,
            self.supervisor.stop,
            self.terminals.close,
            self.setup.close,
            self.trackers.close,
            self.checkpointer.close,
            self.beginnings.close,
            core.operations.close,
        ):
            stack.push_async_callback(close)
        await self.power.recover()  # before git writes anything
        await self.terminals.recover()
        await self.warmer.recover()
        late = await core.operations.recover(self._take_up)
        if not core.config.permissions.allow_bypass:
            await core.store.write(forbid_bypass)
        await self.supervisor.recover(but=late)
        await self.attachments.recover()
        await self.checkpointer.recover(but=late)
        await self.trackers.recover(but=late)
        await self.setup.recover(lambda session_id: session_id not in late)
        await self.beginnings.recover(lambda session_id: session_id not in late)
        stack.push_async_callback(self.queue.stop)
        await self.queue.start()

    async def _take_up(self, session_id: str) -> None:
        """Recover a session that an unfinished operation held, if it still exists."""
        self.supervisor.take_up(session_id)
        self.checkpointer.catch_up(session_id)
        await self.setup.recover(lambda each: each == session_id)
        await self.beginnings.recover(lambda each: each == session_id)

    def begin(self, stack: AsyncExitStack) -> None:
        """Start the background tasks; ``stack`` stops them."""
        stack.push_async_callback(self.pool.stop)
        self.pool.start()
        warm_ups: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            (f"warm-up {kind.name}", partial(warm_up, kind, self.pool.spares.begun))
            for kind in self.core.kinds.values()
        ]
        for name, run in (
            *warm_ups,
            ("power", self.power.run),
            ("housekeeping", self.trash.housekeep),
            ("trackers", self.trackers.run),
            ("landed", self.landed.run),
            ("radar", self.radar.run),
            ("withheld", self.withheld.run),
            ("pull-requests", PullRequestTracker(self.core, self.pulls).run),
            ("notifications", self.notifier.run),
        ):
            background = Background(name, run)
            stack.push_async_callback(background.stop)
            background.start()


async def warm_up(kind: AgentKind, begun: asyncio.Event, patience: float = WARM_UP_S) -> None:
    """Load the modules for a kind of agent at the first creation, or ``patience`` seconds after the
    start. The imports hold the interpreter's lock: done at once, they would double the time of the
    `rametctl ls` that started the daemon.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(begun.wait(), patience)
    await kind.prepare()


class Background:
    """A background task that restarts some seconds after a failure, while the rest of the daemon
    continues."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._name = name
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._name)
        self._task.add_done_callback(self._done)

    async def stop(self) -> None:
        """Cancel the task and wait for its cleanup, while everything that the cleanup needs is
        still open."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed; restarting soon", task=self._name, exc_info=error)
            self._timer = asyncio.get_running_loop().call_later(REST_S, self.start)


def assemble(core: Core, commands: Executor) -> Parts:
    """Create and connect all parts. ``commands`` runs the commands in worktrees."""
    tools = AgentTools()
    trackers = Trackers(core.store, core.git, core.recovered)
    warmer = Warmer(core, tools)
    transcripts = Transcripts(core)
    checkpointer = Checkpointer(core)
    terminals = Terminals(core, commands)
    setup = Setup(core, terminals)
    beginnings = Beginnings(core, checkpointer, setup.over)
    landed = LandedTracker(core)
    withheld = WithheldInbox(core)
    ownership = Ownership(core)
    attachments = Attachments(core, transcripts)
    hooks = SessionHooks(
        after_creation=(
            setup.begin,
            warmer.session_made,
            trackers.session_made,
            beginnings.begin,
            withheld.session_made,
        ),
        before_launch=(setup.ready, attachments.before_launch),
        hurry=setup.hurry,
        # The order matters: two scans of all files at the same time would delay the first prompt.
        before_prompt=(beginnings.before_prompt, trackers.before_prompt),
        settle_checkpoint=checkpointer.settle,
        use_tools=tools.use,
        after_turn=(
            checkpointer.after_turn,
            landed.after_turn,
            transcripts.renew,
            ownership.after_turn,
            withheld.after_turn,
        ),
        after_turns=Tasks("after-turn"),
        before_tree_removal=(warmer.before_tree_removal, setup.tear_down, trackers.before_tree_removal),
    )
    supervisor = Supervisor(core, hooks, warmer, transcripts)
    sessions = Sessions(core, supervisor)
    attachments.bind(hooks, supervisor, sessions)
    pool = Pool(core, warmer, setup.run_in)
    creator = Creator(core, hooks, pool)
    remover = Remover(core, hooks, supervisor)
    archiver = Archiver(core, hooks, supervisor, sessions)
    radar = Radar(core, trackers)
    trackers.on_begun.append(radar.follow)
    pulls = PullRequests(core)
    rewinder = Rewinder(core, supervisor, checkpointer)
    terminals.bind(rewinder.undo_check)

    async def archive(session: Session, principal: str) -> tuple[str, ...]:
        return tuple((await archiver.archive(session.id, force=False, caller=Caller(principal))).warnings)

    return Parts(
        core=core,
        trackers=trackers,
        tools=tools,
        resolvers={
            RequestKind.TROUBLE: partial(resolve_trouble, core),
            RequestKind.LOGIN: partial(resolve_trouble, core),
            RequestKind.OWNERSHIP: ownership.resolve,
            RequestKind.LANDING: entries.resolve,
            RequestKind.TRUST: resolve_withheld,
        },
        supervisor=supervisor,
        warmer=warmer,
        scheduler=Scheduler(core, supervisor, checkpointer, trackers),
        sessions=sessions,
        pool=pool,
        creator=creator,
        forker=Forker(core, creator, checkpointer),
        remover=remover,
        archiver=archiver,
        restorer=Restorer(core, hooks),
        trash=Trash(core),
        landed=landed,
        checkpointer=checkpointer,
        beginnings=beginnings,
        power=Power(core, checkpointer),
        rewinder=rewinder,
        syncer=Syncer(core, checkpointer),
        terminals=terminals,
        setup=setup,
        orchestration=Orchestration(core, creator, sessions),
        ownership=ownership,
        radar=radar,
        withheld=withheld,
        queue=LandingQueue(core, setup, checkpointer),
        pulls=pulls,
        pull_cleaner=PullRequestCleaner(core, pulls, archive),
        plans=Plans(core, creator),
        plan_cleaner=PlanCleaner(core, remover),
        converger=Converger(core, pulls),
        notifier=Notifier(core),
        attachments=attachments,
    )


def forbid_bypass(unit: Unit) -> None:
    """Set sessions with bypassPermissions to the default mode if the configuration no longer allows
    it.

    Their agents change mode when they are reattached, attached ones by `follow_settings`.
    """
    for session in [each for mode in UNATTENDED for each in unit.sessions.with_mode(mode)]:
        log_update(unit, unit.sessions.update(session.id, mode=Mode.DEFAULT), ["mode"], DAEMON)
