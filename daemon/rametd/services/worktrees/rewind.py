"""Bringing a session back to a checkpoint: its files, and its conversation as it was at the end of that turn.

What is overwritten becomes a checkpoint first, so that a rewind is undone by another. The intent is stored with the judgement that no turn runs, and
the scheduler gives a session that has one no work: no agent writes while its files are brought back. A daemon that is killed in between does all of
it again, beginning with another checkpoint: what somebody wrote meanwhile is kept too.
"""

import shlex
import uuid
from dataclasses import replace
from fnmatch import fnmatchcase

import structlog
from google.protobuf.message import Message
from ramet.v1 import event_pb2, worktree_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason, ConversationCut
from rametd.domain.errors import GitFailedError, RametError, RefNotFoundError, WrongStateError
from rametd.domain.models import Intent, Repo, Session, WorktreeKind
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Moved
from rametd.services import events
from rametd.services.agents.stopping import end_agent
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.leaving import REWIND, Running, leaving, refuse_landing, refuse_other
from rametd.services.lifecycle import log_update
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.services.settings import for_session
from rametd.services.views import one_session_message
from rametd.services.worktrees.changes import change_message
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.history import checkpoint_message
from rametd.store import Reader, Unit

log = structlog.get_logger()


Rewound = worktree_pb2.RewindSessionResponse
"""The answer; it is stored with what it tells, so that a caller who asks again after a crash gets it too."""


