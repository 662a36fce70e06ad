"""Checkpoints record nested repositories; rewinds and forks restore them, or warn of
differences."""

import json
import os
import shutil
from pathlib import Path

import pytest
from ramet.v1 import event_pb2, session_pb2, worktree_pb2
from rametd.git import Git

from tests.support import repositories
from tests.support.archiving import archive, refusal, remove, restore, restore_trash
from tests.support.daemon import Client, git

pytestmark = pytest.mark.full


async def checkpoint(client: Client, name: str = "made") -> worktree_pb2.Checkpoint:
    return (await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))).checkpoint


async def rewind(client: Client, to: worktree_pb2.Checkpoint) -> worktree_pb2.RewindSessionResponse:
    return await client.worktrees.RewindSession(
        worktree_pb2.RewindSessionRequest(session="made", checkpoint=str(to.number))
    )


async def fork(client: Client, at: worktree_pb2.Checkpoint) -> session_pb2.ForkSessionResponse:
    return await client.sessions.ForkSession(
        session_pb2.ForkSessionRequest(session="made", name="forked", checkpoint=str(at.number))
    )


def inside(repository: Path, kept: worktree_pb2.Checkpoint) -> dict[str, str]:
    """Return the trees of nested repositories that a checkpoint has, by path."""
    found = json.loads(git(repository, "show", f"{kept.ref}:meta.json")).get("nested", [])
    if "nested" not in git(repository, "ls-tree", "--name-only", kept.ref).split():
        return {}
    trees = dict(line.split()[:1:-1] for line in git(repository, "ls-tree", f"{kept.ref}:nested").splitlines())
    return {each["place"]: trees[str(n)] for n, each in enumerate(found) if str(n) in trees}


def make(place: Path, *, committed: bool = True) -> Path:
    git(place.parent, "init", "-q", "-b", "main", place.name)
    (place / "file").write_text("one\n")
    if committed:
        git(place, "add", "file")
        git(place, "commit", "-qm", "one")
    (place / "draft").write_text("draft one\n")
    return place


@pytest.fixture
async def tree(client: Client, repository: Path) -> Path:
    return Path((await client.create(repository, name="made")).worktree)


@pytest.mark.parametrize("committed", [True, False], ids=["with a commit", "unborn"])
async def test_a_rewind_restores_a_nested_repositorys_files_and_can_be_undone(
    client: Client, repository: Path, tree: Path, committed: bool
) -> None:
    own = make(tree / "own", committed=committed)
    first = await checkpoint(client)
    assert (await checkpoint(client)).number == first.number
    (own / "file").write_text("two\n")
    (own / "draft").unlink()
    (own / "more").write_text("more\n")
    second = await checkpoint(client)
    assert second.number == first.number + 1
    assert git(repository, "show", f"{inside(repository, first)['own']}:draft") == "draft one"

    back = await rewind(client, first)

    assert list(back.warnings) == []
    assert ((own / "file").read_text(), (own / "draft").read_text()) == ("one\n", "draft one\n")
    assert not (own / "more").exists()
    assert back.before.number == second.number
    assert list((await rewind(client, second)).warnings) == []
    assert ((own / "file").read_text(), (own / "more").read_text()) == ("two\n", "more\n")
    assert not (own / "draft").exists()
    git(repository, "fsck", "--connectivity-only")


async def test_a_checkpoint_records_commits_of_a_nested_repository(
    client: Client, repository: Path, tree: Path
) -> None:
    own = make(tree / "own")
    first = await checkpoint(client)
    git(own, "commit", "-q", "--allow-empty", "-m", "two")
    (own / "file").write_text("two\n")
    git(own, "commit", "-qam", "three")
    tip = git(own, "rev-parse", "HEAD")
    await checkpoint(client)
    assert tip in git(repository, "rev-list", "--glob=refs/ramet/commits").split()

    (words,) = (await rewind(client, first)).warnings

    assert words.startswith("own stays on its branch main: its files are those that it had on ")
    assert git(own, "rev-parse", "main") == tip
    assert ((own / "file").read_text(), (own / "draft").read_text()) == ("one\n", "draft one\n")


