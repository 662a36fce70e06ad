"""Making a session: worktree and row, or nothing at all.

An intent is stored first, then the worktree is made, then one unit of work stores the session with its prompt and takes the intent back. A daemon
killed in between finds the intent and undoes what the world shows of it.
"""

import asyncio
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from ramet.v1 import event_pb2

from rametd.config import Config
from rametd.domain.errors import (
    BadNameError,
    BypassForbiddenError,
    EmptyPromptError,
    InvalidInputError,
    NameTakenError,
    PromptTooLargeError,
    RametError,
    RefNotFoundError,
)
from rametd.domain.models import Hold, Intent, Mode, Repo, Session, Tokens
from rametd.domain.states import State
from rametd.git import names
from rametd.git.repository import RepositoryInfo
from rametd.services import events, repos
from rametd.services.core import Core
from rametd.services.delivery import add_prompt
from rametd.services.ids import new_id
from rametd.services.lookup import find_session
from rametd.services.places import link_by_name, tree_of, unlink_by_name
from rametd.services.settings import for_repository
from rametd.services.views import one_session_message
from rametd.store import Reader, Unit

log = structlog.get_logger()

CREATE = "create"
PROMPT_LIMIT = 16 << 20
NAME_LIMIT = 200
DERIVED_NAME_LIMIT = 40


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a caller wants; empty strings and None mean "as usual"."""

    path: Path
    prompt: str = ""
    name: str = ""
    branch: str = ""
    base_ref: str = ""
    existing_branch: str = ""
    agent: str = "claude"
    model: str = ""
    mode: Mode | None = None
    budget_usd: float | None = None
    owns: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    parent: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    principal: str = ""
    notify_parent: bool = False
    admit: Callable[[Unit, Session], None] = lambda unit, session: None  # may still refuse where the row is stored
    remember: Callable[[Unit, Session], None] = lambda unit, session: None  # stores the answer with what it answers


@dataclass(frozen=True, slots=True)
class Created:
    session: Session
    warnings: tuple[str, ...]


class Creator:
    """Creations in one repository take turns, as names are chosen by looking at what is there."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._locks: dict[Path, asyncio.Lock] = {}

    async def create(self, new: NewSession) -> Created:
        """Raises the typed errors of bad input before anything is made."""
        core = self._core
        check_prompt(new.prompt, empty_is_fine=True)
        check_model(new.model)
        check_budget(new.budget_usd)
        await core.kind(new.agent).check()
        info = await core.git.discover(new.path)
        repo = await core.store.write(lambda unit: repos.register(unit, info, new.principal))
        config = await for_repository(core, repo, info)
        mode = new.mode if new.mode is not None else config.permissions.default_mode
        if mode == Mode.BYPASS and not core.config.permissions.allow_bypass:
            raise BypassForbiddenError(
                "bypassPermissions is off", hint="set permissions.allow_bypass = true in config.toml if you mean it"
            )
        parent, after = await core.store.read(
            lambda reader: (
                find_session(reader, new.parent, repo_id=repo.id) if new.parent else None,
                tuple(find_session(reader, name, repo_id=repo.id).id for name in new.after),
            )
        )
        async with self._locks.setdefault(info.common_dir, asyncio.Lock()):
            draft = await self._draft(new, config, mode, info, repo, parent, after)
            warnings = await self._make(draft, info, repo, new)
        if not repo.trusted and await asyncio.to_thread(has_own_settings, draft.worktree):
            warning = (
                "its own Claude settings, CLAUDE.md, hooks and MCP servers are not loaded until `rametctl repo trust`"
            )
            warnings += (f"{repo.name} is not trusted: {warning}",)
        core.wake()
        return Created(draft, warnings)

    async def _draft(
        self,
        new: NewSession,
        config: Config,
        mode: Mode,
        info: RepositoryInfo,
        repo: Repo,
        parent: Session | None,
        after: tuple[str, ...],
    ) -> Session:
        core = self._core
        branches = {branch.name for branch in await core.git.branches(info)}
        session_id = new_id()
        name = await core.store.read(lambda reader: choose_name(reader, new, repo, session_id))
        if new.existing_branch:
            tip = await core.git.branch_tip(info, new.existing_branch)
            if tip is None:
                near = ", ".join(sorted(branches)[:5])
                raise RefNotFoundError(f"there is no branch {new.existing_branch!r}", hint=f"branches: {near}")
            branch, base_ref, base_commit = new.existing_branch, new.base_ref or new.existing_branch, tip
            if new.base_ref:
                base_commit = (await core.git.resolve_base(info, new.base_ref, new.path)).commit
        else:
            base = await core.git.resolve_base(info, new.base_ref or None, new.path)
            base_ref, base_commit = base.ref, base.commit
            prefix = config.worktrees.branch_prefix
            taken = await core.store.read(
                lambda reader: {
                    session.branch for session in reader.sessions.list(repo_id=repo.id, include_archived=True)
                }
            )
            if new.branch:
                branch = names.check_branch_name(new.branch)
            else:
                text = names.slug(new.name or name) or session_id
                branch = names.branch_name(prefix + text, fallback=prefix + session_id, taken=branches | taken)
        now = core.clock()
        return Session(
            id=session_id,
            repo_id=repo.id,
            name=name,
            branch=branch,
            base_ref=base_ref,
            base_commit=base_commit,
            worktree=tree_of(core, repo, session_id),
            parent_id=parent.id if parent is not None else "",
            agent=new.agent,
            model=new.model,
            mode=mode,
            state=State.QUEUED if new.prompt else State.IDLE,
            state_reason="",
            hold=Hold.NONE,
            conversation_id=str(uuid.uuid4()),
            conversation_begun=False,
            created_branch=not new.existing_branch,
            worktree_ready=True,
            interrupted=False,
            turns=0,
            cost_usd=0.0,
            tokens=Tokens(),
            budget_usd=new.budget_usd,
            priority=new.priority,
            owns=new.owns,
            forbids=new.forbids,
            after=after,
            resumes=0,
            generation=0,
            create_time=now,
            update_time=now,
            last_seq=0,
            root_id=(parent.root_id or parent.id) if parent is not None else session_id,
            notify_parent=new.notify_parent,
        )

    async def _make(self, session: Session, info: RepositoryInfo, repo: Repo, new: NewSession) -> tuple[str, ...]:
        core = self._core
        intent = Intent(
            id=new_id(),
            kind=CREATE,
            session_id=session.id,
            data={
                "repo": str(info.common_dir),
                "worktree": str(session.worktree),
                "branch": session.branch,
                "created_at": session.base_commit if session.created_branch else "",
            },
            create_time=session.create_time,
        )
        await core.store.write(lambda unit: unit.intents.add(intent))
        core.failpoint.hit("create.intended")
        try:
            warnings = await core.git.create_worktree(
                info, session.worktree, session.branch, session.base_commit, new_branch=session.created_branch
            )
            core.failpoint.hit("create.worktree-made")
            await asyncio.to_thread(core.environments.write, session.id, new.environment)
            await asyncio.to_thread(link_by_name, session)
            await asyncio.to_thread(core.index.write, repo, session)
            core.failpoint.hit("create.files-written")
            await core.store.write(lambda unit: insert(unit, session, new, intent.id))
            core.failpoint.hit("create.inserted")
        except (RametError, asyncio.CancelledError, OSError):
            # Also when the caller hung up: what is not stored must not be left in the world.
            await asyncio.shield(self.undo(intent))
            raise
        return tuple(warnings)

    async def undo(self, intent: Intent) -> None:
        """Take back what a creation left that did not finish."""
        core = self._core
        path, branch = Path(intent.data["worktree"]), intent.data["branch"]
        try:
            info = await core.git.discover(Path(intent.data["repo"]))
        except RametError as error:
            log.warning("repository of an unfinished creation is gone", error=error.message)
        else:
            removal = await core.git.undo_create(info, path, branch, intent.data["created_at"] or None)
            for kept in removal.kept:
                log.warning("unfinished creation left something", what=kept)
        await asyncio.to_thread(unlink_by_name, path)
        await asyncio.to_thread(core.environments.delete, intent.session_id)
        await asyncio.to_thread(core.index.delete, intent.session_id)
        await core.store.write(lambda unit: unit.intents.remove(intent.id))


