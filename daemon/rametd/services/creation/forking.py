"""Forking a session: the same conversation and the same files, in a worktree and branch of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rametd.domain.checkpoints import Checkpoint, CheckpointReason, ConversationCut
from rametd.domain.errors import WrongStateError
from rametd.domain.models import Session
from rametd.domain.states import BUSY_STATES, State
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.wanted import Created, Fork, NewSession
from rametd.services.worktrees.checkpoints import Checkpointer, find_checkpoint
from rametd.store import Unit


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller wants; ``checkpoint`` "" is the files as they are, also in the middle of a turn."""

    prompt: str = ""
    checkpoint: str = ""
    name: str = ""
    branch: str = ""


class Forker:
    def __init__(self, core: Core, creator: Creator, checkpointer: Checkpointer) -> None:
        self._core = core
        self._creator = creator
        self._checkpointer = checkpointer

    async def fork(
        self, session: Session, wanted: Wanted, principal: str, remember: Callable[[Unit, Session], None]
    ) -> Created:
        """Raises `WrongStateError` for an archived session, and what creating one raises."""
        core = self._core
        if session.state == State.ARCHIVED:
            raise WrongStateError(
                f"{session.name} is archived", hint=f"bring it back with `rametctl restore {session.name}`"
            )
        if wanted.checkpoint:
            checkpoint = await core.store.read(lambda reader: find_checkpoint(reader, session, wanted.checkpoint))
        else:
            checkpoint = await self._checkpointer.make(session.id, CheckpointReason.FORK, principal=principal)
        environment = await asyncio.to_thread(core.environments.read, session.id) or {}
        # A checkpoint is in the repository: the tree that it was made of may be gone.
        there = await asyncio.to_thread(session.worktree.is_dir)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))

        def remember_all(unit: Unit, made: Session) -> None:
            if (source := conversation_of(session, checkpoint, whole=not wanted.checkpoint)) is not None:
                unit.conversation_cuts.put(ConversationCut(made.id, *source))
            remember(unit, made)

        new = NewSession(
            path=session.worktree if there else repo.root,
            prompt=wanted.prompt,
            name=wanted.name or await self._free_name(session),
            branch=wanted.branch,
            agent=session.agent,
            model=session.model,
            mode=session.mode,
            budget_usd=session.budget_usd,
            owns=session.owns,
            forbids=session.forbids,
            priority=session.priority,
            environment=environment,
            principal=principal,
            fork=Fork(session, checkpoint.commit, checkpoint.head),
            remember=remember_all,
        )
        return await self._creator.create(new)

    async def _free_name(self, session: Session) -> str:
        names = await self._core.store.read(
            lambda reader: {each.name for each in reader.sessions.list(repo_id=session.repo_id, include_archived=True)}
        )
        number = 2
        while f"{session.name}-{number}" in names:
            number += 1
        return f"{session.name}-{number}"


def conversation_of(session: Session, checkpoint: Checkpoint, *, whole: bool) -> tuple[str, str] | None:
    """Where the conversation of a fork comes from, and the last message of it that counts, "" for all; None where there is none.

    In the middle of a turn it is what was said up to the last one that ended: the rest is still being written.
    """
    if whole and session.conversation_begun and session.state not in BUSY_STATES:
        return session.conversation_id, ""
    return (checkpoint.conversation_id, checkpoint.message_id) if checkpoint.message_id else None
