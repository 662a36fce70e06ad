"""Decide by content whether a branch has landed on its target.

Tests, the cheapest first: the target has the branch's commits. The files that the branch changed
are the same in the target, or merging the branch would change nothing there. A commit of the target
is the branch's combined change (squash), by its text or because it is exactly that merge. The
target has a commit with the same text for every commit of the branch (rebase, cherry-pick). Callers
check for uncommitted work themselves (`work_at_risk`).

Git processes do all this, so that the event loop and the interpreter's lock stay free. They read at
most `COMMITS` commits of the target since the branch began, which touch the branch's files.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pygit2
from ramet.words import plural

from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, head_of, open_repository, peel

COMMITS: Final = 1000
PATCH_BYTES: Final = 16 << 20
"""Maximum bytes of patches of the target's candidates, and of the branch's own commits."""
SQUASHES: Final = 20
"""Maximum number of commits of the target to test as the branch's squash merge."""
MERGES: Final = 50
"""Maximum number of merge commits of the branch to read."""
PATHS: Final = 400
"""Maximum number of paths to give to git as arguments; with more, git reads the whole history."""
CACHED_ANSWERS: Final = 20_000
DEFAULTS: Final = ("main", "master", "trunk")
NAME: Final = "{target}"
"""Placeholder for the target's name in a cached answer."""


@dataclass(frozen=True, slots=True)
class Landed:
    """Whether a branch has landed. ``reason`` says in one line how, or why not."""

    yes: bool
    reason: str

    def __bool__(self) -> bool:
        return self.yes


