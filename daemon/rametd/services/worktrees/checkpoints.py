"""Checkpoints: a worktree kept as it is at the start, at the end of every turn, and when somebody asks.

**Before the next turn.** A turn's end is committed with ``turns`` raised; ``checkpointed_turns`` follows once the checkpoint is there. In between the
scheduler gives the session no work (`outstanding`), also in a daemon that is started after this one was killed: no turn begins on files of which
the last turn's end was not kept. An agent that got its next prompt while it worked begins that turn by itself: its first tool waits (`settle`, from
`Conversation.guard`), and so does whatever else would change the files or take them away. One that cannot be made is given up with a warning, so that
no session is ever stuck.
"""

import asyncio
import json
from weakref import WeakValueDictionary

import structlog
from ramet.v1 import event_pb2, worktree_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason, line_of
from rametd.domain.errors import AmbiguousError, CheckpointNotFoundError, RametError, WrongStateError
from rametd.domain.models import DAEMON, Session
from rametd.domain.states import State
from rametd.git.checkpoints import PREFIX
from rametd.git.diff import FileChange
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.services.views import stamp
from rametd.services.words import first_line
from rametd.services.worktrees.recalling import facts, recall
from rametd.store import Reader, Unit

log = structlog.get_logger()

LOOKED_AT = 200
"""Messages of an agent among which its last words are looked for: those of subagents lie between."""
REASONS = {
    CheckpointReason.TURN: worktree_pb2.CHECKPOINT_REASON_TURN,
    CheckpointReason.MANUAL: worktree_pb2.CHECKPOINT_REASON_MANUAL,
    CheckpointReason.REWIND: worktree_pb2.CHECKPOINT_REASON_REWIND,
    CheckpointReason.FORK: worktree_pb2.CHECKPOINT_REASON_FORK,
    CheckpointReason.START: worktree_pb2.CHECKPOINT_REASON_START,
}


