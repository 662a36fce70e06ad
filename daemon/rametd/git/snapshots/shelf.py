"""The shelf: the worktree of an archived or removed session, moved away with its git directory, and
thinned.

    ROOT/ID                     →  ROOT/.ID.shelved
    GIT-DIR/worktrees/ID        →  GIT-DIR/ramet/shelved-ID
    GIT-DIR/worktrees/INNER     →  GIT-DIR/ramet/shelved-ID+INNER     (a worktree of the same repository inside it)

Renames preserve everything: an index with its flags and conflicts, an unfinished rebase, nested
repositories, unreadable files and empty directories. Each rename stays within its file system, and
at the same depth below the git directory, so that ``commondir`` is valid in both places. Outside
``worktrees`` the entry does not occupy the branch, and ``git worktree prune`` and ``git gc`` ignore
it. A snapshot and the refs below ``refs/ramet/commits/`` protect the objects that only the worktree
reaches.

Thinning then deletes ignored files, and tracked files that equal the repository's content.
A restore writes the missing files from the snapshot, then renames tree and entry back. If a person
has deleted the tree, it writes the snapshot to a new tree on the shelf.

After a kill, tree and entry are each in one of two places. Every function here continues from any
of the four states.
"""

import os
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pygit2

from rametd.domain.errors import GitFailedError, PathTakenError, RefNotFoundError
from rametd.domain.text import utf8
from rametd.git import branches, risk
from rametd.git.context import GitContext
from rametd.git.file_trees import private_index, scratch_index
from rametd.git.integrity import lost_objects, mend_files
from rametd.git.locks import DIRECTORY
from rametd.git.names import parents
from rametd.git.process import at
from rametd.git.registrations import (
    REASON,
    UNFINISHED,
    entries_inside,
    git_dir_of,
    locate,
    moved_to,
    registered_at,
    stale_entry_at,
)
from rametd.git.removal import delete_tree, free_path, refuse_main, sweep
from rametd.git.repository import Head, RepositoryInfo, branch_tip, commit_exists, head_of, last_head, open_repository
from rametd.git.risk import last_known_head
from rametd.git.snapshots import model, nested
from rametd.git.snapshots.capture import Depth, capture, inner_objects, pin_all, staged_tree, unmerged_blobs
from rametd.git.snapshots.model import Snapshot
from rametd.git.submodules import populate_submodules
from rametd.git.underway import begun
from rametd.git.unread import failed_filter
from rametd.git.worktrees import make_room

_LINK: Final = "160000"
_MARK: Final = "shelved"
"""File in a shelved tree's git directory with the id of the snapshot by which it was thinned."""
_REBUILT: Final = "rebuilt"
"""File in a git directory whose tree was created from the snapshot, while nested repositories are
not populated yet."""
_FORMAT: Final = "--batch-check=%(objectname) %(objectsize)"
_CONVERTS: Final = ("filter", "ident", "working-tree-encoding", "eol")
"""Attributes that make a file differ from the repository's bytes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Paths of a worktree and of its shelf; either may exist or not."""

    worktree: Path
    shelf: Path
    entry: Path
    """Its git directory on the shelf."""

    @property
    def tree(self) -> Path | None:
        return next((each for each in (self.shelf, self.worktree) if os.path.lexists(each)), None)


@dataclass(frozen=True, slots=True)
class Shelved:
    """``branch_commit``: commit of the session's branch, "" without a branch. ``warnings`` has a
    line for each unexpected difference."""

    snapshot: Snapshot
    branch_commit: str
    warnings: tuple[str, ...] = ()


def shelf_of(worktree: Path) -> Path:
    """Return the shelf's path: next to the worktree, so that the rename stays within a
    directory."""
    return worktree.with_name(f".{worktree.name}.shelved")


def place_of(repo: RepositoryInfo, worktree: Path) -> Place:
    """Return the paths of a worktree and of its shelf."""
    return Place(
        worktree,
        shelf_of(worktree),
        repo.common_dir / DIRECTORY / f"shelved-{worktree.name}",
    )


# ── shelve ────────────────────────────────────────────────────────────────────────────────────────


async def record(
    git: GitContext,
    repo: RepositoryInfo,
    owner: str,
    ref: str,
    worktree: Path,
    branch: str,
    last: Snapshot | None = None,
) -> Shelved:
    """Take the snapshot for the shelf under ``ref``, and pin the commits that it needs.

    ``last`` replaces files that a person has deleted. If an earlier call has shelved the worktree,
    return its snapshot. Raise RefNotFoundError if tree, entry and branch are all gone,
    GitFailedError.
    """
    place = place_of(repo, worktree)
    tip = await git.compute(branch_tip, repo, branch) if branch else None
    warnings: list[str] = []
    taken = await _recorded(git, repo, ref, place)
    shelved = await git.compute(lambda: os.path.lexists(place.shelf) or place.entry.exists())
    if taken is None or not shelved:
        taken, warnings = await _capture(git, repo, owner, ref, place, branch, tip, last)
    elif tip is not None:  # its branch may have moved on since
        await git.compute(model.pin_others, repo.common_dir, owner, [tip])
    return Shelved(taken, str(taken.facts.get("branch") or tip or ""), tuple(map(utf8, warnings)))


