"""Create a session's worktree or claim a spare, and write the daemon's files about the session;
undo a failed creation.

A creation has two units of work. `begin` stores its operation and deletes the row of a claimed
spare. `insert` stores the session's row and finishes the operation.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog
from ramet.v1 import event_pb2

from rametd.domain.errors import ChangedError, RametError, RefNotFoundError, WorktreeChangedError
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.domain.operations import Kind, Operation
from rametd.domain.spares import Spare
from rametd.domain.text import listed
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.commands import projects
from rametd.services.core import Core
from rametd.services.creation.pool import Pool
from rametd.services.creation.request import Creation, NewSession, Start
from rametd.services.creation.start import require_unshared
from rametd.services.delivery import add_prompt
from rametd.services.ids import new_id
from rametd.services.ownership.claims import check_claims
from rametd.services.trust.refusals import included_withheld, not_loaded, untrusted_files
from rametd.services.trust.settings import for_session
from rametd.services.views import one_session_message
from rametd.services.worktrees.places import link_by_name, unlink_by_name
from rametd.store import Unit


def operation_of(session: Session, info: RepositoryInfo, start: Start, spare: Spare | None) -> Operation:
    """The operation of a creation, with the data from which the next daemon undoes it: for a spare
    also its commit."""
    return Operation(
        id=new_id(),
        kind=Kind.CREATE,
        session_id=session.id,
        data={
            "repo": str(info.common_dir),
            "worktree": str(session.worktree),
            "branch": session.branch,
            "created_at": start.commit if start.new_branch else "",
            "kind": start.kind,
            **({"spare": spare.commit, "commit": start.commit, "repo_id": spare.repo_id} if spare is not None else {}),
        },
        create_time=session.create_time,
    )


def begin(unit: Unit, repo: Repo, made: Creation, spare: Spare | None) -> None:
    """Store the operation and take the spare. Raises `ChangedError` if another creation has it, or
    if the person has withdrawn the trust by which the creation was checked."""
    now = unit.repos.by_common_dir(repo.common_dir)
    if repo.trusted and (now is None or not now.trusted):
        raise ChangedError(f"the trust in {repo.name} was withdrawn meanwhile; nothing was created", hint="try again")
    if made.start.worktree is not None:
        require_unshared(unit, repo, made.start.worktree)
    if spare is not None and not unit.spares.remove(spare.id):
        raise ChangedError("another creation took the spare", hint="try again")
    unit.operations.begin(made.operation)


def insert(unit: Unit, session: Session, new: NewSession, operation: Operation) -> Session:
    """Store a session with its events, its prompt and the end of its operation; return the stored
    row."""
    new.admit(unit, session)
    if not session.forked_from:  # a fork owns the same paths as its original, until the person changes them
        parent = unit.sessions.find(session.parent_id) if session.parent_id else None
        check_claims(unit, session.repo_id, new.owns, new.forbids, parent=parent, tree=new.tree)
    unit.sessions.insert(session)
    created = event_pb2.SessionCreated(session=one_session_message(unit, session))
    tree = event_pb2.WorktreeCreated(path=str(session.worktree), branch=session.branch, commit=session.base_commit)
    for payload in (created, tree) if session.worktree_kind == WorktreeKind.OWN else (created,):
        events.log(unit, session, payload, new.principal)
    if new.prompt:
        add_prompt(unit, session, new.prompt, new.principal, images=new.images)
    unit.operations.finish(operation)
    stored = unit.sessions.get(session.id)
    new.remember(unit, stored)
    return stored


log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes for the caller of a creation: warnings about withheld commands and, once per
    repository, a suggested setup."""

    warnings: tuple[str, ...] = ()
    offer: str = ""


async def notes(core: Core, session: Session, repo: Repo) -> Notes:
    warnings = (*await _claude_warnings(core, session, repo), *await included_withheld(core, repo))
    if session.worktree_kind != WorktreeKind.OWN:
        return Notes(warnings)
    try:
        settings = await for_session(core, session, repo)
    except RametError as error:
        return Notes((f"the setup was not run: {error.message}", *warnings))
    if settings.untrusted is not None and repo.trusted:
        words = f"{repo.name} has changed {listed(settings.changed)} since you trusted it"
        return Notes((f"{words}: only what you trusted runs until `rametctl repo trust`", *warnings))
    if settings.untrusted is not None and settings.untrusted.setup and not settings.config.setup:
        shown = "; ".join(" ".join(command.split()) for command in settings.untrusted.setup)
        words = f"{repo.name} is not trusted: its setup ({shown[:120]}) does not run until `rametctl repo trust`"
        return Notes((words, *warnings))
    if settings.config.setup:
        return Notes(warnings)
    project = await asyncio.to_thread(projects.recognise, session.worktree)
    if project is None:
        return Notes(warnings)
    words = f"tip: {repo.name} uses {project.kind}; for a setup that prepares each worktree: rametctl setup {session.reference}"
    return Notes(warnings, offer=words)


async def _claude_warnings(core: Core, session: Session, repo: Repo) -> tuple[str, ...]:
    if repo.trusted:
        files = await untrusted_files(core, repo, session.worktree, session.agent)
        return (not_loaded(repo, session.agent, files),) if files else ()
    if not await asyncio.to_thread(_has_claude_settings, session.worktree):
        return ()
    words = "its own Claude settings, CLAUDE.md, hooks and MCP servers are not loaded until `rametctl repo trust`"
    return (f"{repo.name} is not trusted: {words}",)


