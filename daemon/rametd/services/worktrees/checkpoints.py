"""Checkpoints: snapshots of a worktree at the start of a session, at the end of every turn, and on
request.

**Before the next turn.** The unit of work that ends a turn increments ``turns``;
``checkpointed_turns`` follows once the checkpoint exists. In between the scheduler gives the
session no work, also after a restart of the daemon: no turn starts before the checkpoint of the
last one. An agent that got its next prompt while it worked starts that turn by itself. The turn's
first tool call then waits for the checkpoint (`settle`, from `Conversation.guard`), and so do
operations that change or remove files. A checkpoint that fails is skipped with a warning, so that
no session is stuck.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import pairwise
from weakref import WeakValueDictionary

import structlog
from ramet.v1 import event_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import GitFailedError, RametError, RefNotFoundError
from rametd.domain.models import DAEMON, Session
from rametd.domain.states import State
from rametd.domain.text import first_line
from rametd.git import CHECKPOINTS, Depth, FileChange, Numbered, RepositoryInfo
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.lifecycle import refuse_archived
from rametd.services.operations import refuse_busy
from rametd.services.repos import info_of
from rametd.services.worktrees.history import checkpoint_message
from rametd.store import Reader, Unit


def facts(
    reason: CheckpointReason, turn: int, conversation_id: str, message_id: str, summary: str, parent: int
) -> Mapping[str, str | int]:
    """Facts in a checkpoint's snapshot, from which its row can be rebuilt."""
    return {
        "reason": reason,
        "turn": turn,
        "conversation": conversation_id,
        "message": message_id,
        "asked": summary,
        "parent": parent,
    }


async def recall(core: Core, session: Session) -> Checkpoint | None:
    """Store rows for the checkpoint refs of a session without rows; return the newest, None without
    refs.

    A daemon that was killed before it stored the row of the first checkpoint leaves a ref without a
    row too.
    """
    info = await info_of(core, session)
    taken = await core.git.snapshots.below(info, f"{CHECKPOINTS}{session.id}")
    if not taken:
        return None
    changes = [await changed_since(core, info, session, None, taken[0].snapshot.files)]
    for before, after in pairwise(taken):
        changes.append(await changed_since(core, info, session, before.snapshot.files, after.snapshot.files))
    rows = [
        _row(
            session,
            each,
            files=len(files),
            additions=sum(file.additions for file in files),
            deletions=sum(file.deletions for file in files),
        )
        for each, files in zip(taken, changes, strict=True)
    ]

    def enter(unit: Unit) -> Checkpoint | None:
        now = unit.sessions.find(session.id)
        if now is not None and unit.checkpoints.latest(session.id) is None:
            for row in rows:
                unit.checkpoints.add(row)
            # The daemon reads the agent's journal again from its start, and the turns there have
            # their checkpoints.
            kept_turns = max((row.turn for row in rows if row.reason == CheckpointReason.TURN), default=0)
            turns = max(kept_turns, now.checkpointed_turns)
            unit.sessions.update(session.id, checkpoint=rows[-1].number, checkpointed_turns=turns)
        return unit.checkpoints.latest(session.id)

    return await core.store.write_for_sure(enter)


async def changed_since(
    core: Core, info: RepositoryInfo, session: Session, before: str | None, tree: str
) -> tuple[FileChange, ...]:
    """Files that differ between a checkpoint and the tree ``before`` or, for the first checkpoint,
    the session's base."""
    if before == tree:
        return ()
    try:
        return (await core.git.diffs.between(info, before or session.base_commit, tree, patch=False)).files
    except (RefNotFoundError, GitFailedError):
        # The base was rewritten and collected, or lost in a power cut. The checkpoint is complete
        # without it.
        return ()


