"""Find the repository of a path, and read its refs. Reads files and objects; never runs git, never
writes.

The functions here block (libgit2); `Git` calls them in its threads.
"""

import difflib
import os
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pygit2

from rametd.domain.errors import (
    AmbiguousError,
    GitFailedError,
    RefNotFoundError,
    RepoNotFoundError,
    UnbornBranchError,
    UnsupportedRepositoryError,
)
from rametd.git.sharing import share, share_as_asked


@dataclass(frozen=True, slots=True)
class Head:
    """The checked-out branch and commit. Detached: no branch. Unborn: a branch without a commit."""

    branch: str | None
    commit: str | None


@dataclass(frozen=True, slots=True)
class RepositoryInfo:
    """A repository, seen from one of its worktrees.

    ``common_dir`` identifies the repository: it is the same from every worktree. ``root`` is the
    main worktree, or ``common_dir`` if it is bare. ``worktree_root`` is the worktree around the
    requested path, or None.
    """

    common_dir: Path
    git_dir: Path
    root: Path
    worktree_root: Path | None
    name: str
    is_bare: bool
    head: Head
    is_worktree: bool
    """Whether the path is in a linked worktree, not in the main one."""

    @property
    def standpoint(self) -> Path:
        """Directory to run git in: the worktree of the request, so that a new one inherits its
        sparse checkout."""
        return self.worktree_root or self.common_dir


@dataclass(frozen=True, slots=True)
class Base:
    """Starting point of a new branch: a short name for people, and the commit."""

    ref: str
    commit: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A local branch, its commit, and the worktree that has it checked out."""

    name: str
    commit: str
    worktree: Path | None


def open_repository(path: Path) -> pygit2.Repository:
    """Open a worktree or git directory. Raise UnsupportedRepositoryError, GitFailedError,
    RepoNotFoundError."""
    repository = _open(path, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
    share_as_asked(common_dir(Path(repository.path)))
    return repository


def _open(path: Path, flags: pygit2.enums.RepositoryOpenFlag) -> pygit2.Repository:
    try:
        return pygit2.Repository(str(path), flags)
    except pygit2.GitError as error:
        words = str(error)
        if "object format" in words or "unsupported extension" in words or "repository version" in words:
            raise UnsupportedRepositoryError(
                f"the repository at {path} has a format that cannot be read: {words}",
                hint="repositories with SHA-1 objects and plain ref files are supported",
            ) from error
        if "owned by" in words:
            # libgit2 compares with the top of the repository, which it names.
            top = words.partition("repository path '")[2].rpartition("' is not owned")[0] or str(path)
            command = ("git", "config", "--file", str(_persons_config()), "--add", "safe.directory", top)
            raise GitFailedError(words, hint=f"if you trust its owner: {shlex.join(command)}") from error
        raise RepoNotFoundError(
            f"{path} is not a git repository: {words}", hint="see what git status says there"
        ) from error


def _persons_config() -> Path:
    """Return the file of the person's git configuration that libgit2 reads. Unlike git, it ignores
    GIT_CONFIG_GLOBAL."""
    folders, level = pygit2.settings.search_path, pygit2.enums.ConfigLevel
    usual, other = Path(folders[level.GLOBAL], ".gitconfig"), Path(folders[level.XDG], "config")
    return other if other.exists() and not usual.exists() else usual


def discover(path: Path) -> RepositoryInfo:
    """Return the repository around ``path``: a worktree, subdirectory or git directory. Raise
    RepoNotFoundError, and the errors of `open_repository`."""
    try:
        path = path.resolve(strict=True)
    except OSError as error:
        raise RepoNotFoundError(
            f"{path} cannot be read: {error.strerror}", hint="name a directory that exists"
        ) from error
    start = path if path.is_dir() else path.parent
    repository = _search(start)
    git_dir = Path(repository.path).resolve()
    common = common_dir(git_dir)
    main = repository if git_dir == common else open_repository(common)
    bare = main.is_bare
    root = _main_root(main, common)
    # A path inside a bare repository or inside the .git directory is in no worktree.
    workdir = Path(repository.workdir).resolve() if repository.workdir and not start.is_relative_to(git_dir) else None
    return RepositoryInfo(
        common_dir=common,
        git_dir=git_dir,
        root=root,
        worktree_root=workdir,
        name=_display_name(root),
        is_bare=bare,
        head=head_of(repository),
        is_worktree=git_dir != common,
    )


def _search(start: Path) -> pygit2.Repository:
    try:
        return _open(start, pygit2.enums.RepositoryOpenFlag.DEFAULT)
    except RepoNotFoundError:
        broken = next((folder for folder in (start, *start.parents) if (folder / ".git").is_file()), None)
        if broken is not None:
            shelved = broken.name.endswith(".shelved")
            hint = "the worktree was archived or removed: change to another directory" if shelved else ""
            raise RepoNotFoundError(
                f"{broken / '.git'} points to a repository that is not there",
                hint=hint or "git worktree repair may fix it",
            ) from None
        raise RepoNotFoundError(
            f"no git repository around {start}", hint="run it inside a repository, or name one with --repo"
        ) from None


def common_dir(git_dir: Path) -> Path:
    """Return the directory that all worktrees of a repository share."""
    try:
        status = (git_dir / "commondir").stat()
        return _read_common_dir(git_dir, status.st_ino, status.st_mtime_ns)
    except FileNotFoundError:
        return git_dir


@lru_cache(maxsize=4096)
def _read_common_dir(git_dir: Path, inode: int, mtime_ns: int) -> Path:
    """Read the file ``commondir``. The cache key has its inode and time."""
    return (git_dir / (git_dir / "commondir").read_text().rstrip("\n")).resolve()


def write_note(git_dir: Path, name: str, text: str) -> None:
    """Replace a file of Ramet in a git directory; it is as open as git's own. Blocks."""
    scratch = git_dir / f"{name}.new"
    scratch.write_text(text)
    share(common_dir(git_dir), scratch)
    scratch.replace(git_dir / name)


