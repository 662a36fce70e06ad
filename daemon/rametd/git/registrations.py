"""Git's records of linked worktrees: `<common>/worktrees/*`, and the `.git` file at the other end.

Read from the files (gitrepository-layout(5)) instead of `git worktree list`, because git does not
list the incomplete entries that recovery must clean up. The functions here block.
"""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import WorktreeChangedError
from rametd.git.locks import DIRECTORY
from rametd.platform.files import read_regular

REASON = "in use by ramet (rametctl rm removes it)"
"""Lock reason of Ramet's worktrees; `git worktree prune` and `git worktree remove` refuse locked
ones."""
WORKTREE_CONFIG: Final = "config.worktree"
"""File in a worktree's git directory with its own configuration, if ``extensions.worktreeConfig``
is on."""
_LONGEST_LINE: Final = 64 << 10
_LARGEST_CONFIG: Final = 16 << 20
"""Maximum bytes of the files that are read here."""
OF_QUEUES: Final = "landing-"
"""Beginning of the names of merge queues' worktrees."""
UNFINISHED: Final = frozenset({REASON, "initializing"})
"""Lock reasons of an entry under creation: Ramet's, or git's own."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One entry. ``path`` is None in an incomplete entry; ``head`` is the raw content of HEAD,
    empty if missing."""

    admin_dir: Path
    path: Path | None
    head: str
    locked: str | None

    @property
    def branch(self) -> str | None:
        return self.head.removeprefix("ref: refs/heads/") if self.head.startswith("ref: refs/heads/") else None


def common_of(git_dir: Path) -> Path:
    """Return the repository of a git directory. For a linked worktree, shelved or not, only if the
    git directory is inside that repository."""
    try:
        pointer = line_of(git_dir / "commondir")
    except OSError:
        pointer = None
    if pointer is None:
        return git_dir.resolve()
    common, own = (git_dir / pointer).resolve(), git_dir.resolve()
    return common if own.parent in {common / "worktrees", common / DIRECTORY} else own


def registrations(common_dir: Path) -> tuple[Registration, ...]:
    """Return every linked worktree that the repository has registered, intact or broken, by
    name."""
    return tuple(_entries(common_dir, lambda admin_dir, path: True))


def _entries(common_dir: Path, wanted: Callable[[Path, Path | None], bool]) -> Iterator[Registration]:
    """Yield the entries that ``wanted`` accepts by their directory and path. Of the others only one
    file is read: a repository may have a thousand."""
    resolved: dict[str, str] = {}
    try:
        folders = sorted((common_dir / "worktrees").iterdir())
    except FileNotFoundError:
        return
    for folder in folders:
        if not folder.is_dir():
            continue
        try:
            pointer = line_of(folder / "gitdir")
            path = _top(folder / pointer, resolved) if pointer else None
            if wanted(folder, path):
                yield Registration(folder, path, line_of(folder / "HEAD") or "", line_of(folder / "locked"))
        except PermissionError:
            if folder.stat().st_uid == os.geteuid():
                raise
            # Another person's entry that is closed to us; git does not list it either.


def _top(dot_git: Path, resolved: dict[str, str]) -> Path:
    """Resolve the directory of a ``.git`` file. ``resolved`` has the parents that were resolved
    before: most worktrees have the same one."""
    above, name = os.path.split(dot_git.parent)
    if name in {"", "..", "."}:
        return dot_git.parent.resolve()
    if above not in resolved:
        resolved[above] = os.path.realpath(above)
    top = Path(resolved[above], name)
    return top.resolve() if os.path.islink(top) else top  # noqa: PTH114 - another person's directory may hide it


def registered_at(
    common_dir: Path, path: Path, known: Sequence[Registration] | None = None
) -> tuple[Registration, ...]:
    """Return the entries for ``path``, and incomplete ones with its name. ``known``: all entries of
    the repository, if the caller has read them.

    Git creates an entry with the name of the directory, then writes ``gitdir``; a kill in between
    leaves an entry without that file. Ramet's directories have ids as names, so no other entry has
    the name.
    """
    at = _absolute(path)

    def is_at(admin_dir: Path, top: Path | None) -> bool:
        return top == at or (top is None and admin_dir.name == path.name)

    if known is not None:
        return tuple(entry for entry in known if is_at(entry.admin_dir, entry.path))
    return tuple(_entries(common_dir, is_at))