class LandedAnswers:
    """Cache of answers by (tip, base, target's tip): commits never change."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str, str], Landed] = OrderedDict()

    def get(self, key: tuple[str, str, str]) -> Landed | None:
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
        return found

    def put(self, key: tuple[str, str, str], answer: Landed) -> Landed:
        self._cache[key] = answer
        while len(self._cache) > CACHED_ANSWERS:
            self._cache.popitem(last=False)
        return answer


@dataclass(frozen=True, slots=True)
class Target:
    """A branch that work lands on: its short name, and its commit."""

    name: str
    commit: str


def targets(repo: RepositoryInfo, base_ref: str, branch: str) -> tuple[Target, ...]:
    """Return the targets of work from ``base_ref``: that branch, and the remote's copy of it.
    Blocks.

    If ``base_ref`` is no branch, or the session's own, the target is the default branch: the
    remote's, or the one that the main worktree has checked out, or main, master or trunk. If only
    the remote's copy of ``base_ref`` is left, the default branch comes first: the branch may have
    been merged and deleted on the remote, and the copy not pruned.
    """
    repository = open_repository(repo.common_dir)
    stale: tuple[Target, ...] = ()
    for name in dict.fromkeys((base_ref, *_defaults(repository, repo))):
        found = tuple(_both(repository, name)) if name and name != branch else ()
        if found and name == base_ref and found[0].name != name:
            stale = found
        elif found:
            return (*found, *(target for target in stale if target not in found))
    return stale


def _defaults(repository: pygit2.Repository, repo: RepositoryInfo) -> Iterator[str]:
    for remote in ("origin", *(name for name in repository.remotes.names() if name is not None and name != "origin")):
        head = repository.references.get(f"refs/remotes/{remote}/HEAD")
        if head is not None and isinstance(head.target, str):
            yield head.target.removeprefix(f"refs/remotes/{remote}/")
    if not repo.is_bare and (checked_out := head_of(repository).branch) is not None:
        yield checked_out
    yield from DEFAULTS


def _both(repository: pygit2.Repository, name: str) -> Iterator[Target]:
    """Yield the local branch and its upstream; for ``REMOTE/NAME``, that one and the local branch
    of the name."""
    local = peel(repository, f"refs/heads/{name}")
    remotes = [remote for remote in repository.remotes.names() if remote is not None]
    if local is not None:
        yield Target(name, local)
        branch = repository.branches.local.get(name)
        upstream = branch.upstream if branch is not None else None
        tracked = upstream.branch_name if upstream is not None else f"origin/{name}"
        if (tip := peel(repository, f"refs/remotes/{tracked}")) is not None:
            yield Target(tracked, tip)
        return
    remote_tip = peel(repository, f"refs/remotes/{name}")
    if remote_tip is not None:
        yield Target(name, remote_tip)
        short = next((name.removeprefix(f"{each}/") for each in remotes if name.startswith(f"{each}/")), "")
        if short and (tip := peel(repository, f"refs/heads/{short}")) is not None:
            yield Target(short, tip)
    elif (tip := peel(repository, f"refs/remotes/origin/{name}")) is not None:
        yield Target(f"origin/{name}", tip)


async def landed(
    git: GitContext,
    answers: LandedAnswers,
    repo: RepositoryInfo,
    tip: str,
    base_commit: str,
    where: Sequence[Target],
    *,
    pull_request_state: str | None = None,
) -> Landed:
    """See `Landing.landed`."""
    if tip == base_commit:
        return Landed(False, "it has no commits of its own")
    if pull_request_state == "merged":
        return Landed(True, "its pull request was merged")
    if not where:
        return Landed(False, "there is no branch that it lands on")
    refusals = []
    for target in where:
        key = (tip, base_commit, target.commit)
        answer = answers.get(key)
        if answer is None:
            answer = answers.put(key, await _landed(git, repo, tip, target))
        refusal = Landed(answer.yes, answer.reason.replace(NAME, target.name))
        if refusal:
            return refusal
        refusals.append(refusal)
    return refusals[0]


async def _landed(git: GitContext, repo: RepositoryInfo, tip: str, target: Target) -> Landed:
    """Return the answer for one target, with `NAME` in place of its name."""
    done = await git.process.run(repo.common_dir, "merge-base", tip, target.commit)
    base = done.stdout.decode().strip()
    if done.returncode != 0 or not base:
        return Landed(False, f"it has no history in common with {NAME}")
    if base == tip:
        return Landed(True, f"merged into {NAME}")
    changed = await _changed_paths(git, repo, base, tip)
    if not changed:
        return Landed(False, "its commits change nothing")
    if base == target.commit:
        return Landed(False, f"{NAME} is still at its base")
    paths = [f":(literal,top){path}" for path in changed] if len(changed) <= PATHS else []
    candidates, cut = await _patches(git, repo, target.commit, base, "--full-history", "--full-diff", "--", *paths)
    if not candidates:
        return Landed(False, f"{NAME} has not touched its files")
    differing = await _changed_paths(git, repo, tip, target.commit, *paths)
    if not changed & differing:
        return Landed(True, f"its content is on {NAME}")
    if await _merge(git, repo, target.commit, tip) == await _tree(git, repo, target.commit):
        return Landed(True, f"its content is on {NAME}")
    combined = await git.process.read_up_to(PATCH_BYTES, repo.common_dir, *_PATCH, "diff", *_PLAIN, base, tip, "--")
    known = {patch.digest: patch.commit for patch in candidates}
    if not combined[1]:
        complete = await git.compute(lambda: next(_parse(b"commit -\n" + combined[0]), None))
        if complete is not None and (found := known.get(complete.digest)) is not None:
            return Landed(True, f"squash-merged into {NAME} as {found[:10]}")
    for patch in [patch for patch in candidates if patch.paths == changed][:SQUASHES]:
        if await _merge(git, repo, f"{patch.commit}^", tip) == await _tree(git, repo, patch.commit):
            return Landed(True, f"squash-merged into {NAME} as {patch.commit[:10]}")
    own, too_much = await _patches(git, repo, tip, target.commit, "--")
    there = sum(patch.digest in known for patch in own)
    if own and there == len(own) and not too_much and await _merges_are_plain(git, repo, tip, target.commit):
        return Landed(True, f"rebased onto {NAME}")
    if there:
        return Landed(False, f"{there} of its {plural(len(own), 'commit')} {'is' if there == 1 else 'are'} on {NAME}")
    looked = f" among its newest {plural(len(candidates), 'commit')} to these files" if cut else ""
    return Landed(False, f"it is not on {NAME}{looked}")


_PATCH: Final = (
    *("-c", "core.quotePath=false", "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false"),
    *("-c", "diff.suppressBlankEmpty=false", "-c", "diff.orderFile=/dev/null", "-c", "log.showSignature=false"),
)
_PLAIN: Final = (
    *("--patch", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--diff-algorithm=myers", "--unified=3", "--inter-hunk-context=0", "--submodule=short"),
    "--ignore-submodules=none",
)
"""Options that make the text of a change independent of the person's configuration."""