class Rewinder:
    def __init__(self, core: Core, supervisor: Supervisor, checkpointer: Checkpointer) -> None:
        self._core = core
        self._supervisor = supervisor
        self._checkpointer = checkpointer
        self._running: Running[Rewound] = Running()

    async def rewind(
        self,
        session: Session,
        checkpoint: Checkpoint,
        *,
        files_only: bool,
        principal: str,
        request_id: str = "",
        digest: bytes = b"",
    ) -> Rewound:
        """Raises `WrongStateError` while a turn runs or is about to, and for a checkout that is not ours."""
        wanted = {
            "checkpoint": checkpoint.id,
            "files_only": "yes" if files_only else "",
            "principal": principal,
            "request_id": request_id,
            "digest": digest.hex(),
        }
        new = Intent(new_id(), REWIND, session.id, wanted, self._core.clock())

        def begin(unit: Unit) -> Intent:
            now = unit.sessions.get(session.id)
            check_state(now, checkpoint)
            refuse_landing(unit, now)
            found = refuse_other(leaving(unit, now.id), now, REWIND)
            if found is not None and key_of(found) != key_of(new):
                raise WrongStateError(f"{now.name} is being rewound", hint="wait until that is done, then try again")
            return found or unit.intents.add(new)

        async def carry_out() -> Rewound:
            intent = await self._core.store.write(begin)
            self._core.failpoint.hit("rewind.intended")
            return await self._complete(intent)

        # A second caller waits for the first one's only where both want the same.
        return await self._running.join(key_of(new), carry_out)

    async def close(self) -> None:
        await self._running.close()

    async def complete(self, intent: Intent) -> None:
        """Do again what a daemon that was killed had begun; one that cannot be done is given up, and said so."""
        try:
            await self._running.join(key_of(intent), lambda: self._complete(intent))
        except RametError as error:
            log.warning("a rewind could not be finished", session=intent.session_id, error=error.message)
            words = f"the rewind could not be finished: {error.message}; the files before it are a checkpoint"

            def tell(unit: Unit) -> None:
                session = unit.sessions.find(intent.session_id)
                if session is not None:
                    warning = event_pb2.Warning(message=words)
                    unit.events.append(events.make(warning, session_id=session.id, repo_id=session.repo_id))

            await write_for_sure(self._core.store, tell)

    async def _complete(self, intent: Intent) -> Rewound:
        try:
            return await self._bring_back(intent)
        except Exception:
            # Git refused, the disk is full, or a fault of ours: nobody is to wait for a rewind that nobody carries on.
            await write_for_sure(self._core.store, lambda unit: unit.intents.remove(intent.id))
            self._core.wake()
            raise

    async def _bring_back(self, intent: Intent) -> Rewound:
        core, session_id = self._core, intent.session_id
        session, [checkpoint] = await core.store.read(
            lambda reader: (
                reader.sessions.get(session_id),
                reader.checkpoints.find_by_prefix(session_id, intent.data["checkpoint"]),
            )
        )
        await end_agent(core, self._supervisor, session, "rewind")
        core.failpoint.hit("rewind.agent-ended")
        await core.kept(session_id)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        lost = await core.git.snapshots.lost(info, checkpoint.snapshot)
        target = await core.git.snapshots.read(info, checkpoint.snapshot) if not lost else None
        if target is None:
            raise RefNotFoundError(
                f"checkpoint {checkpoint.number} is not whole: git has not all of it ({(*lost, checkpoint.snapshot)[0][:12]})",
                hint=f"`rametctl checkpoints {session.name}` shows the others; git fsck tells more",
            )

        stood: list[tuple[str, Checkpoint]] = []  # HEAD, and what was kept before anything was overwritten

        async def keep(tree: str) -> None:
            noted = await core.store.read(lambda reader: noted_before(reader, intent))
            head = await core.git.head_commit(session.worktree)
            if noted is not None and tree == checkpoint.tree and head in {noted.head, checkpoint.head}:
                stood.append((head or "", noted))  # a daemon that was killed had got that far: nothing is overwritten
                return
            made = await self._checkpointer.make(
                session_id, CheckpointReason.REWIND, tree=tree, principal=intent.data["principal"]
            )
            stood.append((made.head, made))
            await write_for_sure(core.store, lambda unit: remember_before(unit, intent, made))
            core.failpoint.hit("rewind.kept")

        try:
            await core.git.snapshots.bring_back(session.worktree, target, keep)
        except GitFailedError as error:
            if not stood:  # nothing was touched
                raise
            undo = shlex.join(["rametctl", "rewind", session.name, str(stood[0][1].number)])
            raise GitFailedError(error.message, hint=f"to undo what was written: `{undo}`") from error
        core.failpoint.hit("rewind.files-written")
        leave = await self._may_move(session, repo)
        tip, kept_as = stood[-1]
        moved = Moved(True)
        if checkpoint.head:
            moved = await core.git.snapshots.move_back(
                session.worktree, checkpoint.head, own=session.branch, tip=tip, leave=leave, staged=target.index
            )
        warnings = [moved.told] if moved.told else []
        overwritten = await core.git.snapshots.read(info, kept_as.snapshot)
        assert overwritten is not None, "it was made before anything was overwritten"
        warnings += await core.git.snapshots.bring_back_nested(info, session.worktree, target, overwritten)
        await core.git.make_durable(info, session.worktree)
        # After a sync that is taken back its work is what it had beyond the older base again.
        base = None
        if moved == Moved(True) and checkpoint.head and session.base_commit:
            base = await core.git.merge_base(info, session.base_commit, checkpoint.head)
        core.failpoint.hit("rewind.branch-moved")
        before = await core.store.read(lambda reader: noted_before(reader, intent))
        assert before is not None, (
            "it was noted before anything was overwritten, and only this rewind removes its intent"
        )
        files = (await core.git.diff_commits(info, before.tree, checkpoint.tree, patch=False)).files
        kept = before
        # As when it is found out of git that it could not write, or a daemon is killed, and somebody works there until it is begun again.
        since = await core.store.read(lambda reader: reader.checkpoints.list(session_id))
        warnings += [
            f"its files were changed while it was rewound: what was there then is checkpoint {each.number}"
            for each in since
            if each.number > kept.number
        ]

        def record(unit: Unit) -> Rewound:
            now = unit.sessions.get(session_id)
            if base and base != now.base_commit:
                now = unit.sessions.update(session_id, base_commit=base)
                log_update(unit, now, ["base_commit"], intent.data["principal"])
            if not intent.data["files_only"]:
                cut_conversation(unit, now, checkpoint)
            rewound = event_pb2.SessionRewound(
                before=checkpoint_message(kept),
                checkpoint=checkpoint_message(checkpoint),
                conversation=not intent.data["files_only"],
            )
            told: list[Message] = [rewound, *(event_pb2.Warning(message=words) for words in warnings)]
            for payload in told:
                unit.events.append(
                    events.make(payload, session_id=now.id, repo_id=now.repo_id, principal=intent.data["principal"])
                )
            unit.intents.remove(intent.id)
            answer = Rewound(
                session=one_session_message(unit, unit.sessions.get(session_id)),
                before=checkpoint_message(kept),
                checkpoint=checkpoint_message(checkpoint),
                files=[change_message(file) for file in files],
                warnings=warnings,
            )
            if intent.data["request_id"]:
                digest = bytes.fromhex(intent.data["digest"])
                unit.calls.put(intent.data["request_id"], "RewindSession", digest, answer.SerializeToString())
            return answer

        done = await write_for_sure(core.store, record)
        core.failpoint.hit("rewind.recorded")
        core.wake()
        return done

    async def _may_move(self, session: Session, repo: Repo) -> bool:
        """Whether its branch may leave its own line of commits: one that we made, and that nobody protects."""
        if not session.created_branch or not session.branch:
            return False
        protected = (await for_session(self._core, session, repo)).config.land.protected
        return not any(fnmatchcase(session.branch, glob) for glob in protected)


