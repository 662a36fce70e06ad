"""Bringing the base's newest commits into an idle session's branch.

The intent keeps the scheduler from starting a turn meanwhile, and notes what is about to be written. After a daemon that was killed nothing is written
or taken back, for somebody may have been at the files since: what git had done counts, and what it had half done is told.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pygit2
import structlog
from ramet.v1 import event_pb2, worktree_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import RametError, WrongStateError
from rametd.domain.models import OWNER, Intent, Prompt, Session, WorktreeKind
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Base, CutOff, Synced
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.leaving import SYNC, Running, leaving, refuse_landing, refuse_other
from rametd.services.lifecycle import log_update
from rametd.services.mail import post
from rametd.services.missing import require_tree
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.services.views import one_session_message, prompt_message
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.history import checkpoint_message
from rametd.store import Unit

log = structlog.get_logger()

LISTED = 30

Answer = worktree_pb2.SyncSessionResponse
"""It is stored with what it tells, so that a caller who asks again after a crash gets it too."""


@dataclass(frozen=True, slots=True)
class Sync:
    """What is wanted; ``base_ref`` "" is the base that the session started from."""

    base_ref: str = ""
    rebase: bool = False
    fetch: bool = False
    ask_agent: bool = False
    principal: str = OWNER
    request_id: str = ""
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Done:
    session: Session
    synced: Synced
    prompt: Prompt | None
    before: Checkpoint | None
    """What a rewind goes back to; None where nothing was changed."""


class Syncer:
    def __init__(self, core: Core, checkpointer: Checkpointer) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._running: Running[Answer] = Running()
        self._settling: Running[None] = Running()

    async def sync(self, session: Session, wanted: Sync) -> Answer:
        """A caller that hangs up does not cut it off: git would be left in the middle of it, and the session held.

        Raises `WrongStateError` while a turn runs, `RefNotFoundError`, and git's own words where uncommitted changes are in the way."""
        core = self._core
        key = wanted.request_id or new_id()
        if not self._running.runs(key) and (answer := await self._settled(session, wanted)) is not None:
            return answer
        await require_tree(core, session)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        ref = wanted.base_ref or session.base_ref
        fetched: Base | None = None
        if wanted.fetch:
            environment = await asyncio.to_thread(core.environments.read, session.id) or {}
            fetched = await core.git.fetch_base(info, ref, session.worktree, environment)
        base = fetched or await core.git.resolve_base(info, ref, None)
        # Every call has a task of its own: another one is refused by the intent of the first.
        return await self._running.join(key, lambda: self._bring_in(session, base, ref, wanted))

    async def close(self) -> None:
        await self._running.close()
        await self._settling.close()

    async def _settled(self, session: Session, wanted: Sync) -> Answer | None:
        """The answer to this very call where a daemon was killed over it that had done it; None where nothing was done, or it is a new one."""
        if not wanted.request_id:
            return None
        begun = await self._core.store.read(lambda reader: leaving(reader, session.id))
        if begun is not None and begun.kind == SYNC and begun.data.get("request_id") == wanted.request_id:
            await self.complete(begun)
        known = await self._core.store.read(lambda reader: reader.calls.get(wanted.request_id))
        return None if known is None else Answer.FromString(known.response)

    async def _bring_in(self, session: Session, base: Base, ref: str, wanted: Sync) -> Answer:
        core = self._core
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        data = {
            "commit": base.commit,
            "ref": ref,
            "principal": wanted.principal,
            "request_id": wanted.request_id,
            "digest": wanted.digest.hex(),
        }
        intent = await core.store.write(lambda unit: self._begin(unit, session.id, data))
        core.failpoint.hit("sync.intended")
        kept: list[Checkpoint] = []

        async def keep(coming: Synced) -> None:
            made = await self._checkpointer.make(session.id, CheckpointReason.SYNC, principal=wanted.principal)
            kept.append(made)
            changes = {"old": coming.old, "new": coming.new, "commits": str(coming.commits)}
            noted = replace(intent, data={**data, **changes, "before": str(made.number), "checkpoint": made.id})

            def note(unit: Unit) -> None:
                unit.intents.remove(noted.id)
                unit.intents.add(noted)

            await write_for_sure(core.store, note)
            core.failpoint.hit("sync.kept")

        try:
            await core.kept(session.id)
            branch = session.branch or None
            message = f"Merge {base.ref} into {session.branch}"
            synced = await core.git.sync(
                session.worktree,
                branch,
                base.commit,
                rebase=wanted.rebase,
                message=message,
                source=info.worktree_root,
                before_changing=keep,
            )
            core.failpoint.hit("sync.synced")
        except Exception:  # whatever it was: nobody would carry it on before the next start
            await write_for_sure(core.store, lambda unit: unit.intents.remove(intent.id))
            core.wake()
            raise
        warnings = list(synced.warnings)
        try:
            await core.git.make_durable(info, session.worktree)
        except RametError as error:  # it is done all the same
            warnings.append(f"the sync is done, but may not survive a loss of power: {error.message}")

        def record(unit: Unit) -> Answer:
            unit.intents.remove(intent.id)
            now, prompt = unit.sessions.get(session.id), None
            if synced.conflicts and wanted.ask_agent:
                text = request_to_merge(base.ref, base.commit, synced.conflicts)
                prompt, now = post(unit, core.kind(now.agent), now, text, wanted.principal)
            now = log_synced(unit, now, synced, data)
            for words in warnings:
                warning = event_pb2.Warning(message=words)
                unit.events.append(events.make(warning, session_id=now.id, repo_id=now.repo_id))
            done = Done(
                now, replace(synced, warnings=tuple(warnings)), prompt, kept[0] if kept and synced.commits else None
            )
            return remember(unit, done, data)

        answer = await write_for_sure(core.store, record)
        core.wake_session(session.id)
        return answer

    def _begin(self, unit: Unit, session_id: str, data: Mapping[str, str]) -> Intent:
        session = unit.sessions.get(session_id)
        if session.worktree_kind == WorktreeKind.IN_PLACE:
            raise WrongStateError(
                f"{session.name} works in your own checkout", hint="use git merge or git rebase there"
            )
        if session.state in BUSY_STATES or session.state == State.QUEUED:
            raise WrongStateError(
                f"{session.name} is {session.state}: a turn runs or is about to",
                hint=f"wait until it is idle, or `rametctl stop {session.name}` first",
            )
        if session.state == State.ARCHIVED:
            raise WrongStateError(
                f"{session.name} is archived", hint=f"bring it back with `rametctl restore {session.name}`"
            )
        refuse_landing(unit, session)
        if refuse_other(leaving(unit, session_id), session, SYNC) is not None:
            raise WrongStateError(f"{session.name} is being synced", hint="wait until that is done, then try again")
        return unit.intents.add(Intent(new_id(), SYNC, session_id, dict(data), unit.now))

    async def complete(self, intent: Intent) -> None:
        """A daemon was killed in the middle: what git had done counts, and where it had half done something that is told."""
        await self._settling.join(intent.id, lambda: self._settle(intent.id))

    async def _settle(self, intent_id: str) -> None:
        core = self._core
        intent = await core.store.read(lambda reader: reader.intents.get(intent_id))
        if intent is None:  # the caller who asked again was here first
            return
        data = intent.data
        session = await core.store.read(lambda reader: reader.sessions.get(intent.session_id))
        left, words = CutOff.NOTHING, ""
        if "new" in data:  # else git had not begun
            try:
                repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
                source = (await info_of(core, repo)).worktree_root
                branch = session.branch or None
                left = await core.git.settle_sync(session.worktree, branch, data["old"], data["new"], source)
                words = words_for(left, session, data)
            except (RametError, OSError, pygit2.GitError) as error:
                said = error.message if isinstance(error, RametError) else str(error)
                words = f"a sync was cut off, and what it has left cannot be seen: {said}; checkpoint {data['before']} is of before it"

        def record(unit: Unit) -> None:
            now = unit.sessions.get(session.id)
            if left == CutOff.DONE:
                synced = Synced(data["old"], data["new"], int(data.get("commits", "1")))
                now = log_synced(unit, now, synced, data)
                found = unit.checkpoints.find_by_prefix(now.id, data["checkpoint"]) if "checkpoint" in data else ()
                remember(unit, Done(now, synced, None, next(iter(found), None)), data)
            if words:
                log.warning("a sync was cut off", session=session.id, left=left)
                warning = event_pb2.Warning(message=words)
                unit.events.append(events.make(warning, session_id=now.id, repo_id=now.repo_id))
            unit.intents.remove(intent.id)

        await write_for_sure(core.store, record)
        core.wake()