def insert(unit: Unit, session: Session, new: NewSession, intent_id: str) -> None:
    new.admit(unit, session)
    unit.sessions.insert(session)
    created = event_pb2.SessionCreated(session=one_session_message(unit, session))
    tree = event_pb2.WorktreeCreated(path=str(session.worktree), branch=session.branch, commit=session.base_commit)
    for payload in (created, tree):
        unit.events.append(
            events.make(payload, session_id=session.id, repo_id=session.repo_id, principal=new.principal)
        )
    if new.prompt:
        add_prompt(unit, session, new.prompt, new.principal)
    unit.intents.remove(intent_id)
    new.remember(unit, unit.sessions.get(session.id))


def has_own_settings(worktree: Path) -> bool:
    """Whether a repository brings anything that only loads once it is trusted."""
    return any((worktree / name).exists() for name in (".claude", "CLAUDE.md", ".mcp.json"))


def check_prompt(prompt: str, *, empty_is_fine: bool = False) -> None:
    """Raises `EmptyPromptError` for one without a word and `PromptTooLargeError` for one over 16 MiB."""
    if not prompt.strip() and not (empty_is_fine and not prompt):
        raise EmptyPromptError("the prompt is empty", hint="say what the agent is to do")
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > PROMPT_LIMIT:
        raise PromptTooLargeError(
            f"the prompt has {size:,} bytes; {PROMPT_LIMIT:,} are the limit",
            hint="put the material into a file in the repository and name the file in the prompt",
        )


