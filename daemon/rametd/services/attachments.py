"""Attach: a person opens a session's conversation in the agent's own program. Meanwhile Ramet runs
no agent for it.

Two programs must never write one conversation. The right to write it is a lease: a row with the pid
and start time of a process. The client takes the lease for itself, then replaces itself by the
agent's program with exec, which preserves pid and start time. So the daemon never watches the wrong
process: a client that is killed before its exec looks like a killed program. When the process has
ended, the daemon imports its turns, and the session continues. A restarted daemon reads the row.
"""

import asyncio
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from ramet.v1 import event_pb2
from ramet.words import plural

from rametd.agents.base import AgentKind, Launch, NativeStart, Outside
from rametd.domain.errors import InvalidInputError, WrongStateError
from rametd.domain.models import OWNER, Agent, AgentState, Attachment, Hold, Session
from rametd.domain.states import BUSY_STATES, State
from rametd.platform import processes
from rametd.services import environments, events
from rametd.services.agents.launching import environment_of
from rametd.services.agents.projection import Projection
from rametd.services.agents.stopping import end_agent
from rametd.services.agents.supervisor import Supervisor
from rametd.services.agents.transcripts import Transcripts, last_home
from rametd.services.briefing import briefing
from rametd.services.core import Core, Policy
from rametd.services.delivery import TURN_STATES
from rametd.services.hooks import SessionHooks
from rametd.services.lifecycle import change_state, held_by_person, refuse_attached
from rametd.services.missing import require_tree
from rametd.services.operations import refuse_busy
from rametd.services.sessions import Sessions
from rametd.services.tasks import Tasks
from rametd.services.trust.refusals import untrusted_files
from rametd.services.views import prompt_message
from rametd.store import Reader, Unit

GENERATION = 0
OUTSIDE = "outside of Ramet"


class OutsideProjection(Projection):
    """Applies lines of past turns: no turn runs, and none ends now."""

    def flush(self) -> None:
        self._stored = self.agent  # there is no row
        super().flush()

    def _work(self) -> None:
        pass

    def _end_turn(self) -> None:
        pass


def import_turns(
    unit: Unit, kind: AgentKind, session: Session, outside: Outside, policy: Policy, place: str
) -> Session:
    """Store the turns with their events and costs. Skip turns whose prompt is stored already."""
    fresh = [turn for turn in outside.turns if unit.prompts.get(turn.prompt_id) is None]
    at = {"session_id": session.id, "repo_id": session.repo_id}
    if fresh:
        words = f"the session now includes {plural(len(fresh), 'turn')} made {place}"
        unit.events.append(events.make(event_pb2.Warning(message=words), **at))
    agent = Agent(session.id, GENERATION, AgentState.EXITED, unit.now)
    for turn in fresh:
        prompt = unit.prompts.add(turn.prompt_id or str(uuid.uuid4()), session.id, turn.prompt, OWNER)
        payload = event_pb2.PromptQueued(prompt=prompt_message(prompt))
        unit.events.append(events.make(payload, principal=OWNER, **at))
        projection = OutsideProjection(unit, session, replace(agent), policy)
        offset = 0
        for line in turn.lines:
            projection.apply(kind.read(agent, offset, offset + len(line), line))
            offset += len(line)
        projection.flush()
        session = unit.sessions.get(session.id)
    return session


log = structlog.get_logger()

LOOK_S = 0.5
"""Interval in seconds at which to check the attached process."""


@dataclass(frozen=True, slots=True)
class _Bound:
    hooks: SessionHooks
    supervisor: Supervisor
    sessions: Sessions


Place = tuple[Path | None, int]
"""Directory of a conversation, if a process reported it, and the number of its stored results."""


