"""Local branches: where each is checked out, creation with a mark, deletion by compare-and-set."""

from collections.abc import Collection
from pathlib import Path

import pygit2

from rametd.domain.errors import BranchTakenError, GitFailedError
from rametd.git import names
from rametd.git.context import GitContext
from rametd.git.process import failed
from rametd.git.registrations import may_exist, registrations
from rametd.git.repository import (
    Branch,
    RepositoryInfo,
    ahead_behind,
    branch_tip,
    head_of,
    open_repository,
    peel,
    resolve_base,
)

_NOTHING = "0" * 40
_MARK = "ramet: made for "


def checked_out(repo: RepositoryInfo) -> dict[str, Path]:
    """Return the worktree that has each branch checked out, even if its directory is gone."""
    places = {
        entry.branch: entry.path
        for entry in registrations(repo.common_dir)
        if entry.branch is not None and entry.path is not None
    }
    main = head_of(open_repository(repo.common_dir))
    if main.branch is not None and not repo.is_bare:
        places[main.branch] = repo.root
    return places


def branch_names(repo: RepositoryInfo) -> frozenset[str]:
    """Return the names of all local branches; cheaper than `list_branches`."""
    return frozenset(open_repository(repo.common_dir).branches.local)


def free_name(repo: RepositoryInfo, text: str, *, fallback: str, taken: Collection[str]) -> str:
    """Return a name (`names.branch_name`) that conflicts with no branch of the repository and with
    none of ``taken``. Compare only branches with the same beginning: there may be a hundred
    thousand."""
    tops = tuple(name.casefold().partition("/")[0] for name in (names.slug(text), fallback) if name)
    near = (name for name in open_repository(repo.common_dir).branches.local if name.casefold().startswith(tops))
    return names.branch_name(text, fallback=fallback, taken={*near, *taken})


def list_branches(repo: RepositoryInfo) -> tuple[Branch, ...]:
    """All local branches, and where each is checked out, by name."""
    places = checked_out(repo)
    repository = open_repository(repo.common_dir)
    tips = ((name, peel(repository, f"refs/heads/{name}")) for name in sorted(repository.branches.local))
    return tuple(Branch(name, tip, places.get(name)) for name, tip in tips if tip is not None)


def lost_tip(repo: RepositoryInfo, branch: str) -> str | None:
    """Return the commit of a branch if git has lost that commit, else None."""
    reference = open_repository(repo.common_dir).references.get(f"refs/heads/{branch}")
    if reference is None or branch_tip(repo, branch) is not None:
        return None
    return str(reference.target)


def require_free(repo: RepositoryInfo, branch: str, *, new: bool) -> None:
    """Raise BranchTakenError unless the branch can be created (``new``) or checked out in another
    worktree."""
    place = checked_out(repo).get(branch)
    if place is not None:
        gone = "" if may_exist(place) else ", which is gone: git worktree prune frees it"
        raise BranchTakenError(
            f"branch {branch} is checked out at {place}{gone}",
            hint="choose another name with --branch, or check out something else there"
            if new
            else f"`--base {branch}` creates a branch from it; or check out something else there",
            branch=branch,
            worktree=str(place),
        )
    if not new:
        return
    if (lost := lost_tip(repo, branch)) is not None:
        raise BranchTakenError(
            f"branch {branch} is at {lost[:12]}, which git no longer has",
            hint="choose another name with --branch; `git fsck` lists what is missing",
            branch=branch,
        )
    if branch_tip(repo, branch) is not None:
        raise BranchTakenError(
            f"branch {branch} exists already",
            hint=f"continue it with --existing {branch}, or choose another name with --branch",
            branch=branch,
        )
    other = _obstacle(repo, branch)
    if other is not None:
        raise BranchTakenError(
            f"branch {branch} cannot exist beside {other}",
            hint="choose another name with --branch",
            branch=branch,
            other=other,
        )


def _obstacle(repo: RepositoryInfo, branch: str) -> str | None:
    """Return a branch that prevents one of this name, because one ref would be a file and the other
    a directory.

    Reads the files of refs (gitrepository-layout(5)): libgit2 can only list all branches.
    """
    for parent in names.parents(branch):
        if branch_tip(repo, parent) is not None:
            return parent
    heads = repo.common_dir / "refs" / "heads"
    for path in (heads / branch).rglob("*"):
        if path.is_file() and not path.name.endswith(".lock"):
            return str(path.relative_to(heads))
    try:
        packed = (repo.common_dir / "packed-refs").read_bytes()
    except FileNotFoundError:
        return None
    start = packed.find(f" refs/heads/{branch}/".encode("utf-8", "surrogateescape"))
    if start < 0:
        return None
    return packed[start : packed.index(b"\n", start)].decode("utf-8", "surrogateescape").removeprefix(" refs/heads/")


