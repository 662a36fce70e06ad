"""Work that is about to go, kept as one commit under `refs/ramet/trash/<id>` or `refs/ramet/archive/<id>`.

The commit's tree is the worktree, uncommitted and untracked files included; its parents keep everything else reachable: the
branch's tip first, then another HEAD, the index, the files of repositories nested inside (which a tree can only point at). Its
message says which is which, a line each: ``branch COMMIT``, ``head COMMIT``, ``on BRANCH``, ``index COMMIT``, ``begun WHAT`` (a merge or
the like that was under way), ``nested COMMIT PLACE``, ``later COMMIT`` (where the branch went on to after the files were kept; an earlier
release wrote ``earlier COMMIT`` for these files, with those of the branch), ``checkpoint COMMIT`` (has files of a worktree that somebody deleted, of another state of the branch). `revival` reads it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError, RefNotFoundError
from rametd.git.context import GitContext
from rametd.git.registrations import existing_git_dir, locate
from rametd.git.repository import Head, RepositoryInfo, branch_tip, common_dir, last_head, open_repository
from rametd.git.snapshot import WorktreeTree, write_commit, write_tree

PREFIX: Final = "refs/ramet/trash/"
ARCHIVE: Final = "refs/ramet/archive/"
_BEGUN: Final = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert", "rebase-merge": "rebase",
                 "rebase-apply": "rebase", "BISECT_LOG": "bisect"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrashRecord:
    """What was kept. ``size`` is bytes on disk that nothing but the trash and the branch hold; ``skipped`` says what was not kept."""

    ref: str
    commit: str
    branch_commit: str | None
    size: int
    skipped: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Of these, files that would go with the tree; the rest stays where it is, or is gone."""


async def keep(
    git: GitContext,
    repo: RepositoryInfo,
    ref: str,
    worktree: Path,
    branch: str,
    last: tuple[str, str] | None = None,
    *,
    afresh: bool = False,
) -> TrashRecord:
    """See `Git.trash`; ``ref`` is where."""
    tip = await git.compute(branch_tip, repo, branch)
    earlier = await git.compute(read_ref, repo, ref)
    written: WorktreeTree | None = None
    nested: list[tuple[str, str]] = []
    notes: list[str] = []
    unread: list[str] = []
    git_dir, why = await git.compute(locate, repo.common_dir, worktree)
    # Where its entry is gone the files are read by way of the repository itself, whose HEAD is the main worktree's.
    borrowed = git_dir == repo.common_dir and not await git.compute((worktree / ".git").is_dir)
    if git_dir is not None:
        try:
            written = await write_tree(git, worktree, git_dir)
            if borrowed:
                written = replace(written, head=Head(None, None))
            if tip is None and written.head.commit is None:  # its branch was deleted under it
                tip = await git.compute(_last_commit, repo, git_dir if not borrowed else None, last)
            nested, inside = await _keep_nested(git, repo, worktree, git_dir)
            unread = [*_unkept(written.skipped, nested), *inside]
            notes = [] if borrowed else await _notes(git, repo, worktree, git_dir, written.head, branch)
        except GitFailedError as error:  # whoever removes the tree is told, and moves it aside or refuses
            unread.append(error.message)
    elif earlier is not None and not afresh:
        # An earlier run got as far as moving the directory aside, or it is in the archive; what was kept is more than what is left to see.
        if tip is not None and not await git.compute(_holds, repo, earlier, tip):
            earlier = await git.compute(_with_later, repo, earlier, tip)
            await git.process.write(repo.common_dir, "update-ref", ref, earlier)
        return TrashRecord(ref, earlier, tip, await size_of(git, repo, earlier, branch))
    files = written.tree if written is not None else ""
    checkpoint: str | None = None
    deleted = git_dir is None and (afresh or earlier is None)  # and not by an earlier run
    if written is None and last is not None and (tip is None or deleted):
        tip, files, checkpoint = await git.compute(_stand_in, repo, tip, *last)
    if tip is None and written is None:
        if unread:
            raise GitFailedError("; ".join(unread), hint="make its files readable, then try again")
        raise RefNotFoundError(
            f"neither the worktree {worktree} nor the branch {branch} is left", hint="there is nothing to keep"
        )
    notes += [f"checkpoint {checkpoint}"] if checkpoint is not None else []
    head = written.head.commit if written is not None else None
    extra = [line.split(" ")[1] for line in notes if line.startswith("index ")]
    candidates = [tip, head, *extra, *(commit for commit, _ in nested), checkpoint, earlier]
    parents = list(dict.fromkeys(commit for commit in candidates if commit is not None))

    def commit() -> str:
        repository = open_repository(repo.common_dir)
        tree = files or str(repository[str(tip)].peel(pygit2.Tree).id)
        if earlier is not None and _same(repository, earlier, tree, parents):
            return earlier
        kind, identity = ref.split("/")[-2:]
        lines = [f"{kind}: {branch} ({identity})", ""]
        lines += [f"branch {tip}"] if tip is not None else []
        lines += [*notes, *(f"nested {made} {place}" for made, place in nested)]
        return write_commit(repository, tree, "\n".join(lines).rstrip() + "\n", parents)

    made = await git.compute(commit)
    await git.process.write(repo.common_dir, "update-ref", ref, made)
    gone = f"{worktree} was gone already" if deleted else None
    skipped = (*unread, *(words for words in (why or gone,) if words is not None))
    return TrashRecord(ref, made, tip, await size_of(git, repo, made, branch), skipped, tuple(unread))


