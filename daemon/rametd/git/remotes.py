"""Remotes: addresses, tips of branches, push and delete with compare-and-set. The git binary
connects as the person.

``environment`` is the person's, with keys, agents and credential helpers. It is filtered like the
environment of other git processes.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rametd.domain.errors import ForgeUnavailableError, GitFailedError, PushRefusedError, WorktreeChangedError
from rametd.git.context import GitContext
from rametd.git.hooks import PUSH, find_hooks, words_of_hooks
from rametd.git.process import Completed, clean_environment, failed, verb_of
from rametd.git.registrations import verify_worktree
from rametd.git.repository import RepositoryInfo, open_repository
from rametd.git.submodules import push_mode, push_submodule, unpublished
from rametd.git.upstream import fetch_base, find_remote_branch, track

DEADLINE_S: Final = 180.0
HOOK_DEADLINE_S: Final = 1800.0
"""Time limit in seconds of a push, whose hook may run tests."""
_UNREACHABLE: Final = re.compile(
    r"Could not resolve host|Connection (?:refused|timed out|reset)|Could not read from remote repository|Failed to connect"
    r"|unable to access|Operation timed out|Network is unreachable|early EOF|The requested URL returned error: 5"
)
_ADDRESS: Final = re.compile(r"^remote:\s+(https?://\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote; ``address`` as in the configuration."""

    name: str
    address: str
    is_base: bool
    """`gh repo set-default` chose it as the target of pull requests."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A pushed branch. ``address``: the link that the server printed for opening a pull request, or
    "". ``skipped`` names hooks that did not run."""

    remote: str
    branch: str
    commit: str
    changed: bool
    address: str = ""
    warnings: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class Remotes:
    """The repository's remotes; `Git` creates it once. Every method may raise the errors of
    `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git
        self.list = git.threaded(list_remotes)
        self.of_branch = git.threaded(remote_of_branch)
        self.default_branch = git.threaded(default_branch)
        self.find_branch = git.threaded(find_remote_branch)
        self.follow = git.bind(track)
        self.fetch_base = git.bind(fetch_base)

    async def push_address(self, repo: RepositoryInfo, remote: str, environment: Mapping[str, str]) -> str:
        """Return the address of a push, after ``url.….insteadOf`` and the like."""
        arguments = ("remote", "get-url", "--push", "--", remote)
        output = await self._git.process.read(repo.common_dir, *arguments, environment=clean_environment(environment))
        return output.decode(errors="replace").strip()

    async def tip(self, repo: RepositoryInfo, remote: str, branch: str, environment: Mapping[str, str]) -> str:
        """Ask the remote for the commit of a branch; return "" without one. Raise
        ForgeUnavailableError."""
        arguments = ("ls-remote", "--", remote, f"refs/heads/{branch}")
        done = await self._talk(repo.common_dir, arguments, environment)
        if done.returncode != 0:
            raise _unreachable(done, remote) or failed(done, arguments)
        return next((line.split("\t")[0] for line in done.stdout.decode().splitlines()), "")

    async def push(
        self,
        repo: RepositoryInfo,
        remote: str,
        branch: str,
        commit: str,
        *,
        ours: frozenset[str],
        environment: Mapping[str, str],
        base: str,
        worktree: Path,
        trusted: bool,
    ) -> Pushed:
        """Push ``commit`` to ``branch`` on the remote. Replace the remote's commits only if they
        are among ``ours``, which Ramet pushed before.

        The pre-push hook of a ``trusted`` repository runs, in ``worktree`` if that exists. Push LFS
        contents first. The submodules' remotes must have all submodule commits that differ from
        those of ``base``.

        The race: another person pushes between our check and our push. The server then refuses our
        push: one that only adds, because it is no fast-forward, and one that replaces, because its
        lease names the commit that we saw. Raise PushRefusedError, ForgeUnavailableError.
        """
        there = await self.tip(repo, remote, branch, environment)
        if there == commit:
            return Pushed(remote, branch, commit, changed=False)
        lease: tuple[str, ...] = ()
        if there and not await self._git.compute(_is_ancestor, repo, there, commit):
            if there not in ours:
                raise PushRefusedError(
                    f"{branch} on {remote} is at {there[:12]}, which the session's branch does not contain and Ramet did not push",
                    hint=f"look at it with `git fetch {remote} {branch}`; merge it, or delete it there, and try again",
                    remote=remote,
                    commit=there,
                )
            lease = (f"--force-with-lease=refs/heads/{branch}:{there}",)
        await self._push_submodules(repo, worktree, remote, base, commit, environment)
        await self._push_large_files(repo, remote, commit, environment)
        hooks = await find_hooks(self._git, repo, environment, PUSH)
        options = hooks.options if trusted else ()
        where = await self._git.compute(_where_hooks_run, repo, worktree) if options else repo.common_dir
        push = ("push", "--porcelain", "--recurse-submodules=no", *lease, "--", remote, f"{commit}:refs/heads/{branch}")
        deadline = HOOK_DEADLINE_S if options else DEADLINE_S
        done = await self._talk(where, (*options, *push), environment, deadline)
        if done.returncode != 0:
            if options and not _reached_remote(done) and (said := words_of_hooks(done)):
                raise _unreachable(done, remote) or PushRefusedError(
                    f"the pre-push hook refused {branch}: {said}",
                    hint="fix what it reports and try again; to skip the hook, push by hand with --no-verify",
                    remote=remote,
                )
            raise _unreachable(done, remote) or _refused(done, remote, branch)
        address = _ADDRESS.search(done.stderr.decode(errors="replace"))
        said = words_of_hooks(done) if options else ""
        return Pushed(
            *(remote, branch, commit, True, address[1] if address else ""),
            warnings=(f"pre-push: {said}",) if said else (),
            skipped=() if trusted else hooks.names,
        )

    async def delete_branch(
        self, repo: RepositoryInfo, remote: str, branch: str, commit: str, environment: Mapping[str, str]
    ) -> str | None:
        """Delete a branch of the remote if it is still at ``commit``. Return why it was not
        deleted, or None."""
        there = await self.tip(repo, remote, branch, environment)
        if not there:
            return None
        if there != commit:
            return f"{branch} on {remote} has moved on to {there[:12]}"
        lease = f"--force-with-lease=refs/heads/{branch}:{commit}"
        arguments = ("push", "--porcelain", lease, "--delete", "--", remote, f"refs/heads/{branch}")
        done = await self._talk(repo.common_dir, arguments, environment)
        if done.returncode == 0 or not await self.tip(repo, remote, branch, environment):
            return None
        return _refused(done, remote, branch).message

    async def _push_large_files(
        self, repo: RepositoryInfo, remote: str, commit: str, environment: Mapping[str, str]
    ) -> None:
        """Push LFS contents as LFS's own pre-push hook would. That one runs only in a trusted
        repository, if it is installed."""
        if not await asyncio.to_thread((repo.common_dir / "lfs").is_dir):
            return
        done = await self._talk(repo.common_dir, ("lfs", "push", remote, commit), environment)
        if done.returncode != 0:
            raise _unreachable(done, remote) or PushRefusedError(
                f"files in LFS were not pushed, so neither was the branch: {done.words}",
                hint=f"see whether `git lfs push {remote} {commit[:12]}` works in your shell",
                remote=remote,
            )

    async def _push_submodules(
        self, repo: RepositoryInfo, worktree: Path, remote: str, base: str, commit: str, environment: Mapping[str, str]
    ) -> None:
        """Refuse unpublished submodule commits; with `push.recurseSubmodules=on-demand` push them
        first, as git would."""
        lone = await unpublished(self._git, repo, worktree, base, commit)
        if lone and await push_mode(self._git, repo) == "on-demand":
            lone = tuple(
                [
                    each
                    for each in lone
                    if not await push_submodule(self._git, repo, each, clean_environment(environment))
                ]
            )
        if lone:
            raise PushRefusedError(lone[0].words, hint=lone[0].hint, remote=remote)

    async def _talk(
        self, where: Path, arguments: tuple[str, ...], environment: Mapping[str, str], deadline: float = DEADLINE_S
    ) -> Completed:
        """Run git against a remote, with a time limit."""
        try:
            async with asyncio.timeout(deadline):
                return await self._git.process.run(where, *arguments, environment=clean_environment(environment))
        except TimeoutError:
            raise ForgeUnavailableError(
                f"git {verb_of(arguments)} did not end within {deadline:.0f} seconds", hint="try again later"
            ) from None


def list_remotes(repo: RepositoryInfo) -> tuple[Remote, ...]:
    """Return all remotes, in the order of the configuration. Blocks."""
    repository = open_repository(repo.common_dir)
    config = repository.config
    found = []
    for name in repository.remotes.names():
        if name is None:
            continue
        keys = (f"remote.{name}.pushurl", f"remote.{name}.url")
        address = next((config[key] for key in keys if key in config), "")
        resolved = f"remote.{name}.gh-resolved"
        found.append(Remote(name, str(address), resolved in config and config[resolved] == "base"))
    return tuple(found)


def remote_of_branch(repo: RepositoryInfo, branch: str) -> str:
    """Return the remote that a local branch follows, or "". Blocks."""
    config = open_repository(repo.common_dir).config
    key = f"branch.{branch}.remote"
    return str(config[key]) if key in config and config[key] != "." else ""


def default_branch(repo: RepositoryInfo, remote: str) -> str:
    """Return the branch of the remote's HEAD at the time of the clone, or "" if unknown. Blocks."""
    prefix = f"refs/remotes/{remote}/"
    reference = open_repository(repo.common_dir).references.get(f"{prefix}HEAD")
    target = None if reference is None else reference.target
    return target.removeprefix(prefix) if isinstance(target, str) else ""


