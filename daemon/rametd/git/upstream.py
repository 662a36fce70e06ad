"""Fetch a base, and find the remote branch of a name. Never writes to a remote."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import AmbiguousError, BranchTakenError, RefNotFoundError, RemoteFailedError
from rametd.git.context import GitContext
from rametd.git.process import clean_environment
from rametd.git.repository import Base, RepositoryInfo, caller_view, head_of, open_repository, peel

FETCH_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class RemoteBranch:
    """``branch`` of ``remote``, in the remote's naming; ``tracking`` is its local name, such as
    ``origin/topic``."""

    remote: str
    branch: str

    @property
    def tracking(self) -> str:
        return f"{self.remote}/{self.branch}"


async def fetch_base(
    git: GitContext,
    repo: RepositoryInfo,
    ref: str | None,
    caller_cwd: Path | None,
    environment: Mapping[str, str],
    *,
    within: float = FETCH_TIMEOUT_S,
) -> Base | None:
    """Fetch the remote branch that ``ref`` names or follows. Return its commit if the local branch
    ``ref`` is behind it, else None.

    ``environment`` is the person's, for keys and credential helpers. Raise RefNotFoundError if
    there is no such branch, and RemoteFailedError if the remote fails or does not answer ``within``
    so many seconds.
    """
    source = await git.compute(_source_of, repo, ref, caller_cwd)
    if source is None:
        shown = ref or repo.head.branch or "what is checked out"
        raise RefNotFoundError(
            f"{shown} comes from no remote, so that there is nothing to fetch",
            hint=await git.compute(_without_remote, repo, ref, caller_cwd),
        )
    local, remote = source
    # Name both refs: in a clone of a single branch, the remote's refspecs do not include this one.
    refspec = f"+refs/heads/{remote.branch}:refs/remotes/{remote.tracking}"
    command = ("fetch", "--quiet", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance")
    try:
        async with asyncio.timeout(within):
            done = await git.process.run(
                *(repo.standpoint, *command, "--", remote.remote, refspec),
                environment=clean_environment(environment),
            )
    except TimeoutError:
        raise RemoteFailedError(
            f"{remote.remote} did not answer within {within:g} s",
            hint="look at the network, or leave --fetch out",
            remote=remote.remote,
        ) from None
    if done.returncode != 0:
        raise RemoteFailedError(
            f"{remote.tracking} could not be fetched: {done.words}",
            hint=f"see what `git fetch {remote.remote}` says, or leave --fetch out",
            remote=remote.remote,
        )
    return await git.compute(_newer, repo, local, remote)


async def track(git: GitContext, repo: RepositoryInfo, branch: str, followed: RemoteBranch) -> None:
    """Set a remote branch as a local branch's upstream."""
    async with git.locks.hold(repo.common_dir) as lock:
        for key, value in (("remote", followed.remote), ("merge", f"refs/heads/{followed.branch}")):
            await git.process.write(repo.common_dir, "config", "--local", f"branch.{branch}.{key}", value, lock=lock)


def find_remote_branch(repo: RepositoryInfo, name: str) -> RemoteBranch | None:
    """Return the remote branch that ``name`` means, as in `git checkout`: ``origin/topic``, or
    ``topic`` if one remote has it.

    Raise AmbiguousError if several have it, BranchTakenError if its local branch exists. Blocks.
    """
    repository = open_repository(repo.common_dir)
    found = _named(repository, name)
    if found is None:
        having = [RemoteBranch(remote, name) for remote in _remotes(repository)]
        having = [each for each in having if peel(repository, f"refs/remotes/{each.tracking}") is not None]
        if len(having) > 1:
            matches = ", ".join(each.tracking for each in having)
            raise AmbiguousError(f"{name} is a branch of several remotes: {matches}", hint="name one of them")
        return having[0] if having else None
    if peel(repository, f"refs/heads/{found.branch}") is not None:
        raise BranchTakenError(
            f"branch {found.branch} exists already",
            hint=f"continue it with --existing {found.branch}, or make a new branch from the remote's with --base {name}",
            branch=found.branch,
        )
    return found