async def _notes(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path, head: Head, branch: str
) -> list[str]:
    """What the files do not tell: what is checked out where that is not ``branch``, what is staged, what was under way."""
    notes = [f"begun {what}" for name, what in _BEGUN.items() if await git.compute((git_dir / name).exists)]
    if head.branch != branch and head.commit is not None:
        notes.append(f"head {head.commit}")
        notes += [f"on {head.branch}"] if head.branch is not None else []
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    staged = await git.process.run(worktree, *there, "write-tree", "--missing-ok")
    tree = staged.stdout.decode().strip()
    if staged.returncode != 0 or not tree:  # in the middle of a merge: the files say what there is
        return notes

    def commit() -> list[str]:
        repository = open_repository(repo.common_dir)
        if head.commit is not None and str(repository[head.commit].peel(pygit2.Tree).id) == tree:
            return []
        return [f"index {write_commit(repository, tree, 'index', [])}"]

    return notes + await git.compute(commit)


async def drop(git: GitContext, repo: RepositoryInfo, ref: str, commit: str | None = None) -> None:
    """Delete a ref of ours, where ``commit`` is given only at that; none is fine without."""
    await git.process.write(repo.common_dir, "update-ref", "-d", ref, *([commit] if commit else []))


async def drop_all(git: GitContext, repo: RepositoryInfo, folder: str) -> None:
    """Delete all refs below a folder, in one transaction."""
    output = await git.process.read(repo.common_dir, "for-each-ref", "--format=delete %(refname)%00", folder)
    commands = output.replace(b"\0\n", b"\0\0")  # `update-ref -z`: each delete has an old value, here any
    if commands:
        await git.process.write(repo.common_dir, "update-ref", "--stdin", "-z", stdin=commands)


async def move(git: GitContext, repo: RepositoryInfo, old: str, new: str) -> str | None:
    """Have ``new`` keep what ``old`` keeps beside what it keeps already, and delete ``old``. The commit; None when neither is there."""
    commit, there = await git.compute(read_ref, repo, old), await git.compute(read_ref, repo, new)
    if commit is None:
        return there
    made = commit if there is None else await git.compute(_beside, repo, commit, there)
    await git.process.write(repo.common_dir, "update-ref", new, made)
    await drop(git, repo, old)
    return made


