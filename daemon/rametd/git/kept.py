"""What a commit that keeps a worktree says of itself, as `contents` and `trash` write it and `revival` goes by it.

The commit's tree is the worktree's files, uncommitted and untracked ones included; its parents keep everything else reachable: the branch's tip
first, then another HEAD, the index, what lies in repositories inside (which a tree can only point at). Its message tells which is which, a
line each below a title:

    branch COMMIT             its tip
    head COMMIT, on BRANCH    what was checked out, where that was not the branch
    index COMMIT              what was staged
    begun WHAT                a merge or the like that was under way
    pending COMMIT            what was to come in by it, or where it had begun; also what a ref of the worktree's own had
    autostash COMMIT          what was uncommitted before it, which git had put aside
    nested COMMIT PLACE       the files of a repository inside
    worktree COMMIT PLACE     a worktree of the same repository inside, kept as this commit keeps the one around it
    empty PLACE               a directory without files
    unchanged PLACE           a file that git was told to take for unchanged (`git update-index --assume-unchanged`)
    skipped PLACE             one that it was told not to check out (`--skip-worktree`)
    intended PLACE            a new one that is only announced (`git add -N`)
    later COMMIT              where the branch went on to after the files were kept
    checkpoint COMMIT         has files of a worktree that somebody deleted, of another state of the branch
    earlier COMMIT            by an earlier release: has these files, where the commit's own are those of the branch

Commits are hashes. A place is relative to the worktree; one that would not fit on its line as it is stands there as JSON.
"""

import json
from dataclasses import dataclass

import pygit2

from rametd.git import marks
from rametd.git.marks import Mark
from rametd.git.refs import read_ref
from rametd.git.repository import RepositoryInfo, commit_exists, open_repository
from rametd.git.snapshot import write_commit
from rametd.git.snapshots.model import read


@dataclass(frozen=True, slots=True)
class Kept:
    """What a commit under ``refs/ramet/trash/`` or ``refs/ramet/archive/`` keeps; "" where there is none of a thing.

    ``head``: what was checked out where that was not the branch; ``on``: its branch, "" when it was detached. ``changed``: paths that
    were not as in the commit that was checked out, untracked ones included. ``time``: seconds since the epoch.
    """

    ref: str
    commit: str
    tree: str
    branch_commit: str
    head: str
    on: str
    index: str
    begun: str
    nested: tuple[tuple[str, str], ...]
    worktrees: tuple[tuple[str, str], ...]
    empty: tuple[str, ...]
    changed: tuple[str, ...]
    time: int
    earlier: str = ""
    later: str = ""
    checkpoint: str = ""
    autostashes: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    former: tuple[str, ...] = ()
    """What was kept under the ref before, of which not all had come back."""

    @property
    def start(self) -> str:
        """Where the worktree stood."""
        return self.head or self.branch_commit


def read_kept(repo: RepositoryInfo, ref: str) -> Kept | None:
    """None when there is no such ref, or git does not have its commit any more. Blocks."""
    commit = read_ref(repo, ref)
    if commit is not None and (taken := read(repo.common_dir, commit)) is not None:
        parents = [taken.head] if taken.head else []
        commit = write_commit(open_repository(repo.common_dir), taken.files, "files\n", parents)
    return kept_by(repo, commit, ref) if commit is not None and commit_exists(repo, commit) else None


def kept_by(repo: RepositoryInfo, commit_id: str, ref: str = "") -> Kept:
    """What a commit keeps. Blocks."""
    repository = open_repository(repo.common_dir)
    commit = repository[commit_id].peel(pygit2.Commit)
    words: dict[str, str] = {}
    inside: dict[str, list[tuple[str, str]]] = {"nested": [], "worktree": []}
    empty: list[str] = []
    several: dict[str, list[str]] = {"autostash": [], "pending": []}
    marked: list[Mark] = []
    for line in commit.message.split("\n")[2:]:
        key, _, value = line.partition(" ")
        if key in inside:
            made, _, place = value.partition(" ")
            inside[key].append((made, unquoted(place)))
        elif key == "empty":
            empty.append(unquoted(value))
        elif key in several:
            several[key].append(value)
        elif key in {marks.UNCHANGED, marks.SKIPPED, marks.INTENDED}:
            marked.append(Mark(key, unquoted(value)))
        else:
            words[key] = unquoted(value)
    # An earlier release wrote no line for the branch: its tip is the first parent.
    first = str(commit.parent_ids[0]) if commit.parent_ids else ""
    branch_commit = words.get("branch", "" if "head" in words else first)
    start = words.get("head") or branch_commit
    named = {branch_commit, *words.values(), *(made for each in inside.values() for made, _ in each)}
    named.update(*several.values())
    changed: tuple[str, ...] = ()
    if start:
        diff = repository[start].peel(pygit2.Tree).diff_to_tree(commit.tree)
        changed = tuple(sorted(delta.new_file.path for delta in diff.deltas))
    return Kept(
        ref=ref,
        commit=commit_id,
        tree=str(commit.tree.id),
        branch_commit=branch_commit,
        head=words.get("head", ""),
        on=words.get("on", ""),
        index=words.get("index", ""),
        begun=words.get("begun", ""),
        nested=tuple(inside["nested"]),
        worktrees=tuple(inside["worktree"]),
        empty=tuple(empty),
        changed=changed,
        time=commit.commit_time,
        earlier=words.get("earlier", ""),
        later=words.get("later", ""),
        checkpoint=words.get("checkpoint", ""),
        autostashes=tuple(several["autostash"]),
        pending=tuple(several["pending"]),
        marks=tuple(marked),
        former=tuple(parent for each in commit.parent_ids if (parent := str(each)) not in named),
    )


def quoted(text: str) -> str:
    """A name for a line of a message: as it is where it can stand there so."""
    return text if text.isprintable() and not text.startswith('"') else json.dumps(text)


def unquoted(text: str) -> str:
    """The reverse. What an earlier release wrote stands there as it is."""
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text