def remember(unit: Unit, done: Done, data: Mapping[str, str]) -> Answer:
    """The answer, stored under the id of the call that asked for it. ``data`` is the intent's."""
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
    if request_id := data.get("request_id"):
        unit.calls.put(request_id, "SyncSession", bytes.fromhex(data["digest"]), answer.SerializeToString())
    return answer


def log_synced(unit: Unit, session: Session, synced: Synced, data: Mapping[str, str]) -> Session:
    """Tell of it; from here on the session's work is what it has beyond the base that came in, where that is its own. ``data`` is the intent's."""
    principal = data["principal"]
    if not synced.conflicts and data["ref"] == session.base_ref and synced.commits:
        session = unit.sessions.update(session.id, base_commit=data["commit"])
        log_update(unit, session, ["base_commit"], principal)
    payload = event_pb2.SessionSynced(old_commit=synced.old, new_commit=synced.new, conflicts=synced.conflicts[:LISTED])
    unit.events.append(events.make(payload, session_id=session.id, repo_id=session.repo_id, principal=principal))
    return session


def words_for(left: CutOff, session: Session, data: Mapping[str, str]) -> str:
    """The warning about what a sync that was cut off has left; "" where there is nothing to say."""
    back = f"`rametctl rewind --files-only {session.name} {data['before']}` brings the files of before it back"
    if left == CutOff.HALF:
        return (
            f"a sync was cut off while git wrote files: some are those of {data['commit'][:12]}, its branch is as it was; {back}"
            " (should git be held up by an index.lock there, remove that first)"
        )
    if left == CutOff.DETACHED:
        return (
            f"a sync was cut off before {session.branch} was moved to {data['new'][:12]}, and somebody went on without it:"
            f" `git status` in {session.worktree} tells where; {back}"
        )
    return ""


def request_to_merge(ref: str, commit: str, conflicts: tuple[str, ...]) -> str:
    """What an agent is asked where its branch and the base conflict."""
    listed = "\n".join(f"- {path}" for path in conflicts[:LISTED])
    more = f"\n- and {len(conflicts) - LISTED} more" if len(conflicts) > LISTED else ""
    return (
        f"Bring the newest commits of {ref} into your branch: run `git merge {commit[:12]}` in your worktree, resolve the conflicts so that"
        f" both what {ref} changed and what you changed are kept, run what tests there are, and commit the merge. These files conflict:\n\n"
        f"{listed}{more}"
    )