async def restore_files(git: GitContext, worktree: Path, git_dir: Path, commit: str) -> None:
    """See `Git.restore_files`."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    await git.process.write(worktree, *there, "restore", f"--source={commit}", "--worktree", "--", ":/")


def read_ref(repo: RepositoryInfo, ref: str) -> str | None:
    """The commit that a ref keeps; None when there is no such ref."""
    reference = open_repository(repo.common_dir).references.get(ref)
    return str(reference.target) if reference is not None else None


def _stand_in(repo: RepositoryInfo, tip: str | None, head: str, files: str) -> tuple[str | None, str, str | None]:
    """For files that somebody deleted, the branch with them or not: its tip, the tree of ``files`` where that was made on this tip, and else
    ``files`` where it holds what the branch may not have."""
    repository = open_repository(repo.common_dir)
    if head not in repository or files not in repository:
        return tip, "", None
    tree = str(repository[files].peel(pygit2.Tree).id)
    if tip in {None, head}:
        return head, tree, None
    return tip, "", files if tree != str(repository[head].peel(pygit2.Tree).id) else None


def _beside(repo: RepositoryInfo, commit: str, there: str) -> str:
    """A commit that keeps what ``commit`` keeps, and ``there``; ``there`` itself where an interrupted run has made it that."""
    repository = open_repository(repo.common_dir)
    one, other = (repository[each].peel(pygit2.Commit) for each in (commit, there))
    parents = [str(oid) for oid in one.parent_ids]
    if (one.tree.id, one.message) == (other.tree.id, other.message) and _same(
        repository, there, str(one.tree.id), parents
    ):
        return there
    return write_commit(repository, str(one.tree.id), one.message, [*parents, there])


def _unkept(words: Sequence[str], nested: list[tuple[str, str]]) -> list[str]:
    """Of what git said that it left out, what is not kept as a nested repository."""
    kept = {f"'{place}/' does not have a commit checked out" for _, place in nested}
    return [line for line in words if line not in kept]


def _last_commit(repo: RepositoryInfo, git_dir: Path | None, last: tuple[str, str] | None) -> str | None:
    """Where a worktree stood whose branch is gone: by its reflog, else as it is known from before."""
    repository = open_repository(repo.common_dir)
    candidates = (last_head(git_dir) if git_dir is not None else None, last[0] if last is not None else None)
    return next((commit for commit in candidates if commit and commit in repository), None)


def _with_later(repo: RepositoryInfo, kept: str, tip: str) -> str:
    """What is kept, and where its branch went on to since."""
    repository = open_repository(repo.common_dir)
    commit = repository[kept].peel(pygit2.Commit)
    parents = [*(str(oid) for oid in commit.parent_ids), tip]
    return write_commit(repository, str(commit.tree.id), f"{commit.message}later {tip}\n", parents)


def _holds(repo: RepositoryInfo, kept: str, tip: str) -> bool:
    """Whether what is kept has the branch's commits; the branch may have gone on since, as what came back once is still kept."""
    return kept == tip or open_repository(repo.common_dir).descendant_of(kept, tip)


def _same(repository: pygit2.Repository, earlier: str, tree: str, parents: list[str]) -> bool:
    commit = repository[earlier].peel(pygit2.Commit)
    return str(commit.tree.id) == tree and set(parents) <= {earlier, *(str(oid) for oid in commit.parent_ids)}


async def size_of(git: GitContext, repo: RepositoryInfo, commit: str, branch: str) -> int:
    """Bytes on disk that nothing but a kept commit and the branch hold."""
    known = ("--not", f"--exclude={branch}", "--branches", "--remotes", "--tags", "--")
    output = await git.process.read(repo.common_dir, "rev-list", "--disk-usage", "--objects", commit, *known)
    return int(output)


async def _keep_nested(
    git: GitContext, repo: RepositoryInfo, worktree: Path, git_dir: Path
) -> tuple[list[tuple[str, str]], list[str]]:
    """(commit, place) for each repository inside the worktree whose files a tree of ours cannot hold, copied into ours; and what could not be read.

    A submodule that stands clean at the recorded commit is left out, unless that commit was never pushed: it goes with the worktree.
    Commits that are on none of its remotes come along; those of a shallow or partial clone do not, and what else only its git directory has
    counts as not read.
    """
    kept: list[tuple[str, str]] = []
    unread: list[str] = []
    for place, recorded in await _nested(git, worktree, git_dir):
        inner = await git.compute(existing_git_dir, worktree / place)
        if inner is None:
            continue
        written = await write_tree(git, worktree / place, inner)
        repository = await git.compute(open_repository, inner)
        own, whole = False, True
        if await git.compute(common_dir, inner) != repo.common_dir:  # else a worktree of ours, whose commits stay
            unread += [
                f"{place} is a repository of its own, {words}"
                for words in await _beside_head(git, worktree / place, inner, written.head.commit)
            ]
            own, whole = await _own_commits(git, worktree / place, inner, written.head)
        if own or not await git.compute(_clean_at, repository, written, recorded):
            head = written.head.commit
            parents = [head] if head is not None and own and whole else []
            made = await git.compute(
                write_commit, repository, written.tree, f"nested {place}\n\nHEAD {head}\n", parents
            )
            await _copy_objects(git, worktree / place, inner, repo.common_dir, made)
            kept.append((made, place))
        deeper, below = await _keep_nested(git, repo, worktree / place, inner)
        unread += [f"in {place}: {line}" for line in (*_unkept(written.skipped, deeper), *below)]
        kept += [(made, f"{place}/{deep}") for made, deep in deeper]
    return kept, unread