def _is_ancestor(repo: RepositoryInfo, old: str, new: str) -> bool:
    """Return whether ``new`` contains ``old``; False for a commit that this repository does not
    have."""
    repository = open_repository(repo.common_dir)
    return old in repository and repository.descendant_of(new, old)


def _where_hooks_run(repo: RepositoryInfo, worktree: Path) -> Path:
    """Return the session's worktree, whose files a hook may read, or the person's checkout if it is
    gone."""
    try:
        verify_worktree(worktree, None)
    except WorktreeChangedError:
        return repo.standpoint
    return worktree


def _reached_remote(done: Completed) -> bool:
    """Return whether the remote answered about the branch."""
    return any(line.startswith(b"!") for line in done.stdout.splitlines())


def _unreachable(done: Completed, remote: str) -> ForgeUnavailableError | None:
    if _UNREACHABLE.search(done.stderr.decode(errors="replace")) is None:
        return None
    return ForgeUnavailableError(
        f"{remote} cannot be reached: {done.words}", hint=f"see whether `git ls-remote {remote}` works in your shell"
    )


def _refused(done: Completed, remote: str, branch: str) -> GitFailedError | PushRefusedError:
    """Build the error with the server's reason, which git prints in brackets on stdout, and the
    server's hooks on stderr."""
    lines = done.stdout.decode(errors="replace").splitlines()
    why = next((line.rpartition("\t")[2] for line in lines if line.startswith("!")), "")
    said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("remote:")]
    words = " ".join([why or done.words, *(line.removeprefix("remote:").strip() for line in said)]).strip()
    return PushRefusedError(
        f"{remote} refused {branch}: {words[:600]}", hint="check what the remote allows, or push by hand", remote=remote
    )
