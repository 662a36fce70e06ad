"""What an agent may do with the sessions of its family. The owner, for whom every session is family, may do it too."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ramet.v1 import event_pb2, orchestration_pb2

from rametd.domain.errors import InvalidInputError, NotAllowedError, PromptTooLargeError, TooManyMessagesError
from rametd.domain.models import OWNER, Mode, Prompt, PromptState, Session
from rametd.services import budgets, family
from rametd.services.core import Core
from rametd.services.creation.checks import check_prompt
from rametd.services.creation.creator import Creator
from rametd.services.creation.wanted import Created, NewSession
from rametd.services.delivery import SESSION, sender_of
from rametd.services.lifecycle import log_update
from rametd.services.lookup import find_session
from rametd.services.mail import outcome, post
from rametd.services.sessions import Sessions
from rametd.services.views import MODES, stamp
from rametd.store import Reader, Unit

MESSAGE_LIMIT = 16 << 10
MESSAGES_PER_MINUTE = 20
HOPS = 8
"""Messages in a row that answer messages: beyond them two agents would be chatting with nobody listening."""
LAST_WORDS = 2000
PARENT = "parent"

Remember = Callable[[Unit, Session], None]


@dataclass(frozen=True, slots=True)
class Spawn:
    """What a session wants of a child; None and empty mean "as mine"."""

    prompt: str
    name: str = ""
    base: str = ""
    model: str = ""
    mode: Mode | None = None
    budget_usd: float | None = None
    owns: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    branch: str = ""
    notify: bool = False


class Orchestration:
    def __init__(self, core: Core, creator: Creator, sessions: Sessions) -> None:
        self._core = core
        self._creator = creator
        self._sessions = sessions

    async def spawn(self, parent_id: str, spawn: Spawn, remember: Remember) -> Created:
        """Make a child within the caps. Raises `CapReachedError`, `ModeTooLooseError`, `BudgetTooHighError`, `PathsNotOwnedError`."""
        core = self._core
        check_prompt(spawn.prompt)

        def prepare(reader: Reader) -> tuple[Session, family.Inheritance]:
            parent = reader.sessions.get(parent_id)
            # Checked here to refuse before anything is made, and again where the row is stored, when nobody else can come between.
            family.check_caps(reader, parent, core.config.caps)
            family.check_rate(reader, parent, core.config.caps, core.clock())
            left = budgets.left(reader, parent)
            return parent, family.inherit(
                parent, mode=spawn.mode, budget_usd=spawn.budget_usd, left=left, owns=spawn.owns
            )

        parent, inherited = await core.store.read(prepare)

        def admit(unit: Unit, session: Session) -> None:
            family.check_caps(unit, parent, core.config.caps)
            family.check_rate(unit, parent, core.config.caps, core.clock())
            unit.spawns.add(session.id, session.root_id, parent.id)

        environment = await asyncio.to_thread(core.environments.read, parent.id) or {}
        return await self._creator.create(
            NewSession(
                path=parent.worktree,
                prompt=spawn.prompt,
                name=spawn.name,
                branch=spawn.branch,
                base_ref=spawn.base,
                agent=parent.agent,
                model=spawn.model or parent.model,
                mode=inherited.mode,
                budget_usd=inherited.budget_usd,
                owns=inherited.owns,
                forbids=tuple(dict.fromkeys((*parent.forbids, *spawn.forbids))),
                parent=parent.id,
                priority=parent.priority,
                after=spawn.after,
                notify_parent=spawn.notify,
                environment=environment,
                principal=SESSION + parent.id,
                admit=admit,
                remember=remember,
            )
        )

    async def send(
        self,
        caller_id: str,
        name: str,
        text: str,
        remember: Callable[[Unit, orchestration_pb2.SendMessageResponse], None],
    ) -> orchestration_pb2.SendMessageResponse:
        """Say something to a session; ``caller_id`` is "" for the owner. Raises `TooManyMessagesError`, `NotAllowedError`."""
        check_prompt(text)
        if len(text.encode()) > MESSAGE_LIMIT:
            raise PromptTooLargeError(
                f"the message is over {MESSAGE_LIMIT:,} bytes", hint="write it into a file and name the file"
            )

        def work(unit: Unit) -> orchestration_pb2.SendMessageResponse:
            caller = unit.sessions.get(caller_id) if caller_id else None
            member = find_member(unit, caller, name)
            if caller is not None and caller.id == member.id:
                raise InvalidInputError("that is yourself", hint="name another session")
            hops = 0
            if caller is not None:
                hops = next_hop(unit, caller)
                if unit.prompts.said_since(SESSION + caller.id, unit.now - family.MINUTE) >= MESSAGES_PER_MINUTE:
                    raise TooManyMessagesError(
                        f"you have sent {MESSAGES_PER_MINUTE} messages within a minute", hint="go on with your own work"
                    )
            words = outcome(member)
            kind = self._core.kind(member.agent)
            prompt, member = post(
                unit, kind, member, text, SESSION + caller.id if caller is not None else OWNER, hops=hops
            )
            response = orchestration_pb2.SendMessageResponse(message=message_of(unit, prompt), outcome=words)
            remember(unit, response)
            return response

        response = await self._core.store.write(work)
        self._core.failpoint.hit("message.committed")
        self._core.wake_session(response.message.to_id)
        return response

    async def report(self, caller_id: str, text: str, remember: Remember) -> Session:
        """Store what came of a session's task; the last report counts."""
        if not caller_id:
            raise InvalidInputError("only a session reports a result", hint="use this inside a session")
        if len(text.encode()) > MESSAGE_LIMIT:
            raise PromptTooLargeError(f"the report is over {MESSAGE_LIMIT:,} bytes", hint="be brief, and name files")

        def work(unit: Unit) -> Session:
            session = unit.sessions.update(caller_id, result=text)
            log_update(unit, session, ["result"], SESSION + caller_id)
            remember(unit, session)
            return session

        return await self._core.store.write(work)

    async def stop(self, caller_id: str, name: str) -> Session:
        """End the agent of a descendant, or of any session for the owner."""

        def find(reader: Reader) -> Session:
            caller = reader.sessions.get(caller_id) if caller_id else None
            member = find_member(reader, caller, name)
            if caller is not None:
                family.require_descendant(reader, caller, member)
            return member

        member = await self._core.store.read(find)
        return await self._sessions.stop(member.id, SESSION + caller_id if caller_id else OWNER)


