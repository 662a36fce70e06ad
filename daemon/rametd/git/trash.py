"""Work that is about to go, kept as one commit under `refs/ramet/trash/<id>` or `refs/ramet/archive/<id>`; `kept` tells what it says of itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2

from rametd.domain.errors import GitFailedError, RefNotFoundError
from rametd.domain.text import utf8
from rametd.git import contents
from rametd.git.contents import Contents, ending
from rametd.git.context import GitContext
from rametd.git.gitdirs import GitDir
from rametd.git.kept import quoted
from rametd.git.refs import keeps, read_ref, set_ref, size_of
from rametd.git.registrations import UNFINISHED, left_at, locate, moved_to, registered_at
from rametd.git.remains import commits_in, inside, look, notes_of
from rametd.git.repository import Head, RepositoryInfo, branch_tip, last_head, open_repository
from rametd.git.snapshot import write_commit
from rametd.git.snapshots.model import read
from rametd.git.whole import lost, mend_files

PREFIX: Final = "refs/ramet/trash/"
ARCHIVE: Final = "refs/ramet/archive/"


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
    aside: tuple[str, ...] = ()
    """Where those files are, relative to the worktree; none where git did not say it of all."""
    git_dirs: tuple[GitDir, ...] = ()
    """Of repositories inside, which go with the tree and are to be kept as they are."""
    tree: str = ""


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
    if earlier is not None and await lost(git, repo, earlier):
        earlier = None  # a commit that had it for a parent would not be whole either
    git_dir, why = await git.compute(locate, repo.common_dir, worktree)
    if git_dir is None and earlier is not None and not afresh:
        return await _kept_before(git, repo, ref, earlier, branch, tip)
    there: Contents | None = None
    broken: list[str] = []
    stood: list[tuple[str, str]] = []
    if last is not None:
        last, stood = await git.compute(_as_commits, repo, *last)
    if git_dir is not None:
        # Where its entry is gone the files are read by way of the repository itself, whose HEAD is the main worktree's.
        borrowed = git_dir == repo.common_dir and not await git.compute((worktree / ".git").is_dir)
        try:
            there = await contents.read(git, repo, worktree, git_dir, branch, borrowed=borrowed)
        except GitFailedError as error:  # whoever removes the tree is told, and moves it aside or refuses
            broken.append(error.message)
        else:
            if tip is None and (there.head.commit is None or there.head.branch == branch):
                # Its branch was deleted under it.
                known = await git.compute(_last_commit, repo, git_dir if not borrowed else None, last)
                tip = there.head.commit or known
    checkpoint: str | None = None
    files = there.tree if there is not None else ""
    if git_dir is None:
        there, tip, files, checkpoint = await _left(git, repo, worktree, branch, tip, last)
    elif there is None and last is not None and tip is None:
        tip, files, checkpoint = await git.compute(_stand_in, repo, tip, *last)
    head = there.head.commit if there is not None else None
    notes, others = (there.notes, there.commits) if there is not None else ((), ())
    if last is not None and files and (there is None or git_dir is None):
        notes += tuple(f"nested {made} {quoted(place)}" for made, place in stood)
        others += tuple(made for made, _ in stood)
    if tip is None and there is None:
        if broken:
            raise GitFailedError("; ".join(broken), hint="make its files readable, then try again")
        raise RefNotFoundError(
            f"neither the worktree {worktree} nor the branch {branch} is left", hint="there is nothing to keep"
        )

    def commit() -> str:
        repository = open_repository(repo.common_dir)
        tree = files or str(repository[str(head or tip)].peel(pygit2.Tree).id)
        candidates = [tip, head, *others, checkpoint, earlier]
        parents = list(dict.fromkeys(each for each in candidates if each is not None))
        kind, identity = ref.split("/")[-2:]
        lines = [f"{kind}: {branch} ({identity})", "", *([f"branch {tip}"] if tip is not None else [])]
        lines += notes
        lines += [f"checkpoint {checkpoint}"] if checkpoint is not None else []
        message = "\n".join(lines).rstrip() + "\n"
        if earlier is not None and keeps(repository, earlier, tree, message, parents):
            return earlier
        return write_commit(repository, tree, message, parents)

    made = await git.compute(commit)
    if git_dir is not None and there is not None:
        broken += await mend_files(git, repo, worktree, git_dir, f"{made}^{{tree}}", branch)
    await set_ref(git, repo, ref, made)
    words = why or await git.compute(_otherwise, repo, worktree)
    left_out = there.unread if there is not None else ()
    places = tuple(each.place for each in left_out if each.place is not None)
    unread = (*broken, *(each.words for each in left_out))
    told = there.told if there is not None else ()
    return TrashRecord(
        ref,
        made,
        tip,
        await size_of(git, repo, made, branch),
        skipped=tuple(map(utf8, (*unread, *told, *((words,) if words is not None else ())))),
        unread=tuple(map(utf8, unread)),
        aside=tuple(dict.fromkeys(places)) if len(places) == len(unread) else (),
        git_dirs=there.git_dirs if there is not None else (),
        tree=await git.compute(_tree_of, repo, made),
    )


async def _left(
    git: GitContext,
    repo: RepositoryInfo,
    worktree: Path,
    branch: str,
    tip: str | None,
    last: tuple[str, str] | None,
) -> tuple[Contents | None, str | None, str, str | None]:
    """Of a worktree that is not there: what its entry has, the branch's tip, and what stands in for its files (see `_stand_in`)."""
    entry = await git.compute(left_at, repo.common_dir, worktree)
    remains = await look(git, repo, entry) if entry is not None else None
    head = remains.head if remains is not None else Head(None, None)
    if tip is None and (head.commit is None or head.branch == branch):
        tip = head.commit or await git.compute(_last_commit, repo, entry.admin_dir if entry is not None else None, None)
    notes = await notes_of(git, repo, remains, branch) if remains is not None else []
    at, files, checkpoint = (head.commit or tip), "", None
    if last is not None:
        at, files, checkpoint = await git.compute(_stand_in, repo, at, *last)
    tip = tip if head.commit is not None and head.branch != branch else at
    if at is None:
        return None, None, "", None
    below = await inside(git, repo, worktree)
    notes += below.notes
    commits = (*commits_in(notes), *below.commits)
    told = (*map(ending, remains.under_way.what), *remains.unread) if remains is not None else ()
    return Contents(files, head, tuple(notes), commits, (), (*told, *below.words)), tip, files, checkpoint