def check_model(model: str) -> str:
    """Raises `InvalidInputError` for what the agent's program would take for another option, or could not be given at all."""
    if model.startswith("-") or len(model) > NAME_LIMIT or not model.isprintable():
        raise InvalidInputError(f"{model[:40]!r} cannot be a model", hint="use a name such as opus, sonnet or haiku")
    return model


def check_budget(dollars: float | None) -> float | None:
    """Raises `InvalidInputError` unless it is an amount of money, or None."""
    if dollars is not None and not 0 < dollars < math.inf:
        raise InvalidInputError(
            f"a budget of {dollars} USD is none", hint="give an amount over 0, or none for no limit"
        )
    return dollars


def check_name(name: str) -> str:
    """Raises `BadNameError` for a label that no screen could show."""
    if not name.strip() or len(name) > NAME_LIMIT or any(not character.isprintable() for character in name):
        raise BadNameError(
            f"{name[:40]!r} cannot be a name",
            hint=f"use 1 to {NAME_LIMIT} printable characters, with one that is not a space",
        )
    return name


def choose_name(reader: Reader, new: NewSession, repo: Repo, session_id: str) -> str:
    """The label as typed, or one made of the branch or the prompt; only the latter is varied when it is taken."""
    if new.name:
        check_name(new.name)
        if reader.sessions.by_name(new.name, repo.id):
            raise NameTakenError(
                f"a session of {repo.name} is called {new.name!r} already", hint="choose another --name"
            )
        return new.name
    branch = (new.branch or new.existing_branch).rsplit("/", 1)[-1]
    wanted = branch or names.slug(new.prompt[:400], DERIVED_NAME_LIMIT).replace("/", "-") or session_id
    name, number = wanted, 2
    while reader.sessions.by_name(name, repo.id):
        name, number = f"{wanted}-{number}", number + 1
    return name