async def shelve(git: GitContext, repo: RepositoryInfo, taken: Snapshot | None, worktree: Path) -> tuple[str, ...]:
    """Move a recorded worktree to the shelf, and thin it; its branch stays. Completes an earlier,
    interrupted call.

    Another directory at the path stays; return why. Raise GitFailedError.
    """
    place = place_of(repo, worktree)
    whole = not await git.compute(os.path.lexists, place.shelf)
    async with git.locks.hold(repo.common_dir):
        words = await git.compute(_move_to_shelf, repo, place, taken)
    # Renames destroy nothing: sync once, before thinning.
    try:
        await git.make_durable(repo.common_dir, worktree.parent)
    except GitFailedError:
        if whole:  # an earlier call may have moved and partly thinned the tree
            async with git.locks.hold(repo.common_dir):
                await git.compute(_move_back, repo, place)
        raise
    if taken is not None and taken.facts.get("thin") and not words:
        try:
            await thin(git, place, taken)
        except GitFailedError as error:
            words = [*words, f"all of its files stay at {place.shelf}: {error.message}"]
    return tuple(map(utf8, words))


async def _recorded(git: GitContext, repo: RepositoryInfo, ref: str, place: Place) -> Snapshot | None:
    """Return the snapshot of a worktree, even if its ref was deleted after it was shelved."""
    common, mark = repo.common_dir, place.entry / _MARK
    taken = await git.compute(model.read, common, ref)
    if taken is None and await git.compute(mark.is_file):
        taken = await git.compute(lambda: model.read(common, mark.read_text().strip()))
        if taken is not None:
            await git.process.write(common, "update-ref", ref, taken.id)
    return taken


async def _capture(
    git: GitContext,
    repo: RepositoryInfo,
    owner: str,
    ref: str,
    place: Place,
    branch: str,
    tip: str | None,
    last: Snapshot | None,
) -> tuple[Snapshot, list[str]]:
    """Return the snapshot, whether the worktree is shelved or not, and the refs of the commits that
    it needs."""
    common = repo.common_dir
    shelved = await git.compute(os.path.lexists, place.shelf)
    tree = place.shelf if shelved else place.worktree
    git_dir, why = await git.compute(locate, common, place.worktree)
    if shelved:
        git_dir = next((each for each in (place.entry, _entry_of(place)) if each is not None and each.is_dir()), common)
    # Without an entry, read the files with the repository itself, whose HEAD and index are the main
    # worktree's.
    borrowed = git_dir == common and not (tree / ".git").is_dir()
    if shelved and (place.entry / _MARK).is_file() and git_dir == place.entry:
        # The snapshot is lost: write the files again that thinning deleted, so that they do not
        # count as deleted.
        await git.process.run(tree, *at(git_dir, tree), "checkout-index", "-a", "-q", "-u")
    facts: dict[str, Any] = {"worktree": str(place.worktree)}
    warnings = [why] if why is not None else []
    head = Head(None, None)
    if git_dir is not None and not borrowed:
        head = await last_known_head(git, repo, git_dir, await git.compute(lambda: head_of(open_repository(git_dir))))
        if tip is None and head.branch in {branch, None}:
            tip = head.commit
    if git_dir is None:
        made, tip = await _without_tree(git, repo, place, branch, tip, last, facts)
        warnings += list(made.skipped)
        warnings += await git.compute(_missing_warnings, repo, place.worktree) if why is None else []
        pinned = made.head
        entries = [*(each.admin_dir for each in await git.compute(registered_at, common, place.worktree)), place.entry]
        inside = [each.admin_dir for each in await git.compute(entries_inside, common, place.worktree)]
        for entry in [*entries, *inside]:
            if await git.compute((entry / "HEAD").is_file):
                await pin_all(git, entry, owner)
    else:
        if borrowed:
            known = tip or (last.head if last is not None and last.head else None)
            head, tip = Head(branch or None, known), known
        commits, words = ([], []) if borrowed or shelved else await risk.inside(git, repo, tree, git_dir)
        starts = [each for each in (tip, head.commit) if each]
        facts |= {"branch": tip or "", "commits": list(dict.fromkeys([*starts, *commits])), "inside": words}
        facts["under_way"] = [] if borrowed else list(await git.compute(begun, git_dir))
        facts["thin"] = not borrowed
        warnings += await git.compute(_lock_warnings, repo, place.worktree)
        inner = [each.admin_dir for each in await git.compute(entries_inside, common, place.worktree)]
        try:
            made = await capture(git, tree, git_dir, depth=Depth.FULL, facts=facts, head=head, inner=inner)
        except GitFailedError as error:  # the whole tree is moved unchanged
            unread = error.message
            candidates = (head.commit, tip, last.head if last is not None else None)
            there = [each for each in candidates if each is not None and await git.compute(commit_exists, repo, each)]
            head, tip = Head(head.branch, there[0] if there else None), there[0] if there else None
            facts |= {"whole": True, "branch": tip or "", "commits": there}
            files = await git.compute(_tree_of, repo, head.commit or tip)
            facts["thin"] = False
            warnings.append(f"git cannot read it; it stays as it is: {unread}")
            made = await git.compute(
                lambda: model.write(
                    common, files, head=head.commit or "", branch=head.branch or "", skipped=[unread], facts=facts
                )
            )
        pinned = made.head
        if facts["thin"]:
            warnings += await mend_files(git, repo, tree, git_dir, made.files, branch)
        if not borrowed:
            for entry in [git_dir, *(each.admin_dir for each in await git.compute(entries_inside, common, tree))]:
                await pin_all(git, entry, owner)
    await git.compute(model.pin_others, common, owner, [each for each in (tip, pinned) if each])
    await git.process.write(common, "update-ref", ref, made.id)
    return made, warnings


