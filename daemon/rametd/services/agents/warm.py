"""Warm agents: agents that run in a spare, ready before a session needs them.

The process belongs to the spare: its keeper has the spare's id, which becomes the session's, and
generation 0, which no process of a session has. Everything else about it is only in the daemon's
memory: a killed daemon leaves a process of generation 0 without a row, and the next daemon ends it.
One unit of work stores the handle with a session's agent; from then on it is an ordinary agent.

A session takes it over only if a new process for the session would be equal: same program and
arguments, same environment of the person, same permissions. The daemon then sets mode, model and
the variables with the session's branch and ports; nothing else can be changed in a running program.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from rametd.domain.checkpoints import ConversationCut
from rametd.domain.errors import NotFoundError, RametError
from rametd.domain.models import UNATTENDED, Repo, Session
from rametd.domain.spares import Spare
from rametd.keeper.executor import Handle
from rametd.keeper.place import Place
from rametd.services import environments
from rametd.services.agents.launching import launch_of, spec_of
from rametd.services.agents.warm_process import GENERATION, Handover, WarmProcess
from rametd.services.core import Core
from rametd.services.hooks import AgentTools
from rametd.services.tasks import Tasks

log = structlog.get_logger()

END_GRACE_S = 1.0
AGAIN_S = (1.0, 5.0, 30.0, 120.0)
"""Pauses between attempts to end a process; after the last one the next start of the daemon tries
again."""
BRIEFING = (
    "The git status that you were given was taken before this worktree got its branch: "
    "`git branch --show-current` tells its name."
)


@dataclass(slots=True)
class Warmer:
    """All warm agents, by the id of their spare; a session that claims the spare has the same
    id."""

    core: Core
    tools: AgentTools
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _starting: dict[str, tuple[str, asyncio.Task[str]]] = field(default_factory=dict)  # with the conversation's id
    _agents: dict[str, WarmProcess] = field(default_factory=dict)
    _endings: Tasks = field(default_factory=lambda: Tasks("end-warm"))
    _retries: Tasks = field(default_factory=lambda: Tasks("end-later"))  # of endings that failed
    _configuring: Tasks = field(default_factory=lambda: Tasks("configure"))
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    async def recover(self) -> None:
        """Begin to end the warm agents of the previous daemon. A caller that needs one of their ids
        waits with `end`."""
        core = self.core
        for handle in await asyncio.to_thread(core.executor.discover):
            place = Place.from_handle(handle)
            if place.generation == GENERATION and not await core.store.read(
                lambda reader, of=place.session, handle=handle: reader.agents.has_handle(of, handle)  # type: ignore[misc]
            ):
                self._begin_ending(place.session, self._end_process(handle))

    async def stop(self) -> None:
        """End all warm agents; they have no work to continue."""
        for timer in self._timers.values():
            timer.cancel()
        self._configuring.cancel()
        self._retries.cancel()
        for session_id in (*self._starting, *self._agents):
            self.discard(session_id)
        while under_way := [*(task for _, task in self._starting.values()), *self._endings.running]:
            await asyncio.wait(under_way)
        await self._configuring.close()
        await self._retries.close()

    def has(self, spare_id: str) -> bool:
        """Return whether a ready warm agent runs in the spare."""
        return (warm := self._agents.get(spare_id)) is not None and not warm.ended.is_set()

    def conversation_of(self, spare_id: str) -> str:
        """Return the conversation's id of the spare's warm agent, also while it starts; "" without
        one."""
        if spare_id in self._starting:
            return self._starting[spare_id][0]
        return self._agents[spare_id].session.conversation_id if self.has(spare_id) else ""

    def begin(self, spare: Spare, repo: Repo) -> "asyncio.Task[str]":
        """Start a warm agent in a spare, as the newest session of the repository was started.

        The task returns "" when the agent is ready, else why not; it is cancelled when the spare is
        removed. Call this without an `await` since the check that the spare exists.
        """
        self.discard(spare.id)  # a warm agent that has ended by itself
        conversation = str(uuid.uuid4())
        task = asyncio.create_task(self._warm(spare, repo, conversation), name=f"warm-{spare.id}")
        self._starting[spare.id] = (conversation, task)
        task.add_done_callback(lambda done: self._starting.pop(spare.id, None))
        return task

    async def _warm(self, spare: Spare, repo: Repo, conversation: str) -> str:
        core = self.core
        if (ending := self._endings.get(spare.id)) is not None:
            await asyncio.wait([ending])
        found = (Place.from_handle(handle) for handle in await asyncio.to_thread(core.executor.discover))
        if any((place.session, place.generation) == (spare.id, GENERATION) for place in found):
            return "the previous one has not ended"  # `start` would take it for the new one
        if (retry := self._retries.get(spare.id)) is not None:
            retry.cancel()  # its process has ended, and the new one has the same name
        sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo.id))
        if not sessions:
            return "a warm agent needs the environment of the newest session, and the repository has none"
        newest = max(sessions, key=lambda each: each.create_time)
        if not core.kind(newest.agent).capabilities.warm:
            return f"{newest.agent} cannot be started before its session exists"
        session = replace(
            newest,
            id=spare.id,
            worktree=spare.path,
            conversation_id=conversation,
            conversation_begun=False,
            generation=GENERATION,
        )
        try:
            version = await core.kind(session.agent).check()
            await core.kind(session.agent).prepare()
            known = _fixed(session, repo)
            launch = await launch_of(core, session, repo, around=known, briefing=BRIEFING, caller=newest.id)
            core.failpoint.hit("warm.intended")
            starting = asyncio.create_task(core.executor.start(spec_of(core, session, launch, GENERATION)))
            try:
                handle = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._begin_ending(spare.id, self._end_started(starting))
                raise
        except RametError as error:
            return error.message
        core.failpoint.hit("warm.started")
        warm = WarmProcess(core, self.tools, session, launch, version, handle, known)
        done = False
        try:
            await warm.open()
            done = True
        except (RametError, LookupError) as error:
            return str(error)
        except TimeoutError:
            return "it did not become ready"
        finally:
            if not done:  # also on cancellation
                self._begin_ending(spare.id, self._end_of(warm))
        self._agents[spare.id] = warm
        core.failpoint.hit("warm.ready")
        return ""

    def session_made(self, session: Session) -> None:
        """Configure the warm agent of a spare that became a session; end it if the session does not
        take it before it would sleep."""
        after = self.core.config.agents.sleep_after
        if not self.conversation_of(session.id):
            return
        if after is not None:
            loop = asyncio.get_running_loop()
            self._timers[session.id] = loop.call_later(after, self.discard, session.id)
        # Run this in parallel with the other work before a launch: the program takes a while, and
        # `take` then waits less.
        self._configuring.start(session.id, self._configure(session))

    async def _configure(self, session: Session) -> None:
        """Configure the warm agent before `take` needs it; `take` repeats what failed here."""
        core = self.core
        if session.id in self._starting:
            await asyncio.wait([self._starting[session.id][1]])
        if (warm := self._agents.get(session.id)) is None or warm.ended.is_set():
            return
        try:
            repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
            await warm.configure(session, await environments.of_session(core, session, repo))
        except (RametError, TimeoutError) as error:
            log.warning("warm agent was not configured", session=session.id, error=str(error))

    async def before_tree_removal(self, session: Session) -> None:
        await self.end(session.id)

    async def take(
        self, session: Session, repo: Repo, *, around: Mapping[str, str], briefing: str, cut: ConversationCut | None
    ) -> Handover | None:
        """Return the configured warm agent for this session. If none fits, end the one that runs
        and return None."""
        if session.id in self._starting:  # it is ready sooner than one started now
            await asyncio.wait([self._starting[session.id][1]])
        warm = self._agents.get(session.id)
        if warm is None:
            await self.end(session.id)
            return None
        if briefing or cut is not None or not await self._fits(warm, session, repo):
            log.info("warm agent not used", session=session.id)
            await self.end(session.id)
            return None
        try:
            await warm.configure(session, around)
        except (RametError, TimeoutError) as error:
            log.warning("warm agent not used", session=session.id, error=str(error))
            await self.end(session.id)
            return None
        self._forget(session.id)
        taken = await warm.release()
        self.core.failpoint.hit("warm.taken")
        return taken

    async def _fits(self, warm: WarmProcess, session: Session, repo: Repo) -> bool:
        core = self.core
        if warm.ended.is_set() or session.conversation_begun or session.agent != warm.session.agent:
            return False
        if session.mode != warm.session.mode and not UNATTENDED.isdisjoint({session.mode, warm.session.mode}):
            return False  # only a process started in an unattended mode can switch to one, and no other process may be able to
        alike = replace(session, mode=warm.session.mode, model=warm.session.model)
        launch = await launch_of(core, alike, repo, around=_fixed(session, repo), briefing=BRIEFING)
        return launch == warm.launch and await core.kind(session.agent).check() == warm.version

    def discard(self, session_id: str) -> None:
        """Begin to end the warm agent; `end` waits for it."""
        if session_id in self._starting:
            self._starting[session_id][1].cancel()  # its cancellation begins to end it
        if (warm := self._agents.get(session_id)) is not None:
            self._forget(session_id)
            self._begin_ending(session_id, self._end_of(warm))

    async def end(self, session_id: str) -> None:
        """End the warm agent of this id; return when its process and its directory are gone."""
        self.discard(session_id)
        if session_id in self._starting:
            await asyncio.wait([self._starting[session_id][1]])
        if (ending := self._endings.get(session_id)) is not None:
            await asyncio.wait([ending])

    def _forget(self, session_id: str) -> None:
        self._agents.pop(session_id, None)
        if (configuring := self._configuring.get(session_id)) is not None:
            configuring.cancel()
        if (timer := self._timers.pop(session_id, None)) is not None:
            timer.cancel()

    def _begin_ending(self, session_id: str, work: Coroutine[Any, Any, None]) -> None:
        self._endings.start(session_id, work)

    async def _end_of(self, warm: WarmProcess) -> None:
        await warm.close()
        await self._end_process(warm.handle)

    async def _end_started(self, starting: "asyncio.Task[Handle]") -> None:
        """End a process whose start outlived the task that awaited it."""
        try:
            handle = await starting
        except RametError:
            return
        await self._end_process(handle)

    async def _end_process(self, handle: Handle) -> None:
        if await self._ended(handle):
            return
        spare_id = Place.from_handle(handle).session
        self._retries.start(spare_id, self._end_later(handle))

    async def _end_later(self, handle: Handle) -> None:
        for pause in AGAIN_S:
            await self.sleep(pause)
            if await self._ended(handle):
                return
        log.error("a warm agent does not end; tried again when the daemon starts", handle=handle)

    async def _ended(self, handle: Handle) -> bool:
        core = self.core
        try:
            await core.executor.end(handle, END_GRACE_S, epoch=core.fence)
            await core.executor.destroy(handle)
        except NotFoundError:
            return True
        except RametError as error:
            log.warning("a warm agent could not be ended", handle=handle, error=error.message)
            return False
        return True


def _fixed(session: Session, repo: Repo) -> dict[str, str]:
    """Return the variables of the worktree that are known before a session exists."""
    return {"RAMET_WORKTREE": str(session.worktree), "RAMET_REPO_ROOT": str(repo.root)}
