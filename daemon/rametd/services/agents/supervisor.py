"""Start agents' processes, reattach to them after a restart of the daemon, and resume sessions
whose agent was lost."""

import asyncio
from collections.abc import Set as AbstractSet

import structlog
from ramet.v1 import event_pb2

from rametd.domain.errors import KeeperFencedError, RametError
from rametd.domain.models import Agent, AgentState, Repo, Session
from rametd.domain.states import BUSY_STATES, State
from rametd.keeper.executor import ExitRecord, Handle, Liveness
from rametd.services import environments, events
from rametd.services.agents import endings
from rametd.services.agents.launching import environment_of, launch_of, spec_of
from rametd.services.agents.runner import LATE_EXIT_GRACE_S, Runner
from rametd.services.agents.transcripts import Transcripts
from rametd.services.agents.warm import Warmer
from rametd.services.agents.warm_process import Handover
from rametd.services.briefing import briefing
from rametd.services.core import Core
from rametd.services.delivery import begin_anew
from rametd.services.hooks import SessionHooks
from rametd.services.intake import Intake
from rametd.services.lifecycle import change_state
from rametd.services.missing import require_sound_tree
from rametd.services.tasks import Tasks
from rametd.services.trust.refusals import not_loaded, untrusted_files
from rametd.store import Unit

log = structlog.get_logger()

STOP_GRACE_S = 1.0
"""Grace in seconds for an agent whose end was requested before the daemon attached to it."""
PATIENCE_S = 5.0
"""How long recovery waits for reattaching before it serves; a hundred agents take one second."""
LOOK_S = 0.05
RESUME_DELAYS_S = (0.0, 2.0, 10.0)
"""Back-off before the first, second, and every further resume of a lost session."""
AFTER_TURN_S = 2.0
"""Seconds that `Supervisor.stop` waits for the hooks after turns that have ended."""
LAUNCHES = 4
"""Maximum number of programs that start at the same time; each uses a core for a second."""


