"""Warm agents: programs that were started in a spare, and have said that they are ready, before there is a session for them.

Such a process is the spare's: its keeper goes by the spare's id, which becomes the session's, and by generation 0, which no session's own process has.
What else there is to know of it lies in memory, so that a daemon that is killed leaves a process of generation 0 that no row names: the next one ends
it. A session takes it over in the unit of work that stores the handle with its agent; from then on it is an agent like any other.

It is taken over only where it is what would have been started for the session: same program and arguments, same environment of the person, same rights.
Mode, model and the variables that tell a session's branch and ports are given to it then; everything else cannot be changed in a running program.
"""

import asyncio
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from rametd.agents.base import (
    Channel,
    ControlAsked,
    Decision,
    Initialized,
    Judged,
    Launch,
    ToolUse,
)
from rametd.domain.checkpoints import ConversationCut
from rametd.domain.errors import NotFoundError, RametError
from rametd.domain.models import Mode, Repo, Session
from rametd.domain.spares import Spare
from rametd.keeper.executor import Attachment, Handle
from rametd.keeper.place import Place
from rametd.services.agents.launching import launch_of, spec_of
from rametd.services.core import Core
from rametd.services.index import agent_of

log = structlog.get_logger()

GENERATION = 0
READY_WITHIN_S = 55.0
TOLD_WITHIN_S = 5.0
"""How long a process that is ready may take to take over a mode; one that is slower is not worth the wait."""
END_GRACE_S = 1.0
BRIEFING = (
    "The git status that you were given was taken before this worktree got its branch: "
    "`git branch --show-current` tells its name."
)


@dataclass(frozen=True, slots=True)
class Taken:
    """A process that is a session's from now on, read and answered up to the offsets."""

    handle: Handle
    journal_offset: int
    stdin_offset: int
    initialize_reply: bytes
    hook_table: str


