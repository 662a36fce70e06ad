"""Bringing the base's newest commits into an idle session's branch.

The intent keeps the scheduler from starting a turn meanwhile; a daemon that is killed in the middle of git's work has git take it back.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pygit2
import structlog
from ramet.v1 import event_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import RametError, WrongStateError
from rametd.domain.models import OWNER, Intent, Prompt, Session, WorktreeKind
from rametd.domain.states import BUSY_STATES, State
from rametd.git import Base, Synced
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
        intent = await core.store.write(lambda unit: self._begin(unit, session.id, base.commit))
        core.failpoint.hit("sync.intended")
        kept: list[Checkpoint] = []

        async def keep() -> None:
            kept.append(await self._checkpointer.make(session.id, CheckpointReason.MANUAL, principal=wanted.principal))
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

        def record(unit: Unit) -> Done:
            unit.intents.remove(intent.id)
            now, prompt = unit.sessions.get(session.id), None
            if synced.conflicts and wanted.ask_agent:
                text = request_to_merge(base.ref, base.commit, synced.conflicts)
                prompt, now = post(unit, core.kind(now.agent), now, text, wanted.principal)
            if not synced.conflicts and ref == session.base_ref and synced.commits:
                # From here on its work is what it has beyond this.
                now = unit.sessions.update(session.id, base_commit=base.commit)
                log_update(unit, now, ["base_commit"], wanted.principal)
            payload = event_pb2.SessionSynced(
                old_commit=synced.old, new_commit=synced.new, conflicts=synced.conflicts[:LISTED]
            )
            unit.events.append(events.make(payload, session_id=now.id, repo_id=now.repo_id, principal=wanted.principal))
            done = Done(now, synced, prompt, kept[0] if kept and synced.commits else None)
            remember(unit, done)
            return done

        done = await write_for_sure(core.store, record)
        core.wake_session(session.id)
        return done

    def _begin(self, unit: Unit, session_id: str, commit: str) -> Intent:
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
        return unit.intents.add(Intent(new_id(), SYNC, session_id, {"commit": commit}, unit.now))

    async def complete(self, intent: Intent) -> None:
        """A daemon was killed in the middle: what git had begun is taken back, what it had done stays."""
        try:
            session = await self._core.store.read(lambda reader: reader.sessions.get(intent.session_id))
            await self._core.git.abort_sync(session.worktree, intent.data["commit"])
        except (
            RametError,
            OSError,
            pygit2.GitError,
        ) as error:  # nobody is to wait for it: git says in the tree what it is in the middle of
            log.warning("a sync could not be taken back", session=intent.session_id, error=str(error))
        await write_for_sure(self._core.store, lambda unit: unit.intents.remove(intent.id))
        self._core.wake()


def request_to_merge(ref: str, commit: str, conflicts: tuple[str, ...]) -> str:
    """What an agent is asked where its branch and the base conflict."""
    listed = "\n".join(f"- {path}" for path in conflicts[:LISTED])
    more = f"\n- and {len(conflicts) - LISTED} more" if len(conflicts) > LISTED else ""
    return (
        f"Bring the newest commits of {ref} into your branch: run `git merge {commit[:12]}` in your worktree, resolve the conflicts so that"
        f" both what {ref} changed and what you changed are kept, run what tests there are, and commit the merge. These files conflict:\n\n"
        f"{listed}{more}"
    )
