"""Rewind a session to a checkpoint: its files, and its conversation at the end of that turn.

The present files become a checkpoint first, so that another rewind undoes this one. No agent writes
during a rewind: the unit of work that stores the operation checks that no turn runs, and the
scheduler starts none while the operation exists. After a kill the next daemon repeats everything,
beginning with another checkpoint, which has the changes that a person made in between.
"""

import asyncio
import shlex
import uuid
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import structlog
from google.protobuf.message import Message
from ramet.v1 import event_pb2, worktree_pb2

from rametd.agents.base import require
from rametd.domain.checkpoints import Checkpoint, CheckpointReason, ConversationCut
from rametd.domain.commands import Command, CommandKind, CommandState
from rametd.domain.errors import GitFailedError, RametError, RefNotFoundError, WrongStateError
from rametd.domain.models import DAEMON, AgentState, Repo, Session, WorktreeKind
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import BUSY_STATES, State
from rametd.domain.text import listed
from rametd.git import Moved
from rametd.services import events
from rametd.services.agents.stopping import end_agent
from rametd.services.agents.supervisor import Supervisor
from rametd.services.agents.transcripts import Transcripts, gone
from rametd.services.core import Core
from rametd.services.lifecycle import change_state, close_reviews, log_update, refuse_archived
from rametd.services.operations import new_operation, refuse_landing
from rametd.services.repos import info_of
from rametd.services.trust.settings import for_session
from rametd.services.views import one_session_message
from rametd.services.worktrees.changes import change_message
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.history import checkpoint_message
from rametd.store import Reader, Unit

log = structlog.get_logger()


SETTLED_S = 60.0
"""Seconds after the end of a check in which its keeper may still end descendants, which write."""
Rewound = worktree_pb2.RewindSessionResponse
"""The stored answer: a retry after a crash gets the same one."""