async def _kept_before(
    git: GitContext, repo: RepositoryInfo, ref: str, kept: str, branch: str, tip: str | None
) -> TrashRecord:
    """What an earlier run kept, before it got as far as moving the directory aside, or an archive: more than what is left to see.

    Where its branch went on to since is added; a run that is killed before the ref has that does the same again, and one that is killed after
    it finds it there.
    """
    if tip is not None and not await git.compute(_holds, repo, kept, tip):
        kept = await git.compute(_with_later, repo, kept, tip)
        await set_ref(git, repo, ref, kept)
    size = await size_of(git, repo, kept, branch)
    return TrashRecord(ref, kept, tip, size, tree=await git.compute(_tree_of, repo, kept))


def _otherwise(repo: RepositoryInfo, worktree: Path) -> str | None:
    """What a person is to know of where the worktree is, or that somebody wanted it to stay."""
    if (moved := moved_to(repo.common_dir, worktree)) is not None:
        return f"it was moved to {moved.path}: what is there stays there, with what is checked out in it"
    if not worktree.exists():
        moved_by_hand = "; if it was moved by hand, bring the session back and move its files, which stay where they are, into its place"
        return f"{worktree} was gone already{moved_by_hand if left_at(repo.common_dir, worktree) else ''}"
    locks = [entry.locked for entry in registered_at(repo.common_dir, worktree)]
    reason = next((lock for lock in locks if lock is not None and lock not in UNFINISHED), None)
    return (
        f"it was locked by hand ({reason or 'without a reason'}): it goes all the same" if reason is not None else None
    )


def _tree_of(repo: RepositoryInfo, commit: str) -> str:
    return str(open_repository(repo.common_dir)[commit].peel(pygit2.Tree).id)


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


def _as_commits(repo: RepositoryInfo, head: str, name: str) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """A snapshot as commits: of its files, and of those of repositories inside, each with its place."""
    taken = read(repo.common_dir, name)
    if taken is None:
        return (head, name), []
    repository = open_repository(repo.common_dir)
    made = write_commit(repository, taken.files, "files\n", [taken.head] if taken.head else [])
    inside = []
    for each in taken.nested:
        if each.files:
            kind = f"HEAD {each.head}\n" if each.repository else "files\n"
            message = f"nested {quoted(each.place)}\n\n{kind}"
            inside.append((write_commit(repository, each.files, message, [each.head] if each.own else []), each.place))
    return (head, made), inside


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