class Attachments:
    """At most one lease for each session."""

    def __init__(self, core: Core, transcripts: Transcripts) -> None:
        self._core = core
        self._transcripts = transcripts
        self._tasks = Tasks("attached", self._follow_later)
        self._bound: _Bound | None = None

    def bind(self, hooks: SessionHooks, supervisor: Supervisor, sessions: Sessions) -> None:
        """Set the services that need this object's hook `before_launch`."""
        self._bound = _Bound(hooks, supervisor, sessions)

    @property
    def _with(self) -> "_Bound":
        assert self._bound is not None, "it is bound before recovery"
        return self._bound

    async def recover(self) -> None:
        """Watch the attached processes of a former daemon."""
        for attachment in await self._core.store.read(lambda reader: reader.attachments.living()):
            self._follow(attachment.session_id)

    async def close(self) -> None:
        """Stop watching; the rows stay."""
        await self._tasks.close()

    # ── attach ────────────────────────────────────────────────────────────────────────────────────

    async def attach(
        self, session_id: str, pid: int, terminal: str, mcp_command: Sequence[str], *, interrupt: bool
    ) -> Launch:
        """Lease the conversation to a process, end the session's agent, and return the program for
        exec.

        A repeated call of the same process continues. Without ``interrupt``, raise
        `WrongStateError` while a turn runs.
        """
        core = self._core
        found = await asyncio.to_thread(_of_this_user, pid)
        await self._with.supervisor.settled(session_id)
        session = await self._get(session_id)
        await require_tree(core, session)
        if session.state in TURN_STATES and interrupt:
            await self._with.sessions.interrupt(session_id)
        boot = await asyncio.to_thread(processes.boot_id)

        def lease(unit: Unit) -> Session:
            session = unit.sessions.get(session_id)
            now = unit.attachments.get(session_id)
            if (now.pid, now.start) == (found.pid, found.start):
                return session
            refuse_attached(unit, session)
            refuse_busy(unit, session)
            if session.state in BUSY_STATES:
                raise WrongStateError(
                    f"{session.name} is {session.state}",
                    hint="wait until its turn ends, or add --interrupt to end it now",
                )
            wanted = replace(
                now, pid=found.pid, start=found.start, boot=boot, terminal=terminal, hold=session.hold,
                taken_until=max(now.taken_until, session.create_time),
            )  # fmt: skip
            return _lease(unit, session, wanted)

        session = await core.store.write(lease)
        core.failpoint.hit("attach.leased")
        self._follow(session_id)
        await end_agent(core, self._with.supervisor, session, "attach")
        core.failpoint.hit("attach.ended")
        return await self._native(await self._get(session_id), mcp_command)

    async def _native(self, session: Session, mcp_command: Sequence[str]) -> Launch:
        core = self._core

        repo, text, cut, rules = await core.store.read(
            lambda reader: (
                reader.repos.get(session.repo_id),
                briefing(reader, session),
                reader.conversation_cuts.get(session.id),
                reader.rules.applicable(session),
            )
        )
        around = await environments.of_session(core, session, repo)
        environment = await environment_of(core, session, around)
        kind = core.kind(session.agent)
        if not await self._transcripts.provide(session, cut, kind.conversation_home(environment)):
            raise WrongStateError(
                f"the conversation of {session.name} is gone", hint="its next prompt starts a new one, with a summary"
            )
        start = NativeStart(
            trusted=repo.trusted and not await untrusted_files(core, repo, session.worktree, session.agent),
            environment=environment,
            briefing=text,
            cut=None if session.conversation_lost else cut,
            rules={
                effect: tuple(rule.text for rule in rules if rule.effect == effect)
                for effect in ("allow", "ask", "deny")
            },
            mcp_command=tuple(mcp_command),
        )
        return kind.native(session, start)

    # ── detach ────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, session_id: str) -> None:
        if session_id not in self._tasks:
            self._tasks.start(session_id, self._watch(session_id))

    def _follow_later(self, session_id: str) -> None:
        asyncio.get_running_loop().call_later(LOOK_S, self._follow, session_id)

    async def _watch(self, session_id: str) -> None:
        while True:
            attachment = await self._core.store.read(lambda reader: reader.attachments.get(session_id))
            if not attachment.pid:
                return
            if not await asyncio.to_thread(processes.is_alive, attachment.pid, attachment.start, attachment.boot):
                await self._with.supervisor.settled(session_id)
                await self._take_back(attachment)
            await asyncio.sleep(LOOK_S)

    async def _take_back(self, attachment: Attachment) -> None:
        """End a lease whose process is gone: import its turns, and continue the session."""
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.find(attachment.session_id))
        if session is None:
            return
        kind = core.kind(session.agent)
        outside, _ = await self._look(
            session, attachment, await core.store.read(lambda reader: _place(reader, session))
        )
        core.failpoint.hit("attach.over")

        def work(unit: Unit) -> Session:
            now = unit.attachments.get(session.id)
            if (now.pid, now.start) != (attachment.pid, attachment.start):
                return unit.sessions.get(session.id)
            unit.attachments.put(Attachment(session.id, taken_until=outside.until))
            place = f"at {now.terminal}" if now.terminal else OUTSIDE
            taken = import_turns(unit, kind, unit.sessions.get(session.id), outside, core.policy, place)
            if now.hold == Hold.PERSON:
                return change_state(unit, taken, State.PAUSED, reason=held_by_person(taken), hold=Hold.PERSON)
            waits = unit.prompts.queued(taken.id)
            return change_state(unit, taken, State.QUEUED if waits or taken.interrupted else State.IDLE)

        after = await core.store.write_for_sure(work)
        core.failpoint.hit("attach.taken")
        self._settle(after, outside)
        core.live.schedule()

    def _settle(self, session: Session, outside: Outside) -> None:
        if outside.turns:
            self._with.hooks.turn_ended(session)

    # ── conversations resumed by hand ─────────────────────────────────────────────────────────────

    async def before_launch(self, session: Session) -> None:
        """Import turns that a person made outside of Ramet. If a process has the conversation open,
        hold the session and raise `WrongStateError`."""
        core = self._core
        if not session.conversation_begun:
            return
        attachment, place = await core.store.read(
            lambda reader: (reader.attachments.get(session.id), _place(reader, session))
        )
        attachment = replace(attachment, taken_until=max(attachment.taken_until, session.create_time))
        outside, stranger = await self._look(session, attachment, place)
        if stranger is not None:
            boot = await asyncio.to_thread(processes.boot_id)
            wanted = replace(attachment, pid=stranger.pid, start=stranger.start, boot=boot, terminal="", hold=Hold.NONE)
            await core.store.write(lambda unit: _lease(unit, unit.sessions.get(session.id), wanted))
            self._follow(session.id)
            raise WrongStateError(f"{session.name} is {wanted.place}", hint="it continues when that program ends")
        if not outside.turns:
            return
        kind = core.kind(session.agent)

        def work(unit: Unit) -> Session:
            unit.attachments.put(replace(attachment, taken_until=outside.until))
            return import_turns(unit, kind, unit.sessions.get(session.id), outside, core.policy, OUTSIDE)

        self._settle(await core.store.write(work), outside)

    async def before_prompt(self, session_id: str) -> None:
        """End an idle agent whose conversation a person has continued, or has open, outside of
        Ramet. The next process reads all of it."""
        core = self._core
        if session_id not in core.live:
            return

        def find(reader: Reader) -> tuple[Session, Attachment, Place]:
            session = reader.sessions.get(session_id)
            return session, reader.attachments.get(session_id), _place(reader, session)

        session, attachment, place = await core.store.read(find)
        if session.state in BUSY_STATES or not session.conversation_begun:
            return
        since = replace(attachment, taken_until=max(attachment.taken_until, session.create_time))
        outside, stranger = await self._look(session, since, place)
        if outside.turns or stranger is not None:
            await end_agent(core, self._with.supervisor, session, "outside")

    async def _look(
        self, session: Session, attachment: Attachment, place: Place
    ) -> tuple[Outside, processes.Process | None]:
        """Return the turns that a person made outside of Ramet, and the living process of another
        agent program in the conversation."""
        kind, (home, results) = self._core.kind(session.agent), place
        if home is None:
            home = kind.conversation_home(await environment_of(self._core, session, {}))

        def look(home: Path = home) -> tuple[Outside, list[processes.Process]]:
            users = [(processes.find(pid), start) for pid, start in kind.users(session.conversation_id, home)]
            living = [each for each, start in users if each is not None and each.start == start and not each.zombie]
            return kind.outside(session.conversation_id, home, attachment.taken_until, results), living

        outside, living = await asyncio.to_thread(look)
        agent = self._core.live.get(session.id) if living else None
        own = await agent.agent_pid() if agent is not None else 0
        return outside, next((each for each in living if each.pid != own), None)

    async def _get(self, session_id: str) -> Session:
        return await self._core.store.read(lambda reader: reader.sessions.get(session_id))


def _place(reader: Reader, session: Session) -> Place:
    return last_home(reader, session), reader.ledger.results(session.id, GENERATION)


def _lease(unit: Unit, session: Session, attachment: Attachment) -> Session:
    unit.attachments.put(attachment)
    agent = unit.agents.latest(session.id)
    if agent is not None and agent.state in {AgentState.STARTING, AgentState.LIVE}:
        unit.agents.update(session.id, agent.generation, stop_intent="attach")
    return change_state(unit, session, State.PAUSED, reason=attachment.place, hold=Hold.ATTACHED)


def _of_this_user(pid: int) -> processes.Process:
    """Find a process. Raises `InvalidInputError` if there is none, or it is another user's."""
    found = processes.find(pid) if pid > 1 else None
    proc = Path(f"/proc/{pid}")
    if found is None or found.zombie or (proc.exists() and proc.stat().st_uid != os.geteuid()):
        raise InvalidInputError(f"you have no process {pid} on this machine", hint="attach on the daemon's machine")
    return found
