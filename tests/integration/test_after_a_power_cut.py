"""Repositories after a power loss: names without content, in the newest checkpoint and below
`refs/ramet/`."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from ramet.v1 import worktree_pb2
from rametd.git import Git
from rametd.platform.processes import boot_id

from tests.support import repositories
from tests.support.archiving import archive, remove, restore, restore_trash
from tests.support.daemon import Client, Sandbox, connected, daemon_here, git, reason_of
from tests.support.eventually import eventually
from tests.support.landing import commit

pytestmark = pytest.mark.full

TURN = worktree_pb2.CHECKPOINT_REASON_TURN
PARTS = {"its top": "", "its files": ":files", "a file": ":files/work.txt"}


def cut(repository: Path, revision: str, left: int = 0) -> str:
    """Truncate a loose object to so many bytes. Return its name."""
    name = git(repository, "rev-parse", revision)
    place = repository / ".git" / "objects" / name[:2] / name[2:]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:left])
    return name


async def checkpoint(client: Client) -> worktree_pb2.Checkpoint:
    return (await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="one"))).checkpoint


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[tuple[Git, repositories.Sample]]:
    environment = repositories.git_environment(tmp_path / "home")
    git = Git(environment, threads=1)
    yield git, repositories.plain(tmp_path / "repo", environment)
    await git.aclose()


@pytest.mark.parametrize("left", [0, 5, 20])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_what_is_cut_short_is_lost(plain: tuple[Git, repositories.Sample], part: str, left: int) -> None:
    git, sample = plain
    sample.write("work.txt", "an hour of work\n")
    taken = await git.snapshots.take(sample.path, ref="refs/ramet/checkpoints/any/1")
    repo = await git.discover(sample.path)
    assert not await git.snapshots.lost(repo, taken.id)

    name = cut(sample.path, f"{taken.id}{part}", left)

    assert name in " ".join(await git.snapshots.lost(repo, taken.id))


@pytest.mark.parametrize("content", [None, b"", bytes(100)], ids=["missing", "empty", "zeros"])
async def test_a_snapshot_needs_no_index(plain: tuple[Git, repositories.Sample], content: bytes | None) -> None:
    git, sample = plain
    sample.write(".env", "tracked and ignored\n")
    sample.git("add", "--force", ".env")
    sample.commit()
    sample.write("work.txt", "an hour of work\n")
    index = sample.path / ".git" / "index"
    index.unlink()
    if content is not None:
        index.write_bytes(content)

    taken = await git.snapshots.take(sample.path)

    files = sample.git("ls-tree", "-r", "--name-only", taken.files).split()
    assert files == [".env", ".gitignore", "README.md", "src/app.py", "work.txt"]


async def test_a_replaced_index_of_a_sparse_worktree_has_no_deletions(plain: tuple[Git, repositories.Sample]) -> None:
    git, sample = plain
    sample.write("docs/guide.md")
    sample.commit()
    sample.git("sparse-checkout", "set", "src")
    assert not (sample.path / "docs").exists()
    (sample.path / ".git" / "index").write_bytes(b"")

    assert await git.snapshots.mend_index(sample.path)

    assert sample.git("status", "--porcelain") == ""
    assert not (sample.path / "docs").exists()


@pytest.mark.parametrize("left", [0, 5])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_a_start_after_a_power_cut_replaces_a_damaged_checkpoint_and_says_so(
    sandbox: Sandbox, repository: Path, part: str, left: int
) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        session = await client.create(repository, name="one")
        tree = Path(session.worktree)
        (tree / "work.txt").write_text("an hour of work\n")
        first = await checkpoint(client)  # its number is 2 if the start's checkpoint was created before the file
    boot = sandbox.root / "state" / "boot"
    assert boot.read_text() == boot_id()
    lost = cut(repository, f"{first.ref}{part}", left)
    boot.write_text("another")
    (repository / ".git" / f"{first.ref.rpartition('/')[0]}/{first.number + 1}").write_text("")
    Path(git(tree, "rev-parse", "--absolute-git-dir"), "index").write_bytes(b"")

    async with daemon_here(sandbox), connected(sandbox) as client:

        async def has_second() -> worktree_pb2.Checkpoint:
            listed = await client.worktrees.ListCheckpoints(worktree_pb2.ListCheckpointsRequest(session="one"))
            newest = listed.checkpoints[0]
            assert (newest.number, newest.reason) == (first.number + 1, TURN)
            return newest

        second = await eventually(has_second)
        assert git(repository, "show", f"{second.ref}:files/work.txt") == "an hour of work"
        warnings = [event.warning.message for event in await client.log("one") if event.HasField("warning")]
        assert [
            words for words in warnings if f"checkpoint {first.number} did not survive" in words and lost[:12] in words
        ], warnings
        assert [words for words in warnings if words.startswith("what was staged: ")]
        assert git(tree, "status", "--porcelain") == "?? work.txt"
        assert (await checkpoint(client)).number == second.number
        if not part:  # the other lost objects have been written again
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.worktrees.RewindSession(
                    worktree_pb2.RewindSessionRequest(session="one", checkpoint=str(first.number), files_only=True)
                )
            assert reason_of(refused.value) == "REF_NOT_FOUND"
            assert f"checkpoint {first.number} is damaged" in (refused.value.details() or "")
        assert (tree / "work.txt").read_text() == "an hour of work\n"
        await remove(client, "one", force=True)
        await restore_trash(client, "one")
        assert (tree / "work.txt").read_text() == "an hour of work\n"

        async def noted() -> bool:
            return boot.read_text() == boot_id()

        await eventually(noted)


@pytest.mark.parametrize("name", ["work.txt", '"quoted', "two\nlines"])
@pytest.mark.parametrize("how", ["removed", "archived"])
async def test_a_truncated_object_is_written_again_before_its_worktree_is_removed(
    client: Client, repository: Path, how: str, name: str
) -> None:
    session = await client.create(repository, name="one")
    commit(session, **{name: "an hour of work\n"})
    tree = Path(session.worktree)
    blob = cut(repository, f"{session.branch}:{name}")

    if how == "removed":
        await remove(client, "one", force=True)
        warnings = (await restore_trash(client, "one")).warnings
    else:
        await archive(client, "one")
        warnings = (await restore(client, "one")).warnings

    assert not warnings
    assert (tree / name).read_text() == "an hour of work\n"
    assert git(repository, "cat-file", "blob", blob) == "an hour of work"


@pytest.mark.parametrize("how", ["removed", "archived"])
async def test_a_file_that_git_takes_for_unchanged_and_cannot_read_is_not_thinned_away(
    client: Client, repository: Path, how: str
) -> None:
    session = await client.create(repository, name="one")
    git(repository, "config", "core.trustctime", "false")
    tree = Path(session.worktree)
    for content in (
        "an hour of work\n",
        "an hour of talk\n",
    ):  # of the same size and time, so git treats it as unchanged
        (tree / "work.txt").write_text(content)
        os.utime(tree / "work.txt", (1e9, 1e9))
        if content.endswith("work\n"):
            git(tree, "add", "work.txt")
            git(tree, "commit", "-qm", "work")
    cut(repository, f"{session.branch}:work.txt")

    if how == "removed":
        await remove(client, "one", force=True)
        await restore_trash(client, "one")
    else:
        await archive(client, "one")
        await restore(client, "one")

    assert (tree / "work.txt").read_text() == "an hour of talk\n"
