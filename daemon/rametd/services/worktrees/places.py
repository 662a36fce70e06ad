"""Paths of worktrees: named by id and never moved, with a symbolic link by name for people."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rametd.domain.models import Repo, Session
from rametd.git import slug
from rametd.services.core import Core

LINKS = "by-name"


def tree_of(core: Core, repo: Repo, session_id: str) -> Path:
    """``ROOT/REPO-ID/SESSION``: outside the repository and outside ``.claude``."""
    root = core.config.worktrees.root or core.state_dir / "worktrees"
    name = slug(repo.name, 32).replace("/", "-")
    folder = f"{name}-{repo.id}" if name else repo.id
    return root / folder / session_id


def folders_of(core: Core, repo: Repo) -> Iterator[Path]:
    """Directories with worktrees of a repository, also under its former names. Blocks."""
    root = core.config.worktrees.root or core.state_dir / "worktrees"
    for folder in root.glob(f"*{repo.id}"):
        if folder.name == repo.id or folder.name.endswith(f"-{repo.id}"):
            yield folder


def link_by_name(session: Session) -> None:
    """Create the link, with a name that needs no quoting; if it is taken (``a/b`` beside ``a-b``),
    add the id."""
    first = slug(session.name, 48).replace("/", "-") or session.id
    folder = session.worktree.parent / LINKS
    folder.mkdir(parents=True, exist_ok=True)
    for name in (first, f"{first}-{session.id}"):
        with suppress(FileExistsError):
            (folder / name).symlink_to(Path("..") / session.worktree.name, target_is_directory=True)
            return


def unlink_by_name(worktree: Path) -> None:
    """Remove the links to a worktree, and directories that are then empty."""
    folder = worktree.parent / LINKS
    if folder.is_dir():
        for link in folder.iterdir():
            if link.is_symlink() and link.readlink().name == worktree.name:
                link.unlink(missing_ok=True)
    for empty in (folder, worktree.parent):
        with suppress(OSError):  # not empty, or gone
            empty.rmdir()
