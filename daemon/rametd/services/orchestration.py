"""Tools with which agents use the sessions of their family, and the owner all sessions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ramet.v1 import orchestration_pb2

from rametd.domain.errors import InvalidInputError, PromptTooLargeError, TooManyMessagesError
from rametd.domain.models import OWNER, Mode, Session
from rametd.services import budgets, family
from rametd.services.checks import check_prompt
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.request import Created, NewSession
from rametd.services.delivery import SESSION, outcome, post, sender_of
from rametd.services.environments import variables_of
from rametd.services.family import find_member
from rametd.services.lifecycle import log_update
from rametd.services.members import message_of
from rametd.services.sessions import Sessions
from rametd.store import Reader, Unit

MESSAGE_LIMIT = 16 << 10
MESSAGES_PER_MINUTE = 20
HOPS = 8
"""Maximum length of a chain of messages that answer messages: two agents must not chat without
end."""

T = TypeVar("T")
Remember = Callable[[Unit, Session], object]


@dataclass(frozen=True, slots=True)
class Spawn:
    """A request for a child; None and empty values mean those of the parent."""

    prompt: str
    name: str = ""
    base: str = ""
    agent: str = ""
    model: str = ""
    mode: Mode | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
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
        """Create a child within the caps. Raises `CapReachedError`, `ModeTooLooseError`,
        `BudgetTooHighError`, `PathsNotOwnedError`."""
        core = self._core
        check_prompt(spawn.prompt)

        def prepare(reader: Reader) -> tuple[Session, family.Inheritance]:
            parent = reader.sessions.get(parent_id)
            # Check here to refuse early; the unit of work that stores the row checks again.
            family.check_caps(reader, parent, core.config.caps)
            family.check_rate(reader, parent, core.config.caps, core.clock())
            budgets.check_child(reader, core.kind(spawn.agent or parent.agent), parent)
            left = budgets.remaining(reader, parent)
            return parent, family.inherit(
                parent, mode=spawn.mode, budget_usd=spawn.budget_usd, left=left, owns=spawn.owns
            )

        parent, inherited = await core.store.read(prepare)

        def admit(unit: Unit, session: Session) -> None:
            family.check_caps(unit, parent, core.config.caps)
            family.check_rate(unit, parent, core.config.caps, core.clock())
            unit.spawns.add(session.id, session.root_id, parent.id)

        environment = await variables_of(core, parent.id)
        return await self._creator.create(
            NewSession(
                path=parent.worktree,
                prompt=spawn.prompt,
                name=spawn.name,
                branch=spawn.branch,
                base_ref=spawn.base,
                agent=spawn.agent or parent.agent,
                model=spawn.model or (parent.model if spawn.agent in {"", parent.agent} else ""),
                mode=inherited.mode,
                budget_usd=inherited.budget_usd,
                budget_tokens=spawn.budget_tokens,
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
        answer: Callable[[Unit, orchestration_pb2.SendMessageResponse], T],
    ) -> T:
        """Send a message to a session; return the result of ``answer``. ``caller_id`` is "" for the
        owner.

        Raises `TooManyMessagesError`, `NotAllowedError`.
        """
        check_prompt(text)
        if len(text.encode()) > MESSAGE_LIMIT:
            raise PromptTooLargeError(
                f"the message is over {MESSAGE_LIMIT:,} bytes", hint="write it into a file and name the file"
            )

        def work(unit: Unit) -> tuple[str, T]:
            caller = unit.sessions.get(caller_id) if caller_id else None
            member = find_member(unit, caller, name)
            if caller is not None and caller.id == member.id:
                raise InvalidInputError("a session cannot send itself a message", hint="name another session")
            hops = 0
            if caller is not None:
                hops = next_hop(unit, caller)
                if unit.prompts.count_messages(SESSION + caller.id, unit.now - family.MINUTE) >= MESSAGES_PER_MINUTE:
                    raise TooManyMessagesError(
                        f"you have sent {MESSAGES_PER_MINUTE} messages within a minute",
                        hint="continue with your own work",
                    )
            kind = self._core.kind(member.agent)
            words = outcome(kind, member)
            prompt, member = post(
                unit, kind, member, text, SESSION + caller.id if caller is not None else OWNER, hops=hops
            )
            response = orchestration_pb2.SendMessageResponse(message=message_of(unit, prompt), outcome=words)
            return member.id, answer(unit, response)

        member_id, answered = await self._core.store.write(work)
        self._core.failpoint.hit("message.committed")
        self._core.live.wake(member_id)
        return answered

    async def report(self, caller_id: str, text: str, answer: Callable[[Unit, Session], T]) -> T:
        """Store the result of a session's task, replacing an earlier one; return the result of
        ``answer``."""
        if not caller_id:
            raise InvalidInputError("only a session reports a result", hint="use this inside a session")
        if len(text.encode()) > MESSAGE_LIMIT:
            raise PromptTooLargeError(f"the report is over {MESSAGE_LIMIT:,} bytes", hint="be brief, and name files")
        if not self._core.rates.take(("report", caller_id), MESSAGES_PER_MINUTE, self._core.clock()):
            raise TooManyMessagesError(
                f"you have reported {MESSAGES_PER_MINUTE} times within a minute",
                hint="continue with your work, and report when it is done",
            )

        def work(unit: Unit) -> T:
            session = unit.sessions.update(caller_id, result=text)
            log_update(unit, session, ["result"], SESSION + caller_id)
            return answer(unit, session)

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


def next_hop(reader: Reader, caller: Session) -> int:
    """Length of the chain of messages with the caller's next one. Raises `TooManyMessagesError` if
    it is too long."""
    received = reader.prompts.received(caller.id)
    hops = received[-1].hops + 1 if received and sender_of(received[-1].source) else 1
    if hops > HOPS:
        raise TooManyMessagesError(
            f"{HOPS} messages in a row have answered each other", hint="end your turn: the person can continue"
        )
    return hops