def _main_root(main: pygit2.Repository, common: Path) -> Path:
    if main.is_bare or not main.workdir:
        return common
    # After `git init --separate-git-dir` the git directory does not record its worktree, and
    # libgit2 guesses the parent.
    if common.name != ".git" and "core.worktree" not in main.config:
        return common
    return Path(main.workdir).resolve()


def _display_name(root: Path) -> str:
    if root.name in (".git", ".bare", ".repo"):
        return root.parent.name
    return root.name.removesuffix(".git") or root.name


def head_of(repository: pygit2.Repository) -> Head:
    """Read HEAD, also if the branch has no commit yet."""
    target = repository.lookup_reference("HEAD").raw_target
    if isinstance(target, pygit2.Oid):
        return Head(None, str(target))
    branch = os.fsdecode(target).removeprefix("refs/heads/")
    return Head(branch, None if repository.head_is_unborn else str(repository.head.target))


def resolve_base(repo: RepositoryInfo, ref: str | None = None, caller_cwd: Path | None = None) -> Base:
    """Return the commit to start from; without ``ref``, the one that is checked out in the caller's
    directory.

    Raise UnbornBranchError, RefNotFoundError (with near matches), AmbiguousError (a short hash that
    fits several objects).
    """
    here = caller_view(repo, caller_cwd)
    if ref is not None:
        return resolve_ref(here, ref)
    head = head_of(here)
    if head.commit is None:
        raise UnbornBranchError(
            f"{repo.name} has no commit on {head.branch} yet, so that there is nothing to start from",
            hint="give --initial-commit for an empty first commit, or make one: git commit --allow-empty -m start",
        )
    return Base(head.branch or head.commit, head.commit)


def caller_view(repo: RepositoryInfo, caller_cwd: Path | None) -> pygit2.Repository:
    """Open the repository from the caller's worktree, if that is one of its worktrees."""
    if caller_cwd is not None:
        try:
            caller = discover(caller_cwd)
        except RepoNotFoundError:
            caller = repo
        if caller.common_dir == repo.common_dir:
            return open_repository(caller.git_dir)
    return open_repository(repo.git_dir)


def resolve_ref(repository: pygit2.Repository, ref: str) -> Base:
    # A branch has precedence over a tag of the same name: people who start work from a name mean
    # the branch.
    for prefix in ("refs/heads/", "refs/remotes/", "refs/tags/"):
        commit = peel(repository, prefix + ref)
        if commit is not None:
            return Base(ref, commit)
    commit = peel(repository, ref)
    if commit is None:
        raise _not_found(repository, ref)
    short = ref
    for prefix in ("refs/heads/", "refs/remotes/", "refs/tags/"):
        short = short.removeprefix(prefix)
    return Base(short, commit)


def peel(repository: pygit2.Repository, name: str) -> str | None:
    try:
        return str(repository.revparse_single(name).peel(pygit2.Commit).id)
    except ValueError as error:
        if "ambiguous" in str(error):
            raise AmbiguousError(f"{name} fits several objects", hint="give more of the hash", matches=name) from error
        return None
    except (KeyError, pygit2.GitError):
        return None


def _not_found(repository: pygit2.Repository, ref: str) -> RefNotFoundError:
    names = [
        name.split("/", 2)[2]
        for name in repository.references
        if name.startswith(("refs/heads/", "refs/remotes/", "refs/tags/"))
    ]
    tails = {name.rpartition("/")[2]: name for name in names}
    near = difflib.get_close_matches(ref, names, n=3, cutoff=0.5) or [
        tails[m] for m in difflib.get_close_matches(ref, list(tails), n=3)
    ]
    hint = f"did you mean {', '.join(near)}?" if near else "name a branch, a tag or a commit"
    return RefNotFoundError(f"{ref!r} names no commit", hint=hint, near=" ".join(near))


def commit_exists(repo: RepositoryInfo, commit: str) -> bool:
    """Return whether the commit's object exists."""
    return peel(open_repository(repo.common_dir), commit) is not None


def branch_tip(repo: RepositoryInfo, branch: str) -> str | None:
    """Return the commit of a local branch, or None."""
    return peel(open_repository(repo.common_dir), f"refs/heads/{branch}")


def ahead_behind(repo: RepositoryInfo, branch: str, base: str) -> tuple[int, int]:
    """Count commits only on ``branch``, and only on ``base`` (a branch, tag or commit). Raise
    RefNotFoundError."""
    repository = open_repository(repo.common_dir)
    ours, theirs = resolve_ref(repository, branch).commit, resolve_ref(repository, base).commit
    return repository.ahead_behind(ours, theirs)


def last_head(git_dir: Path) -> str | None:
    """Return the last checked-out commit from the reflog, even if its branch is gone; None without
    one. Blocks."""
    return last_of(git_dir / "logs" / "HEAD")


def last_of(reflog: Path) -> str | None:
    """Return the last commit in a reflog, or None. Blocks."""
    try:
        lines = reflog.read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    # "OLD NEW WHO TIME ZONE\tWHAT": a branch deleted under a worktree may leave a line with a null
    # id.
    commits = [fields[1] for line in lines if len(fields := line.split(" ", 2)) == 3]
    return next((commit for commit in reversed(commits) if commit.strip("0")), None)