class Rewinder:
    def __init__(self, core: Core, supervisor: Supervisor, checkpointer: Checkpointer) -> None:
        self._core = core
        self._supervisor = supervisor
        self._checkpointer = checkpointer
        core.operations.handle(Kind.REWIND, self._undo, self._complete, self._recover)

    async def rewind(
        self, session: Session, checkpoint: Checkpoint, *, files_only: bool, caller: Caller, check: str = ""
    ) -> Rewound:
        """Rewind a session. Raise `WrongStateError` while a turn runs or is about to start, and for
        a session in the person's checkout.

        ``check`` is the id of a check whose changes this undoes. HEAD, the index and nested
        repositories then stay. It raises `WrongStateError` if HEAD, the index, or the session's
        checkpoints or turns are not those of the checkpoint.
        """
        if not files_only:
            require(self._core.kind(session.agent), "rewind", hint="add --files-only to rewind only its files")
        new = new_operation(
            Kind.REWIND,
            session.id,
            caller,
            checkpoint=checkpoint.id,
            files_only="yes" if files_only else "",
            check=check,
        )

        def admit(unit: Unit, failed: Operation | None) -> None:
            now = unit.sessions.get(session.id)
            check_state(now, checkpoint)
            refuse_landing(unit, now)
            if check:
                refuse_worked(unit, now, checkpoint)

        rewound: Rewound = await self._core.operations.run(new, admit)
        return rewound

    async def undo_check(self, command: Command, ended: float | None = None) -> None:
        """Undo a check's changes of its session's files: they would count as the session's work,
        and land with it. ``ended``: the time of its end.

        The last of several checks of the same files undoes the changes of all. If a turn, a sync, a
        commit or another command may have changed files too, or if a file was changed after the
        end, as while no daemon ran, they stay, with a warning. A checkpoint has the undone changes.
        """
        core, session_id = self._core, command.session_id
        if command.kind != CommandKind.CHECK or not command.digest:
            return
        await core.recovered.wait()
        try:
            await self._undo_check(command, ended)
        except Exception as error:  # whatever failed: recording the end of the check waits for this
            if not isinstance(error, RametError):
                log.exception("a check was not undone", command=command.id)
            said = error.message if isinstance(error, RametError) else str(error) or type(error).__name__
            words = f"files that the check `{command.name}` changed stay: {said}"

            def warn(unit: Unit) -> None:
                session = unit.sessions.find(session_id)
                if session is not None:
                    events.warn(unit, session, words)

            await core.store.write_for_sure(warn)

    async def _undo_check(self, command: Command, ended: float | None) -> None:
        core, session_id = self._core, command.session_id
        begun = await core.store.read(lambda reader: reader.operations.exclusive(session_id))
        if begun is not None and begun.data.get("check") == command.id:
            await core.operations.resume(begun)  # an undo that a killed daemon began; its recovery may be running
        session, fellows, doubt = await core.store.read(
            lambda reader: (reader.sessions.find(session_id), *concurrent_changes(reader, command))
        )
        if session is None or session.worktree_kind == WorktreeKind.IN_PLACE or fellows:
            return
        changed = await core.git.diffs.changed_files(session.worktree, command.digest)
        if not changed:
            return
        if doubt:
            raise WrongStateError(doubt)
        if ended is not None and (late := await asyncio.to_thread(changed_after, session.worktree, changed, ended)):
            raise WrongStateError(f"{listed(late)} changed after its end")
        for path in changed:
            if (session.worktree / path).is_dir() and not (session.worktree / path).is_symlink():
                raise WrongStateError(f"the repository inside at {path} has changed")
        await self._checkpointer.settle(session_id)
        before = await core.store.read(lambda reader: reader.checkpoints.latest(session_id))
        head = await core.git.worktrees.head_commit(session.worktree)
        if before is None or (before.tree, before.head) != (command.digest, head or ""):
            raise worked_error(session)
        await self.rewind(session, before, files_only=True, caller=Caller(DAEMON), check=command.id)

    async def _recover(self, operation: Operation) -> Rewound:
        """Repeat a rewind that a killed daemon began. If that fails, log a warning on the
        session."""
        try:
            return await self._complete(operation)
        except RametError as error:
            words = f"the rewind could not be finished: {error.message}; the files before it are a checkpoint"

            def tell(unit: Unit) -> None:
                session = unit.sessions.find(operation.session_id)
                if session is not None:
                    events.warn(unit, session, words)

            await self._core.store.write_for_sure(tell)
            raise

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        """Give up a rewind that failed. What it overwrote is a checkpoint."""
        await self._core.store.write_for_sure(lambda unit: unit.operations.undo(operation.id))
        self._core.live.schedule()

    async def _complete(self, operation: Operation) -> Rewound:
        """Rewind the session. An earlier run may have done any of the steps."""
        core, session_id, check = self._core, operation.session_id, operation.data.get("check", "")
        session, [checkpoint] = await core.store.read(
            lambda reader: (
                reader.sessions.get(session_id),
                reader.checkpoints.find_by_prefix(session_id, operation.data["checkpoint"]),
            )
        )
        await end_agent(core, self._supervisor, session, "rewind")
        core.failpoint.hit("rewind.agent-ended")
        await self._checkpointer.settle(session_id)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        lost = await core.git.snapshots.lost(info, checkpoint.snapshot)
        target = await core.git.snapshots.read(info, checkpoint.snapshot) if not lost else None
        if target is None:
            raise RefNotFoundError(
                f"checkpoint {checkpoint.number} is damaged: git no longer has {(*lost, checkpoint.snapshot)[0][:12]}",
                hint=f"`rametctl checkpoints {session.reference}` lists the others; `git fsck` lists what is missing",
            )

        staged = target.index
        stood: list[tuple[str, Checkpoint]] = []  # HEAD, and the checkpoint of what is overwritten

        async def keep(tree: str) -> None:
            noted = await core.store.read(lambda reader: noted_before(reader, operation))
            head = await core.git.worktrees.head_commit(session.worktree)
            if check and (head or "") != checkpoint.head:
                raise worked_error(session)
            if noted is not None and tree == checkpoint.tree and head in {noted.head, checkpoint.head}:
                stood.append((head or "", noted))  # a killed daemon got this far: its checkpoint has the files
                return
            made = await self._checkpointer.make(
                session_id, CheckpointReason.REWIND, tree=tree, principal=operation.principal
            )
            taken = await core.git.snapshots.read(info, made.snapshot)
            if check and (taken is None or taken.index != staged):
                raise WrongStateError(f"the index of {session.name} has changed meanwhile")
            stood.append((made.head, made))
            await core.store.write_for_sure(lambda unit: remember_before(unit, operation, made))
            core.failpoint.hit("rewind.kept")

        if not check:
            await core.git.snapshots.refuse_locked(session.worktree)
        try:
            await core.git.snapshots.restore_files(session.worktree, target, keep)
        except GitFailedError as error:
            if not stood:  # nothing was written
                raise
            undo = f"rametctl rewind {session.reference} {stood[0][1].number}"
            raise GitFailedError(error.message, hint=f"to undo what was written: `{undo}`") from error
        core.failpoint.hit("rewind.files-written")
        warnings: list[str] = []
        base = None
        if not check:
            leave = await self._may_move(session, repo)
            tip, saved = stood[-1]
            moved = Moved(True)
            if checkpoint.head:
                moved = await core.git.snapshots.move_back(
                    session.worktree, checkpoint.head, own=session.branch, tip=tip, leave=leave, staged=staged
                )
            warnings = [moved.warning] if moved.warning else []
            overwritten = await core.git.snapshots.read(info, saved.snapshot)
            assert overwritten is not None, "it is created before anything is overwritten"
            warnings += await core.git.snapshots.bring_back_nested(info, session.worktree, target, overwritten)
            # A rewind to before a sync also moves the base back.
            if moved == Moved(True) and checkpoint.head and session.base_commit:
                base = await core.git.commits.merge_base(info, session.base_commit, checkpoint.head)
        await core.git.make_durable(info.common_dir, session.worktree)
        core.failpoint.hit("rewind.branch-moved")
        before = await core.store.read(lambda reader: noted_before(reader, operation))
        assert before is not None, (
            "it is stored before anything is overwritten, and only this rewind ends its operation"
        )
        files = (await core.git.diffs.between(info, before.tree, checkpoint.tree, patch=False)).files
        if check:
            # It is unknown whether the check or a person wrote a file.
            warnings.append(
                f"undid what changed during the check: {listed([file.path for file in files])}; "
                f"if you made any of these changes: rametctl rewind {session.reference} {before.number}"
            )
        previous = before
        # A retry after a failed write or a kill: a person may have changed files in between.
        since = await core.store.read(lambda reader: reader.checkpoints.list(session_id))
        warnings += [
            f"its files were changed during the rewind: checkpoint {each.number} has them"
            for each in since
            if each.number > previous.number
        ]

        wanted = "" if operation.data["files_only"] or not checkpoint.message_id else checkpoint.conversation_id
        if wanted and await Transcripts(core).missing(session, wanted):
            warnings.append(gone(session))

        def record(unit: Unit) -> Rewound:
            now = unit.sessions.get(session_id)
            if base and base != now.base_commit:
                now = unit.sessions.update(session_id, base_commit=base)
                log_update(unit, now, ["base_commit"], operation.principal)
            if not operation.data["files_only"]:
                cut_conversation(unit, now, checkpoint)
                close_reviews(unit, now, operation.principal)
                if now.state == State.FAILED:  # the failed turn is not in the conversation any more
                    change_state(unit, now, State.IDLE, principal=operation.principal)
            now = unit.sessions.update(session_id, checkpoint=checkpoint.number)
            rewound = event_pb2.SessionRewound(
                before=checkpoint_message(previous),
                checkpoint=checkpoint_message(checkpoint),
                conversation=not operation.data["files_only"],
            )
            payloads: list[Message] = [rewound, *(event_pb2.Warning(message=words) for words in warnings)]
            for payload in payloads:
                events.log(unit, now, payload, operation.principal)
            answer = Rewound(
                session=one_session_message(unit, unit.sessions.get(session_id)),
                before=checkpoint_message(previous),
                checkpoint=checkpoint_message(checkpoint),
                files=[change_message(file) for file in files],
                warnings=warnings,
            )
            unit.operations.finish(operation, answer.SerializeToString())
            return answer

        done = await core.store.write_for_sure(record)
        core.failpoint.hit("rewind.recorded")
        core.live.schedule()
        return done

    async def _may_move(self, session: Session, repo: Repo) -> bool:
        """Whether the branch may move backwards: Ramet created it, and it is not protected."""
        if not session.created_branch or not session.branch:
            return False
        protected = (await for_session(self._core, session, repo)).config.land.protected
        return not any(fnmatchcase(session.branch, glob) for glob in protected)


