"""Input and output of doctor and gc: a repository with its rows and directories, and the findings
about it."""

import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.git import Inventory, RepositoryInfo
from rametd.services.core import Core
from rametd.services.repos import info_of
from rametd.store import Reader

log = structlog.get_logger()

Fix = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Finding:
    """As in the contract. ``fix`` repairs it without risk; None if that is impossible."""

    severity: str
    code: str
    subject: str
    session_id: str
    message: str
    advice: str
    fix: Fix | None = None
    fixed: bool = False


async def apply_fix(found: Finding) -> Finding:
    """Apply the fix, if there is one; return the finding with its result."""
    if found.fix is None:
        return found
    try:
        await found.fix()
    except (RametError, OSError) as error:
        log.warning("not fixed", code=found.code, subject=found.subject, error=str(error))
        return replace(found, advice=f"the fix failed: {error}")
    return replace(found, fixed=True)


def shell(*words: str | Path) -> str:
    """Quote a command for pasting into a shell."""
    return shlex.join(str(word) for word in words)


IDENTITY = re.compile(r"[a-z][a-z0-9]{7}")
"""Names of worktrees that Ramet creates: ids (`services.ids`)."""

KINDS = frozenset({"trash", "archive", "checkpoints", "commits"})
"""Kinds of refs (`kind_and_id`)."""


def known_ids(reader: Reader, *, trash: bool = True) -> set[str]:
    """Ids that may have files: sessions, spares, operations, and with ``trash`` removed
    sessions."""
    ids = {session.id for session in reader.sessions.list(include_archived=True)}
    ids |= {spare.id for spare in reader.spares.list()}
    ids |= {operation.session_id for operation in reader.operations.list()}
    return ids | {entry.id for entry in reader.trash.list()} if trash else ids


def is_orphan(reader: Reader, ref: str) -> bool:
    """Whether neither a session nor the trash has the ref."""
    kind, identity = kind_and_id(ref)
    if kind not in KINDS or reader.operations.list(identity):
        return False
    return is_departed(reader, identity) and reader.trash.get(identity) is None


def is_departed(reader: Reader, identity: str) -> bool:
    """Whether this Ramet had a session of this id and has it no longer.

    Another Ramet (another person, another RAMET_HOME) may work in the same repository: unknown ids
    are its own.
    """
    return reader.sessions.find(identity) is None and reader.sessions.knows_id(identity)


def kind_and_id(ref: str) -> tuple[str, str]:
    """Split ``refs/ramet/KIND/ID``, or a ref below it, into kind and id; "" for a missing part."""
    kind, identity = (*ref.split("/"), "", "")[2:4]
    return kind, identity


@dataclass(frozen=True, slots=True)
class Scene:
    """``sessions``: the repository's, archived ones too. ``known``: ids of sessions, spares and
    operations of any repository.

    ``trash``: ids in the trash, which may have branches and refs, but no directory. ``checked``:
    counts of checked things by kind. ``departed``: ids of this Ramet's former sessions that still
    name things in the repository. ``strangers``: all other such ids, which belong to another Ramet.
    """

    core: Core
    repo: Repo
    info: RepositoryInfo
    inventory: Inventory
    sessions: list[Session]
    known: frozenset[str]
    trash: frozenset[str]
    departed: frozenset[str]
    strangers: frozenset[str]
    checked: Counter[str] = field(default_factory=Counter)


async def take_scene(core: Core, repo: Repo, checked: Counter[str]) -> Scene:
    """Read a repository. Raises `RepoNotFoundError`, and other errors of git for an unreadable
    one."""
    sessions, before = await core.store.read(
        lambda reader: (
            list(reader.sessions.list(repo_id=repo.id, include_archived=True)),
            known_ids(reader, trash=False),
        )
    )
    info = await info_of(core, repo)
    inventory = await core.git.upkeep.inventory(info)
    named = _ids_in(inventory)

    def look(reader: Reader) -> tuple[set[str], set[str], set[str]]:
        # A session that is created or removed meanwhile has a row before or after reading git.
        # Count both.
        known = before | known_ids(reader, trash=False)
        trash = {entry.id for entry in reader.trash.list()}
        return known, trash, {each for each in named - known - trash if is_departed(reader, each)}

    known, trash, departed = (frozenset(ids) for ids in await core.store.read(look))
    strangers = frozenset(named - known - trash - departed)
    return Scene(core, repo, info, inventory, sessions, known, trash, departed, strangers, checked)


def _ids_in(inventory: Inventory) -> set[str]:
    """Ids in the names of our refs, branches and registered worktrees."""
    ids = {identity for kind, identity in map(kind_and_id, inventory.refs) if kind in KINDS}
    ids |= {path.name for path in inventory.made.values()}
    return ids | {
        entry.path.name for entry in inventory.registrations if entry.path is not None and inventory.ours(entry)
    }


OURS_BY_FORM = re.compile(r"(.+-)?[a-z][a-z0-9]{7}")
"""Names of the directories of repositories (`worktrees.places.tree_of`)."""


def roots(core: Core) -> list[Path]:
    """The configured root of worktrees, and the default one."""
    default = core.state_dir / "worktrees"
    return [placed(root) for root in dict.fromkeys((core.config.worktrees.root or default, default))]


def folders_of_scene(scene: Scene) -> list[Path]:
    """Directories with worktrees of the repository, also from before a change of its name or of
    `worktrees.root`."""
    found = [path for root in roots(scene.core) if root.is_dir() for path in root.iterdir() if is_of(scene.repo, path)]
    found += [
        placed(each.worktree.parent)
        for each in scene.sessions
        if each.worktree_kind == WorktreeKind.OWN and is_of(scene.repo, each.worktree.parent)
    ]
    return sorted({path for path in found if path.is_dir()})


def is_of(repo: Repo, folder: Path) -> bool:
    return folder.name == repo.id or folder.name.endswith(f"-{repo.id}")


def places_of(sessions: Iterable[Session]) -> set[Path]:
    return {placed(session.worktree) for session in sessions}


def placed(path: Path) -> Path:
    """The path as git records it: with links in its parents resolved, but not in its last part."""
    return path.parent.resolve() / path.name


def is_set_by_hand(core: Core, path: Path) -> bool:
    """Whether the path is below a configured root, which may hold anything."""
    root = core.config.worktrees.root
    return root is not None and placed(path).is_relative_to(placed(root))


def severity_at(core: Core, path: Path) -> str:
    return "info" if is_set_by_hand(core, path) else "warning"
