"""`Git.snapshots`: snapshots, as services use them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pygit2

from rametd.git import integrity, refs
from rametd.git.context import GitContext
from rametd.git.file_trees import has_content, write_commit
from rametd.git.process import at
from rametd.git.repository import RepositoryInfo, commit_exists, open_repository
from rametd.git.snapshots import capture, model, nested, restore, shelf
from rametd.git.snapshots.model import ARCHIVE, TRASH, Snapshot
from rametd.git.underway import refuse_locked
from rametd.platform.files import tree_bytes


@dataclass(frozen=True, slots=True)
class Numbered:
    """A snapshot under ``FOLDER/NUMBER``."""

    number: int
    ref: str
    snapshot: Snapshot


class Snapshots:
    """Every method may raise GitFailedError and GitBusyError."""

    def __init__(self, context: GitContext) -> None:
        self._git = context
        self.take = context.bind(capture.capture)
        self.lost = context.bind(integrity.lost)
        self.move_back = context.bind(restore.move_back)
        self.record = context.bind(shelf.record)
        self.shelve = context.bind(shelf.shelve)
        self.unshelve = context.bind(shelf.unshelve)
        self.undo_unshelve = context.bind(shelf.put_back_on_shelf)
        self.drop_shelved = context.bind(shelf.drop)
        self.mark_of = context.threaded(shelf.mark_of)
        self.shelf_of = shelf.shelf_of

    async def read(self, repo: RepositoryInfo, name: str) -> Snapshot | None:
        """Read the snapshot of a ref or object id; None if there is none."""
        return await self._git.compute(model.read, repo.common_dir, name)

    async def below(self, repo: RepositoryInfo, folder: str) -> tuple[Numbered, ...]:
        """Return the snapshots below ``folder``, by number."""

        def begins() -> bool:
            return f"{folder}/1" in open_repository(repo.common_dir).references

        # Every session calls this at its start, and must not wait for a list of all refs.
        if not await self._git.compute(begins):
            return ()
        found = []
        for ref, name in (await refs.refs_below(self._git, repo, folder)).items():
            number = ref.rpartition("/")[2]
            snapshot = await self.read(repo, name)
            if snapshot is not None and number.isascii() and number.isdigit():
                found.append(Numbered(int(number), ref, snapshot))
        return tuple(sorted(found, key=lambda each: each.number))

    async def apply_tree(self, repo: RepositoryInfo, worktree: Path, snapshot: Snapshot) -> tuple[str, ...]:
        """Write a snapshot's files to a new worktree at its HEAD, as uncommitted changes; return a
        line for each difference.

        Raise GitFailedError, with nothing written, if that would overwrite another file.
        """
        await restore.apply_tree(self._git, worktree, snapshot.files)
        return tuple(await nested.restore(self._git, repo.common_dir, worktree, snapshot))

    async def mend_index(self, worktree: Path) -> tuple[str, ...]:
        """Replace an index that a loss of power left without content by that of HEAD; return
        warnings about what was staged."""
        git_dir = await self._git.verified(worktree, None)
        index = git_dir / "index"
        if not await self._git.compute(lambda: index.is_file() and not has_content(index)):
            return ()
        warnings = tuple(await shelf.mend_index(self._git, git_dir, "HEAD"))
        there = at(git_dir, worktree)
        sparse = await self._git.process.run(worktree, *there, "config", "--type=bool", "core.sparseCheckout")
        if sparse.stdout.strip() == b"true":  # else the files outside it would count as deleted
            await self._git.process.write(worktree, *there, "sparse-checkout", "reapply")
        return warnings

    async def refuse_locked(self, worktree: Path) -> None:
        """See `underway.refuse_locked`."""
        await refuse_locked(self._git, await self._git.verified(worktree, None))

    async def restore_files(
        self, worktree: Path, snapshot: Snapshot, before_overwriting: Callable[[str], Awaitable[None]]
    ) -> str:
        """See `restore.restore_files`."""
        return await restore.restore_files(self._git, worktree, snapshot.files, before_overwriting)

    async def bring_back_nested(
        self, repo: RepositoryInfo, worktree: Path, snapshot: Snapshot, before: Snapshot
    ) -> tuple[str, ...]:
        """After `restore_files`, restore nested repositories; return a line for each difference.
        Overwrite no file that ``before`` does not have."""
        return tuple(await nested.restore(self._git, repo.common_dir, worktree, snapshot, before))

    # ── archive and trash ─────────────────────────────────────────────────────────────────────────

    async def of_commit(self, repo: RepositoryInfo, commit: str, branch: str) -> Snapshot:
        """Write a snapshot of a commit's files, without a ref."""

        def write() -> Snapshot:
            files = str(open_repository(repo.common_dir)[commit].peel(pygit2.Tree).id)
            return model.write(repo.common_dir, files, head=commit, branch=branch)

        return await self._git.compute(write)

    async def as_commit(self, repo: RepositoryInfo, snapshot: Snapshot) -> str:
        """Write a commit of a snapshot's files on its HEAD, without a ref, for comparisons."""

        def write() -> str:
            parents = [snapshot.head] if snapshot.head else []
            return write_commit(open_repository(repo.common_dir), snapshot.files, "files\n", parents)

        return await self._git.compute(write)

    async def changed(self, repo: RepositoryInfo, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the paths that differ between a snapshot and its HEAD, untracked ones included,
        without nested repositories."""

        def compare() -> tuple[str, ...]:
            repository = open_repository(repo.common_dir)
            if not snapshot.head or snapshot.head not in repository:
                return ()
            tree = repository[snapshot.head].peel(pygit2.Tree)
            diff = tree.diff_to_tree(repository[snapshot.files].peel(pygit2.Tree))
            links = {each.new_file.path for each in diff.deltas if each.new_file.mode == pygit2.enums.FileMode.COMMIT}
            made = {each.new_file.path for each in diff.deltas if each.status_char() == "A"}
            return tuple(sorted(each.new_file.path for each in diff.deltas if each.new_file.path not in links & made))

        return await self._git.compute(compare)

    async def only_staged(self, repo: RepositoryInfo, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the paths whose staged content differs from both HEAD and the files."""

        def compare() -> tuple[str, ...]:
            repository = open_repository(repo.common_dir)
            if not snapshot.index or snapshot.head not in repository:
                return ()
            head, index, files = (
                repository[each].peel(pygit2.Tree) for each in (snapshot.head, snapshot.index, snapshot.files)
            )
            one, other = (
                {delta.new_file.path for delta in tree.diff_to_tree(index).deltas if delta.status_char() != "D"}
                for tree in (head, files)
            )
            return tuple(sorted(one & other))

        return await self._git.compute(compare)

    async def time_of(self, repo: RepositoryInfo, name: str) -> float | None:
        """Time of a snapshot or commit, in seconds since the epoch; None for other or missing
        objects."""
        if (taken := await self.read(repo, name)) is not None:
            return taken.time

        def look() -> float | None:
            if not commit_exists(repo, name):
                return None
            return float(open_repository(repo.common_dir)[name].peel(pygit2.Commit).commit_time)

        return await self._git.compute(look)

    async def size(self, repo: RepositoryInfo, snapshot: Snapshot, worktree: Path) -> int:
        """Return the bytes on disk of a shelved worktree, and of the objects that only its snapshot
        has."""
        parts = await self._git.compute(lambda: sum(tree_bytes(part) for part in shelf.parts_of(repo, worktree)))
        return parts + await refs.size_of(self._git, repo, snapshot.id)

    async def move(self, repo: RepositoryInfo, old: str, new: str) -> Snapshot | None:
        """Rename the ref ``old`` of a snapshot to ``new``; None if neither exists."""
        found = await self.read(repo, old)
        if found is not None:
            await self._git.process.write(repo.common_dir, "update-ref", new, found.id)
            await self._git.make_durable(repo.common_dir)
            await refs.drop(self._git, repo, old)
        return found or await self.read(repo, new)

    async def keep_commits(self, repo: RepositoryInfo, owner: str, *commits: str) -> None:
        """Pin commits for a session, each by its own ref."""
        await self._git.compute(model.pin_others, repo.common_dir, owner, commits)

    async def drop(self, repo: RepositoryInfo, ref: str, name: str) -> None:
        """Delete a ref if it still points to ``name``, and the shelved worktree of its snapshot."""
        taken = await self.read(repo, name)
        await self._git.make_durable(repo.common_dir)  # another ref may protect its objects
        await refs.drop(self._git, repo, ref, name)
        if taken is not None and ref.startswith((ARCHIVE, TRASH)) and "worktree" in taken.facts:
            await shelf.drop(self._git, repo, Path(taken.facts["worktree"]))
