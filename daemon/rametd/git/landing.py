"""Merge a branch onto its target in a private worktree; no branch moves here (see
`rametd.git.targets`).

Merges and squashes are computed in the object database (`git merge-tree`), so that a conflict
leaves no files. Rebases run in the private worktree. The result is a commit, which is checked out
there for the check.
"""

import os
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ramet.environment import IDENTITY
from ramet.words import plural

from rametd.domain.errors import GitFailedError, WorktreeChangedError, WrongStateError
from rametd.git import landed, removal, worktrees
from rametd.git.context import GitContext
from rametd.git.hooks import COMMIT, find_hooks, words_of_hooks
from rametd.git.inside import new_links
from rametd.git.landed import Landed, LandedAnswers, Target
from rametd.git.process import at, clean_environment, failed
from rametd.git.registrations import REASON, registered_at, verify_worktree
from rametd.git.repository import RepositoryInfo
from rametd.git.submodules import links_that_go_back, populate_submodules, unpublished
from rametd.git.targets import Targets
from rametd.git.underway import busy_with, ending_words

RAMET: Final = ("Ramet", "ramet@localhost")
_REBASE: Final = (
    *("-c", "rebase.autoStash=false", "-c", "rebase.autoSquash=false", "-c", "rebase.rebaseMerges=false"),
    *("-c", "rebase.updateRefs=false"),  # it would move branches that point to replayed commits
    *("-c", "rerere.enabled=false", "-c", "commit.gpgSign=false", "-c", "sequence.editor=false"),
)
OF_PERSON: Final = frozenset(
    {*IDENTITY, "EMAIL", "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
)
"""Variables that determine a commit's id."""
_IDENT: Final = re.compile(r"(?P<name>.*) <(?P<email>[^>]*)> \d+ [+-]\d+")


@dataclass(frozen=True, slots=True)
class Combined:
    """The target with a branch's work; ``commit`` is the target's own if the branch adds
    nothing."""

    commit: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The conflicting paths."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a branch, with its message and author."""

    commit: str
    subject: str
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class CommittedAll:
    """``warnings`` has the output of hooks. ``skipped`` names hooks that did not run."""

    commit: str
    warnings: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class Landing:
    """Git operations for landing. Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git
        self.targets = Targets(git)
        self._landed = LandedAnswers()
        self.unpublished = git.bind(unpublished)
        self.targets_of = git.threaded(landed.targets)

    @asynccontextmanager
    async def tree(self, repo: RepositoryInfo, path: Path, commit: str) -> AsyncIterator["LandingTree"]:
        """Lock the private worktree at ``path`` for the context, and create it at ``commit`` if
        necessary. Besides the commit it has only ignored files. Taking the lock also waits for a
        git process of a killed daemon.

        Raises WorktreeChangedError if another directory is there, GitBusyError.
        """
        git = self._git
        async with git.locks.hold(repo.common_dir) as lock:
            if not await git.compute(_is_ours, repo, path):
                await removal.detach(git, repo, path, lock, unfinished=True)
                await worktrees.register(git, repo, path, None, commit, lock)
        await removal.sweep(git, repo, path)
        admin = await git.verified(path, None)
        async with git.locks.hold(admin) as held:
            tree = LandingTree(git, repo, path, held)
            await tree.check_out(commit)
            yield tree

    async def remove_tree(self, repo: RepositoryInfo, path: Path) -> None:
        """Remove the private worktree, if Ramet created it."""
        await removal.undo_create(self._git, repo, path, "", None)

    async def commits(self, repo: RepositoryInfo, target: str, tip: str) -> tuple[Commit, ...]:
        """Return the commits of ``tip`` that ``target`` lacks, oldest first, without merges."""
        output = await self._git.process.read(
            repo.common_dir,
            *(
                "log",
                "-z",
                "--reverse",
                "--topo-order",
                "--no-merges",
                "--format=%H%n%an%n%ae%n%s",
                f"{target}..{tip}",
                "--",
            ),
        )
        records = (record.split("\n", 3) for record in output.decode(errors="replace").split("\0") if record)
        return tuple(Commit(commit, subject, name, email) for commit, name, email, subject in records)

    async def under_way(self, worktree: Path) -> str:
        """Name the git command under way in a worktree ("a rebase"), "" if there is none."""
        return await self._git.compute(lambda: busy_with(verify_worktree(worktree, None)))

    async def check_nothing_under_way(self, worktree: Path, then: str) -> None:
        """Raise `WrongStateError` in the middle of a rebase, a merge or the like, as the branch is
        the one from before it. ``then`` is what to do after its end."""
        if busy := await self.under_way(worktree):
            raise WrongStateError(
                f"{busy} is under way in {worktree}, and its branch has not moved",
                hint=f"end it by {ending_words(worktree, busy)}, then {then}",
            )

    async def uncommitted(self, worktree: Path) -> tuple[str, ...]:
        """Return uncommitted files of a worktree: changed and untracked ones, an untracked
        directory once."""
        git_dir = await self._git.verified(worktree, None)
        output = await self._git.process.read(
            worktree,
            *at(git_dir, worktree),
            *("status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames"),
        )
        return tuple(record[3:] for record in output.decode(errors="surrogateescape").split("\0") if record)

    async def commit_all(
        self,
        repo: RepositoryInfo,
        worktree: Path,
        branch: str,
        message: str,
        *,
        trusted: bool,
        environment: Mapping[str, str],
    ) -> "CommittedAll":
        """Commit all changes in a worktree, untracked files included, as the person. Hooks of a
        ``trusted`` repository run, with ``environment``.

        Raise WorktreeChangedError if it is no longer that worktree, and GitFailedError without
        changes or if a hook refuses. Raise WrongStateError during a merge or the like, in which
        `git add` would mark every conflict as resolved and commit its markers, and if a nested
        repository would be committed as a mere pointer.
        """
        git = self._git
        git_dir = await git.verified(worktree, None)
        there = at(git_dir, worktree)
        busy = await git.compute(busy_with, git_dir)
        if busy:
            raise WrongStateError(
                f"{busy} is under way in {worktree}, and what is committed now would be a part of it",
                hint=f"end it by {ending_words(worktree, busy)}, then land again",
                worktree=str(worktree),
            )
        unmerged = os.fsdecode(await git.process.read(worktree, *there, "diff", "--name-only", "--diff-filter=U", "-z"))
        if unmerged:
            paths = unmerged.split("\0")[:-1]
            raise WrongStateError(
                f"conflicts are not resolved in {worktree}: {', '.join(paths[:3])}",
                hint="resolve them and `git add` each file, then land again",
                files="\n".join(paths),
            )
        if links := await new_links(git, worktree, there):
            raise WrongStateError(
                f"{', '.join(links[:3])} in {worktree} {'is a repository' if len(links) == 1 else 'are repositories'} of its own: "
                "a commit would only point at it, and have none of its files",
                hint="ignore it, make a submodule of it (`git submodule add`), or move it away; to have its files land delete its .git",
                files="\n".join(links),
            )
        if back := await links_that_go_back(git, worktree, there):
            named = " ".join(shlex.quote(place) for place in back)
            raise WrongStateError(
                f"{plural(len(back), 'submodule')} in {worktree} would go back: what is checked out lacks the recorded commit: {', '.join(back[:3])}",
                hint=f"`git -C {shlex.quote(str(worktree))} submodule update -- {named}` checks the recorded commit out; "
                "to go back on purpose, commit that yourself",
                files="\n".join(back),
            )
        await git.verified(worktree, branch)
        await git.process.write(worktree, *there, "add", "--all")
        author = await identity(git, worktree, environment, "AUTHOR")
        committer = await identity(git, worktree, environment)
        hooks = await find_hooks(git, repo, environment, COMMIT)
        options = hooks.options if trusted else ()
        # Do not name the repository: hooks then get the same variables as from the person's own
        # `git commit` there.
        done = await git.process.run(
            worktree,
            *(options or there),
            *("-c", "commit.gpgSign=false", "commit", "--quiet", "--cleanup=whitespace", "--file=-"),
            stdin=message.encode(),
            environment=clean_environment(environment)
            | dict(by(author, committer))
            | {"GIT_CEILING_DIRECTORIES": str(worktree.parent)},
        )
        said = words_of_hooks(done) if options else ""
        if done.returncode != 0:
            if not said:
                raise failed(done, ("commit",))
            raise GitFailedError(
                f"the commit was refused, by a hook ({', '.join(hooks.names)}): {said}",
                hint="fix it and land again; everything is staged there for the commit",
                command="commit",
            )
        commit = (await git.process.read(worktree, *there, "rev-parse", "HEAD")).decode().strip()
        return CommittedAll(commit, (f"commit hooks: {said}",) if said else (), () if trusted else hooks.names)

    async def landed(
        self,
        repo: RepositoryInfo,
        tip: str,
        base_commit: str,
        targets: Sequence[Target],
        *,
        pull_request_state: str | None = None,
        background: bool = False,
    ) -> Landed:
        """Return whether the commits from ``base_commit`` to ``tip`` are on a target, by content:
        merged, squashed, rebased or picked.

        A tip without commits of its own has not landed. ``pull_request_state``: of a pull request
        with the head ``tip``; "merged" means landed. Ignores uncommitted work. Caches answers by
        commits.
        """
        context = self._git.in_background() if background else self._git
        return await landed.landed(
            context, self._landed, repo, tip, base_commit, targets, pull_request_state=pull_request_state
        )


class LandingTree:
    """The locked private worktree."""

    def __init__(self, git: GitContext, repo: RepositoryInfo, path: Path, lock: int) -> None:
        self._git = git
        self._repo = repo
        self._lock = lock
        self.path = path
        self.cleaned = False
        """Whether checking out the commit has removed files, such as results of a setup."""

    async def check_out(self, commit: str, trees: Sequence[Path] = ()) -> tuple[str, ...]:
        """Check out ``commit``: reset tracked files, delete untracked ones, and keep ignored ones
        (caches).

        Submodules get their commits from the person's checkout, else from ``trees``, the landing
        sessions' worktrees. Return a line for each submodule that is not at its commit.
        """
        there = await self._there()
        git_dir = await self._git.verified(self.path, None)
        # A leftover: the git process that created it held our lock, and has ended.
        await self._git.compute((git_dir / "index.lock").unlink, missing_ok=True)
        if await self._git.compute((git_dir / "rebase-merge").exists):
            await self._write(*there, "rebase", "--quit")
        # Not `reset --hard`: it would move a branch that a check has checked out here.
        await self._write(*there, "checkout", "--quiet", "--force", "--detach", "--no-recurse-submodules", commit)
        self.cleaned = bool(await self._write(*there, "clean", "-ffd"))
        warnings = await populate_submodules(self._git, self._repo.worktree_root, self.path)
        for tree in trees if warnings else ():
            warnings = await populate_submodules(self._git, tree, self.path)
        return warnings

    async def merge(self, onto: str, tip: str, message: str, environment: Mapping[str, str]) -> Combined | Conflict:
        """Create a merge commit of ``tip`` on ``onto``, even for a fast-forward: it names the
        session."""
        if await self._holds(onto, tip):
            return Combined(onto)
        merged = await self._merged(onto, tip)
        if isinstance(merged, Conflict):
            return merged
        person = await identity(self._git, self.path, environment)
        return Combined(await self._commit(merged, (onto, tip), message, person, person))

    async def squash(self, onto: str, tip: str, message: str, environment: Mapping[str, str]) -> Combined | Conflict:
        """Create one commit on ``onto`` with all changes of ``tip``, by the author of most of its
        commits."""
        merged = await self._merged(onto, tip)
        if isinstance(merged, Conflict):
            return merged
        if merged == (await self._read("rev-parse", f"{onto}^{{tree}}")):
            return Combined(onto)
        person = await identity(self._git, self.path, environment)
        authors = Counter((each.name, each.email) for each in await Landing(self._git).commits(self._repo, onto, tip))
        author = max(authors, key=lambda who: authors[who]) if authors else person
        return Combined(await self._commit(merged, (onto,), message, author, person))

    async def rebase(self, onto: str, tip: str, environment: Mapping[str, str]) -> Combined | Conflict:
        """Rebase the commits of ``tip`` onto ``onto`` with their authors, without merges and
        commits that ``onto`` has."""
        if await self._holds(onto, tip):
            return Combined(onto)
        there = await self._there()
        person = await identity(self._git, self.path, environment)
        done = await self._git.process.run(
            self.path,
            *there,
            *(*_REBASE, "rebase", "--quiet", "--no-verify", "--no-autostash", "--empty=drop", onto, tip),
            environment=by(None, person),
            lock=self._lock,
        )
        if done.returncode == 0:
            return Combined(await self._read("rev-parse", "HEAD"))
        unmerged = await self._read("diff", "--name-only", "--diff-filter=U", "-z")
        await self.check_out(onto)
        if not unmerged:
            raise failed(done, ("rebase",))
        return Conflict(tuple(sorted(filter(None, unmerged.split("\0")))))

    async def _merged(self, onto: str, tip: str) -> str | Conflict:
        """Return the tree of a merge, computed with the checked-out files' attributes."""
        arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", onto, tip)
        done = await self._git.process.run(self.path, *await self._there(), *arguments)
        if done.returncode not in (0, 1):
            raise failed(done, arguments)
        tree, *paths = done.stdout.decode(errors="surrogateescape").split("\0")
        return tree.strip() if done.returncode == 0 else Conflict(tuple(sorted({path for path in paths if path})))

    async def _commit(
        self, tree: str, parents: tuple[str, ...], message: str, author: tuple[str, str], committer: tuple[str, str]
    ) -> str:
        of = [word for parent in parents for word in ("-p", parent)]
        output = await self._git.process.write(
            self._repo.common_dir,
            *("commit-tree", "--no-gpg-sign", *of, "-F", "-", tree),
            stdin=message.encode(errors="surrogateescape"),
            environment=by(author, committer),
        )
        return output.decode().strip()

    async def _holds(self, onto: str, tip: str) -> bool:
        done = await self._git.process.run(self._repo.common_dir, "merge-base", "--is-ancestor", tip, onto)
        if done.returncode not in (0, 1):
            raise failed(done, ("merge-base",))
        return done.returncode == 0

    async def _read(self, *arguments: str) -> str:
        output = await self._git.process.read(self.path, *await self._there(), *arguments)
        return output.decode(errors="surrogateescape").strip("\n")

    async def _write(self, *arguments: str) -> bytes:
        return await self._git.process.write(self.path, *arguments, lock=self._lock)

    async def _there(self) -> tuple[str, str]:
        """Name both directories: if the .git file vanished, git would use an outer repository."""
        git_dir = await self._git.verified(self.path, None)
        if not await self._git.compute(_is_ours, self._repo, self.path):
            raise WorktreeChangedError(
                f"{self.path} is no longer a landing worktree",
                hint="move that directory away",
                worktree=str(self.path),
            )
        return at(git_dir, self.path)


async def identity(
    git: GitContext, where: Path, environment: Mapping[str, str], role: str = "COMMITTER"
) -> tuple[str, str]:
    """Return the name and address with which the person's git would commit in ``environment``;
    Ramet's own if there are none."""
    persons = {name: value for name, value in environment.items() if name in OF_PERSON}
    done = await git.process.run(
        where, "-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT", environment=persons
    )
    found = _IDENT.fullmatch(done.stdout.decode(errors="surrogateescape").strip()) if done.returncode == 0 else None
    return (found["name"], found["email"]) if found is not None and found["name"] else RAMET


def by(author: tuple[str, str] | None, committer: tuple[str, str]) -> Mapping[str, str]:
    named = [("COMMITTER", committer), *([("AUTHOR", author)] if author is not None else [])]
    return {
        f"GIT_{role}_{what}": value for role, who in named for what, value in zip(("NAME", "EMAIL"), who, strict=True)
    }


def _is_ours(repo: RepositoryInfo, path: Path) -> bool:
    """Return whether the worktree at ``path`` is an intact one of Ramet's. Blocks."""
    entries = registered_at(repo.common_dir, path)
    try:
        git_dir = verify_worktree(path, None)
    except WorktreeChangedError:
        return False
    return [entry.admin_dir for entry in entries] == [git_dir] and entries[0].locked == REASON