async def test_only_the_files_of_a_deleted_nested_repository_are_restored(client: Client, tree: Path) -> None:
    own = make(tree / "own")
    first = await checkpoint(client)
    shutil.rmtree(own)
    await checkpoint(client)

    (words,) = (await rewind(client, first)).warnings

    assert words.startswith("own was a separate repository: its files are restored, its commits are in ")
    assert ((own / "file").read_text(), (own / "draft").read_text()) == ("one\n", "draft one\n")
    assert not (own / ".git").exists()


async def test_a_fork_has_the_files_of_a_repository_inside_and_says_that_it_is_none(client: Client, tree: Path) -> None:
    make(tree / "own")
    first = await checkpoint(client)
    (tree / "own" / "draft").write_text("draft two\n")

    made = await fork(client, first)

    (words,) = [words for words in made.warnings if "own" in words]
    assert words.startswith("own was a separate repository: its files are restored")
    assert (Path(made.session.worktree) / "own" / "draft").read_text() == "draft one\n"


async def test_a_nested_worktree_is_recorded_and_not_changed(client: Client, repository: Path, tree: Path) -> None:
    git(tree, "worktree", "add", "-q", "-b", "mine", "side")
    (tree / "side" / "draft").write_text("one\n")
    first = await checkpoint(client)
    assert list((await rewind(client, first)).warnings) == []
    (tree / "side" / "draft").write_text("two\n")

    (words,) = (await rewind(client, first)).warnings

    commit = inside(repository, first)["side"]
    assert words == f"side is a separate worktree and stays unchanged: {commit[:12]} has its earlier files"
    assert git(repository, "show", f"{commit}:draft") == "one"
    assert (tree / "side" / "draft").read_text() == "two\n"


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_nested_repositories_of_a_deleted_worktree_are_restored(client: Client, tree: Path, way: str) -> None:
    own = make(tree / "own")
    await checkpoint(client)
    shutil.rmtree(tree)

    assert "the repository own inside it" in (await refusal(remove(client, "made")))[1]
    if way == "archive":
        await archive(client, "made")
        (words,) = (await restore(client, "made")).warnings
    else:
        await remove(client, "made", force=True)
        (words,) = (await restore_trash(client, "made")).warnings

    assert words.startswith("own was a separate repository: its files are restored, its commits are in ")
    assert (own / "draft").read_text() == "draft one\n"


async def test_an_unreadable_nested_repository_is_named_and_all_else_is_captured(
    client: Client, repository: Path, tree: Path
) -> None:
    own = make(tree / "own")
    (tree / "beside").write_text("beside\n")
    blob = git(own, "rev-parse", "HEAD:file")
    place = own / ".git" / "objects" / blob[:2] / blob[2:]
    place.chmod(0o600)
    place.write_bytes(b"")

    made = await checkpoint(client)

    assert git(repository, "show", f"{made.commit}:beside") == "beside"
    warnings = [
        event_pb2.Event.FromString(event.SerializeToString()).warning.message for event in await client.log("made")
    ]
    assert any("so checkpoints do not have them: in own: " in words for words in warnings)