async def _without_tree(
    git: GitContext,
    repo: RepositoryInfo,
    place: Place,
    branch: str,
    tip: str | None,
    last: Snapshot | None,
    facts: dict[str, Any],
) -> tuple[Snapshot, str | None]:
    """Return the snapshot of a missing worktree: HEAD of its entry, the branch's tip, and the files
    of the last snapshot if that has the same commit."""
    common = repo.common_dir
    entry = await git.compute(stale_entry_at, common, place.worktree)
    git_dir = entry.admin_dir if entry is not None else place.entry if place.entry.is_dir() else None
    head = Head(None, None)
    skipped: list[str] = []
    unmerged: list[str] = []
    index = ""
    if git_dir is not None:
        listed = await git.process.run(git_dir, f"--git-dir={git_dir}", "ls-files", "--stage", "-z")
        skipped = [f"what was staged: {listed.words}"] if listed.returncode else []
        if not listed.returncode:
            index, unmerged = await staged_tree(git, git_dir), await unmerged_blobs(git, git_dir)
        known = await git.compute(lambda: head_of(open_repository(git_dir)))
        head = await last_known_head(git, repo, git_dir, known)
        stood = head.commit or await git.compute(last_head, git_dir)
        if tip is None and head.branch in {branch, None} and stood and await git.compute(commit_exists, repo, stood):
            tip = stood
    at = head.commit or tip
    there = last is not None and await git.compute(commit_exists, repo, last.head)
    files = ""
    found: tuple[model.Nested, ...] = ()
    if last is not None and there and at in {None, last.head}:
        at, files, found = last.head, last.files, last.nested
        tip = tip or last.head
    elif last is not None and last.files != await git.compute(_tree_of, repo, last.head or at):
        facts["checkpoint"] = last.id
    if at is None:
        raise RefNotFoundError(
            f"neither the worktree {place.worktree} nor the branch {branch} is left", hint="there is nothing to keep"
        )
    facts |= {"branch": tip or "", "commits": [each for each in dict.fromkeys((tip, at)) if each], "thin": False}
    inside = [each.admin_dir for each in await git.compute(entries_inside, common, place.worktree)]
    trees, blobs = await inner_objects(git, inside)
    files = files or await git.compute(_tree_of, repo, at)
    on = head.branch or "" if git_dir is not None else branch
    return (
        await git.compute(
            lambda: model.write(
                common,
                files,
                head=at,
                branch=on,
                index=index,
                inner=trees,
                unmerged=[*unmerged, *blobs],
                nested=found,
                skipped=skipped,
                facts=facts,
            )
        ),
        tip,
    )


def _tree_of(repo: RepositoryInfo, commit: str | None) -> str:
    repository = open_repository(repo.common_dir)
    if commit is None or commit not in repository:
        return str(repository.TreeBuilder().write())
    return str(repository[commit].peel(pygit2.Tree).id)


def _missing_warnings(repo: RepositoryInfo, worktree: Path) -> list[str]:
    if (moved := moved_to(repo.common_dir, worktree)) is not None:
        return [f"it was moved to {moved.path}, and stays there with its branch"]
    hint = "; if it was moved by hand, bring the session back and move its files, which stay where they are, into its place"
    return [f"{worktree} was gone already{hint if stale_entry_at(repo.common_dir, worktree) else ''}"]


def _lock_warnings(repo: RepositoryInfo, worktree: Path) -> list[str]:
    locks = [entry.locked for entry in registered_at(repo.common_dir, worktree)]
    reason = next((lock for lock in locks if lock is not None and lock not in UNFINISHED), None)
    return (
        [f"it was locked by hand ({reason or 'without a reason'}), and was moved anyway"] if reason is not None else []
    )


def _entry_of(place: Place) -> Path | None:
    """Return the git directory in the shelved tree's ``.git``."""
    return git_dir_of(place.shelf) if place.shelf.is_dir() else None