def _has_claude_settings(worktree: Path) -> bool:
    return any((worktree / name).exists() for name in (".claude", "CLAUDE.md", ".mcp.json"))


class SpareLostError(WorktreeChangedError):
    """Raised when a spare changed after the creation claimed it."""


class Builder:
    """Builds the worktree that an operation names. `undo` removes as much of it as exists, at any
    time."""

    def __init__(self, core: Core, pool: Pool) -> None:
        self._core = core
        self._pool = pool

    async def build(self, made: Creation, spare: Spare | None) -> tuple[str, ...]:
        """Create the worktree with its branch and files; return warnings."""
        git, session, start, info = self._core.git, made.session, made.start, made.request.info
        if start.kind != WorktreeKind.OWN:
            return ()
        if spare is not None:
            warnings = tuple(dict.fromkeys((*spare.warnings, *await self._claim(made, spare))))
        else:
            warnings = await git.worktrees.create(
                info, session.worktree, session.branch, start.commit, new_branch=start.new_branch
            )
        if start.upstream is not None:
            await git.remotes.follow(info, session.branch, start.upstream)
        if made.request.new.with_changes and info.worktree_root is not None:
            changes = await git.snapshots.take(info.worktree_root, owner=session.id, apart=True)
            more = await git.snapshots.apply_tree(info, session.worktree, changes)
            warnings = (*warnings, *changes.skipped, *more)
        if (fork := made.request.new.fork) is not None:
            source = await git.snapshots.read(info, fork.snapshot)
            if source is None:
                raise RefNotFoundError(
                    f"{fork.snapshot} is gone", hint="`rametctl checkpoints` lists what can be forked"
                )
            warnings = (*warnings, *await git.snapshots.apply_tree(info, session.worktree, source))
        return warnings

    async def _claim(self, made: Creation, spare: Spare) -> tuple[str, ...]:
        """Give the session a spare. Raises `SpareLostError` if the spare changed: undo the
        creation, then try again without this spare."""
        git, session, start, info = self._core.git, made.session, made.start, made.request.info
        warnings: tuple[str, ...] = ()
        try:
            if spare.commit != start.commit:
                self._pool.warmer.discard(spare.id)  # its agent was started at the other commit
                warnings = await git.spares.update(info, spare.path, spare.commit, start.commit, background=False)
            elif (
                made.request.new.with_changes or made.request.new.fork is not None
            ):  # their files overwrite those of the spare
                await git.spares.require_untouched(info, spare.path, spare.commit)
            await git.spares.claim(info, spare.path, session.branch, start.commit, new_branch=start.new_branch)
        except WorktreeChangedError as error:
            log.warning("a spare could not be used", spare=spare.id, error=error.message)
            raise SpareLostError(error.message) from error
        self._core.failpoint.hit("create.claimed")
        return warnings

    def write_files(self, made: Creation) -> None:
        """Write the caller's environment, the link by name, and the copy of the row. Blocks."""
        core, session = self._core, made.session
        core.environments.write(session.id, made.request.new.environment)
        if session.worktree_kind == WorktreeKind.OWN:
            link_by_name(session)
        core.index.write(made.request.repo, session)

    async def undo(self, operation: Operation) -> None:
        """Remove what an unfinished creation left. A worktree that existed before stays as it
        is."""
        core = self._core
        # Use a write, which runs after the writes that were queued before it: if one of them stores
        # the session, keep everything.
        if await core.store.write(lambda unit: unit.operations.get(operation.id)) is None:
            return
        path, branch = Path(operation.data["worktree"]), operation.data["branch"]
        await self._pool.warmer.end(operation.session_id)
        if operation.data.get("kind", WorktreeKind.OWN) == WorktreeKind.OWN:
            try:
                info = await core.git.discover(Path(operation.data["repo"]))
            except RametError as error:
                log.warning("repository of an unfinished creation is gone", error=error.message)
            else:
                await self._unmake(info, path, branch, operation)
            await asyncio.to_thread(unlink_by_name, path)
        await asyncio.to_thread(core.environments.delete, operation.session_id)
        await asyncio.to_thread(core.index.delete, operation.session_id)
        await core.store.write(lambda unit: unit.operations.undo(operation.id))

    async def _unmake(self, info: RepositoryInfo, path: Path, branch: str, operation: Operation) -> None:
        git, created_at = self._core.git, operation.data["created_at"] or None
        if spare := operation.data.get("spare"):
            commits = (spare, operation.data["commit"])
            removal = await git.spares.remove(
                info, path, *commits, branch=branch, created_branch_at=created_at, unfinished=True
            )
            await self._pool.spares.handwork.stays(removal.left, path, operation.data["repo_id"])
            return
        removal = await git.worktrees.undo_create(info, path, branch, created_at)
        for words in removal.left:
            log.warning("an unfinished creation left files", what=words)

    async def notes(self, made: Creation) -> Notes:
        """Notes for the person about the new worktree."""
        return await notes(self._core, made.session, made.request.repo)
