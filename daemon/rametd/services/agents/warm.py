"""Warm agents: programs that were started in a spare, and have said that they are ready, before there is a session for them.

Such a process is the spare's: its keeper goes by the spare's id, which becomes the session's, and by generation 0, which no session's own process has.
What else there is to know of it lies in memory, so that a daemon that is killed leaves a process of generation 0 that no row names: the next one ends
it. A session takes it over in the unit of work that stores the handle with its agent; from then on it is an agent like any other.

It is taken over only where it is what would have been started for the session: same program and arguments, same environment of the person, same rights.
Mode, model and the variables that tell a session's branch and ports are given to it then; everything else cannot be changed in a running program.
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
from rametd.services.agents.warm_process import GENERATION, Taken, WarmProcess
from rametd.services.core import Core
from rametd.services.hooks import AgentTools

log = structlog.get_logger()

END_GRACE_S = 1.0
AGAIN_S = (1.0, 5.0, 30.0, 120.0)
"""Pauses before a process that could not be ended is ended again; what withstands all of them is left to the next start."""
BRIEFING = (
    "The git status that you were given was taken before this worktree got its branch: "
    "`git branch --show-current` tells its name."
)


@dataclass(slots=True)
class Warmer:
    """All warm agents, by the id of the spare, which is that of the session that claims it."""

    core: Core
    tools: AgentTools
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _starting: dict[str, tuple[str, asyncio.Task[str]]] = field(default_factory=dict)  # with the conversation
    _agents: dict[str, WarmProcess] = field(default_factory=dict)
    _endings: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _retries: dict[str, asyncio.Task[None]] = field(
        default_factory=dict
    )  # of endings that failed; nobody waits for them
    _tellings: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    async def recover(self) -> None:
        """Begin to end what a former daemon left; whoever needs one of their ids waits for that (`end`)."""
        core = self.core
        for handle in await asyncio.to_thread(core.executor.discover):
            place = Place.from_handle(handle)
            if place.generation == GENERATION and not await core.store.read(
                lambda reader, of=place.session, handle=handle: reader.agents.has_handle(of, handle)  # type: ignore[misc]
            ):
                self._begin_ending(place.session, self._end_process(handle))

    async def stop(self) -> None:
        """End all of them: they have no work that they would live on for."""
        for timer in self._timers.values():
            timer.cancel()
        for task in (*self._tellings.values(), *self._retries.values()):
            task.cancel()
        for session_id in (*self._starting, *self._agents):
            self.discard(session_id)
        while under_way := [*(task for _, task in self._starting.values()), *self._endings.values()]:
            await asyncio.wait(under_way)
        if left := [*self._tellings.values(), *self._retries.values()]:
            await asyncio.wait(left)

    def has(self, spare_id: str) -> bool:
        """Whether one is ready there."""
        return (warm := self._agents.get(spare_id)) is not None and not warm.ended.is_set()

    def conversation_of(self, spare_id: str) -> str:
        """The id of the conversation that the one there would hold, also while it starts; "" where there is none."""
        if spare_id in self._starting:
            return self._starting[spare_id][0]
        return self._agents[spare_id].session.conversation_id if self.has(spare_id) else ""

    def begin(self, spare: Spare, repo: Repo) -> "asyncio.Task[str]":
        """Start one in a spare, as the newest session of the repository was started. The task returns why there is none, "" when it is
        ready; it is cancelled when the spare goes. To be called while the spare is known to be one, without an `await` in between."""
        self.discard(spare.id)  # one that has ended by itself
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
            return "the one that was there has not ended"  # it would be taken for the one that is started now
        if (retry := self._retries.get(spare.id)) is not None:
            retry.cancel()  # somebody else has ended what it is after, and the one that is started now bears the same name
        sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo.id))
        if not sessions:
            return "a warm agent gets the environment of the newest session, and there is none"
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
            return "it did not come up"
        finally:
            if not done:  # also when we are cancelled
                self._begin_ending(spare.id, self._end_of(warm))
        self._agents[spare.id] = warm
        core.failpoint.hit("warm.ready")
        return ""

    def session_made(self, session: Session) -> None:
        """A spare has become a session. What that does not take in the time after which its agent would sleep is ended too."""
        after = self.core.config.agents.sleep_after
        if not self.conversation_of(session.id):
            return
        if after is not None:
            loop = asyncio.get_running_loop()
            self._timers[session.id] = loop.call_later(after, self.discard, session.id)
        # Beside what else comes before a launch: the program takes a while over it, and whoever takes it then waits for less.
        telling = self._tellings[session.id] = asyncio.create_task(self._tell(session), name=f"tell-{session.id}")
        telling.add_done_callback(lambda done: self._tellings.pop(session.id, None))

    async def _tell(self, session: Session) -> None:
        """Tell it ahead of `take` where it is now. Where that fails `take` finds out, which tells what was not told."""
        core = self.core
        if session.id in self._starting:
            await asyncio.wait([self._starting[session.id][1]])
        if (warm := self._agents.get(session.id)) is None or warm.ended.is_set():
            return
        try:
            repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
            await warm.tell(session, await environments.of_session(core, session, repo))
        except (RametError, TimeoutError) as error:
            log.warning("warm agent was not told", session=session.id, error=str(error))

    async def before_tree_goes(self, session: Session) -> None:
        await self.end(session.id)

    async def take(
        self, session: Session, repo: Repo, *, around: Mapping[str, str], briefing: str, cut: ConversationCut | None
    ) -> Taken | None:
        """The process that was started for this session before it was made, told what is to be known of it; None where there is none
        that fits, and then none that runs."""
        if session.id in self._starting:  # it has a lead over one that would be started now
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
            await warm.tell(session, around)
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
            return False  # it can be reached only in a process that began with it, and is to be reachable in no other
        alike = replace(session, mode=warm.session.mode, model=warm.session.model)
        launch = await launch_of(core, alike, repo, around=_fixed(session, repo), briefing=BRIEFING)
        return launch == warm.launch and await core.kind(session.agent).check() == warm.version

    def discard(self, session_id: str) -> None:
        """End it in the background; `end` waits for that."""
        if session_id in self._starting:
            self._starting[session_id][1].cancel()  # which begins its end
        if (warm := self._agents.get(session_id)) is not None:
            self._forget(session_id)
            self._begin_ending(session_id, self._end_of(warm))

    async def end(self, session_id: str) -> None:
        """Return when no warm process of this id runs, nor anything of it lies on disk."""
        self.discard(session_id)
        if session_id in self._starting:
            await asyncio.wait([self._starting[session_id][1]])
        if (ending := self._endings.get(session_id)) is not None:
            await asyncio.wait([ending])

    def _forget(self, session_id: str) -> None:
        self._agents.pop(session_id, None)
        if (telling := self._tellings.get(session_id)) is not None:
            telling.cancel()
        if (timer := self._timers.pop(session_id, None)) is not None:
            timer.cancel()

    def _begin_ending(self, session_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._endings[session_id] = asyncio.create_task(work, name=f"end-warm-{session_id}")
        task.add_done_callback(lambda done: self._ending_done(session_id, done))

    def _ending_done(self, session_id: str, task: "asyncio.Task[None]") -> None:
        if self._endings.get(session_id) is task:
            del self._endings[session_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("ending a warm agent failed", session=session_id, exc_info=error)

    async def _end_of(self, warm: WarmProcess) -> None:
        await warm.close()
        await self._end_process(warm.handle)

    async def _end_started(self, starting: "asyncio.Task[Handle]") -> None:
        """A start goes on when nobody waits for it any more."""
        try:
            handle = await starting
        except RametError:
            return
        await self._end_process(handle)

    async def _end_process(self, handle: Handle) -> None:
        if await self._ended(handle):
            return
        spare_id = Place.from_handle(handle).session
        retry = self._retries[spare_id] = asyncio.create_task(self._end_later(handle), name=f"end-later-{spare_id}")
        retry.add_done_callback(lambda done: self._retry_done(spare_id, done))

    async def _end_later(self, handle: Handle) -> None:
        for pause in AGAIN_S:
            await self.sleep(pause)
            if await self._ended(handle):
                return
        log.error("a warm agent does not end; tried again when the daemon starts", handle=handle)

    def _retry_done(self, spare_id: str, task: "asyncio.Task[None]") -> None:
        if self._retries.get(spare_id) is task:
            del self._retries[spare_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("ending a warm agent failed", session=spare_id, exc_info=error)

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
    """What a spare knows already of where it is."""
    return {"RAMET_WORKTREE": str(session.worktree), "RAMET_REPO_ROOT": str(repo.root)}