def _without_remote(repo: RepositoryInfo, ref: str | None, caller_cwd: Path | None) -> str:
    """Return a hint for a failed fetch that avoids the same refusal."""
    repository = caller_view(repo, caller_cwd)
    branch = ref.removeprefix("refs/heads/") if ref is not None else head_of(repository).branch
    remotes = sorted(_remotes(repository))
    if branch is None or not remotes or peel(repository, f"refs/heads/{branch}") is None:
        return "leave --fetch out"
    having = [each for each in remotes if peel(repository, f"refs/remotes/{each}/{branch}") is not None] or remotes
    remote = "origin" if "origin" in having else having[0]
    return (
        f"leave --fetch out to take it as it is here; a new branch from the remote's: --base {remote}/{branch} --fetch"
    )


def _source_of(
    repo: RepositoryInfo, ref: str | None, caller_cwd: Path | None
) -> tuple[str | None, RemoteBranch] | None:
    """Return the local branch of a name, if any, and its upstream."""
    repository = caller_view(repo, caller_cwd)
    branch = ref.removeprefix("refs/heads/") if ref is not None else head_of(repository).branch
    if branch is None:
        return None
    if peel(repository, f"refs/heads/{branch}") is None:
        remote = _named(repository, branch.removeprefix("refs/remotes/"), known=False) or _only_there(
            repository, branch
        )
        return (None, remote) if remote is not None else None
    config = repository.config
    keys = (f"branch.{branch}.remote", f"branch.{branch}.merge")
    remote_name, merge = (config[key] or "" if key in config else "" for key in keys)
    if remote_name in {"", "."} or not merge:
        return None
    return branch, RemoteBranch(remote_name, merge.removeprefix("refs/heads/"))


def _named(repository: pygit2.Repository, name: str, *, known: bool = True) -> RemoteBranch | None:
    """Parse ``REMOTE/BRANCH``; with ``known`` only a branch that was fetched before."""
    for remote in _remotes(repository):
        if name.startswith(f"{remote}/"):
            found = RemoteBranch(remote, name.removeprefix(f"{remote}/"))
            if not known or peel(repository, f"refs/remotes/{name}") is not None:
                return found
    return None


def _only_there(repository: pygit2.Repository, name: str) -> RemoteBranch | None:
    """Return the remote branch that an unknown name may mean.

    Raise AmbiguousError if there are several possible remotes.
    """
    remotes = _remotes(repository)
    having = [remote for remote in remotes if peel(repository, f"refs/remotes/{remote}/{name}") is not None]
    if not having and peel(repository, name) is not None:
        return None  # a tag, or a commit
    candidates = having or remotes
    if len(candidates) > 1:
        raise AmbiguousError(
            f"{name} could come from several remotes: {', '.join(sorted(candidates))}",
            hint=f"name it with its remote, such as {min(candidates)}/{name}",
        )
    return RemoteBranch(candidates[0], name) if candidates else None


def _remotes(repository: pygit2.Repository) -> list[str]:
    return sorted((str(name) for name in repository.remotes.names()), key=len, reverse=True)


def _newer(repo: RepositoryInfo, local: str | None, remote: RemoteBranch) -> Base | None:
    """Return the remote's tip if it is ahead of the local branch, or if there is none. Return None
    if the local branch has commits of its own or is up to date."""
    repository = open_repository(repo.common_dir)
    if local is None:
        only = peel(repository, f"refs/remotes/{remote.tracking}")
        return Base(remote.tracking, only) if only is not None else None
    ours, theirs = peel(repository, f"refs/heads/{local}"), peel(repository, f"refs/remotes/{remote.tracking}")
    if ours is None or theirs is None or ours == theirs or not repository.descendant_of(theirs, ours):
        return None
    return Base(remote.tracking, theirs)
