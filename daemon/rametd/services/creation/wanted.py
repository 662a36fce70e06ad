"""What a new session is to be, and what it is while it is made: in the world, and not in the store yet."""

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
    """What a session begins as a copy of: a snapshot, over its commit ``head``."""

    source: Session
    snapshot: str
    head: str


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
    effort: str = ""
    mode: Mode | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    owns: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    parent: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    with_changes: bool = False  # begin with what is uncommitted in the worktree around ``path``
    in_place: bool = False  # work in the checkout around ``path``
    adopt: Path | None = None  # work in this worktree, made by hand
    fetch: bool = False  # fetch the base first
    fork: Fork | None = None
    initial_commit: bool = False  # make an empty first commit where there is none
    environment: Variables = field(default_factory=Variables, repr=False)
    principal: str = ""
    notify_parent: bool = False
    plan_id: str = ""
    thread: str = ""  # its id in the plan
    contest: str = ""
    contest_check: str = ""
    judges: str = ""
    claims_later: bool = (
        False  # what it owns is taken from others in the unit of work that stores it, and is judged there alone
    )
    admit: Callable[[Unit, Session], None] = lambda unit, session: None  # may still refuse where the row is stored
    remember: Callable[[Unit, Session], object] = lambda unit, session: None  # stores the answer with what it answers
    tree: Tree | None = None  # what letter case and links mean where ``owns`` is checked


@dataclass(frozen=True, slots=True)
class Created:
    session: Session
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for, found to be possible as far as that can be told beforehand."""

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
    """Where a session starts from. ``branch`` "" is one that is yet to be named after the session; with ``new_branch`` it is yet to be made, at ``commit``.

    ``worktree`` is that of somebody else, None where one is to be made. ``base_commit`` is what the session's work is compared with.
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
class Made:
    """A session that is in the world and not in the store yet."""

    session: Session
    wanted: Wanted
    start: Start
    operation: Operation
    warnings: tuple[str, ...] = ()
    offer: str = ""  # told too, unless it was once before in the repository
    spare: Spare | None = None  # what its worktree was