def _move_to_shelf(repo: RepositoryInfo, place: Place, taken: Snapshot | None) -> list[str]:
    """Rename the tree, then its entry. If the directory stays, return why. Blocks."""
    common, worktree = repo.common_dir, place.worktree
    refuse_main(repo, worktree)
    git_dir, why = locate(common, worktree)
    entries = registered_at(common, worktree)
    inside = entries_inside(common, worktree)
    try:
        if git_dir is not None:
            if os.path.lexists(place.shelf):
                raise PathTakenError(f"{place.shelf} exists already", hint="move it away", path=str(place.shelf))
            worktree.rename(place.shelf)
        if (elsewhere := moved_to(common, worktree)) is not None:
            (elsewhere.admin_dir / "locked").unlink()  # it is the person's now, and Ramet does not remove it
        place.entry.parent.mkdir(exist_ok=True)
        if why is None:
            for entry in inside:
                entry.admin_dir.rename(place.entry.with_name(f"{place.entry.name}+{entry.admin_dir.name}"))
        # An incomplete one comes last.
        for entry in sorted(entries, key=lambda each: not (each.admin_dir / "HEAD").is_file()):
            if not place.entry.exists():
                entry.admin_dir.rename(place.entry)
            else:  # a second entry of the same path, or an incomplete one
                entry.admin_dir.rename(free_path(place.entry.with_name(f"removing-{worktree.name}")))
        if taken is not None and taken.facts.get("thin") and place.entry.is_dir():
            _write(place.entry / _MARK, f"{taken.id}\n")
    except OSError as error:
        raise GitFailedError(
            f"{error.filename} cannot be moved: {error.strerror}", hint="look at who owns it, then try again"
        ) from error
    with suppress(OSError):  # not empty, or never there
        (common / "worktrees").rmdir()
    return [f"{why}: it stays where it is"] if why is not None else []


# ── thin ──────────────────────────────────────────────────────────────────────────────────────────


async def thin(git: GitContext, place: Place, taken: Snapshot) -> None:
    """Delete from a shelved tree ignored files, and tracked files whose bytes the repository has.
    Safe to repeat."""
    tree, git_dir = place.shelf, place.entry
    if not await git.compute(lambda: tree.is_dir() and (git_dir / "index").is_file()):
        return
    there = at(git_dir, tree)
    listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    ignored = _records(await git.process.read(tree, *there, *listing))
    found = await _unchanged(git, tree, git_dir, there, taken)
    await git.delete(_delete_ignored, tree, ignored)
    await git.delete(_delete_files, tree, found)


class _Stamp(NamedTuple):
    """What tells that a file is still the same. A tenth of an `os.stat_result`: a tree may have a
    million files."""

    inode: int
    size: int
    changed: int
    mode: int
    links: int

    @classmethod
    def of(cls, file: Path) -> Self:
        found = file.lstat()
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_nlink)


async def _unchanged(
    git: GitContext, tree: Path, git_dir: Path, there: tuple[str, str], taken: Snapshot
) -> dict[str, _Stamp]:
    """Return files that are equal in index, snapshot and repository, with their stamps at the
    comparison. Lists of all files are read in threads: those of a large tree take seconds."""
    async with git.worktree_lock(tree), private_index(git, git_dir) as index:
        environment = {"GIT_INDEX_FILE": str(index)}

        async def read(*words: str, stdin: bytes | None = None) -> bytes:
            return await git.process.read(tree, *there, *words, stdin=stdin, environment=environment)

        before = await git.compute(_stamps, tree, await read("ls-files", "-z"))
        done = await git.process.run(
            tree, *there, "update-index", "-q", "--refresh", "--ignore-submodules", environment=environment
        )
        if failed_filter(done) is not None:
            return {}
        changed = set(_records(await read("diff-files", "-z", "--name-only", "--ignore-submodules=all")))
        listed = await read("ls-files", "-z", "-s", "-v")
        captured = await _entries(git, tree, there, taken.files)
        same = await git.compute(_same, listed, captured, before.keys() - changed)
        del listed, captured
        if not same:
            return {}
        paths = await git.compute(lambda: b"".join(os.fsencode(path) + b"\0" for path in same))
        attributes = await read("check-attr", "-z", "--stdin", *_CONVERTS, stdin=paths)
        converted = await git.compute(_converted, attributes)
        del attributes, paths
    names = await git.compute(lambda: "".join(f"{name}\n" for name in set(same.values())).encode())
    output = await git.process.read(tree, *there, "cat-file", _FORMAT, stdin=names)
    missing = set(await lost_objects(git, git_dir, taken.files))

    def choose() -> dict[str, _Stamp]:
        lines = (line.partition(" ") for line in output.decode().splitlines())
        sizes = {name: int(size) for name, _, size in lines if size.isdigit()}
        modes = Counter(before[path].mode for path in same)
        usual = {mode for mode, _ in modes.most_common(1)} | {
            mode for mode, _ in Counter({mode: n for mode, n in modes.items() if mode & 0o100}).most_common(1)
        }
        return {
            path: before[path]
            for path, name in same.items()
            if path not in converted
            and name not in missing
            and before[path].size == sizes.get(name)
            and before[path].links == 1
            and (before[path].mode in usual or stat.S_ISLNK(before[path].mode))
        }

    return await git.compute(choose)


