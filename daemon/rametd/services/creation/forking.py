"""Fork a session: the same conversation and files, in another worktree and branch.

A fork starts from a checkpoint of the original. An operation creates this checkpoint, and ends in
the unit of work that stores the fork's row. If the fork is refused, or the daemon is killed before
that, the checkpoint is dropped.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rametd.agents.base import require
from rametd.domain.checkpoints import Checkpoint, CheckpointReason, ConversationCut
from rametd.domain.models import Session
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import BUSY_STATES
from rametd.services.agents.transcripts import Transcripts, gone
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.request import Created, Fork, NewSession
from rametd.services.environments import variables_of
from rametd.services.lifecycle import refuse_archived
from rametd.services.missing import require_tree
from rametd.services.operations import new_operation
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.history import find_checkpoint
from rametd.store import Unit


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A request to fork. ``checkpoint`` "": the present files, even in the middle of a turn."""

    prompt: str = ""
    checkpoint: str = ""
    name: str = ""
    branch: str = ""
    agent: str = ""  # another kind, which continues from a summary of the conversation
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # the caller's


class Forker:
    def __init__(self, core: Core, creator: Creator, checkpointer: Checkpointer) -> None:
        self._core = core
        self._creator = creator
        self._checkpointer = checkpointer
        core.operations.handle(Kind.FORK, self._undo)

    async def fork(
        self, session: Session, request: ForkRequest, principal: str, remember: Callable[[Unit, Session], object]
    ) -> Created:
        """Fork a session. Raise `WrongStateError` for an archived one, and what `Creator.create`
        raises."""
        refuse_archived(session)
        if session.conversation_begun and not request.agent:
            require(
                self._core.kind(session.agent),
                "fork",
                hint="`--agent KIND` continues from a summary of the conversation",
            )
        if request.checkpoint:
            found = await self._core.store.read(lambda reader: find_checkpoint(reader, session, request.checkpoint))
            return await self._create(session, request, found, principal, remember)
        await require_tree(self._core, session)
        operation = new_operation(Kind.FORK, session.id, Caller(principal))

        def note(unit: Unit, made: Checkpoint) -> None:
            unit.operations.begin(replace(operation, data={"checkpoint": made.id}))

        def remember_all(unit: Unit, made: Session) -> None:
            unit.operations.finish(operation)
            remember(unit, made)

        async with self._core.operations.within(operation):
            checkpoint = await self._checkpointer.ask(session.id, CheckpointReason.FORK, principal, note)
            self._core.failpoint.hit("fork.kept")
            return await self._create(session, request, checkpoint, principal, remember_all)

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        def look(unit: Unit) -> Checkpoint | None:
            now = unit.operations.get(operation.id)
            if now is None:
                return None
            return next(iter(unit.checkpoints.find_by_prefix(now.session_id, now.data["checkpoint"])), None)

        # Use a write, which runs after the writes that were queued before it: the store completes
        # those even if the caller hung up.
        checkpoint = await self._core.store.write(look)
        if checkpoint is not None:
            await self._checkpointer.drop(checkpoint)
        await self._core.store.write(lambda unit: unit.operations.undo(operation.id))

    async def _create(
        self,
        session: Session,
        request: ForkRequest,
        checkpoint: Checkpoint,
        principal: str,
        remember: Callable[[Unit, Session], object],
    ) -> Created:
        core = self._core
        environment = (await variables_of(core, session.id)).refreshed(request.environment)
        # The checkpoint is in the repository, even if its worktree is gone.
        there = await asyncio.to_thread(session.worktree.is_dir)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))

        source = conversation_of(session, checkpoint, latest=not request.checkpoint)
        agent = request.agent or session.agent
        handed_over = agent != session.agent or not core.kind(agent).capabilities.fork

        def remember_all(unit: Unit, made: Session) -> None:
            if source is not None:
                unit.conversation_cuts.put(ConversationCut(made.id, *source))
            remember(unit, made)

        new = NewSession(
            path=session.worktree if there else repo.root,
            prompt=request.prompt,
            name=request.name,
            branch=request.branch,
            agent=agent,
            model=session.model if agent == session.agent else "",
            effort=session.effort if agent == session.agent else "",
            mode=session.mode,
            budget_usd=session.budget_usd,
            budget_tokens=session.budget_tokens,
            owns=session.owns,
            forbids=session.forbids,
            priority=session.priority,
            environment=environment,
            principal=principal,
            fork=Fork(session, checkpoint.snapshot, checkpoint.head),
            handed_over=handed_over,
            remember=remember_all,
        )
        created = await self._creator.create(new)
        if source is not None and not handed_over and await Transcripts(core).missing(session, source[0]):
            created = replace(created, warnings=(*created.warnings, gone(created.session)))
        return created


def conversation_of(session: Session, checkpoint: Checkpoint, *, latest: bool) -> tuple[str, str] | None:
    """Conversation that a fork continues, and its last message, "" for the whole conversation; None
    if there is none.

    In the middle of a turn the fork continues from the end of the last turn: the agent is still
    writing the rest.
    """
    if latest and session.conversation_begun and session.state not in BUSY_STATES:
        return session.conversation_id, ""
    return (checkpoint.conversation_id, checkpoint.message_id) if checkpoint.message_id else None
