"""Local branches: where each is checked out, making one that we can recognise later, deleting by compare-and-set."""

from collections.abc import Collection
from pathlib import Path

import pygit2

from rametd.domain.errors import BranchTakenError, GitFailedError
from rametd.git import names
from rametd.git.context import GitContext
from rametd.git.registrations import registrations
from rametd.git.repository import Branch, RepositoryInfo, branch_tip, head_of, open_repository, peel

_NOTHING = "0" * 40


def checked_out(repo: RepositoryInfo) -> dict[str, Path]:
    """Branch → the worktree that has it checked out, whether or not its directory is still there."""
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
    """All local branches."""
    return frozenset(open_repository(repo.common_dir).branches.local)


def free_name(repo: RepositoryInfo, text: str, *, fallback: str, taken: Collection[str]) -> str:
    """`names.branch_name` among the repository's branches and ``taken``. Only those that begin alike are looked at closer: there may be
    a hundred thousand."""
    tops = tuple(name.casefold().partition("/")[0] for name in (names.slug(text), fallback) if name)
    near = (name for name in open_repository(repo.common_dir).branches.local if name.casefold().startswith(tops))
    return names.branch_name(text, fallback=fallback, taken={*near, *taken})


def list_branches(repo: RepositoryInfo) -> tuple[Branch, ...]:
    """All local branches, by name."""
    places = checked_out(repo)
    repository = open_repository(repo.common_dir)
    tips = ((name, peel(repository, f"refs/heads/{name}")) for name in sorted(repository.branches.local))
    return tuple(Branch(name, tip, places.get(name)) for name, tip in tips if tip is not None)


def lost_tip(repo: RepositoryInfo, branch: str) -> str | None:
    """The commit that a branch is at, where git does not have it any more; None for any other branch, and where there is none."""
    reference = open_repository(repo.common_dir).references.get(f"refs/heads/{branch}")
    if reference is None or branch_tip(repo, branch) is not None:
        return None
    return str(reference.target)


def require_free(repo: RepositoryInfo, branch: str, *, new: bool) -> None:
    """Raise BranchTakenError unless the branch can be made (``new``) or checked out in another worktree."""
    place = checked_out(repo).get(branch)
    if place is not None:
        gone = "" if place.is_dir() else ", which is gone: git worktree prune frees it"
        raise BranchTakenError(
            f"branch {branch} is checked out at {place}{gone}",
            hint="choose another name with --branch, or check out something else there"
            if new
            else f"`--base {branch}` makes a new branch from it; or check out something else there",
            branch=branch,
            worktree=str(place),
        )
    if not new:
        return
    if (lost := lost_tip(repo, branch)) is not None:
        raise BranchTakenError(
            f"branch {branch} is at {lost[:12]}, which git has no more",
            hint="choose another name with --branch; `git fsck` tells more",
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
    """The branch that one of this name cannot exist beside, because one would be a file and the other a directory.

    Files are looked at (gitrepository-layout(5)), as libgit2 can only list all branches.
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
    """Make the branch for the worktree at ``path``, and write so into its reflog: `made_for` tells it from a user's own."""
    arguments = ("update-ref", "--create-reflog", "-m", _mark(path), f"refs/heads/{branch}", commit, _NOTHING)
    await git.process.write(repo.common_dir, *arguments, lock=lock)


def create_branch_here(repo: RepositoryInfo, path: Path, branch: str, commit: str) -> None:
    """`create_branch` without a process. Raises pygit2.GitError when the branch exists, or its lock file does. Blocks."""
    reflog = repo.common_dir / "logs" / "refs" / "heads" / branch
    reflog.parent.mkdir(parents=True, exist_ok=True)
    reflog.touch()  # so that one is written in a bare repository too
    name = f"refs/heads/{branch}"
    open_repository(repo.common_dir).create_reference_direct(name, pygit2.Oid(hex=commit), False, message=_mark(path))


def made_for(repo: RepositoryInfo, branch: str, path: Path) -> bool:
    """Whether the branch was made by `create_branch` for the worktree at ``path``."""
    try:
        with (repo.common_dir / "logs" / "refs" / "heads" / branch).open(errors="surrogateescape") as reflog:
            return reflog.readline().rstrip("\n").partition("\t")[2] == _mark(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _mark(path: Path) -> str:
    return f"ramet: made for {path}"


async def delete_branch(
    git: GitContext, repo: RepositoryInfo, branch: str, tip: str, lock: int | None = None
) -> str | None:
    """Delete the branch if it is still at ``tip`` and checked out nowhere; else say why it is kept. A missing branch is deleted."""
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
    except GitFailedError as error:  # somebody moved it since: git compared again
        if await git.compute(branch_tip, repo, branch) is not None:
            return f"branch {branch}: {error.message}"
    await _forget_settings(git, repo, branch, lock)
    return None


async def _forget_settings(git: GitContext, repo: RepositoryInfo, branch: str, lock: int | None) -> None:
    """Remove `[branch "..."]` (an agent's `push -u` writes it), which a later branch of the same name would inherit."""
    section = f"branch.{branch}"

    def has_settings() -> bool:
        return any(entry.name.startswith(f"{section}.") for entry in open_repository(repo.common_dir).config)

    if await git.compute(has_settings):
        await git.process.run(repo.common_dir, "config", "--local", "--remove-section", section, lock=lock)