async def test_submodules_go_back_to_where_they_stood(client: Client, tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    tree = Path((await client.create(sample.path, name="made")).worktree)
    lib, deep = tree / "lib", tree / "lib" / "deep"
    before = git(lib, "rev-parse", "HEAD")
    first = await checkpoint(client)
    assert inside(sample.path, first) == {}  # as in their commits
    (lib / "made").write_text("1\n")
    git(lib, "add", "made")
    git(lib, "commit", "-qm", "made")
    after = git(lib, "rev-parse", "HEAD")
    (deep / "README.md").write_text("changed\n")
    second = await checkpoint(client)
    assert set(inside(sample.path, second)) == {"lib", "lib/deep"}

    assert list((await rewind(client, first)).warnings) == []
    assert git(tree, "status", "--porcelain", "--ignore-submodules=none") == ""
    assert (git(lib, "rev-parse", "HEAD"), (lib / "made").exists()) == (before, False)

    assert list((await rewind(client, second)).warnings) == []
    assert git(lib, "rev-parse", "HEAD") == after
    assert (deep / "README.md").read_text() == "changed\n"

    forked = await fork(client, second)
    there = Path(forked.session.worktree)
    assert [words for words in forked.warnings if "lib" in words] == []
    assert git(there / "lib", "rev-parse", "HEAD") == after
    assert ((there / "lib" / "made").read_text(), (there / "lib/deep/README.md").read_text()) == ("1\n", "changed\n")


async def test_events_and_a_scan_agree_that_a_tree_has_no_nested_repository(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    layer = Git(environment, threads=2)
    try:
        tracker = await layer.trackers.watch(sample.path)
        assert (await tracker.tree()).plain
        sample.write("new")
        assert (await tracker.tree()).plain
        own = repositories.unborn(sample.path / "own", environment)
        assert not (await tracker.tree()).plain
        own.commit("one")
        assert not (await tracker.tree()).plain
        shutil.rmtree(own.path)
        assert (await tracker.tree()).plain
        sample.git("update-index", "--split-index")
        await layer.trackers.unwatch(sample.path)
        assert (await layer.snapshots.take(sample.path)).nested == ()
    finally:
        await layer.aclose()


async def test_nested_repositories_of_any_name_are_restored(client: Client, tree: Path) -> None:
    places = [tree / os.fsdecode(name) for name in (b"\xff", 'odd \n"\u2028ü'.encode(), b"nested x y", b"sp ace/deep")]
    (tree / "sp ace").mkdir()
    for place in places:
        make(place)
    first = await checkpoint(client)
    for place in places:
        (place / "draft").write_text("two\n")

    assert list((await rewind(client, first)).warnings) == []
    assert {(place / "draft").read_text() for place in places} == {"draft one\n"}

    git(tree, "-c", "advice.addEmbeddedRepo=false", "add", "nested x y")
    await remove(client, "made", force=True)
    assert list((await restore_trash(client, "made")).warnings) == []
    assert {git(place, "status", "--porcelain") for place in places} == {"?? draft"}


async def test_with_changes_takes_those_of_submodules_and_nested_repositories(client: Client, tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    make(sample.path / "own")
    git(sample.path, "worktree", "add", "-q", "-b", "mine", "side")
    (sample.path / "side" / "draft").write_text("of another branch\n")
    (sample.path / "lib" / "made").write_text("1\n")
    git(sample.path / "lib", "add", "made")
    git(sample.path / "lib", "commit", "-qm", "made")
    (sample.path / "lib" / "deep" / "README.md").write_text("changed\n")
    before = git(sample.path, "status", "--porcelain", "--ignore-submodules=none")

    made = await client.sessions.CreateSession(
        session_pb2.CreateSessionRequest(path=str(sample.path), with_changes=True), metadata=client.metadata
    )

    tree = Path(made.session.worktree)
    assert git(tree / "lib", "rev-parse", "HEAD") == git(sample.path / "lib", "rev-parse", "HEAD")
    assert ((tree / "lib/made").read_text(), (tree / "lib/deep/README.md").read_text()) == ("1\n", "changed\n")
    assert (tree / "own" / "draft").read_text() == "draft one\n"
    assert [words.partition(":")[0] for words in made.warnings] == ["own was a separate repository"]
    assert not (tree / "side" / "draft").exists()
    assert git(sample.path, "status", "--porcelain", "--ignore-submodules=none") == before
