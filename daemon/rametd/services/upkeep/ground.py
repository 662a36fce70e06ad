"""Directories that hold worktrees. The functions block."""

import re
from collections.abc import Iterable
from pathlib import Path

from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.services.core import Core
from rametd.services.upkeep.scene import Scene

OURS_BY_FORM = re.compile(r"(.+-)?[a-z][a-z0-9]{7}")
"""Names of the directories of repositories (`worktrees.places.tree_of`)."""


def roots(core: Core) -> list[Path]:
    """The configured root of worktrees, and the default one."""
    default = core.state_dir / "worktrees"
    return [placed(root) for root in dict.fromkeys((core.config.worktrees.root or default, default))]


def folders_of_scene(scene: Scene) -> list[Path]:
    """Directories with worktrees of the repository, also those older than a change of its name or of `worktrees.root`."""
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
    """The path as git records it: parents resolved, the last name unchanged."""
    return path.parent.resolve() / path.name


def is_set_by_hand(core: Core, path: Path) -> bool:
    """Whether the path is below a configured root, which may hold anything."""
    root = core.config.worktrees.root
    return root is not None and placed(path).is_relative_to(placed(root))


def severity_at(core: Core, path: Path) -> str:
    return "info" if is_set_by_hand(core, path) else "warning"