class Supervisor:
    """Owns every `Runner`."""

    def __init__(self, core: Core, hooks: SessionHooks, warmer: Warmer, transcripts: Transcripts) -> None:
        self._core = core
        self._hooks = hooks
        self._intake = Intake(core.store, core.failpoint)
        self._warmer = warmer
        self._transcripts = transcripts
        self._launching = asyncio.Semaphore(LAUNCHES)
        self._tasks = Tasks("supervise")
        self._preparing: set[str] = set()  # sessions whose agent is not launched yet
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._untrusted: dict[str, tuple[str, ...]] = {}  # by session: files that the daemon has warned about
        self._stopping = False

    # ── starting ──────────────────────────────────────────────────────────────────────────────────

    def launch(self, session: Session, agent: Agent) -> None:
        """Start the process of a session that is STARTING, in a task of its own."""
        self._tasks.queue(session.id, self._launch(session, agent))

    async def settled(self, session_id: str) -> None:
        """Wait until the session's agent has started or reattached. Do not wait for its setup,
        which may take half an hour."""
        self._hooks.hurry(session_id)
        await self._tasks.wait(session_id)

    async def quiet(self, session_id: str) -> None:
        """Wait until the hooks after the session's last turn have run: they read its worktree."""
        await self._hooks.after_turns.wait(session_id)

    async def _prepare(self, session: Session) -> None:
        """Run the hooks before a launch; a setup among them may take half an hour."""
        self._preparing.add(session.id)
        try:
            await self._hooks.launching(session)
        finally:
            self._preparing.discard(session.id)

    async def _launch(self, session: Session, agent: Agent) -> None:
        try:
            await self._prepare(session)
            begun = asyncio.create_task(self._hooks.prompting(session), name=f"before-prompt-{session.id}")
            try:
                async with self._launching:
                    session, process, home = await self._start_process(session)
            finally:
                await asyncio.wait([begun])
        except RametError as error:
            reason = f"{error.message}; {error.hint}" if error.hint else error.message
            await self._core.store.write_for_sure(
                lambda unit: self._launch_failed(unit, session.id, agent.generation, reason)
            )
            self._core.live.schedule()
            return
        self._core.failpoint.hit("launch.started")

        def started(unit: Unit) -> tuple[Session, Agent]:
            live = _store_process(unit, agent, process, home)
            payload = event_pb2.AgentStarted(generation=agent.generation, resumed=session.conversation_begun)
            events.log(unit, session, payload)
            return unit.sessions.get(session.id), live

        session, agent = await self._core.store.write_for_sure(started)
        self._core.failpoint.hit("launch.stored")
        await self._attach(session, agent)

    async def _start_process(self, session: Session) -> tuple[Session, Handle | Handover, str]:
        """Start the process, or take over the warm agent of the session's former spare. Return the
        session as started, its process, and the directory of its conversations."""
        core = self._core
        await core.kind(session.agent).prepare()
        repo, text, cut = await core.store.read(
            lambda reader: (
                reader.repos.get(session.repo_id),
                briefing(reader, reader.sessions.get(session.id)),
                reader.conversation_cuts.get(session.id),
            )
        )
        await require_sound_tree(core, session)
        await asyncio.to_thread(core.index.write, repo, session)
        await self._warn_of_untrusted_files(session, repo)
        around = await environments.of_session(core, session, repo)
        home = core.kind(session.agent).conversation_home(await environment_of(core, session, around))
        if not await self._transcripts.provide(session, cut, home):
            session_id = session.id
            session = await core.store.write_for_sure(lambda unit: begin_anew(unit, unit.sessions.get(session_id)))
        if session.conversation_lost:
            cut = None
        taken = await self._warmer.take(session, repo, around=around, briefing=text, cut=cut)
        if taken is not None:
            return session, taken, str(home)
        launch = await launch_of(core, session, repo, around=around, briefing=text, cut=cut)
        return session, await core.executor.start(spec_of(core, session, launch, session.generation)), str(home)

    async def _warn_of_untrusted_files(self, session: Session, repo: Repo) -> None:
        """Warn, once for the same files, that Claude loads nothing of the repository."""
        files = await untrusted_files(self._core, repo, session.worktree, session.agent) if repo.trusted else ()
        if files == self._untrusted.get(session.id, ()):
            return
        self._untrusted[session.id] = files
        if files:
            await self._core.store.write_for_sure(
                lambda unit: events.warn(unit, session, not_loaded(repo, session.agent, files))
            )

    def _launch_failed(self, unit: Unit, session_id: str, generation: int, reason: str) -> None:
        session = unit.sessions.get(session_id)
        unit.agents.update(session_id, generation, state=AgentState.EXITED, end_time=unit.now)
        unit.prompts.requeue_unreceived(session_id, generation)
        if session.state in BUSY_STATES:
            change_state(unit, session, State.FAILED, reason=reason)

    async def _attach(self, session: Session, agent: Agent) -> None:
        # Repeat what ran beside the launch: a killed daemon may have launched it.
        await self._hooks.prompting(session)
        runner = Runner(self._core, self._hooks, self._intake, self, session, agent)
        try:
            await runner.start()
        except KeeperFencedError as error:
            await runner.detach()
            log.warning("superseded by another daemon", session=session.id, error=error.message)
            return
        except (RametError, LookupError) as error:  # LookupError: the journal no longer has the stored offset
            await runner.detach()
            log.warning("cannot attach", session=session.id, error=str(error))
            await self._take_up(session, agent, attach=False)
            return
        if agent.stop_intent:
            # The end was requested while the process started, or a daemon was killed before it sent
            # the signal.
            await self._core.executor.end(Handle(agent.handle), STOP_GRACE_S, epoch=self._core.fence)

    # ── taking up ─────────────────────────────────────────────────────────────────────────────────

    def take_up(self, session_id: str) -> None:
        """Reattach to the agent of a session that `recover` left out."""
        self._again(session_id, {AgentState.STARTING, AgentState.LIVE})

    async def recover(self, but: AbstractSet[str] = frozenset()) -> None:
        """Continue every session of the previous daemon, except ``but``: reattach, resume, or
        record why neither is possible."""
        core = self._core
        alive = await core.store.read(
            lambda reader: [(agent, reader.sessions.get(agent.session_id)) for agent in reader.agents.alive()]
        )
        for agent, session in alive:
            if session.id not in but:
                self._tasks.queue(session.id, self._take_up(session, agent))
        try:
            async with asyncio.timeout(PATIENCE_S):
                # Do not wait for a session in setup: it enters `_preparing` meanwhile.
                while waiting := [task for of, task in self._tasks if of not in self._preparing]:
                    await asyncio.wait(waiting, timeout=LOOK_S)
        except TimeoutError:
            # One keeper that hangs must not delay the others; calls about its session wait for it
            # (`settled`).
            log.warning("serving before all agents are attached", sessions=sorted(of for of, _ in self._tasks))

        def orphans(unit: Unit) -> None:
            # A busy session without an agent lost it unrecorded.
            with_agent = {agent.session_id for agent in unit.agents.alive()}
            for session in unit.sessions.list(states=BUSY_STATES):
                if session.id not in with_agent:
                    cut_off = session.state in {State.WORKING, State.WAITING}
                    session = unit.sessions.update(session.id, interrupted=session.interrupted or cut_off)
                    endings.lose(unit, session, "the agent was lost", core.config.agents.max_resumes)

        await core.store.write_for_sure(orphans)
        for session in await core.store.read(lambda reader: reader.sessions.list(states={State.LOST})):
            await self.requeue(session.id)

    async def _take_up(self, session: Session, agent: Agent, *, attach: bool = True) -> None:
        """Find out the state of an agent's process, and continue from there."""
        core = self._core
        if agent.state == AgentState.STARTING:
            # The intent to start is stored. The executor knows whether the process exists; a second
            # start creates no other.
            await self._launch(session, agent)
            return
        handle = Handle(agent.handle)
        recovered = await core.executor.recover(handle)
        healthy = recovered.liveness == Liveness.ALIVE and attach
        if not healthy and recovered.liveness != Liveness.EXITED:
            # The keeper or its directory is gone, or it does not answer: end what is left of the
            # agent before another process may continue the conversation.
            await core.executor.end(handle, LATE_EXIT_GRACE_S, epoch=core.fence)
            recovered = await core.executor.recover(handle)
        if attach and recovered.liveness != Liveness.UNKNOWN:
            await self._attach(session, agent)  # also if it has ended: its journal may hold unread lines
        else:
            await self._record_end(session, agent, recovered.exit, recovered.stderr_tail)

    async def _record_end(self, session: Session, agent: Agent, record: ExitRecord | None, stderr_tail: str) -> None:
        kind = self._core.kind(session.agent)
        await self._core.store.write_for_sure(
            lambda unit: endings.record_end(
                unit,
                kind,
                session.id,
                agent.generation,
                record=record,
                stderr_tail=stderr_tail,
                unterminated=b"",
                max_resumes=self._core.config.agents.max_resumes,
            ),
        )
        await self.after_end(session.id)

    def reattach(self, session_id: str) -> None:
        """Reattach after the connection to a living keeper broke."""
        self._again(session_id, {AgentState.LIVE})

    def _again(self, session_id: str, states: AbstractSet[AgentState]) -> None:
        async def again() -> None:
            agent = await self._core.store.read(lambda reader: reader.agents.latest(session_id))
            if agent is not None and agent.state in states:
                session = await self._core.store.read(lambda reader: reader.sessions.get(session_id))
                await self._take_up(session, agent)

        if not self._stopping:
            self._tasks.queue(session_id, again())

    # ── after an agent's end ──────────────────────────────────────────────────────────────────────

    async def after_end(self, session_id: str) -> None:
        """Resume a lost session after its back-off, and have the scheduler check the others now."""
        session = await self._core.store.read(lambda reader: reader.sessions.find(session_id))
        if session is not None:
            await self._transcripts.renew(session)
        if session is not None and session.state == State.LOST and not self._stopping:
            delay = RESUME_DELAYS_S[min(session.resumes, len(RESUME_DELAYS_S) - 1)]
            loop = asyncio.get_running_loop()
            self._timers[session_id] = loop.call_later(delay, self._requeue_later, session_id)
        self._core.live.schedule()

    def _requeue_later(self, session_id: str) -> None:
        self._timers.pop(session_id, None)
        self._tasks.queue(session_id, self.requeue(session_id))

    async def requeue(self, session_id: str) -> None:
        """Queue a lost session; counts as one of its resumes."""

        def work(unit: Unit) -> None:
            session = unit.sessions.find(session_id)
            if session is not None and session.state == State.LOST:
                why = f"restarting: {session.state_reason}"
                change_state(unit, session, State.QUEUED, reason=why, resumes=session.resumes + 1)

        await self._core.store.write_for_sure(work)
        self._core.live.schedule()

    async def stop(self) -> None:
        """Detach from every agent; they keep running under their keepers."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        await self._tasks.close()
        await asyncio.gather(*(runner.detach() for runner in self._core.live))
        await self._hooks.after_turns.close(AFTER_TURN_S)


def _store_process(unit: Unit, agent: Agent, process: Handle | Handover, home: str) -> Agent:
    """Store the handle and, for a warm agent, its offsets and its handshake."""
    session_id, generation = agent.session_id, agent.generation
    if not isinstance(process, Handover):
        return unit.agents.update(session_id, generation, state=AgentState.LIVE, handle=process, conversation_home=home)
    unit.agents.advance(session_id, generation, process.journal_offset, expect_offset=0)
    unit.agents.advance_stdin(session_id, generation, process.stdin_offset, expect_offset=0)
    return unit.agents.update(
        session_id,
        generation,
        state=AgentState.LIVE,
        handle=process.handle,
        initialize_reply=process.initialize_reply,
        hook_table=process.hook_table,
        conversation_home=home,
    )