class Checkpointer:
    """Makes checkpoints, one at a time for each session."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._skipped: dict[str, tuple[str, ...]] = {}  # by session, what its log has of files that cannot be read

    async def make(
        self, session_id: str, reason: CheckpointReason, *, tree: str | None = None, principal: str = DAEMON
    ) -> Checkpoint:
        """Keep a worktree as it is, or ``tree`` of it. Asked for by a person where nothing has changed since, it is the checkpoint before."""
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            return await self._make(session_id, reason, tree, principal)

    async def _make(self, session_id: str, reason: CheckpointReason, tree: str | None, principal: str) -> Checkpoint:
        core = self._core

        def look(reader: Reader) -> tuple[Session, Checkpoint | None, tuple[str, str], str]:
            found = reader.sessions.get(session_id)
            before = reader.checkpoints.latest(session_id)
            return found, before, _position(reader, found), _asked_for(reader, session_id)

        session, before, (conversation_id, message_id), summary = await core.store.read(look)
        if session.state == State.ARCHIVED:
            raise WrongStateError(
                f"{session.name} is archived", hint=f"bring it back with `rametctl restore {session.name}`"
            )
        before = before or await recall(core, session)
        number = 1 if before is None else before.number + 1
        ref = f"{PREFIX}{session_id}/{number}"
        # The ref first: without its row it is made again under the same number, while a row without it would promise what is not there.
        known = facts(reason, session.turns, conversation_id, message_id, summary)
        words = f"checkpoint {number} of {session.branch} ({reason})\n\n{known}"
        # A rewind reads the index anew; what is only staged would go with it.
        with_index = reason == CheckpointReason.REWIND
        kept = await core.git.keep(session.worktree, ref, words, tree, with_index=with_index)
        core.failpoint.hit(f"checkpoint.{reason}-kept")
        if tree is None:
            await self._tell_skipped(session, kept.skipped)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        same = before is not None and (before.tree, before.head) == (kept.tree, kept.head) and not kept.staged
        if before is not None and same and reason in REPEATABLE:
            await core.git.drop_refs(info, ref)
            return before
        files: tuple[FileChange, ...] = ()
        if before is not None and before.tree != kept.tree:
            files = (await core.git.diff_commits(info, before.tree, kept.tree, patch=False)).files

        def record(unit: Unit) -> Checkpoint:
            now = unit.sessions.get(session_id)
            checkpoint = Checkpoint(
                id=new_id(),
                session_id=session_id,
                number=number,
                reason=reason,
                turn=session.turns,
                commit=kept.commit,
                tree=kept.tree,
                head=kept.head,
                ref=ref,
                create_time=unit.now,
                summary=summary,
                files=len(files),
                additions=sum(file.additions for file in files),
                deletions=sum(file.deletions for file in files),
                conversation_id=conversation_id,
                message_id=message_id,
            )
            unit.checkpoints.add(checkpoint)
            if session.turns > now.checkpointed_turns:
                unit.sessions.update(session_id, checkpointed_turns=session.turns)
            made = event_pb2.CheckpointMade(checkpoint=checkpoint_message(checkpoint))
            unit.events.append(events.make(made, session_id=session_id, repo_id=session.repo_id, principal=principal))
            return checkpoint

        return await write_for_sure(core.store, record)

    async def _tell_skipped(self, session: Session, skipped: tuple[str, ...]) -> None:
        """Say once, and not at the end of every turn, what git cannot read."""
        if skipped and self._skipped.get(session.id) != skipped:
            words = f"git cannot read everything, so that no checkpoint has it: {'; '.join(skipped)}"
            warning = event_pb2.Warning(message=words)
            event = events.make(warning, session_id=session.id, repo_id=session.repo_id)
            await write_for_sure(self._core.store, lambda unit: unit.events.append(event))
        self._skipped[session.id] = skipped

    # ── what happens by itself ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def before_prompt(self, session: Session) -> None:
        """A hook of `Core`: the first prompt finds a checkpoint of where the session begins."""
        await self._recall(session)
        if await self._core.store.read(lambda reader: reader.checkpoints.latest(session.id)) is None:
            await self._try(session.id, CheckpointReason.START)

    async def after_turn(self, session: Session) -> None:
        """A hook of `Core`."""
        self.catch_up(session.id)

    def catch_up(self, session_id: str) -> None:
        """Keep the end of a session's last turn, in a task, unless that is kept or under way."""
        if session_id not in self._tasks:
            task = self._tasks[session_id] = asyncio.create_task(
                self._catch_up(session_id), name=f"checkpoint-{session_id}"
            )
            task.add_done_callback(lambda _: self._tasks.pop(session_id, None))

    async def settle(self, session_id: str) -> None:
        """Return once the end of a session's last turn is kept, or was given up. Behind `Core.kept`."""

        def owed(reader: Reader) -> bool:
            session = reader.sessions.find(session_id)
            return session is not None and session.state != State.ARCHIVED and session.checkpoint_due

        # Again, where one that was under way when the turn ended is of the turn before it.
        while await self._core.store.read(owed):
            self.catch_up(session_id)
            await asyncio.shield(self._tasks[session_id])

    async def recover(self) -> None:
        """Keep what a daemon that was killed did not get to."""
        for session in await self._core.store.read(lambda reader: reader.sessions.list()):
            await self._recall(session)
            if session.checkpoint_due:
                self.catch_up(session.id)

    async def _recall(self, session: Session) -> None:
        """Have the checkpoints of a session whose rows went with a damaged database again, where it has none."""
        try:
            async with self._locks.setdefault(session.id, asyncio.Lock()):
                if await self._core.store.read(lambda reader: reader.checkpoints.latest(session.id)) is None:
                    await recall(self._core, session)
        except RametError as error:  # its repository is gone, or cannot be read now: the next one made tries again
            log.warning("checkpoints are not entered again", session=session.id, error=error.message)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _catch_up(self, session_id: str) -> None:
        session = await self._core.store.read(lambda reader: reader.sessions.find(session_id))
        if session is not None and session.checkpoint_due and session.state != State.ARCHIVED:
            await self._try(session_id, CheckpointReason.TURN)
        self._core.wake()

    async def _try(self, session_id: str, reason: CheckpointReason) -> None:
        try:
            await self.make(session_id, reason)
        except (RametError, OSError) as error:
            words = error.message if isinstance(error, RametError) else str(error)
            log.warning("no checkpoint", session=session_id, error=words)
            await write_for_sure(self._core.store, lambda unit: _give_up(unit, session_id, words))


REPEATABLE = frozenset({CheckpointReason.MANUAL, CheckpointReason.REWIND})
"""Reasons for which an equal checkpoint will do."""