def _records(output: bytes) -> list[str]:
    return os.fsdecode(output).split("\0")[:-1]


def _stamps(tree: Path, listed: bytes) -> dict[str, _Stamp]:
    found: dict[str, _Stamp] = {}
    for path in _records(listed):
        with suppress(OSError):
            found[path] = _Stamp.of(tree / path)
    return found


def _same(listed: bytes, captured: Mapping[str, tuple[str, str]], among: AbstractSet[str]) -> dict[str, str]:
    """Return the objects of the files ``among`` others that are staged as they were captured."""
    found: dict[str, str] = {}
    for record in _records(listed):
        tag, mode, name, rest = record.split(" ", 3)
        stage, _, path = rest.partition("\t")
        if (tag, stage) == ("H", "0") and mode != _LINK and captured.get(path) == (mode, name) and path in among:
            found[path] = name
    return found


def _converted(attributes: bytes) -> set[str]:
    """Return the files with an attribute for which git may convert them."""
    fields = _records(attributes)
    return {
        path
        for path, value in zip(fields[::3], fields[2::3], strict=False)
        if value not in {"unspecified", "unset", "lf"}
    }


def _delete_ignored(tree: Path, places: Sequence[str]) -> None:
    for place in places:
        path = tree / place
        if place.endswith("/"):
            # A nested repository may have the only copy of its work.
            if not any(".git" in folders or ".git" in files for _, folders, files in os.walk(path)):
                with suppress(GitFailedError):
                    delete_tree(path)
        else:
            with suppress(OSError):
                path.unlink()


def _delete_files(tree: Path, known: Mapping[str, _Stamp]) -> None:
    """Delete files, except those that a surviving process has changed since, and directories that
    are then empty."""
    folders: set[Path] = set()
    for path, was in known.items():
        place = tree / path
        with suppress(OSError):
            if _Stamp.of(place)[:-1] == was[:-1]:  # a new link to it changes nothing
                place.unlink()
                folders.add(place.parent)
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):  # not empty
            for each in (folder, *folder.parents):
                if each == tree:
                    break
                each.rmdir()


async def _entries(git: GitContext, tree: Path, there: tuple[str, ...], name: str) -> dict[str, tuple[str, str]]:
    output = await git.process.read(tree, *there, "ls-tree", "-r", "-z", "--full-tree", name)

    def entries() -> dict[str, tuple[str, str]]:
        records = (record.partition("\t") for record in _records(output))
        return {path: (sys.intern(words[:6]), words.split(" ")[2]) for words, _, path in records}

    return await git.compute(entries)


# ── unshelve ──────────────────────────────────────────────────────────────────────────────────────


async def unshelve(
    git: GitContext,
    repo: RepositoryInfo,
    taken: Snapshot,
    worktree: Path,
    own: str,
    branch: str,
    commit: str,
    *,
    new_branch: bool,
) -> tuple[str, ...]:
    """Restore a shelved worktree on ``branch``: write missing files, then rename it back. With
    ``new_branch``, create the branch at ``commit``. Return a line for each difference.

    ``own`` is the branch that the session had. A repeated call completes an interrupted one. Raise
    PathTakenError and BranchTakenError before any change, and GitFailedError, which leaves tree and
    entry on the shelf.
    """
    place = place_of(repo, worktree)
    warnings: list[str] = []
    if not await git.compute(_is_restored, repo, place):
        await sweep(git, repo, worktree)  # what an interrupted call wrote beside the tree
        async with git.locks.hold(repo.common_dir) as lock:
            if await git.compute(_is_half_restored, repo, place):  # an earlier call passed the checks below
                await git.compute(_home(repo, place).rename, place.entry)
            await git.compute(_require_free, repo, place)
            resumed = new_branch and await git.compute(branches.made_for, repo, branch, worktree)
            await git.compute(branches.require_free, repo, branch, new=new_branch and not resumed)
            if new_branch and await git.compute(branch_tip, repo, branch) is None:
                await branches.create_branch(git, repo, worktree, branch, commit, lock)
        warnings += await _mend_entry(git, place, taken)
        await git.compute(_begin_tree, place)
        warnings += await _fill(git, place, taken)
        warnings += await _set_head(git, repo, place, taken, own, branch, commit)
    async with git.locks.hold(repo.common_dir):
        warnings += await git.compute(_move_back, repo, place)
    rebuilt = _home(repo, place) / _REBUILT
    if await git.compute(rebuilt.exists):
        warnings += await populate_submodules(git, repo.worktree_root, worktree)
        warnings += await nested.restore(git, repo.common_dir, worktree, taken)
    await git.make_durable(repo.common_dir, worktree.parent)
    await git.compute(rebuilt.unlink, missing_ok=True)
    return tuple(map(utf8, warnings))