def may_exist(path: Path) -> bool:
    """Return whether something is at a path. Return True too if another person's closed directory
    hides the answer."""
    try:
        return path.exists()
    except PermissionError:
        return True


def moved_to(common_dir: Path, path: Path) -> Registration | None:
    """Return the entry of a session's worktree that a person moved away from ``path``. The entry
    still has the name of the directory, an id.

    The name of a merge queue's worktree proves nothing: another person's Ramet, or one with another
    state directory, has one of the same name. If an entry exists for ``path``, none was moved.
    """
    if path.name.startswith(OF_QUEUES) or registered_at(common_dir, path):
        return None
    return next(
        (
            entry
            for entry in registrations(common_dir)
            if entry.admin_dir.name == path.name
            and entry.locked == REASON
            and entry.path is not None
            and _absolute(entry.path) != _absolute(path)
            and git_dir_of(entry.path) == entry.admin_dir
        ),
        None,
    )


def entries_inside(
    common_dir: Path, path: Path, known: Sequence[Registration] | None = None
) -> tuple[Registration, ...]:
    """Return the entries of present and former worktrees below ``path``. ``known``: see
    `registered_at`."""
    inside = f"{_absolute(path)}/"

    def is_inside(admin_dir: Path, top: Path | None) -> bool:
        return str(top).startswith(inside)

    if known is not None:
        return tuple(entry for entry in known if is_inside(entry.admin_dir, entry.path))
    return tuple(_entries(common_dir, is_inside))


def split_inside(
    common_dir: Path, path: Path, known: Sequence[Registration] | None = None
) -> tuple[dict[str, Registration], dict[str, Registration]]:
    """Return the intact worktrees below ``path``, and the entries of others there whose directory
    is gone or no worktree any more.

    Both are by place relative to ``path``, without those inside an intact one. ``known``: see
    `registered_at`.
    """
    intact: dict[str, Registration] = {}
    left: dict[str, Registration] = {}
    for place, entry in _places_inside(common_dir, path, known):  # outer directories precede inner ones
        if any(place.startswith(f"{outer}/") for outer in intact):
            continue
        if is_intact(entry):
            intact[place] = entry
        elif (entry.admin_dir / "HEAD").is_file():
            left[place] = entry
    return intact, left


def stale_entry_at(common_dir: Path, path: Path, known: Sequence[Registration] | None = None) -> Registration | None:
    """Return the entry of a worktree that was deleted or moved away from ``path`` by hand.
    ``known``: see `registered_at`."""
    found = (entry for entry in registered_at(common_dir, path, known) if (entry.admin_dir / "HEAD").is_file())
    return next((entry for entry in found if entry.path is not None and not is_intact(entry)), None)


def is_intact(entry: Registration) -> bool:
    """Return whether entry and directory point to each other, and HEAD exists."""
    return entry.path is not None and git_dir_of(entry.path) == entry.admin_dir and (entry.admin_dir / "HEAD").is_file()


def _places_inside(
    common_dir: Path, path: Path, known: Sequence[Registration] | None
) -> Iterator[tuple[str, Registration]]:
    """Return the entries in the order of their paths."""
    top = _absolute(path)
    for entry in sorted(entries_inside(common_dir, path, known), key=lambda entry: str(entry.path)):
        if entry.path is not None:
            yield entry.path.relative_to(top).as_posix(), entry


def git_dir_of(worktree: Path) -> Path | None:
    """Return the git directory to which a worktree's ``.git`` leads, None without a ``.git``; for
    the main worktree, ``.git`` itself."""
    dot_git = worktree / ".git"
    if dot_git.is_dir():
        return dot_git.resolve()
    pointer = line_of(dot_git)
    if pointer is None or not pointer.startswith("gitdir: "):
        return None
    return _absolute(worktree / pointer.removeprefix("gitdir: "))


def existing_git_dir(worktree: Path) -> Path | None:
    """As `git_dir_of`, but None also if the target does not exist."""
    git_dir = git_dir_of(worktree)
    return git_dir if git_dir is not None and git_dir.is_dir() else None


