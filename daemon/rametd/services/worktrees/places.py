"""Where worktrees are: named by id and never moved, with a symbolic link by name for people."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rametd.domain.models import Repo, Session
from rametd.domain.text import utf8
from rametd.git import gitdirs, names
from rametd.services.core import Core

LINKS = "by-name"
ASIDE = ".kept"


def tree_of(core: Core, repo: Repo, session_id: str) -> Path:
    """``ROOT/REPO-ID/SESSION``: outside the repository and outside ``.claude``, unique when it is made into a folder name."""
    root = core.config.worktrees.root or core.state_dir / "worktrees"
    slug = names.slug(repo.name, 32).replace("/", "-")
    folder = f"{slug}-{repo.id}" if slug else repo.id
    return root / folder / session_id


def folders_of(core: Core, repo: Repo) -> Iterator[Path]:
    """Where worktrees of a repository are, also those that were made under another name of it; blocks."""
    root = core.config.worktrees.root or core.state_dir / "worktrees"
    for folder in root.glob(f"*{repo.id}"):
        if folder.name == repo.id or folder.name.endswith(f"-{repo.id}"):
            yield folder


def folder_aside(worktree: Path) -> Path:
    """Where directories of a worktree are kept that had files which git could not read; beside it, so that they are moved and not copied."""
    return worktree.parent / ASIDE / worktree.name


def aside_of(worktree: Path, tree: str) -> Path:
    """What such a directory is called before a number is added; ``tree`` is what was kept of the other files, by which it is found again."""
    return folder_aside(worktree) / f"tree-{tree[:12]}"


def asides(worktree: Path, tree: str) -> list[Path]:
    """The directories of that name, the newest first; blocks."""
    return [each for _, each in _numbered(aside_of(worktree, tree))]


def git_dirs_aside(worktree: Path, tree: str) -> list[Path]:
    """The directories with git directories of repositories inside (`Git.keep_git_dirs`), found likewise; blocks."""
    return [each for _, each in _numbered(_git_dirs_of(worktree, tree))]


def all_aside(worktree: Path, tree: str) -> list[Path]:
    """Both; blocks."""
    return [*asides(worktree, tree), *git_dirs_aside(worktree, tree)]


def next_git_dirs_aside(worktree: Path, tree: str) -> Path:
    """What the next one of those is called; blocks."""
    place = _git_dirs_of(worktree, tree)
    latest = next((number for number, _ in _numbered(place)), -1)
    return place.with_name(f"{place.name}-{latest + 1}")


def _git_dirs_of(worktree: Path, tree: str) -> Path:
    return folder_aside(worktree) / f"git-{tree[:12]}"


def _numbered(place: Path) -> list[tuple[int, Path]]:
    found = [
        (int(number), each)
        for each in place.parent.glob(f"{place.name}-*")
        if (
            number := each.name.removeprefix(f"{place.name}-")
        ).isdecimal()  # what else is there somebody else put there
    ]
    return sorted(found, reverse=True)


def kept_aside(worktree: Path) -> list[str]:
    """A line for each such directory; blocks."""
    folder = folder_aside(worktree)
    # What else is there is a copy that was cut short.
    found = sorted([*folder.glob("tree-*"), *folder.glob("git-*")])
    return [words for each in found for words in _words_of(each)]


def _words_of(aside: Path) -> list[str]:
    if not aside.name.startswith("git-"):
        return [f"what git could not store of its files is kept at {aside}"]
    names = [utf8(each.name) for each in gitdirs.read(aside) if not each.stays]
    return [f"repositories inside ({', '.join(names)}) are kept as they are at {aside}"] if names else []


def tidy_aside(worktree: Path) -> None:
    """Remove the folders of such directories that are empty by now; blocks."""
    folder = folder_aside(worktree)
    for empty in (folder, folder.parent):
        with suppress(OSError):  # not empty, or never there
            empty.rmdir()


def link_by_name(session: Session) -> None:
    """Make the link, named as a shell likes it; where that name is taken (``a/b`` beside ``a-b``) the id follows on it."""
    slug = names.slug(session.name, 48).replace("/", "-") or session.id
    folder = session.worktree.parent / LINKS
    folder.mkdir(parents=True, exist_ok=True)
    for name in (slug, f"{slug}-{session.id}"):
        with suppress(FileExistsError):
            (folder / name).symlink_to(Path("..") / session.worktree.name, target_is_directory=True)
            return


def unlink_by_name(worktree: Path) -> None:
    """Remove the links that point to a worktree, and the folders that are empty then."""
    folder = worktree.parent / LINKS
    if folder.is_dir():
        for link in folder.iterdir():
            if link.is_symlink() and link.readlink().name == worktree.name:
                link.unlink(missing_ok=True)
    for empty in (folder, worktree.parent):
        with suppress(OSError):  # not empty, or gone
            empty.rmdir()