def _begin_tree(place: Place) -> None:
    """Create a new tree if a person has deleted it."""
    if not os.path.lexists(place.shelf):
        (place.entry / _REBUILT).touch()
        place.shelf.mkdir(parents=True)


def _is_restored(repo: RepositoryInfo, place: Place) -> bool:
    """Return whether an earlier call has renamed the tree back."""
    return git_dir_of(place.worktree) == _home(repo, place) and _home(repo, place).is_dir() and not place.shelf.exists()


def _home(repo: RepositoryInfo, place: Place) -> Path:
    """Return the path for a worktree's entry, with another name if a moved worktree has the usual
    one."""
    found = [entry.admin_dir for entry in registered_at(repo.common_dir, place.worktree) if entry.path is not None]
    home = repo.common_dir / "worktrees" / place.worktree.name
    return found[0] if found else free_path(home) if home.exists() else home


def _is_half_restored(repo: RepositoryInfo, place: Place) -> bool:
    """Return whether an earlier call has renamed the entry back, but not the tree."""
    home = _home(repo, place)
    there = [entry.admin_dir for entry in registered_at(repo.common_dir, place.worktree) if entry.path is not None]
    return home in there and not place.entry.exists() and not os.path.lexists(place.worktree)


def _require_free(repo: RepositoryInfo, place: Place) -> None:
    """Raise PathTakenError if the tree is not on its shelf, or if its former path is taken.
    Blocks."""
    worktree = place.worktree
    if os.path.lexists(place.shelf) and (place.shelf.is_symlink() or not place.shelf.is_dir()):
        raise PathTakenError(
            f"{place.shelf} is not the tree that was put there",
            hint="move it away, then try again",
            path=str(place.shelf),
        )
    if (inner := place.shelf / ".git").is_dir() and not inner.is_symlink():
        raise PathTakenError(f"{inner} is a separate repository", hint="move it away, then try again", path=str(inner))
    free = not os.path.lexists(worktree) or (
        worktree.is_dir() and not worktree.is_symlink() and not any(worktree.iterdir())
    )
    if registered := registered_at(repo.common_dir, worktree):
        hint = (
            f"{make_room(repo, worktree, locked=any(entry.locked is not None for entry in registered))}; then try again"
        )
        raise PathTakenError(f"a worktree is registered at {worktree}", hint=hint, path=str(worktree))
    if not free:
        raise PathTakenError(f"{worktree} exists already", hint="move it away, then try again", path=str(worktree))
    if (place.entry / "modules").is_dir() and _home(repo, place).name != worktree.name:  # which submodules name
        raise PathTakenError(
            f"git has another worktree on its list as {worktree.name}",
            hint=f"`git -C {repo.root} worktree list` shows it; remove it, then try again",
            path=str(worktree),
        )


async def mend_index(git: GitContext, git_dir: Path, tree: str) -> list[str]:
    """Replace a missing or unreadable index by that of a tree; return warnings about what is
    lost."""
    warnings: list[str] = []
    listed = await git.process.run(git_dir, f"--git-dir={git_dir}", "ls-files", "--stage", "-z")
    if listed.returncode != 0:
        unreadable = git_dir / "index.unreadable"
        await git.compute((git_dir / "index").replace, unreadable)
        warnings.append(f"what was staged: {listed.words}; that index is {unreadable.name} in its git directory now")
    if not await git.compute((git_dir / "index").is_file):
        await git.process.write(git_dir, f"--git-dir={git_dir}", "read-tree", tree)
    return warnings


async def _mend_entry(git: GitContext, place: Place, taken: Snapshot) -> list[str]:
    """Create missing parts of a shelved tree's git directory, or all of it; return warnings about
    unreadable parts."""
    entry, part = place.entry, place.entry.with_name(f"building-{place.entry.name}")

    def begin() -> Path:
        if not entry.is_dir():
            delete_tree(part)
            part.mkdir(parents=True)
        folder = entry if entry.is_dir() else part
        head = f"ref: refs/heads/{taken.branch}\n" if taken.branch else f"{taken.head}\n"
        wanted = {
            "commondir": "../..\n",
            "gitdir": f"{place.worktree / '.git'}\n",
            "locked": f"{REASON}\n",
            "HEAD": head,
        }
        for name, content in wanted.items():
            if not (folder / name).is_file() or not (folder / name).stat().st_size:  # as a loss of power leaves it
                _write(folder / name, content)
        return folder

    folder = await git.compute(begin)
    warnings = await mend_index(git, folder, taken.index or taken.head or taken.files)
    if folder == part:
        await git.compute(part.rename, entry)
    return warnings