def remember_before(unit: Unit, operation: Operation, checkpoint: Checkpoint) -> None:
    """Store the checkpoint of the files that the rewind overwrites. Only the first one counts: a
    repeated rewind finds files that are rewound already."""
    now = unit.operations.get(operation.id)
    if now is not None and "before" not in now.data:
        unit.operations.advance(now.id, "kept", {"before": checkpoint.id})


def noted_before(reader: Reader, operation: Operation) -> Checkpoint | None:
    """The checkpoint of the files that the rewind overwrites; None before it exists."""
    now = reader.operations.get(operation.id)
    if now is None or "before" not in now.data:
        return None
    [before] = reader.checkpoints.find_by_prefix(now.session_id, now.data["before"])
    return before


def concurrent_changes(reader: Reader, command: Command) -> tuple[bool, str]:
    """Whether another check of the same files still runs, and the reason why other changes are
    possible, "" if they are not."""
    others = [
        each
        for each in reader.commands.list(command.session_id)
        if each.id != command.id and (each.end_time is None or each.end_time >= command.start_time)
    ]
    fellows = [
        each
        for each in others
        if (each.kind, each.digest) == (command.kind, command.digest) and each.state != CommandState.STARTING
    ]
    agent = reader.agents.latest(command.session_id)
    doubt = ""
    if agent is not None and agent.state == AgentState.LIVE and (agent.background or agent.background_commands):
        doubt = "the agent has commands in its background"
    elif len(fellows) < len(others):
        doubt = "another command ran meanwhile"
    return any(each.living for each in fellows), doubt