def _give_up(unit: Unit, session_id: str, words: str) -> None:
    session = unit.sessions.find(session_id)
    if session is None:
        return
    unit.sessions.update(session_id, checkpointed_turns=session.turns)
    warning = event_pb2.Warning(message=f"no checkpoint could be made: {words}")
    unit.events.append(events.make(warning, session_id=session_id, repo_id=session.repo_id))


async def drop_checkpoints(core: Core, session_id: str) -> None:
    """Forget all checkpoints of a session that is gone for good; its refs are dropped by whoever knows the repository."""
    await core.store.write(lambda unit: unit.checkpoints.remove_all(session_id))


def find_checkpoint(reader: Reader, session: Session, name: str) -> Checkpoint:
    """By number, id or unique prefix of an id. Raises `CheckpointNotFoundError`, `AmbiguousError`."""
    if name.isascii() and name.isdigit() and len(name) < 10:
        found = reader.checkpoints.by_number(session.id, int(name))
        if found is not None:
            return found
    fitting = reader.checkpoints.find_by_prefix(session.id, name) if name else []
    if len(fitting) == 1 or (fitting and fitting[0].id == name):
        return fitting[0]
    if fitting:
        matches = ", ".join(each.id for each in fitting)
        raise AmbiguousError(f"{name!r} fits several checkpoints: {matches}", hint="use the number", matches=matches)
    raise CheckpointNotFoundError(
        f"{session.name} has no checkpoint {name!r}", hint=f"`rametctl checkpoints {session.name}` shows them"
    )


def list_checkpoints(reader: Reader, session_id: str, before: int | None, limit: int) -> list[worktree_pb2.Checkpoint]:
    """The newest first, each with its place: on the line that the session goes on from, or left behind by a rewind."""
    latest = reader.checkpoints.latest(session_id)
    if latest is None:
        return []
    told = [
        event_pb2.Event.FromString(event.payload).session_rewound
        for event in reader.events.list(session_id=session_id, kinds=("session_rewound",), newest=True)
    ]
    line = line_of(latest.number, [(each.before.number, each.checkpoint.number) for each in told])
    on_it = set(line)
    messages = []
    for checkpoint in reader.checkpoints.list(session_id, before=before, limit=limit):
        message = checkpoint_message(checkpoint)
        message.abandoned, message.current = checkpoint.number not in on_it, checkpoint.number == line[0]
        messages.append(message)
    return messages


def checkpoint_message(checkpoint: Checkpoint) -> worktree_pb2.Checkpoint:
    return worktree_pb2.Checkpoint(
        id=checkpoint.id,
        session_id=checkpoint.session_id,
        number=checkpoint.number,
        reason=REASONS[checkpoint.reason],
        turn=checkpoint.turn,
        commit=checkpoint.commit,
        head=checkpoint.head,
        ref=checkpoint.ref,
        create_time=stamp(checkpoint.create_time),
        summary=checkpoint.summary,
        files=checkpoint.files,
        additions=checkpoint.additions,
        deletions=checkpoint.deletions,
    )


def _asked_for(reader: Reader, session_id: str) -> str:
    prompts = [prompt for prompt in reader.prompts.list(session_id) if prompt.source != DAEMON and prompt.receive_time]
    return first_line(prompts[-1].text) if prompts else ""


def _position(reader: Reader, session: Session) -> tuple[str, str]:
    """The conversation, and the message in it, that somebody who goes on from here goes on from."""
    words = _last_words(reader, session) if session.conversation_begun else ""
    cut = reader.conversation_cuts.get(session.id)
    if not words and cut is not None:  # it has not said anything of its own yet
        return cut.source_id, cut.message_id
    return session.conversation_id, words


def _last_words(reader: Reader, session: Session) -> str:
    """The uuid of the agent's last message in its conversation; subagents speak in others."""
    for event in reversed(
        reader.events.list(session_id=session.id, kinds=("assistant_message",), limit=LOOKED_AT, newest=True)
    ):
        message = json.loads(event.frame) if event.frame else {}
        if message.get("parent_tool_use_id") is None and isinstance(message.get("uuid"), str):
            return str(message["uuid"]) if message.get("session_id") == session.conversation_id else ""
    return ""