async def _fill(git: GitContext, place: Place, taken: Snapshot) -> list[str]:
    """Write the snapshot's missing files to a shelved tree; overwrite none. Return warnings."""
    if taken.facts.get("whole"):  # it was unreadable, and so not thinned
        return []
    tree, git_dir = place.shelf, place.entry
    there = at(git_dir, tree)
    mark = git_dir / _MARK
    if await git.compute(lambda: mark.is_file() and mark.read_text().strip() != taken.id):
        # A person created its ref again, with another snapshot than that of the thinning.
        await git.process.run(tree, *there, "checkout-index", "-a", "-q", "-u")
    try:
        files = await _entries(git, tree, there, taken.files)
    except GitFailedError as error:  # the index still has the thinned files
        await git.process.run(tree, *there, "checkout-index", "-a", "-q", "-u")
        if await git.process.read(tree, *there, "ls-files", "--deleted", "-z"):
            raise
        return [f"git has not all of its snapshot ({error.message}): files that were deleted may be there again"]
    captured = {path: entry for path, entry in files.items() if entry[0] != _LINK}
    missing = await git.compute(_missing, tree, captured)
    if not missing:
        return []
    listed = os.fsdecode(await git.process.read(tree, *there, "ls-files", "-z", "-s", "-v")).split("\0")[:-1]
    staged: dict[str, tuple[str, str]] = {}
    sparse: set[str] = set()
    for record in listed:
        tag, mode, name, rest = record.split(" ", 3)
        stage, _, path = rest.partition("\t")
        sparse |= {path} if tag in "Ss" else set()
        staged |= {path: (mode, name)} if stage == "0" else {}
    wanted = [path for path in missing if path not in sparse]
    ours = [path for path in wanted if staged.get(path) == captured[path]]
    await _check_out(git, place, there, ours, {})
    await git.process.run(tree, *there, "update-index", "-q", "--refresh", "--ignore-submodules")
    others = [path for path in wanted if staged.get(path) != captured[path]]
    if others:
        async with scratch_index(git, git_dir.parent.parent) as index:
            environment = {"GIT_INDEX_FILE": str(index)}
            await git.process.write(tree, *there, "read-tree", taken.files, environment=environment)
            await _check_out(git, place, there, others, environment)
    left = [path for path in await git.compute(_missing, tree, captured) if path not in sparse]
    return [f"not restored, because another file is there: {', '.join(left[:10])}"] if left else []


