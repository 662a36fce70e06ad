"""Create sessions: worktree and row, or neither.

The creator stores the operation first, then creates the worktree or claims a spare. Then one unit
of work stores the session with its prompt and finishes the operation. If the daemon is killed in
between, the next one finds the operation and undoes it.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import structlog

from rametd.agents.base import require, require_mode
from rametd.domain.errors import BypassForbiddenError, PathTakenError
from rametd.domain.models import UNATTENDED, Hold, Session, SetupState, Tokens, WorktreeKind
from rametd.domain.operations import Kind, Operation
from rametd.domain.spares import Spare
from rametd.domain.states import State
from rametd.environment import build
from rametd.git import Base, check_branch_name, slug
from rametd.services import budgets, ports, repos
from rametd.services.checks import (
    check_budget,
    check_effort,
    check_images,
    check_model,
    check_prompt,
    check_token_budget,
)
from rametd.services.core import Core
from rametd.services.creation.building import Builder, SpareLostError, begin, insert, operation_of
from rametd.services.creation.pool import Pool
from rametd.services.creation.request import CheckedRequest, Created, Creation, NewSession, Start
from rametd.services.creation.start import check_start, choose_name, find_start
from rametd.services.environments import digest_of
from rametd.services.hooks import SessionHooks
from rametd.services.ids import new_id
from rametd.services.lookup import find_session
from rametd.services.ownership.claims import check_claims
from rametd.services.repos import pruned_by
from rametd.services.trust.settings import for_repository
from rametd.services.worktrees.places import tree_of
from rametd.store import Unit

log = structlog.get_logger()


class Creator:
    """Creates sessions. Creations in one repository choose their names one after another, and fill
    their worktrees in parallel."""

    def __init__(self, core: Core, hooks: SessionHooks, pool: Pool) -> None:
        self._core = core
        self._hooks = hooks
        self._pool = pool
        self._builder = Builder(core, pool)
        core.operations.handle(Kind.CREATE, self._undo)
        self._locks: dict[Path, asyncio.Lock] = {}
        self._drafts: dict[str, Session] = {}  # by id; sessions that have a name and a branch, but no row yet

    async def _undo(self, operation: Operation, error: BaseException | None) -> None:
        await self._builder.undo(operation)

    async def create(self, new: NewSession) -> Created:
        """Create a session. Raises the typed errors of bad input before it creates anything."""
        (created,) = await self.create_all([new])
        return created

    async def create_all(
        self,
        news: Sequence[NewSession],
        remember: Callable[[Unit, Sequence[Session]], None] = lambda unit, made: None,
        *,
        one_base: bool = False,
    ) -> list[Created]:
        """Create all of them or none: one unit of work stores their rows and calls ``remember``.

        ``after`` may name sessions that come earlier in ``news``. With ``one_base``, all start from
        the commit that the first one's base names now.
        """
        with self._pool.spares.creating():
            return await self._create_all(news, remember, one_base=one_base)

    async def _create_all(
        self, news: Sequence[NewSession], remember: Callable[[Unit, Sequence[Session]], None], *, one_base: bool
    ) -> list[Created]:
        core = self._core
        batch = frozenset(new.name for new in news if new.name)
        requests = [await self._check(new, batch) for new in news]
        if one_base:
            new, info = requests[0].new, requests[0].info
            base = requests[0].fetched or await core.git.branches.resolve_base(info, new.base_ref or None, new.path)
            requests = [replace(each, fetched=base) for each in requests]
        made: list[Creation] = []
        stored: dict[str, Session] = {}  # by id, as stored: with their ports
        offers: dict[str, tuple[str, ...]] = {}  # by session
        # Undo also if the caller hangs up: a session that is not stored must leave no files.
        async with AsyncExitStack() as undoing:
            for each in requests:
                made.append(await self._make(each, [one.session for one in made], undoing))

            def insert_all(unit: Unit) -> None:
                for one in made:
                    repo = repos.register(unit, one.request.repo, one.request.new.principal)
                    if one.offer and unit.commands.record_setup_offer(repo.id):
                        offers[one.session.id] = (one.offer,)
                    session = ports.with_ports(unit, one.session, one.request.config)
                    stored[session.id] = insert(unit, session, one.request.new, one.operation)
                remember(unit, [one.session for one in made])

            await self._insert(insert_all)
            core.failpoint.hit("create.inserted")
        for session in stored.values():
            self._hooks.created(session)
            self._pool.session_made(session.repo_id)
        for one in made:
            if one.spare is not None:
                self._pool.spares.claimed(stored[one.session.id], one.request.info)
        core.live.schedule()
        return [Created(stored[one.session.id], (*one.warnings, *offers.get(one.session.id, ()))) for one in made]

    async def _insert(self, work: Callable[[Unit], None]) -> None:
        """Store the rows. The store completes a queued write even if the caller hangs up; such a
        creation must not be undone."""
        writing = asyncio.ensure_future(self._core.store.write(work))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            if writing.cancelled() or writing.exception() is not None:
                raise

    async def _check(self, new: NewSession, batch: Collection[str]) -> CheckedRequest:
        core = self._core
        check_prompt(new.prompt, empty_is_fine=True)
        check_model(new.model)
        check_effort(new.effort)
        check_budget(new.budget_usd)
        check_token_budget(new.budget_tokens)
        check_start(new)
        kind = core.kind(new.agent)
        check_images(kind, new.images)
        if new.effort:
            require(kind, "effort")
        budgets.check_kind(kind, in_dollars=new.budget_usd is not None, in_tokens=new.budget_tokens is not None)
        caller = build(core.daemon_environment, new.environment)
        await kind.check(caller)
        info = await core.git.discover(new.adopt or new.path)
        repo = await core.store.read(lambda reader: repos.known_or_new(core, reader, info))
        config = await for_repository(core, repo, info)
        mode = new.mode if new.mode is not None else config.permissions.default_mode
        if mode in UNATTENDED and not core.config.permissions.allow_bypass:
            raise BypassForbiddenError.of(mode)
        require_mode(kind, mode)
        repo_id = repo.id
        parent, after = await core.store.read(
            lambda reader: (
                find_session(reader, new.parent, repo_id=repo_id) if new.parent else None,
                tuple(find_session(reader, name, repo_id=repo_id).id for name in new.after if name not in batch),
            )
        )
        core.git.trust(info.common_dir)  # the person's own repository, or, for a child, its parent's
        # Check before creating anything. `insert` checks again, in the unit of work that stores the
        # row.
        if new.owns and new.fork is None and info.head.commit is not None:
            new = replace(new, tree=await core.git.commits.files(info, info.head.commit))
        if not new.claims_later and new.fork is None:
            asked = new
            await core.store.read(
                lambda reader: check_claims(reader, repo_id, asked.owns, asked.forbids, parent=parent, tree=asked.tree)
            )
        warnings: tuple[str, ...] = ()
        fetched: Base | None = None
        if new.fetch:  # first: the fetch may fail, or may bring a base to a repository without commits
            ref = new.existing_branch or new.base_ref or None
            fetched = await core.git.remotes.fetch_base(info, ref, new.path, caller)
        if new.initial_commit and info.head.commit is None and fetched is None:
            # Refuse a bad name or branch before creating the commit. Both are chosen later, in one
            # creation after another.
            await core.store.read(lambda reader: choose_name(reader, new, repo, "session"))
            if new.branch:
                check_branch_name(new.branch)
            commit = await core.git.branches.initial_commit(info, "Initial commit")
            warnings = (f"{info.head.branch} had no commit: it now starts with the empty commit {commit[:10]}",)
            info = await core.git.discover(new.adopt or new.path)
        warnings += tuple(pruned_by(info.root, remote) for remote in await core.git.upkeep.mirrored(info))
        return CheckedRequest(new, config, mode, info, repo, parent, after, fetched, warnings)

    async def _draft(
        self, request: CheckedRequest, start: Start, before: Sequence[Session], session_id: str, spare: Spare | None
    ) -> Session:
        """The row of a session. ``before``: sessions of the same call, which are not stored yet."""
        core = self._core
        new, config, info, repo, parent = request.new, request.config, request.info, request.repo, request.parent
        drafts = [each for each in self._drafts.values() if each.repo_id == repo.id]
        names_taken = {each.name for each in drafts}
        name, stored = await core.store.read(
            lambda reader: (
                choose_name(reader, new, repo, start.branch or session_id, names_taken),
                reader.sessions.branches(repo.id),
            )
        )
        branch = start.branch
        if not branch and start.kind == WorktreeKind.OWN:
            taken = stored | {each.branch for each in drafts}
            prefix = config.worktrees.branch_prefix
            text = slug(new.name or name) or session_id
            branch = await core.git.branches.free_name(info, prefix + text, fallback=prefix + session_id, taken=taken)
        if start.kind == WorktreeKind.OWN:
            await core.git.branches.require_free(info, branch, new=start.new_branch)
        elif any(each.worktree == start.worktree for each in drafts):
            raise PathTakenError(
                f"another session is being created in {start.worktree}", hint="see it with `rametctl ls`"
            )
        now = core.clock()
        kind = core.kind(new.agent)
        model, effort = kind.defaults(config)
        return Session(
            id=session_id,
            repo_id=repo.id,
            name=name,
            branch=branch,
            base_ref=start.ref,
            base_commit=start.base_commit,
            worktree=start.worktree or tree_of(core, repo, session_id),
            parent_id=parent.id if parent is not None else "",
            agent=new.agent,
            model=new.model or model,
            effort=new.effort or effort,
            mode=request.mode,
            state=State.QUEUED if new.prompt else State.IDLE,
            state_reason="",
            hold=Hold.NONE,
            conversation_id=self._pool.warmer.conversation_of(session_id) or str(uuid.uuid4()),
            conversation_begun=False,
            created_branch=start.new_branch,
            worktree_ready=True,
            conversation_lost=new.handed_over,
            interrupted=False,
            turns=0,
            cost_usd=0.0 if kind.capabilities.cost else None,
            tokens=Tokens(),
            budget_usd=new.budget_usd,
            budget_tokens=new.budget_tokens,
            priority=new.priority,
            owns=new.owns,
            forbids=new.forbids,
            after=(*request.after, *(each.id for each in before if each.name in new.after)),
            resumes=0,
            generation=0,
            create_time=now,
            update_time=now,
            last_seq=0,
            root_id=(parent.root_id or parent.id) if parent is not None else session_id,
            notify_parent=new.notify_parent,
            forked_from=new.fork.source.id if new.fork is not None else "",
            start_commit=new.fork.head if new.fork is not None else "",
            plan_id=new.plan_id,
            thread=new.thread,
            contest=new.contest,
            contest_check=new.contest_check,
            judges=new.judges,
            worktree_kind=start.kind,
            setup=spare.setup if spare is not None else SetupState.NONE,
            setup_digest=spare.setup_digest if spare is not None else "",
            environment=digest_of(core, new.environment),
        )

    async def _make(self, request: CheckedRequest, before: Sequence[Session], undoing: AsyncExitStack) -> Creation:
        """Create the worktree of a session; ``undoing`` removes it unless the session gets
        stored."""
        while True:
            try:
                async with AsyncExitStack() as attempt:
                    made, spare = await self._begin(request, before, attempt)
                    made = await self._built(made, spare)
                    undoing.push_async_exit(attempt.pop_all())
                    return made
            except SpareLostError:
                continue  # the spare is lost: try the next one, or none

    async def _built(self, made: Creation, spare: Spare | None) -> Creation:
        core = self._core
        core.failpoint.hit("create.intended")
        # Syncing these files to disk takes time: create the worktree meanwhile.
        files = asyncio.create_task(asyncio.to_thread(self._builder.write_files, made))
        try:
            warnings = await self._builder.build(made, spare)
            core.failpoint.hit("create.worktree-made")
            notes = await self._builder.notes(made)
        finally:
            # Wait for the thread, which cannot be stopped: it must not write after the undoing.
            await asyncio.wait([files])
        files.result()
        core.failpoint.hit("create.files-written")
        warnings = (*made.request.warnings, *_another_branch(made), *warnings, *notes.warnings)
        return replace(made, warnings=warnings, offer=notes.offer, spare=spare)

    async def _begin(
        self, request: CheckedRequest, before: Sequence[Session], attempt: AsyncExitStack
    ) -> tuple[Creation, Spare | None]:
        """Choose names, take a spare if there is one, and store the operation. The same unit of
        work deletes the row of the spare."""
        core, info, new = self._core, request.info, request.new
        spare: Spare | None = None
        async with self._locks.setdefault(info.common_dir, asyncio.Lock()):
            start = await find_start(core, request.repo, info, new, request.fetched)
            try:
                if start.kind == WorktreeKind.OWN:
                    spare = await self._pool.take(request.repo, info, request.config, start.commit)
                identity = spare.id if spare is not None else new_id()
                session = await self._draft(request, start, before, identity, spare)
                made = Creation(session, request, start, operation_of(session, info, start, spare))
                operation = core.operations.within(made.operation, lambda unit: begin(unit, request.repo, made, spare))
                await attempt.enter_async_context(operation)
                # Until then the repository could be removed. From now on the operation protects it.
                core.git.trust(info.common_dir)
            finally:
                if spare is not None:
                    self._pool.release(spare)
            self._drafts[session.id] = session
            attempt.callback(self._drafts.pop, session.id, None)
        return made, spare


def _another_branch(made: Creation) -> tuple[str, ...]:
    """Warn that a named session has another branch than its name, because that branch is taken."""
    new, session = made.request.new, made.session
    wished = made.request.config.worktrees.branch_prefix + slug(new.name)
    chosen = new.branch or new.existing_branch or not session.created_branch
    if not new.name or chosen or session.branch == wished:
        return ()
    hint = "to continue an existing branch: rametctl new --existing BRANCH"
    return (f"branch {wished} is taken: the work is on {session.branch}; {hint}",)
