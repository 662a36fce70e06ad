"""Bringing the base's newest commits into an idle session's branch.

The intent keeps the scheduler from starting a turn meanwhile, and notes what is about to be written. After a daemon that was killed nothing is written
or taken back, for somebody may have been at the files since: what git had done counts, and what it had half done is told.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pygit2
import structlog
from ramet.v1 import event_pb2

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
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Unit

log = structlog.get_logger()

LISTED = 30


@dataclass(frozen=True, slots=True)
class Sync:
    """What is wanted; ``base_ref`` "" is the base that the session started from."""

    base_ref: str = ""
    rebase: bool = False
    fetch: bool = False
    ask_agent: bool = False
    principal: str = OWNER


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
        self._running: Running[Done] = Running()

    async def sync(self, session: Session, wanted: Sync, remember: Callable[[Unit, Done], None]) -> Done:
        """A caller that hangs up does not cut it off: git would be left in the middle of it, and the session held.

        Raises `WrongStateError` while a turn runs, `RefNotFoundError`, and git's own words where uncommitted changes are in the way."""
        core = self._core
        await require_tree(core, session)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        ref = wanted.base_ref or session.base_ref
        fetched: Base | None = None
        if wanted.fetch:
            environment = await asyncio.to_thread(core.environments.read, session.id) or {}
            fetched = await core.git.fetch_base(info, ref, session.worktree, environment)
        base = fetched or await core.git.resolve_base(info, ref, None)
        # Every caller has a task of its own: the second is refused by the intent of the first.
        return await self._running.join(new_id(), lambda: self._bring_in(session, base, ref, wanted, remember))

    async def close(self) -> None:
        await self._running.close()

    async def _bring_in(
        self, session: Session, base: Base, ref: str, wanted: Sync, remember: Callable[[Unit, Done], None]
    ) -> Done:
        core = self._core
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        data = {"commit": base.commit, "ref": ref, "principal": wanted.principal}
        intent = await core.store.write(lambda unit: self._begin(unit, session.id, data))
        core.failpoint.hit("sync.intended")
        kept: list[Checkpoint] = []

        async def keep(old: str, new: str) -> None:
            made = await self._checkpointer.make(session.id, CheckpointReason.SYNC, principal=wanted.principal)
            kept.append(made)
            noted = replace(intent, data={**data, "old": old, "new": new, "before": str(made.number)})

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
                before_changing=keep,
            )
            core.failpoint.hit("sync.synced")
        except Exception:  # whatever it was: nobody would carry it on before the next start
            await write_for_sure(core.store, lambda unit: unit.intents.remove(intent.id))
            core.wake()
            raise
        unsure = ""
        try:
            await core.git.make_durable(await info_of(core, repo), session.worktree)
        except RametError as error:  # it is done all the same
            unsure = f"whether all that the sync has written is on the disk cannot be told: {error.message}"

        def record(unit: Unit) -> Done:
            unit.intents.remove(intent.id)
            now, prompt = unit.sessions.get(session.id), None
            if synced.conflicts and wanted.ask_agent:
                text = request_to_merge(base.ref, base.commit, synced.conflicts)
                prompt, now = post(unit, core.kind(now.agent), now, text, wanted.principal)
            now = log_synced(unit, now, synced, data)
            if unsure:
                warning = event_pb2.Warning(message=unsure)
                unit.events.append(events.make(warning, session_id=now.id, repo_id=now.repo_id))
            done = Done(now, synced, prompt, kept[0] if kept and synced.commits else None)
            remember(unit, done)
            return done

        done = await write_for_sure(core.store, record)
        core.wake_session(session.id)
        return done

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
        core, data = self._core, intent.data
        session = await core.store.read(lambda reader: reader.sessions.get(intent.session_id))
        left, words = CutOff.NOTHING, ""
        if "new" in data:  # else git had not begun
            try:
                left = await core.git.settle_sync(session.worktree, session.branch or None, data["old"], data["new"])
                words = words_for(left, session, data)
            except (RametError, OSError, pygit2.GitError) as error:
                said = error.message if isinstance(error, RametError) else str(error)
                words = f"a sync was cut off, and what it has left cannot be seen: {said}; checkpoint {data['before']} is of before it"

        def record(unit: Unit) -> None:
            now = unit.sessions.get(session.id)
            if left == CutOff.DONE:
                log_synced(unit, now, Synced(data["old"], data["new"], 1), data)
            if words:
                log.warning("a sync was cut off", session=session.id, left=left)
                warning = event_pb2.Warning(message=words)
                unit.events.append(events.make(warning, session_id=now.id, repo_id=now.repo_id))
            unit.intents.remove(intent.id)

        await write_for_sure(core.store, record)
        core.wake()


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