async def _check_out(
    git: GitContext, place: Place, there: tuple[str, str], paths: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Write files of an index to a shelved tree, each as a whole: git writes them beside it, and
    they are renamed. A git that is killed, or finds the disk full, would leave a part of a file,
    which the next call would take for the file. `sweep` deletes the directory by its name."""
    if not paths:
        return
    tree, beside = place.shelf, place.worktree.with_name(f".{place.worktree.name}.removing-0")
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    try:
        arguments = (*there, "checkout-index", f"--prefix={beside}/", "-q", "-z", "--stdin")
        await git.process.write(tree, *arguments, stdin=stdin, environment=environment)
        await git.compute(_move_in, beside, tree, paths)
    finally:
        await git.delete(delete_tree, beside)


def _move_in(beside: Path, tree: Path, paths: Sequence[str]) -> None:
    """Rename files to their free paths in a tree, through no symbolic link."""
    for path in paths:
        if not os.path.lexists(beside / path):
            continue  # git did not write it: it names a link of another kind
        place = tree / path
        if os.path.lexists(place) or any((tree / parent).is_symlink() for parent in parents(path)):
            continue
        with suppress(FileExistsError, NotADirectoryError):  # a file is in the way of a directory
            place.parent.mkdir(parents=True, exist_ok=True)
            (beside / path).rename(place)


def _missing(tree: Path, paths: Mapping[str, object]) -> list[str]:
    """Return missing files whose path is free."""
    return [path for path in paths if not os.path.lexists(f"{tree}/{path}")]


async def _set_head(
    git: GitContext, repo: RepositoryInfo, place: Place, taken: Snapshot, own: str, branch: str, commit: str
) -> list[str]:
    """Point a shelved tree's HEAD to the branch of the restore; return warnings about
    differences."""
    tree, git_dir = place.shelf, place.entry
    if taken.branch in {own, branch} and taken.branch:

        def attach() -> None:
            _write(git_dir / "HEAD", f"ref: refs/heads/{branch}\n")
            for name in ("rebase-merge/head-name", "rebase-apply/head-name"):
                if (git_dir / name).is_file():
                    _write(git_dir / name, f"refs/heads/{branch}\n")

        await git.compute(attach)
        tip = await git.compute(branch_tip, repo, branch)
        if taken.head and tip not in {None, taken.head} and commit == tip:
            # The branch has moved on and nothing was uncommitted, so update the files.
            there = at(git_dir, tree)
            await git.process.write(tree, *there, "read-tree", "-m", "-u", taken.head, commit)
        return []
    if not taken.branch:
        return []
    on = {each.name: each for each in await git.compute(branches.list_branches, repo)}.get(taken.branch)
    if on is not None and on.commit == taken.head and on.worktree is None:
        return []
    await git.compute(_write, git_dir / "HEAD", f"{taken.head}\n")
    why = "is gone" if on is None else f"is checked out at {on.worktree}" if on.worktree else "has changed"
    return [f"{taken.branch}, which it had checked out, {why}: HEAD is detached at {taken.head[:12]}"]


def _move_back(repo: RepositoryInfo, place: Place) -> list[str]:
    """Rename the entry, then the tree. Blocks."""
    home, warnings = _home(repo, place), []
    home.parent.mkdir(exist_ok=True)
    if place.entry.is_dir() and not home.exists():
        place.entry.rename(home)
    for entry in sorted(place.entry.parent.glob(f"{place.entry.name}+*")):
        warnings += _inner_back(repo, place, entry)
    (home / _MARK).unlink(missing_ok=True)
    if place.shelf.exists():
        _write(home / "gitdir", f"{place.worktree / '.git'}\n")
        if git_dir_of(place.shelf) != home:  # it was deleted, or the repository was moved meanwhile
            _point(place.shelf, home)
        if not (home / "locked").exists():
            _write(home / "locked", f"{REASON}\n")
        with suppress(FileNotFoundError):
            place.worktree.rmdir()  # empty
        place.shelf.rename(place.worktree)
    return warnings


def _inner_back(repo: RepositoryInfo, place: Place, entry: Path) -> list[str]:
    """Restore the entry of a nested worktree, with its name or a similar one. Detach its HEAD if
    its branch is now checked out elsewhere."""
    name = entry.name.removeprefix(f"{place.entry.name}+")
    home = repo.common_dir / "worktrees" / name
    if home.exists():
        home = free_path(home)
    head = (entry / "HEAD").read_text() if (entry / "HEAD").is_file() else ""
    branch = head.removeprefix("ref: refs/heads/").rstrip("\n") if head.startswith("ref: refs/heads/") else ""
    warnings: list[str] = []
    if branch and branch in branches.checked_out(repo):
        stood = last_head(entry)
        if stood is not None:
            _write(entry / "HEAD", f"{stood}\n")
            warnings.append(
                f"{branch}, which the worktree {name} inside it had checked out, is checked out elsewhere: HEAD is detached there"
            )
    entry.rename(home)
    pointer = Path((home / "gitdir").read_text().rstrip("\n")) if (home / "gitdir").is_file() else None
    if pointer is not None and home.name != name:
        inner = place.shelf / pointer.parent.relative_to(place.worktree)
        if inner.is_dir():
            _point(inner, home)
    return warnings


def _write(file: Path, text: str) -> None:
    """Replace a file of a git directory. After a kill it has the former content or the new one."""
    scratch = file.with_name(f"{file.name}.ramet")
    scratch.write_text(text)
    scratch.replace(file)


def _point(tree: Path, git_dir: Path) -> None:
    """Replace a worktree's ``.git``, without following a link, which an agent may have put
    there."""
    (tree / ".git").unlink(missing_ok=True)
    (tree / ".git").write_text(f"gitdir: {git_dir}\n")


async def put_back_on_shelf(
    git: GitContext, repo: RepositoryInfo, worktree: Path, branch: str, created_at: str | None
) -> None:
    """Undo a failed `unshelve`: move the worktree back to the shelf, and delete a branch created
    for it."""
    place = place_of(repo, worktree)
    await sweep(git, repo, worktree)
    async with git.locks.hold(repo.common_dir) as lock:
        if await git.compute(_is_half_restored, repo, place) or await git.compute(_is_restored, repo, place):
            await git.compute(_move_to_shelf, repo, place, None)
        if created_at is not None and await git.compute(branches.made_for, repo, branch, worktree):
            await branches.delete_branch(git, repo, branch, created_at, lock)


# ── delete ────────────────────────────────────────────────────────────────────────────────────────


def mark_of(repo: RepositoryInfo, worktree: Path) -> str:
    """Return the id of the snapshot with which a shelved worktree was thinned, or "". Blocks."""
    mark = place_of(repo, worktree).entry / _MARK
    return mark.read_text().strip() if mark.is_file() else ""


def parts_of(repo: RepositoryInfo, worktree: Path) -> Iterator[Path]:
    """Yield the directories of a shelved worktree. Blocks."""
    place = place_of(repo, worktree)
    yield from (each for each in (place.shelf, place.entry) if each.is_dir())
    yield from place.entry.parent.glob(f"{place.entry.name}+*")


async def drop(git: GitContext, repo: RepositoryInfo, worktree: Path) -> None:
    """Delete a shelved worktree, if there is one."""
    await sweep(git, repo, worktree)
    for part in await git.compute(lambda: list(parts_of(repo, worktree))):
        await git.delete(delete_tree, part)
    part = place_of(repo, worktree).entry
    await git.delete(delete_tree, part.with_name(f"building-{part.name}"))
    await git.compute(shutil.rmtree, part, ignore_errors=True)