@dataclass(frozen=True, slots=True)
class _Patch:
    commit: str
    digest: str
    paths: frozenset[str]


async def _patches(
    git: GitContext, repo: RepositoryInfo, tip: str, without: str, *options: str
) -> tuple[list[_Patch], bool]:
    """Return the changes of the commits that ``tip`` has and ``without`` lacks, except merges and
    empty commits, and whether there are more."""
    output, cut = await git.process.read_up_to(
        PATCH_BYTES,
        repo.common_dir,
        *_PATCH,
        *("log", "--no-merges", f"--max-count={COMMITS}", "--format=commit %H", *_PLAIN, tip, f"^{without}"),
        *(options or ("--",)),
    )
    found = await git.compute(lambda: list(_parse(output)))
    if cut and found:
        found.pop()  # its text is not whole
    return found, cut or len(found) == COMMITS


def _parse(output: bytes) -> Iterator[_Patch]:
    """Yield changes with a digest of their text without positions of hunks, like git-patch-id(1),
    but including white space, modes and binary files."""
    commit, digest, paths, header = "", hashlib.sha256(), set[str](), False
    index = b""
    for line in output.split(b"\n"):
        if line.startswith(b"commit "):
            if paths:
                yield _Patch(commit, digest.hexdigest(), frozenset(paths))
            commit, digest, paths, header = line[7:].decode(), hashlib.sha256(), set(), False
        elif line.startswith(b"diff --git "):
            header, index = True, b""
            # Without renames both halves are the same path: "a/P b/P".
            half = (len(line) - len(b"diff --git ") - 1) // 2
            paths.add(_unquoted(line[len(b"diff --git ") : len(b"diff --git ") + half]))
            digest.update(line + b"\n")
        elif header and line.startswith(b"index "):
            index = line
        elif header and line.startswith(b"Binary files "):
            digest.update(index + b"\n")
        elif line.startswith(b"@@ "):
            header = False
            digest.update(b"@@\n")
        elif commit and paths and line:  # an empty one parts a commit from the next
            digest.update(line + b"\n")
    if paths:
        yield _Patch(commit, digest.hexdigest(), frozenset(paths))


def _unquoted(name: bytes) -> str:
    """Return the path of a patch's header. A path with a quote or control character stays C-quoted:
    it is only compared with quoted paths."""
    return os.fsdecode(name.removeprefix(b"a/"))


async def _changed_paths(git: GitContext, repo: RepositoryInfo, old: str, new: str, *paths: str) -> frozenset[str]:
    output = await git.process.read(
        repo.common_dir, "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", *paths
    )
    return frozenset(os.fsdecode(name) for name in output.split(b"\0") if name)


async def _merge(git: GitContext, repo: RepositoryInfo, ours: str, theirs: str) -> str | None:
    """Return the tree of merging two commits; None if they conflict, or git is too old to merge
    without a worktree."""
    done = await git.process.run(repo.common_dir, "merge-tree", "--write-tree", "--no-messages", ours, theirs)
    return done.stdout.decode().strip() if done.returncode == 0 else None


async def _tree(git: GitContext, repo: RepositoryInfo, commit: str) -> str:
    return (await git.process.read(repo.common_dir, "rev-parse", f"{commit}^{{tree}}")).decode().strip()


async def _merges_are_plain(git: GitContext, repo: RepositoryInfo, tip: str, without: str) -> bool:
    """Return whether the branch's merge commits contain only the merge: no other commit has a
    change that was made in one."""
    output = await git.process.read(
        repo.common_dir, "rev-list", "--merges", "--parents", f"--max-count={MERGES + 1}", tip, f"^{without}", "--"
    )
    merges = [line.split() for line in output.decode().splitlines()]
    if len(merges) > MERGES or any(len(merge) != 3 for merge in merges):
        return False
    for commit, ours, theirs in merges:
        if await _merge(git, repo, ours, theirs) != await _tree(git, repo, commit):
            return False
    return True