def foreign(common_dir: Path, path: Path, entries: tuple[Registration, ...]) -> str | None:
    """Return why ``path`` is not the recorded worktree; None if it is, or does not exist."""
    if path.is_symlink():
        return f"{path}: it is a symbolic link"
    if not path.exists():
        return None
    if not path.is_dir():
        return f"{path}: it is a file"
    if (path / ".git").is_dir():
        return f"{path}: it is a separate repository"
    git_dir = git_dir_of(path)
    if git_dir is None:
        # It is ours if its .git file was deleted and the entry still names the directory, or if git
        # was killed before it wrote the entry.
        if entries or not any(path.iterdir()):
            return None
        return f"{path}: nothing says that it is a worktree"
    if git_dir.parent != common_dir / "worktrees":
        return f"{path}: it belongs to another repository"
    if git_dir.exists() and git_dir not in [entry.admin_dir for entry in entries]:
        return f"{path}: it is a copy of another worktree"
    return None


def locate(common_dir: Path, path: Path) -> tuple[Path | None, str | None]:
    """Return the git directory for reading ``path``; (None, None) if the path does not exist,
    (None, why) if it is `foreign`.

    This finds work in a broken worktree too: by its entry if the ``.git`` file was deleted, and by
    the repository itself if the entry was pruned.
    """
    git_dir = git_dir_of(path)
    if git_dir == common_dir:  # the main worktree
        return git_dir, None
    if git_dir is not None and _is_sound(common_dir, path, git_dir):
        return git_dir, None
    entries = registered_at(common_dir, path)
    why = foreign(common_dir, path, entries)
    if why is not None or not path.exists():
        return None, why
    candidates = [git_dir, *(entry.admin_dir for entry in entries)]
    whole = (place for place in candidates if place is not None and (place / "HEAD").is_file())
    return next(whole, common_dir), None


def _is_sound(common_dir: Path, path: Path, git_dir: Path) -> bool:
    """Return whether the entry to which a worktree leads is one of the repository and leads back,
    so that no other entry matters."""
    if path.is_symlink() or git_dir.parent != common_dir / "worktrees" or not (git_dir / "HEAD").is_file():
        return False
    pointer = line_of(git_dir / "gitdir")
    return bool(pointer) and _top(git_dir / str(pointer), {}) == _absolute(path)


def verify_worktree(path: Path, branch: str | None, trusted: Collection[Path] = ()) -> Path:
    """Return the worktree's git directory. Verify that `.git` leads to the entry, the entry back to
    ``path``, and that HEAD has ``branch``.

    ``branch`` None accepts any HEAD. ``trusted``: registered repositories, one of which must own
    the worktree; empty accepts any. Raise WorktreeChangedError, which names the wrong link.
    """
    hint = "`rametctl doctor` explains what can be done"
    if not path.is_dir():
        raise WorktreeChangedError(f"the worktree {path} is gone", hint=hint, worktree=str(path))
    git_dir = git_dir_of(path)
    if git_dir is None:
        raise WorktreeChangedError(f"{path} is not a worktree: its .git file is missing", hint=hint, worktree=str(path))
    if not git_dir.is_dir():
        raise WorktreeChangedError(f"{path} is registered nowhere: {git_dir} is gone", hint=hint, worktree=str(path))
    common = common_of(git_dir)
    if trusted and common not in trusted:
        raise WorktreeChangedError(
            f"{path} belongs to another repository: its .git leads to {git_dir}", hint=hint, worktree=str(path)
        )
    back = line_of(git_dir / "gitdir")
    if back is None and (git_dir / "commondir").exists():
        raise WorktreeChangedError(f"{path} is half registered: {git_dir} is damaged", hint=hint, worktree=str(path))
    if back is not None and _absolute(git_dir / back).parent != _absolute(path):
        if path.is_symlink():
            raise WorktreeChangedError(f"{path} is a symbolic link, not a worktree", hint=hint, worktree=str(path))
        raise WorktreeChangedError(
            f"{path} is a copy of the worktree at {Path(back).parent}", hint=hint, worktree=str(path)
        )
    if (top := borrowed(git_dir, path)) is not None:
        raise WorktreeChangedError(
            f"the .git of {path} leads to the repository of {top}: git would work on what is checked out there",
            hint=hint,
            worktree=str(path),
        )
    if (top := diverted(git_dir, path, common)) is not None:
        mend = shlex.join(("git", "-C", str(path), "config", "--worktree", "core.worktree", str(path)))
        raise WorktreeChangedError(
            f"git takes {top} for the top of {path}: extensions.worktreeConfig is on, and core.worktree is set for all worktrees",
            hint=f"set it for this one: `{mend}`",
            worktree=str(path),
        )
    head = line_of(git_dir / "HEAD")
    if branch is not None and head != f"ref: refs/heads/{branch}":
        found = (head or "nothing").removeprefix("ref: refs/heads/")
        raise WorktreeChangedError(
            f"{path} has {found} checked out, not {branch}", hint=hint, worktree=str(path), head=found
        )
    return git_dir


