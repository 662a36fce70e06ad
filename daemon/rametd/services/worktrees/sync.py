"""Sync: merge the newest commits of the base into an idle session's branch, or rebase onto them.

While the operation exists, the scheduler starts no turn. The operation records the commits that git
is about to write. After a kill the daemon writes and undoes nothing, since a person may have edited
the files: it records the work that git finished, and a warning describes the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pygit2
import structlog
from ramet.v1 import event_pb2, worktree_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import RametError, RefNotFoundError, WrongStateError
from rametd.domain.models import Prompt, Session, WorktreeKind
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Base, CutOff, Synced
from rametd.services import events
from rametd.services.core import Core
from rametd.services.delivery import post
from rametd.services.environments import for_git
from rametd.services.lifecycle import log_update, refuse_archived
from rametd.services.missing import require_tree
from rametd.services.operations import new_operation, refuse_landing
from rametd.services.repos import info_of
from rametd.services.views import one_session_message, prompt_message
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.history import checkpoint_message
from rametd.store import Unit

log = structlog.get_logger()

LISTED = 30

Answer = worktree_pb2.SyncSessionResponse
"""The stored answer: a retry after a crash gets the same one."""


@dataclass(frozen=True, slots=True)
class Sync:
    """A request to sync. ``base_ref`` "" is the base that the session started from."""

    base_ref: str = ""
    rebase: bool = False
    fetch: bool = False
    ask_agent: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    session: Session
    synced: Synced
    prompt: Prompt | None
    before: Checkpoint | None
    """The checkpoint before the sync; None if nothing changed."""


class Syncer:
    def __init__(self, core: Core, checkpointer: Checkpointer) -> None:
        self._core = core
        self._checkpointer = checkpointer
        core.operations.handle(Kind.SYNC, self._undo, self._complete, self._settle)

    async def sync(self, session: Session, wanted: Sync, caller: Caller) -> Answer:
        """Merge the base into the session's branch, or rebase the branch onto it. If the caller
        hangs up, git finishes all the same.

        Raises `WrongStateError` while a turn runs, `RefNotFoundError`, and git's error if
        uncommitted changes are in the way.
        """
        core = self._core
        await require_tree(core, session)
        info = await info_of(core, session)
        ref = wanted.base_ref or session.base_ref
        fetched: Base | None = None
        if wanted.fetch:
            environment = await for_git(core, session.id)
            fetched = await core.git.remotes.fetch_base(info, ref, session.worktree, environment)
        try:
            base = fetched or await core.git.branches.resolve_base(info, ref, None)
        except RefNotFoundError as error:
            if wanted.base_ref:
                raise
            raise RefNotFoundError(
                f"the base of {session.name}, {ref}, no longer exists",
                hint=f"`rametctl sync {session.reference} --base REF` merges another one",
                near=error.data.get("near", ""),
            ) from error
        new = new_operation(
            Kind.SYNC,
            session.id,
            caller,
            commit=base.commit,
            base=base.ref,
            ref=ref,
            rebase="yes" if wanted.rebase else "",
            ask_agent="yes" if wanted.ask_agent else "",
        )
        answer: Answer = await core.operations.run(new, lambda unit, failed: check_state(unit, session.id))
        return answer

    async def _complete(self, operation: Operation) -> Answer:
        core, data = self._core, operation.data
        session = await core.store.read(lambda reader: reader.sessions.get(operation.session_id))
        info = await info_of(core, session)
        checkpoints: list[Checkpoint] = []

        async def keep(coming: Synced) -> None:
            made = await self._checkpointer.make(session.id, CheckpointReason.SYNC, principal=operation.principal)
            checkpoints.append(made)
            changes = {"old": coming.old, "new": coming.new, "commits": str(coming.commits)}
            noted = {**changes, "before": str(made.number), "checkpoint": made.id}
            await core.store.write_for_sure(lambda unit: unit.operations.advance(operation.id, "kept", noted))
            core.failpoint.hit("sync.kept")

        await self._checkpointer.settle(session.id)
        synced = await core.git.syncing.sync(
            session.worktree,
            session.branch or None,
            data["commit"],
            rebase=bool(data["rebase"]),
            message=f"Merge {data['base']} into {session.branch}",
            source=info.worktree_root,
            environment=await for_git(core, session.id),
            before_changing=keep,
        )
        core.failpoint.hit("sync.synced")
        warnings = list(synced.warnings)
        try:
            await core.git.make_durable(info.common_dir, session.worktree)
        except RametError as error:  # the sync is done anyway
            warnings.append(f"the sync is done, but may not survive a loss of power: {error.message}")

        def record(unit: Unit) -> Answer:
            now, prompt = unit.sessions.get(session.id), None
            if synced.conflicts and data["ask_agent"]:
                text = request_to_merge(data["base"], data["commit"], synced.conflicts)
                prompt, now = post(unit, core.kind(now.agent), now, text, operation.principal)
            now = log_synced(unit, now, synced, operation)
            for words in warnings:
                events.warn(unit, now, words)
            done = Done(
                now,
                replace(synced, warnings=tuple(warnings)),
                prompt,
                checkpoints[0] if checkpoints and synced.commits else None,
            )
            return finish(unit, done, operation)

        answer = await core.store.write_for_sure(record)
        core.live.wake(session.id)
        return answer

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        """Give up a sync that git refused. The files are as git left them."""
        await self._core.store.write_for_sure(lambda unit: unit.operations.undo(operation.id))
        self._core.live.schedule()

    async def _settle(self, operation: Operation) -> None:
        """Recover after a kill: record the work that git finished, and warn of the rest. Write no
        files."""
        core, data = self._core, operation.data
        session = await core.store.read(lambda reader: reader.sessions.get(operation.session_id))
        left, words = CutOff.NOTHING, ""
        if "new" in data:  # else git had not begun
            try:
                source = (await info_of(core, session)).worktree_root
                branch = session.branch or None
                left = await core.git.syncing.settle(session.worktree, branch, data["old"], data["new"], source)
                words = words_for(left, session, data)
            except (RametError, OSError, pygit2.GitError) as error:
                said = error.message if isinstance(error, RametError) else str(error)
                words = f"a sync was interrupted, and its result cannot be read: {said}; checkpoint {data['before']} is from before it"

        def record(unit: Unit) -> None:
            now = unit.sessions.get(session.id)
            if left == CutOff.DONE:
                synced = Synced(data["old"], data["new"], int(data["commits"]))
                now = log_synced(unit, now, synced, operation)
                found = unit.checkpoints.find_by_prefix(now.id, data["checkpoint"])
                finish(unit, Done(now, synced, None, next(iter(found), None)), operation)
            if words:
                log.warning("a sync was interrupted", session=session.id, left=left)
                events.warn(unit, now, words)
            unit.operations.undo(operation.id)  # does nothing if it is finished

        await core.store.write_for_sure(record)
        core.live.schedule()


def check_state(unit: Unit, session_id: str) -> None:
    """Raise `WrongStateError` for a session that cannot be synced now."""
    session = unit.sessions.get(session_id)
    if session.worktree_kind == WorktreeKind.IN_PLACE:
        raise WrongStateError(f"{session.name} works in your own checkout", hint="use git merge or git rebase there")
    if session.state in BUSY_STATES or session.state == State.QUEUED:
        raise WrongStateError(
            f"{session.name} is {session.state}: a turn runs or is about to start",
            hint=f"wait until it is idle, or `rametctl stop {session.reference}` first",
        )
    refuse_archived(session)
    refuse_landing(unit, session)


def finish(unit: Unit, done: Done, operation: Operation) -> Answer:
    """Finish the operation with its answer."""
    answer = Answer(
        session=one_session_message(unit, done.session),
        commits=done.synced.commits,
        old_commit=done.synced.old,
        new_commit=done.synced.new,
        conflicts=done.synced.conflicts,
        prompt=prompt_message(done.prompt) if done.prompt is not None else None,
        checkpoint=checkpoint_message(done.before) if done.before is not None else None,
        warnings=done.synced.warnings,
    )
    unit.operations.finish(operation, answer.SerializeToString())
    return answer


def log_synced(unit: Unit, session: Session, synced: Synced, operation: Operation) -> Session:
    """Log the sync, and move the session's base if it was synced with its own base."""
    data, principal = operation.data, operation.principal
    if not synced.conflicts and data["ref"] == session.base_ref and synced.commits:
        session = unit.sessions.update(session.id, base_commit=data["commit"])
        log_update(unit, session, ["base_commit"], principal)
    if not synced.conflicts and session.start_commit and synced.old == session.start_commit:
        # A fork without commits of its own still has none: the merge has only commits of its
        # original and the base.
        session = unit.sessions.update(session.id, start_commit=synced.new)
    payload = event_pb2.SessionSynced(old_commit=synced.old, new_commit=synced.new, conflicts=synced.conflicts[:LISTED])
    events.log(unit, session, payload, principal)
    return session