def _row(session: Session, found: Numbered, *, files: int, additions: int, deletions: int) -> Checkpoint:
    known = found.snapshot.facts
    reason = known.get("reason", "")
    return Checkpoint(
        id=new_id(),
        session_id=session.id,
        number=found.number,
        reason=CheckpointReason(reason) if reason in set(CheckpointReason) else CheckpointReason.MANUAL,
        turn=known.get("turn", 0),
        snapshot=found.snapshot.id,
        tree=found.snapshot.files,
        head=found.snapshot.head,
        ref=found.ref,
        create_time=found.snapshot.time,
        summary=known.get("asked", ""),
        files=files,
        additions=additions,
        deletions=deletions,
        conversation_id=known.get("conversation", session.conversation_id),
        message_id=known.get("message", ""),
        parent=known.get("parent", found.number - 1),
    )


log = structlog.get_logger()


class Flusher:
    """Syncs checkpoints to disk, one sync at a time for each repository. Requests during a sync
    share the next one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, dict[str, Session]] = {}  # by repository
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def soon(self, session: Session) -> None:
        """Sync everything that was written for a session, in a task."""
        repo_id = session.repo_id
        self._waiting.setdefault(repo_id, {})[session.id] = session
        if repo_id not in self._tasks:
            self._tasks[repo_id] = asyncio.create_task(self._run(repo_id), name=f"flush-{repo_id}")

    async def close(self) -> None:
        """Wait for running syncs."""
        await asyncio.gather(*self._tasks.values())

    async def _run(self, repo_id: str) -> None:
        try:
            while sessions := self._waiting.pop(repo_id, {}):
                await self._flush(repo_id, [*sessions.values()])
        finally:
            del self._tasks[repo_id]

    async def _flush(self, repo_id: str, sessions: Sequence[Session]) -> None:
        try:
            repo = await self._core.store.read(lambda reader: reader.repos.get(repo_id))
            await self._core.git.make_durable(repo.common_dir, *(each.worktree for each in sessions))
        except RametError as error:
            if len(sessions) > 1:  # one unreadable place fails the sync of all: find the sessions that it concerns
                for each in sessions:
                    await self._flush(repo_id, [each])
                return
            log.warning("checkpoints may not be on the disk", repo=repo_id, error=error.message)
            words = f"its newest checkpoint may not be on the disk: {error.message}"

            def warn(unit: Unit) -> None:
                for session in sessions:
                    events.warn(unit, session, words)

            await self._core.store.write_for_sure(warn)


def prompt_of(reader: Reader, session: Session, reason: CheckpointReason) -> str:
    """First line of the prompt of the present or last turn; of the first one, if the checkpoint has
    several turns. For a turn without a prompt: the last prompt before it.
    """
    asked = [each for each in reader.prompts.list(session.id) if each.source != DAEMON and each.turn]
    last = session.turns
    # A prompt that arrives before the checkpoint of a turn belongs to the next turn.
    if reason != CheckpointReason.TURN and any(each.turn > session.turns for each in asked):
        last = session.turns + 1
    first = last
    if reason == CheckpointReason.TURN:
        first -= max(session.turns - session.checkpointed_turns, 1) - 1
    taken = [each for each in asked if first <= each.turn <= last]
    before = [each for each in asked if each.turn < first]
    found = taken[:1] or before[-1:]
    return first_line(found[0].text) if found else ""


AT_ONCE = 2
"""Maximum number of checkpoints of ended turns that are created at the same time: a hundred would
delay the lines of agents at work."""


class Checkpointer:
    """Creates checkpoints, one at a time for each session."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()  # sessions whose task has to look at their turns
        self._flusher = Flusher(core)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._skipped: dict[str, tuple[str, ...]] = {}  # by session: unreadable files that a warning has named

    async def ask(
        self,
        session_id: str,
        reason: CheckpointReason,
        principal: str,
        remember: Callable[[Unit, Checkpoint], None] = lambda unit, made: None,
    ) -> Checkpoint:
        """Create a checkpoint on request; return the last one if nothing has changed since.

        ``remember`` runs in the unit of work that stores it. Raises what `still` raises.
        """
        async with self.still(session_id):
            return await self._make(session_id, reason, None, principal, remember)

    @asynccontextmanager
    async def still(self, session_id: str) -> AsyncIterator[None]:
        """Inside, the daemon does nothing else to a session's files. Raises `WrongStateError` while
        an exclusive operation has the session.

        The race: an operation is stored first, then takes the session's lock (at least in
        `settle`). A caller that has the lock and finds no operation finishes before any operation
        changes files. Without this, a requested checkpoint could mix files from before and after an
        operation.
        """
        async with self._lock(session_id):
            await self._core.store.read(lambda reader: refuse_busy(reader, reader.sessions.get(session_id)))
            yield

    async def make(
        self, session_id: str, reason: CheckpointReason, *, tree: str | None = None, principal: str = DAEMON
    ) -> Checkpoint:
        """Create a checkpoint for an operation that has the session. ``tree``: the files, if the
        caller has captured them."""
        async with self._lock(session_id):
            return await self._make(session_id, reason, tree, principal, lambda unit, made: None)

    async def first(self, session_id: str, guard: AbstractAsyncContextManager[None]) -> None:
        """Create a session's first checkpoint inside ``guard`` (`alone` or `still`), unless it has
        one. A failure is logged."""
        async with guard:
            session, latest = await self._core.store.read(
                lambda reader: (reader.sessions.find(session_id), reader.checkpoints.latest(session_id))
            )
            if session is None or session.state == State.ARCHIVED or latest is not None:
                return

            async def make() -> None:
                if await recall(self._core, session) is None:
                    await self._make(session_id, CheckpointReason.START, None, DAEMON, lambda unit, made: None)

            await self._attempt(session, make())

    def locked(self, session_id: str) -> AbstractAsyncContextManager[None]:
        """Create no other checkpoint of the session inside."""
        return self._lock(session_id)

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())

    async def _make(
        self,
        session_id: str,
        reason: CheckpointReason,
        tree: str | None,
        principal: str,
        remember: Callable[[Unit, Checkpoint], None],
    ) -> Checkpoint:
        core = self._core

        def look(reader: Reader) -> tuple[Session, Checkpoint | None, tuple[str, str], str]:
            found = reader.sessions.get(session_id)
            before = reader.checkpoints.latest(session_id)
            return found, before, position(reader, found), prompt_of(reader, found, reason)

        session, before, (conversation_id, message_id), summary = await core.store.read(look)
        refuse_archived(session)
        before = before or await recall(core, session)
        number = 1 if before is None else before.number + 1
        ref = f"{CHECKPOINTS}{session_id}/{number}"
        # Create the ref first: a ref without a row is overwritten under the same number; a row
        # without a ref would be broken.
        parent = session.checkpoint or (before.number if before is not None else 0)
        known = facts(reason, session.turns, conversation_id, message_id, summary, parent)
        depth = Depth.STAGED if reason in WAITED_FOR else Depth.FILES
        taken = await core.git.snapshots.take(
            session.worktree, ref=ref, owner=session_id, depth=depth, facts=known, tree=tree
        )
        core.failpoint.hit(f"checkpoint.{reason}-kept")
        if tree is None:
            await self._warn_of_skipped(session, taken.skipped)
        here = (taken.files, taken.head, conversation_id, message_id)
        # Do not reuse the checkpoint of a fork: it is dropped if the fork is refused.
        usable = reason in WAITED_FOR and before is not None and before.reason != CheckpointReason.FORK
        same = before is not None and before.tree == taken.files
        # Most turns change nothing, and no caller waits for their checkpoint: do not read the
        # repository then.
        info = None if same and reason in UNASKED else await info_of(core, session)
        if (
            info is not None
            and before is not None
            and usable
            and (before.tree, before.head, before.conversation_id, before.message_id) == here
            and (earlier := await core.git.snapshots.read(info, before.snapshot)) is not None
            and earlier.contents == taken.contents
            and not await core.git.snapshots.lost(info, before.snapshot)
        ):
            await core.git.refs.drop_all(info, ref)
            return before
        if reason not in UNASKED:  # a caller relies on it
            await core.git.make_durable((info or await info_of(core, session)).common_dir, session.worktree)
        files: tuple[FileChange, ...] = ()
        if info is not None:
            files = await changed_since(core, info, session, before.tree if before is not None else None, taken.files)

        def record(unit: Unit) -> Checkpoint:
            now = unit.sessions.get(session_id)
            checkpoint = Checkpoint(
                id=new_id(),
                session_id=session_id,
                number=number,
                reason=reason,
                turn=session.turns,
                snapshot=taken.id,
                tree=taken.files,
                head=taken.head,
                ref=ref,
                create_time=unit.now,
                summary=summary,
                files=len(files),
                additions=sum(file.additions for file in files),
                deletions=sum(file.deletions for file in files),
                conversation_id=conversation_id,
                message_id=message_id,
                parent=parent,
            )
            unit.checkpoints.add(checkpoint)
            turns = max(session.turns, now.checkpointed_turns)
            unit.sessions.update(session_id, checkpoint=number, checkpointed_turns=turns)
            made = event_pb2.CheckpointMade(checkpoint=checkpoint_message(checkpoint))
            events.log(unit, session, made, principal)
            remember(unit, checkpoint)
            return checkpoint

        made = await core.store.write_for_sure(record)
        if reason in UNASKED:
            self._flusher.soon(session)
        return made

    async def drop(self, checkpoint: Checkpoint) -> None:
        """Drop a checkpoint of a fork that failed. An earlier call may have done any of the
        steps."""
        core = self._core
        # Once its row is gone, another checkpoint may get its number, and so its ref.
        async with self._lock(checkpoint.session_id):
            found = await core.store.read(
                lambda reader: reader.checkpoints.by_number(checkpoint.session_id, checkpoint.number)
            )
            if found is not None and found.id != checkpoint.id:
                return
            session = await core.store.read(lambda reader: reader.sessions.find(checkpoint.session_id))
            await core.store.write_for_sure(lambda unit: unit.checkpoints.remove(checkpoint))
            core.failpoint.hit("fork.dropped")
            if session is not None:
                await core.git.refs.drop_all(await info_of(core, session), checkpoint.ref)

    def unread(self, session_id: str) -> tuple[str, ...]:
        """Git's messages about the files that the newest checkpoint of a session does not have
        because git could not read them."""
        return self._skipped.get(session_id, ())

    async def _warn_of_skipped(self, session: Session, skipped: tuple[str, ...]) -> None:
        """Warn once, not at the end of every turn, about files that git cannot read."""
        if skipped and self._skipped.get(session.id) != skipped:
            words = f"git cannot read some files, so checkpoints do not have them: {'; '.join(skipped)}"
            await self._core.store.write_for_sure(lambda unit: events.warn(unit, session, words))
        self._skipped[session.id] = skipped

    # ── after turns, and at the start ─────────────────────────────────────────────────────────────

    async def after_turn(self, session: Session) -> None:
        """A session hook."""
        self.catch_up(session.id)

    def catch_up(self, session_id: str) -> None:
        """Create the checkpoint of a session's last turn in a task, unless it exists. A running
        task looks again: it may be creating that of the turn before."""
        self._asked.add(session_id)
        if (running := self._tasks.get(session_id)) is None or running.done():
            task = self._tasks[session_id] = asyncio.create_task(
                self._catch_up(session_id), name=f"checkpoint-{session_id}"
            )
            task.add_done_callback(partial(self._caught_up, session_id))

    def _caught_up(self, session_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(session_id) is task:
            del self._tasks[session_id]

    async def settle(self, session_id: str) -> None:
        """Return once the checkpoint of the last turn exists or was skipped, and no other is being
        created."""

        def unfinished(reader: Reader) -> bool:
            session = reader.sessions.find(session_id)
            return session is not None and session.state != State.ARCHIVED and session.checkpoint_due

        # Repeat: a checkpoint that was being created when the turn ended may be that of the
        # previous turn.
        while await self._core.store.read(unfinished):
            self.catch_up(session_id)
            await asyncio.shield(self._tasks[session_id])
        async with self._lock(session_id):
            pass

    async def recover(self, but: AbstractSet[str] = frozenset()) -> None:
        """Create the checkpoints that a killed daemon did not create, except for the sessions
        ``but``, which an operation has. If the database was rebuilt, first read the checkpoints of
        all sessions from their refs.
        """
        store = self._core.store
        if await store.read(lambda reader: reader.checkpoints.recall_due()):
            for session in await store.read(lambda reader: reader.sessions.list()):
                if session.id not in but:
                    await self._recall(session)
            await store.write(lambda unit: unit.checkpoints.note_recalled())
        due = [each.id for each in await store.read(lambda reader: reader.sessions.checkpoint_due())]
        if due := [session_id for session_id in due if session_id not in but]:
            self._tasks[""] = task = asyncio.create_task(self._make_due(due), name="checkpoints-due")
            task.add_done_callback(lambda _: self._tasks.pop("", None))

    async def _make_due(self, session_ids: Sequence[str]) -> None:
        """Create due checkpoints one after another, so that a thousand of them do not delay the
        start."""
        await self._core.recovered.wait()
        for session_id in session_ids:
            await self.settle(session_id)

    async def _recall(self, session: Session) -> None:
        """Read the checkpoints of a session without rows from its refs, after the database was
        rebuilt."""
        try:
            async with self._lock(session.id):
                if await self._core.store.read(lambda reader: reader.checkpoints.latest(session.id)) is None:
                    await recall(self._core, session)
        except RametError as error:  # its repository is gone or unreadable: the next checkpoint tries again
            log.warning("checkpoints not read from refs", session=session.id, error=error.message)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        await self._flusher.close()

    async def _catch_up(self, session_id: str) -> None:
        async def make() -> None:
            async with self._lock(session_id), self._room:  # in this order: one that waits for a lock takes no room
                await self._make(session_id, CheckpointReason.TURN, None, DAEMON, lambda unit, made: None)

        while session_id in self._asked:
            self._asked.discard(session_id)
            session = await self._core.store.read(lambda reader: reader.sessions.find(session_id))
            if session is not None and session.checkpoint_due and session.state != State.ARCHIVED:
                await self._attempt(session, make())
        self._core.live.schedule()

    async def _attempt(self, session: Session, making: Awaitable[object]) -> None:
        """Create a checkpoint of the turns that ``session`` has; after a failure, a later turn gets
        one of its own."""
        try:
            await making
        except Exception as error:  # any error: the session's next turn waits for this
            words = error.message if isinstance(error, RametError) else str(error) or type(error).__name__
            log.warning("no checkpoint", session=session.id, error=words, exc_info=not isinstance(error, RametError))
            await self._core.store.write_for_sure(lambda unit: _give_up(unit, session, words))


def position(reader: Reader, session: Session) -> tuple[str, str]:
    """Conversation and message from which a fork of the present state, or a rewind to it,
    continues."""
    message_id = session.last_message_id if session.conversation_begun else ""
    cut = reader.conversation_cuts.get(session.id)
    if not message_id and cut is not None:  # the agent has written no message yet
        return cut.source_id, cut.message_id
    return session.conversation_id, message_id


WAITED_FOR = frozenset({CheckpointReason.MANUAL, CheckpointReason.REWIND, CheckpointReason.SYNC})
"""Reasons of requested checkpoints: they include the index, and are not created if an earlier one
is equal."""
UNASKED = frozenset({CheckpointReason.START, CheckpointReason.TURN})
"""Reasons of automatic checkpoints: they are synced to disk after their rows are stored
(`Flusher`)."""


def _give_up(unit: Unit, tried: Session, words: str) -> None:
    session = unit.sessions.find(tried.id)
    if session is None:
        return
    unit.sessions.update(session.id, checkpointed_turns=max(tried.turns, session.checkpointed_turns))
    events.warn(unit, session, f"no checkpoint was created: {words}")


async def drop_checkpoints(core: Core, session_id: str) -> None:
    """Delete the rows of all checkpoints of a session that is gone for good. The caller drops the
    refs."""

    def work(unit: Unit) -> None:
        unit.checkpoints.remove_all(session_id)
        unit.restores.remove_all(session_id)

    await core.store.write(work)
