"""Requests for new sessions, and sessions under creation, which have a worktree but no row."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rametd.config import Config
from rametd.domain.models import Mode, Repo, Session, WorktreeKind
from rametd.domain.operations import Operation
from rametd.domain.spares import Spare
from rametd.environment import Variables
from rametd.git import Base, RemoteBranch, RepositoryInfo, Tree
from rametd.store import Unit


@dataclass(frozen=True, slots=True)
class Fork:
    """Source of a fork: a snapshot, and its commit ``head``."""

    source: Session
    snapshot: str
    head: str


@dataclass(frozen=True, slots=True)
class NewSession:
    """A caller's request; empty strings and None mean the defaults."""

    path: Path
    prompt: str = ""
    images: tuple[bytes, ...] = field(default=(), repr=False)
    name: str = ""
    branch: str = ""
    base_ref: str = ""
    existing_branch: str = ""
    agent: str = "claude"
    model: str = ""
    effort: str = ""
    mode: Mode | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    owns: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    parent: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    with_changes: bool = False  # copy the uncommitted changes of the worktree around ``path``
    in_place: bool = False  # work in the checkout around ``path``
    adopt: Path | None = None  # work in this worktree, which Ramet did not create
    fetch: bool = False  # fetch the base first
    fork: Fork | None = None
    handed_over: bool = False  # its first prompt gets a summary of the conversation of the session that it is a fork of
    initial_commit: bool = False  # create an empty first commit in a repository without commits
    environment: Variables = field(default_factory=Variables, repr=False)
    principal: str = ""
    notify_parent: bool = False
    plan_id: str = ""
    thread: str = ""  # its id in the plan
    contest: str = ""
    contest_check: str = ""
    judges: str = ""
    claims_later: bool = (
        False  # paths that it owns change hands in the unit of work that stores it, and are checked only there
    )
    admit: Callable[[Unit, Session], None] = lambda unit, session: (
        None
    )  # may refuse, in the unit of work that stores the row
    remember: Callable[[Unit, Session], object] = lambda unit, session: (
        None
    )  # stores the answer in the same unit of work
    tree: Tree | None = None  # files of the base, for letter case and links in ``owns``


@dataclass(frozen=True, slots=True)
class Created:
    session: Session
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that passed all checks that are possible beforehand."""

    new: NewSession
    config: Config
    mode: Mode
    info: RepositoryInfo
    repo: Repo
    parent: Session | None
    after: tuple[str, ...]
    fetched: Base | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Starting point of a session. ``branch`` "": named after the session later. ``new_branch``: it
    is created at ``commit``.

    ``worktree``: an existing one, None to create it. ``base_commit``: what the session's work is
    compared with.
    """

    ref: str
    commit: str
    base_commit: str
    branch: str = ""
    new_branch: bool = True
    kind: WorktreeKind = WorktreeKind.OWN
    worktree: Path | None = None
    upstream: RemoteBranch | None = None


@dataclass(frozen=True, slots=True)
class Creation:
    """A session under creation: it has names and an operation, and no row yet."""

    session: Session
    request: CheckedRequest
    start: Start
    operation: Operation
    warnings: tuple[str, ...] = ()
    offer: str = ""  # shown once per repository
    spare: Spare | None = None  # the spare that became its worktree