async def create_branch(git: GitContext, repo: RepositoryInfo, path: Path, branch: str, commit: str, lock: int) -> None:
    """Create the branch for the worktree at ``path``, and record this in its reflog, where
    `made_for` reads it."""
    arguments = ("update-ref", "--create-reflog", "-m", f"{_MARK}{path}", f"refs/heads/{branch}", commit, _NOTHING)
    await git.process.write(repo.common_dir, *arguments, lock=lock)


def create_branch_here(repo: RepositoryInfo, path: Path, branch: str, commit: str) -> None:
    """`create_branch` without a process. Raises pygit2.GitError when the branch exists, or its lock
    file does. Blocks."""
    reflog = repo.common_dir / "logs" / "refs" / "heads" / branch
    reflog.parent.mkdir(parents=True, exist_ok=True)
    reflog.touch()  # git then writes the reflog in a bare repository too
    name = f"refs/heads/{branch}"
    open_repository(repo.common_dir).create_reference_direct(
        name, pygit2.Oid(hex=commit), False, message=f"{_MARK}{path}"
    )


def maker_of(repo: RepositoryInfo, branch: str) -> Path | None:
    """Return from the reflog the worktree for which Ramet created the branch; None for any other
    branch."""
    try:
        with (repo.common_dir / "logs" / "refs" / "heads" / branch).open(errors="surrogateescape") as reflog:
            message = reflog.readline().rstrip("\n").partition("\t")[2]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return Path(message.removeprefix(_MARK)) if message.startswith(_MARK) else None


def made_for(repo: RepositoryInfo, branch: str, path: Path) -> bool:
    """Return whether `create_branch` created the branch for the worktree at ``path``."""
    return maker_of(repo, branch) == path


async def delete_branch(
    git: GitContext, repo: RepositoryInfo, branch: str, tip: str, lock: int | None = None
) -> str | None:
    """Delete the branch if it is still at ``tip`` and checked out nowhere; else return why it
    stays. A missing branch counts as deleted."""
    now = await git.compute(branch_tip, repo, branch)
    if now is None:
        return None
    place = (await git.compute(checked_out, repo)).get(branch)
    if place is not None:
        return f"branch {branch}: it is checked out at {place}"
    if now != tip:
        return f"branch {branch}: it has moved on to {now[:12]}"
    try:
        await git.process.write(repo.common_dir, "update-ref", "-d", f"refs/heads/{branch}", tip, lock=lock)
    except GitFailedError as error:  # git compared again: the branch has moved since
        if await git.compute(branch_tip, repo, branch) is not None:
            return f"branch {branch}: {error.message}"
    await _forget_settings(git, repo, branch, lock)
    return None


async def _forget_settings(git: GitContext, repo: RepositoryInfo, branch: str, lock: int | None) -> None:
    """Remove the settings `[branch "..."]`, which an agent's `push -u` writes: a later branch of
    the same name would inherit them."""
    section = f"branch.{branch}"

    def has_settings() -> bool:
        return any(entry.name.startswith(f"{section}.") for entry in open_repository(repo.common_dir).config)

    if await git.compute(has_settings):
        await git.process.run(repo.common_dir, "config", "--local", "--remove-section", section, lock=lock)


class Branches:
    """Local branches. Every method may raise what those of `Git` raise."""

    def __init__(self, git: GitContext) -> None:
        self._git = git
        self.resolve_base = git.threaded(resolve_base)
        self.list = git.threaded(list_branches)
        self.tip = git.threaded(branch_tip)
        self.names = git.threaded(branch_names)
        self.free_name = git.threaded(free_name)
        self.require_free = git.threaded(require_free)
        self.ahead_behind = git.threaded(ahead_behind)

    async def delete(self, repo: RepositoryInfo, branch: str, tip: str) -> str | None:
        """Delete the branch if it is still at ``tip`` and checked out nowhere. Return why it stays,
        None if it is gone."""
        if (lost := await self._git.compute(lost_tip, repo, branch)) is not None:
            return f"branch {branch} stays: git no longer has its commit {lost[:12]}"
        await self._git.make_durable(repo.common_dir)  # syncs all refs that have its commits
        async with self._git.locks.hold(repo.common_dir) as lock:
            return await delete_branch(self._git, repo, branch, tip, lock)

    async def initial_commit(self, repo: RepositoryInfo, message: str) -> str:
        """Create an empty first commit of the person on the unborn branch that ``repo`` has checked
        out. Return the commit. Index and files stay unchanged.
        """
        where = repo.standpoint
        tree = (
            (await self._git.process.write(where, "hash-object", "-t", "tree", "-w", "--stdin", stdin=b""))
            .decode()
            .strip()
        )
        done = await self._git.process.run(where, "commit-tree", tree, "-m", message)
        if done.returncode != 0:
            error = failed(done, ("commit-tree",))
            raise GitFailedError(error.message, hint="git config --global user.name and user.email say who you are")
        commit = done.stdout.decode().strip()
        async with self._git.locks.hold(repo.common_dir) as lock:
            # With an empty old value, git refuses if a first commit was created meanwhile.
            await self._git.process.write(
                where, "update-ref", "-m", "initial commit", "HEAD", commit, "0" * 40, lock=lock
            )
        return commit