def changed_after(worktree: Path, paths: Sequence[str], ended: float) -> list[str]:
    """Return the files that were surely changed after the end of a check. Blocks."""

    def changed_at(path: str) -> float:
        try:
            return (worktree / path).lstat().st_ctime
        except (FileNotFoundError, NotADirectoryError):  # deleted: its directory changed then
            return next(folder.stat().st_mtime for folder in (worktree / path).parents if folder.is_dir())

    return [path for path in paths if changed_at(path) > ended + SETTLED_S]


def refuse_worked(unit: Unit, session: Session, checkpoint: Checkpoint) -> None:
    """Raise `WrongStateError` unless ``checkpoint`` is the latest and current one, and no turn has
    ended since."""
    latest = unit.checkpoints.latest(session.id)
    at = (latest.id if latest is not None else "", session.checkpoint, session.turns)
    if session.checkpoint_due or at != (checkpoint.id, checkpoint.number, checkpoint.turn):
        raise worked_error(session)


def worked_error(session: Session) -> WrongStateError:
    return WrongStateError(f"{session.name} has worked meanwhile")


def check_state(session: Session, checkpoint: Checkpoint) -> None:
    if session.worktree_kind == WorktreeKind.IN_PLACE:
        diff = shlex.join(["rametctl", "diff", session.name, "--against", str(checkpoint.number)])
        restore = shlex.join(["git", "-C", str(session.worktree), "restore", f"--source={checkpoint.tree[:12]}"])
        raise WrongStateError(
            f"{session.name} works in your own checkout, which Ramet never overwrites",
            hint=f"`{diff}` shows what has changed since, and `{restore} -- PATH` restores a file",
        )
    if session.state in BUSY_STATES or session.state == State.QUEUED:
        hint = f"`rametctl stop {session.reference}` first, or wait until it is idle"
        raise WrongStateError(f"{session.name} is {session.state}: a turn runs or is about to start", hint=hint)
    refuse_archived(session)


def cut_conversation(unit: Unit, session: Session, checkpoint: Checkpoint) -> None:
    """Continue from the end of the checkpoint's turn in a new conversation. The old one stays: a
    rewind can return to it."""
    unit.sessions.update(
        session.id,
        conversation_id=str(uuid.uuid4()),
        conversation_begun=False,
        last_message_id="",
        conversation_lost=False,
        interrupted=False,
    )
    if checkpoint.message_id:
        cut = ConversationCut(session.id, checkpoint.conversation_id, checkpoint.message_id)
        unit.conversation_cuts.put(cut)
    else:
        unit.conversation_cuts.remove(session.id)