def key_of(intent: Intent) -> str:
    """The same for all who want the same."""
    return " ".join((intent.session_id, intent.data["checkpoint"], intent.data["files_only"]))


def remember_before(unit: Unit, intent: Intent, checkpoint: Checkpoint) -> None:
    """Note what the rewind overwrites. The first note counts: a daemon that does it again finds files that are rewound already."""
    now = unit.intents.get(intent.id)
    if now is not None and "before" not in now.data:
        unit.intents.remove(now.id)
        unit.intents.add(replace(now, data={**now.data, "before": checkpoint.id}))


def noted_before(reader: Reader, intent: Intent) -> Checkpoint | None:
    """The checkpoint of what the rewind overwrites, once it is made."""
    now = reader.intents.get(intent.id)
    if now is None or "before" not in now.data:
        return None
    [before] = reader.checkpoints.find_by_prefix(now.session_id, now.data["before"])
    return before


def check_state(session: Session, checkpoint: Checkpoint) -> None:
    if session.worktree_kind == WorktreeKind.IN_PLACE:
        diff = shlex.join(["rametctl", "diff", session.name, "--against", str(checkpoint.number)])
        restore = shlex.join(["git", "-C", str(session.worktree), "restore", f"--source={checkpoint.tree[:12]}"])
        raise WrongStateError(
            f"{session.name} works in your own checkout, which is never overwritten",
            hint=f"`{diff}` shows what has changed since, and `{restore} -- PATH` brings a file back",
        )
    if session.state in BUSY_STATES or session.state == State.QUEUED:
        hint = f"`rametctl stop {session.name}` first, or wait until it is idle"
        raise WrongStateError(f"{session.name} is {session.state}: a turn runs or is about to", hint=hint)
    if session.state == State.ARCHIVED:
        hint = f"bring it back with `rametctl restore {session.name}`"
        raise WrongStateError(f"{session.name} is archived", hint=hint)


def cut_conversation(unit: Unit, session: Session, checkpoint: Checkpoint) -> None:
    """Have the conversation go on from the end of the checkpoint's turn, as a new one: the old one stays as it is, and can be gone back to."""
    unit.sessions.update(session.id, conversation_id=str(uuid.uuid4()), conversation_begun=False, interrupted=False)
    if checkpoint.message_id:
        cut = ConversationCut(session.id, checkpoint.conversation_id, checkpoint.message_id)
        unit.conversation_cuts.put(cut)
    else:
        unit.conversation_cuts.remove(session.id)