def borrowed(git_dir: Path, path: Path) -> Path | None:
    """Return the main worktree of ``git_dir`` if it is not ``path``: index and HEAD then belong to
    that one. Return None otherwise, and for a linked worktree. Blocks."""
    if git_dir.name != ".git" or (git_dir / "commondir").exists():
        return None
    top = git_dir.parent
    if b"worktree" in _bytes(git_dir / "config").lower():
        settings = pygit2.Config(str(git_dir / "config"))
        top = git_dir / str(settings["core.worktree"]) if "core.worktree" in settings else top
    return None if top.resolve() == path.resolve() else top.resolve()


def diverted(git_dir: Path, path: Path, common: Path) -> Path | None:
    """Return the directory that git considers the top of the linked worktree at ``path`` if it is
    another one, else None.

    A submodule's repository has ``core.worktree`` in the configuration that all worktrees share.
    With ``extensions.worktreeConfig`` git applies it to each worktree without a value of its own.
    Blocks.
    """
    if common == git_dir or b"worktree" not in _bytes(common / "config").lower():
        return None
    shared = pygit2.Config(str(common / "config"))
    if "core.worktree" not in shared or "extensions.worktreeConfig" not in shared:
        return None
    if not shared.get_bool("extensions.worktreeConfig"):
        return None
    top = (common / str(shared["core.worktree"])).resolve()
    own = git_dir / WORKTREE_CONFIG
    if own.is_file() and "core.worktree" in (settings := pygit2.Config(str(own))):
        top = (git_dir / str(settings["core.worktree"])).resolve()
    return None if top == path.resolve() else top


def _bytes(file: Path) -> bytes:
    try:
        return read_regular(file, _LARGEST_CONFIG) or b""
    except OSError:
        return b""


def fault_of(path: Path, branch: str) -> str:
    """Describe the problem of the worktree at ``path`` of a session on ``branch``; "" without one.

    This takes only a few reads, for lists of a thousand sessions; `verify_worktree` checks
    everything. ``branch`` "" accepts any HEAD.
    """
    if path.is_symlink():
        return "a symbolic link is in its place"
    git_dir = git_dir_of(path)
    if git_dir is None:
        return "its .git is missing"
    if not git_dir.is_dir():
        return "git's entry of it is gone"
    if (top := borrowed(git_dir, path)) is not None:
        return f"its .git leads to the repository of {top}"
    head = line_of(git_dir / "HEAD")
    if not branch or head == f"ref: refs/heads/{branch}":
        return ""
    name = (head or "").removeprefix("ref: refs/heads/")
    return f"{name} is checked out in it, not {branch}" if name != head else f"HEAD is detached in it, not on {branch}"


def line_of(file: Path) -> str | None:
    """Return a file's text without its line end. None for a missing file, for a pipe or the like,
    which could block for ever, and for more than a line: an agent may write to its ``.git``."""
    try:
        data = read_regular(file, _LONGEST_LINE) if file.is_file() else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if data is None else data.decode(errors="surrogateescape").rstrip("\n")


def _absolute(path: Path) -> Path:
    """Resolve a path except its last component: a symbolic link to a worktree is not that
    worktree."""
    return path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
