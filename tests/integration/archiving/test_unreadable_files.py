"""Files that git cannot read: only the worktree has them, and they move to the shelf with it."""

import os
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import worktree_pb2
from rametd.git import Git
from rametd.git.tracking.walking import Found, walk

from tests.support import repositories
from tests.support.archiving import archive, refusal, remove, restore, restore_trash
from tests.support.closed import closed_directory, unprivileged_git
from tests.support.daemon import IDLE, Client, git
from tests.support.eventually import eventually

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept-out"
    folder.mkdir()
    unprivileged_git(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def refused(call: Any) -> str:
    reason, words = await refusal(call)
    assert reason == "WORK_AT_RISK"
    return words


def through_a_filter(repository: Path, tree: Path) -> Path:
    """Create a file that git cannot store."""
    git(repository, "config", "filter.broken.clean", "false")
    git(repository, "config", "filter.broken.required", "true")
    (repository / ".git" / "info" / "attributes").write_text("secret filter=broken\n")
    (tree / "secret").write_text("only here\n")
    return tree / "secret"


async def test_an_unreadable_directory_causes_a_warning_and_is_not_removed(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="closed")
    closed = closed_directory(Path(made.worktree))

    assert "could not open directory 'closed/'" in await refused(remove(client, "closed"))
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="closed"))

    closed.chmod(0o700)
    assert (closed / "secret").read_text() == "only here\n"
    assert (await client.get("closed")).state == IDLE
    assert not git(repository, "for-each-ref", "refs/ramet/trash", "refs/ramet/archive")

    async def warned() -> bool:
        events = [event.warning.message for event in await client.log("closed") if event.HasField("warning")]
        return any("so checkpoints do not have them: could not open directory 'closed/'" in words for words in events)

    await eventually(warned)


@pytest.mark.parametrize("how", ["closed", "filter"])
@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_files_that_git_cannot_read_are_restored_with_the_rest(
    client: Client, repository: Path, way: str, how: str
) -> None:
    made = await client.create(repository, name="forced")
    tree = Path(made.worktree)
    (tree / "other.txt").write_text("other\n")
    file = (closed_directory(tree) / "secret") if how == "closed" else through_a_filter(repository, tree)

    gone = await (remove(client, "forced", force=True) if way == "rm" else archive(client, "forced"))

    assert not tree.exists()
    ref = f"refs/ramet/{'trash' if way == 'rm' else 'archive'}/{made.id}"
    assert git(repository, "show", f"{ref}:files/other.txt") == "other"
    assert list(gone.warnings) == []
    back = await (restore_trash(client, "forced") if way == "rm" else restore(client, "forced"))
    assert list(back.warnings) == []
    assert file.read_text() == "only here\n"
    assert (tree / "other.txt").read_text() == "other\n"
    assert how != "closed" or file.parent.stat().st_mode & 0o777 == 0
    assert not git(repository, "for-each-ref", "refs/ramet/trash", "refs/ramet/archive")

    await remove(client, "forced", force=True)
    await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(entries=["forced"]))
    assert not tree.with_name(f".{made.id}.shelved").exists()


async def test_a_file_that_cannot_be_stored_is_named_by_a_removal_that_touches_nothing(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, name="kept")
    file = through_a_filter(repository, Path(made.worktree))
    (Path(made.worktree) / "other.txt").write_text("other\n")

    words = await refused(remove(client, "kept"))

    assert "1 untracked (other.txt), files that git cannot store (secret: clean filter 'broken' failed)" in words
    assert file.read_text() == "only here\n"


async def test_closed_directories_are_reported_also_those_that_appear_under_a_tracker(
    tmp_path: Path,
) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    layer = Git(environment, threads=2)
    try:
        repo = await layer.discover(sample.path)
        tracker = await layer.trackers.watch(sample.path)
        closed = closed_directory(sample.path)
        words = ("could not open directory 'closed/': Permission denied",)
        if os.geteuid():  # the tracker itself cannot read it
            assert (await tracker.tree()).skipped == words
        await layer.trackers.unwatch(sample.path)

        assert (await layer.snapshots.take(sample.path)).skipped == words
        assert (await layer.worktrees.work_at_risk(repo, sample.path, "main", None)).unread == words

        tracker = await layer.trackers.watch(sample.path)
        assert (await tracker.tree()).skipped == words
        closed.chmod(0o700)
        opened = await tracker.tree()
        assert opened.skipped == ()
        (closed / "secret").write_text("changed\n")
        assert (await tracker.tree()).tree != opened.tree
        await layer.trackers.unwatch(sample.path)
    finally:
        await layer.aclose()


def test_a_new_directory_that_cannot_be_read_is_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "open").mkdir(parents=True)
    (root / "open" / "file").touch()
    (root / "closed").mkdir()

    def enter(directory: str) -> bool:
        if directory == "closed":
            raise PermissionError(13, "Permission denied", directory)
        return True

    def skip(directory: str) -> bool:
        return False

    assert walk(str(root), "", skip, enter) == Found({"open/file"}, partial=True)
    assert walk(str(root), "open", skip, enter) == Found({"open/file"}, partial=False)


async def test_a_nested_repositorys_files_are_captured_and_unreadable_ones_are_named(
    tmp_path: Path,
) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    layer = Git(environment, threads=2)
    try:
        sample.write("nested/file", "only here\n")
        sample.git("init", "-q", at=sample.path / "nested")
        assert (await layer.snapshots.take(sample.path)).skipped == ()
        closed_directory(sample.path / "nested")
        taken = await layer.snapshots.take(sample.path)
        assert taken.skipped == ("in nested: could not open directory 'closed/': Permission denied",)
        (inner,) = taken.nested
        assert inner.place == "nested"
        assert sample.git("show", f"{inner.files}:file") == "only here"
    finally:
        await layer.aclose()