def words_for(left: CutOff, session: Session, data: Mapping[str, str]) -> str:
    """Warning about an interrupted sync; "" for none."""
    back = f"`rametctl rewind --files-only {session.name} {data['before']}` restores the files from before it"
    if left == CutOff.HALF:
        return (
            f"a sync was interrupted while git wrote files: some are from {data['commit'][:12]}, the branch has not moved; {back}"
            " (if git reports an index.lock there, remove it first)"
        )
    if left == CutOff.DETACHED:
        return (
            f"a sync was interrupted before {session.branch} was moved to {data['new'][:12]}, and HEAD has moved since:"
            f" see `git status` in {session.worktree}; {back}"
        )
    return ""


def request_to_merge(ref: str, commit: str, conflicts: tuple[str, ...]) -> str:
    """Prompt for an agent whose branch conflicts with the base."""
    listed = "\n".join(f"- {path}" for path in conflicts[:LISTED])
    more = f"\n- and {len(conflicts) - LISTED} more" if len(conflicts) > LISTED else ""
    return (
        f"Bring the newest commits of {ref} into your branch: run `git merge {commit[:12]}` in your worktree, resolve the conflicts so that"
        f" both what {ref} changed and what you changed are kept, run what tests there are, and commit the merge. These files conflict:\n\n"
        f"{listed}{more}"
    )