class _Warm:
    """One process with its control channel. It is the `ChannelIO` of that: nothing but the handshake passes before there is a prompt."""

    def __init__(
        self, core: Core, session: Session, launch: Launch, version: str, handle: Handle, known: Mapping[str, str]
    ) -> None:
        self.session = session
        self.launch = launch
        self.version = version
        self.handle = handle
        self.ended = asyncio.Event()
        self._known = known
        self._core = core
        self._kind = core.kind(session.agent)
        self._agent = agent_of(session, GENERATION, handle)
        self._attachment: Attachment | None = None
        self._channel: Channel | None = None
        self._pump: asyncio.Task[None] | None = None
        self._unanswered: dict[str, int] = {}  # control request → where its line begins
        self._read = 0
        self._written = 0
        self._reply = b""
        self._hook_table = ""

    async def open(self) -> None:
        """Return when it takes prompts. Raises what `Executor.attach` raises, and TimeoutError."""
        await self._kind.prepare()
        self._attachment = await self._core.executor.attach(self.handle, epoch=self._core.fence, offset=0)
        self._channel = self._kind.channel(self._agent, self)
        self._pump = asyncio.create_task(self._listen(), name=f"warm-{self.session.id}")
        async with asyncio.timeout(READY_WITHIN_S):
            await self._channel.open()
            # The first time takes a fifth of a second, which is not to be taken from a session's.
            await self._channel.set_variables(self._known)

    async def _listen(self) -> None:
        assert self._attachment is not None
        assert self._channel is not None
        try:
            async for line in self._attachment:
                frame = self._kind.read(self._agent, line.start, line.end, line.data)
                for fact in frame.facts:
                    match fact:
                        case ControlAsked(id=control_id):
                            self._unanswered[control_id] = line.start
                        case Initialized(reply=reply):
                            self._reply = reply
                self._read = line.end
                if frame.control is not None:
                    self._channel.feed(frame.control)
        except RametError as error:
            log.warning("warm agent", session=self.session.id, error=error.message)
        finally:
            self.ended.set()

    async def tell(self, session: Session, around: Mapping[str, str]) -> None:
        """Bring it to what the session wants. Raises TimeoutError, and what the keeper raises."""
        channel = self._channel
        assert channel is not None
        async with asyncio.timeout(TOLD_WITHIN_S):
            await channel.set_variables(around)
            if session.mode != self.session.mode:
                await channel.set_mode(session.mode)
            if session.model != self.session.model:
                await channel.set_model(session.model)

    async def release(self) -> Taken:
        """Let go of it. What it asked and was not answered is read again by whoever takes it over."""
        await self.close()
        offset = min(self._unanswered.values(), default=self._read)
        return Taken(self.handle, offset, self._written, self._reply, self._hook_table)

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        if self._channel is not None:
            await self._channel.close()
        if self._attachment is not None:
            await self._attachment.close()

    # ── ChannelIO ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def write(self, line: bytes) -> None:
        assert self._attachment is not None
        self._written = max(self._written, await self._attachment.write(line))

    async def answer(self, control_id: str, line: bytes) -> None:
        await self.write(line)
        self._unanswered.pop(control_id, None)

    async def decide(self, control_id: str) -> Decision:
        return Decision(allow=False, message="There is no session yet.")

    async def guard(self, use: ToolUse) -> Judged:
        return Judged("deny", "There is no session yet.")

    async def judge_result(self, use: ToolUse) -> str:
        return ""

    async def use_tools(self, control_id: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        return await self._core.use_tools(self.session.id, f"{self.session.id}:{GENERATION}:{control_id}", message)

    def failed(self, error: BaseException) -> None:
        log.error("control channel of a warm agent", session=self.session.id, exc_info=error)

    async def initialized(self, hook_table: str) -> None:
        self._hook_table = hook_table


@dataclass(slots=True)
class Warmer:
    """All warm agents, by the id of the spare, which is that of the session that claims it."""

    core: Core
    _starting: dict[str, tuple[str, asyncio.Task[str]]] = field(default_factory=dict)  # with the conversation
    _agents: dict[str, _Warm] = field(default_factory=dict)
    _endings: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    async def recover(self) -> None:
        """Begin to end what a former daemon left; whoever needs one of their ids waits for that (`end`)."""
        core = self.core
        for handle in await asyncio.to_thread(core.executor.discover):
            place = Place.from_handle(handle)
            if place.generation == GENERATION and not await core.store.read(
                lambda reader, of=place.session, handle=handle: reader.agents.holds(of, handle)  # type: ignore[misc]
            ):
                self._begin_ending(place.session, self._end_process(handle))

    async def stop(self) -> None:
        """End all of them: they have no work that they would live on for."""
        for timer in self._timers.values():
            timer.cancel()
        for session_id in (*self._starting, *self._agents):
            self.discard(session_id)
        while under_way := [*(task for _, task in self._starting.values()), *self._endings.values()]:
            await asyncio.wait(under_way)

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
        sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo.id))
        if not sessions:
            return "a warm agent gets the environment of the newest session, and there is none"
        newest = max(sessions, key=lambda each: each.create_time)
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
            launch = await launch_of(core, session, repo, around=known, briefing=BRIEFING, environment_of=newest.id)
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
        warm = _Warm(core, session, launch, version, handle, known)
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
        if self.conversation_of(session.id) and after is not None:
            loop = asyncio.get_running_loop()
            self._timers[session.id] = loop.call_later(after, self.discard, session.id)

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

    async def _fits(self, warm: _Warm, session: Session, repo: Repo) -> bool:
        core = self.core
        if warm.ended.is_set() or session.conversation_begun or session.agent != warm.session.agent:
            return False
        if (session.mode == Mode.BYPASS) != (warm.session.mode == Mode.BYPASS):
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

    async def _end_of(self, warm: _Warm) -> None:
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
        core = self.core
        try:
            await core.executor.end(handle, END_GRACE_S, epoch=core.fence)
            await core.executor.destroy(handle)
        except NotFoundError:
            return
        except RametError as error:
            # Tried again when the daemon starts; `doctor` tells of it until then.
            log.warning("a warm agent could not be ended", handle=handle, error=error.message)


def _fixed(session: Session, repo: Repo) -> dict[str, str]:
    """What a spare knows already of where it is."""
    return {"RAMET_WORKTREE": str(session.worktree), "RAMET_REPO_ROOT": str(repo.root)}