async def _own_commits(git: GitContext, place: Path, inner: Path, head: Head) -> tuple[bool, bool]:
    """Whether what is checked out has commits that are on none of the repository's remotes, and whether all its history is there."""
    if head.commit is None:
        return False, True
    there = f"--git-dir={inner}"
    first = await git.process.read(
        place, there, "rev-list", "--max-count=1", head.commit, "--not", "--remotes", "--tags", "--"
    )
    shallow = await git.process.read(place, there, "rev-parse", "--is-shallow-repository")
    partial = await git.process.run(place, there, "config", "--get", "extensions.partialclone")
    return bool(first.strip()), shallow.strip() == b"false" and partial.returncode != 0


async def _beside_head(git: GitContext, place: Path, inner: Path, head: str | None) -> list[str]:
    """What a repository holds beside its files and what is checked out, and no remote has: in words."""
    there = (f"--git-dir={inner}", f"--work-tree={place}")
    words: list[str] = []
    others = await git.process.read(
        place, *there, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags", "refs/stash"
    )
    lost = []
    for ref in others.decode(errors="replace").split("\n"):
        known = ("--not", "--glob=refs/remotes", *([head] if head is not None else []), "--")
        if ref and (await git.process.run(place, *there, "rev-list", "--max-count=1", ref, *known)).stdout.strip():
            lost.append(ref.removeprefix("refs/").removeprefix("heads/"))
    if lost:
        words.append(f"and its {', '.join(lost)} would go with it")
    status = await git.process.read(
        place, *there, "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames"
    )
    staged = [
        os.fsdecode(line[3:]) for line in status.split(b"\0") if line[:1] in b"MA" and line[1:2] in b"MD" and line
    ]
    if staged:
        words.append(f"and what is staged there would go with it: {', '.join(staged)}")
    return words


def _clean_at(repository: pygit2.Repository, written: WorktreeTree, recorded: str | None) -> bool:
    head = written.head.commit
    return head is not None and head == recorded and str(repository[head].peel(pygit2.Tree).id) == written.tree


async def _nested(git: GitContext, worktree: Path, git_dir: Path) -> list[tuple[str, str | None]]:
    """(place, recorded commit or None) of submodules, and of repositories that somebody made inside the worktree."""
    there = (f"--git-dir={git_dir}", f"--work-tree={worktree}")
    staged = await git.process.read(worktree, *there, "ls-files", "--stage", "-z")
    others = await git.process.read(worktree, *there, "ls-files", "--others", "--exclude-standard", "-z")
    links = [record.split(b"\t", 1) for record in staged.split(b"\0") if record.startswith(b"160000 ")]
    places: list[tuple[str, str | None]] = [
        (os.fsdecode(place), fields.split(b" ")[1].decode()) for fields, place in links
    ]
    return places + [(os.fsdecode(place.rstrip(b"/")), None) for place in others.split(b"\0") if place.endswith(b"/")]


async def _copy_objects(git: GitContext, place: Path, source: Path, target: Path, commit: str) -> None:
    there = f"--git-dir={source}"
    pack = await git.process.read(
        place, there, "pack-objects", "--revs", "--stdout", "-q", stdin=f"{commit}\n".encode()
    )
    await git.process.write(target, "index-pack", "--stdin", stdin=pack)
    if not await git.compute(lambda: commit in open_repository(target)):
        raise GitFailedError(
            f"the files of {place} could not be copied", hint="commit or copy them by hand, then try again"
        )