def find_member(reader: Reader, caller: Session | None, name: str) -> Session:
    """The session a caller names: "parent", an id, a prefix or a name, of its own family. Raises `NotAllowedError` for others."""
    if caller is None:
        return find_session(reader, name)
    if name == PARENT:
        if not caller.parent_id:
            raise NotAllowedError("no session spawned you", hint="the person reads what you say")
        return reader.sessions.get(caller.parent_id)
    member = find_session(reader, name, repo_id=caller.repo_id)
    family.require_family(reader, caller, member)
    return member


def next_hop(reader: Reader, caller: Session) -> int:
    """One more than what the caller answers to; raises `TooManyMessagesError` for a chain without end."""
    received = [prompt for prompt in reader.prompts.list(caller.id) if prompt.state == PromptState.RECEIVED]
    hops = received[-1].hops + 1 if received and sender_of(received[-1].source) else 1
    if hops > HOPS:
        raise TooManyMessagesError(
            f"{HOPS} messages in a row have answered each other", hint="end your turn: the person can go on from here"
        )
    return hops


def member_of(reader: Reader, caller: Session | None, session: Session) -> orchestration_pb2.Member:
    return orchestration_pb2.Member(
        id=session.id,
        name=session.name,
        relation=family.relation(reader, caller, session),
        state=session.state.value,
        reason=session.state_reason,
        branch=session.branch,
        worktree=str(session.worktree),
        parent_id=session.parent_id,
        turns=session.turns,
        cost_usd=session.cost_usd,
        budget_usd=session.budget_usd,
        last_words=last_words(reader, session.id)[:LAST_WORDS],
        result=session.result,
        model=session.model,
        mode=MODES[session.mode],
    )


def last_words(reader: Reader, session_id: str) -> str:
    """The last text that the agent itself (no subagent) said."""
    found = reader.events.list(session_id=session_id, kinds=("assistant_message",), limit=30, newest=True)
    for event in reversed(found):
        said = event_pb2.Event.FromString(event.payload).assistant_message
        words = "".join(block.text for block in said.blocks)
        if words and not said.parent_tool_use_id:
            return words
    return ""


MESSAGE_STATES = {
    PromptState.QUEUED: orchestration_pb2.MESSAGE_STATE_QUEUED,
    PromptState.SENT: orchestration_pb2.MESSAGE_STATE_SENT,
    PromptState.RECEIVED: orchestration_pb2.MESSAGE_STATE_RECEIVED,
    PromptState.CANCELLED: orchestration_pb2.MESSAGE_STATE_UNSPECIFIED,
}


def message_of(reader: Reader, prompt: Prompt) -> orchestration_pb2.Message:
    sender_id = sender_of(prompt.source)
    sender = reader.sessions.find(sender_id) if sender_id else None
    return orchestration_pb2.Message(
        id=prompt.id,
        from_id=sender_id or prompt.source,
        from_name=sender.name if sender is not None else prompt.source,
        to_id=prompt.session_id,
        to_name=reader.sessions.get(prompt.session_id).name,
        text=prompt.text,
        state=MESSAGE_STATES[prompt.state],
        create_time=stamp(prompt.create_time),
        receive_time=stamp(prompt.receive_time),
    )


TRANSCRIPT_KINDS = ("assistant_message", "user_message", "turn_ended", "prompt_queued")


def transcript(reader: Reader, session_id: str, max_bytes: int) -> tuple[str, bool]:
    """The newest part of what was said and done, in lines, and whether something older was left out."""
    lines: list[str] = []
    size = 0
    found = reader.events.list(session_id=session_id, kinds=TRANSCRIPT_KINDS, limit=1000, newest=True)
    for event in reversed(found):
        text = transcript_line(event_pb2.Event.FromString(event.payload))
        if text:
            size += len(text.encode()) + 1
            if size > max_bytes:
                return "\n".join(reversed(lines)), True
            lines.append(text)
    return "\n".join(reversed(lines)), len(found) == 1000


def transcript_line(event: event_pb2.Event) -> str:
    match event.WhichOneof("payload"):
        case "assistant_message":
            parts = []
            for block in event.assistant_message.blocks:
                if block.text:
                    parts.append(block.text)
                elif block.HasField("tool_call"):
                    parts.append(f"[calls {block.tool_call.tool} {block.tool_call.input_json[:500]}]")
            return "\n".join(parts)
        case "user_message":
            return "\n".join(f"[gets {result.text[:500]}]" for result in event.user_message.results)
        case "prompt_queued":
            return f"[{event.prompt_queued.prompt.source} says] {event.prompt_queued.prompt.text[:2000]}"
        case "turn_ended":
            return f"[turn ended: {event.turn_ended.subtype}]"
    return ""
