"""Two Ramets with one repository, such as two people's: neither treats the other's refs and
worktrees as garbage, at any age."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import worktree_pb2

from tests.support.archiving import archive, remove, restore, restore_trash
from tests.support.daemon import Client, Sandbox, connected, daemon_here, git, make_sandbox
from tests.support.doctor import codes, diagnose, garbage
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

SHORT = '[retention]\ntrash = "1s"\n'


@pytest.fixture
def elsewhere() -> Iterator[Sandbox]:
    """Yield a sandbox with another home."""
    with make_sandbox() as made:
        yield made


async def leave(client: Client, repository: Path) -> dict[str, Path]:
    """Create a session of each kind with things in the repository: working, archived, removed,
    deleted on disk, with a detached HEAD."""
    trees = {}
    for name in ("works", "filed", "binned", "unplugged", "detached"):
        trees[name] = Path((await client.create(repository, name=name)).worktree)
        (trees[name] / "only.txt").write_text(f"of {name}\n")
        await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))
    await archive(client, "filed")
    await remove(client, "binned", force=True)
    trees["unplugged"].rename(trees["unplugged"].with_name("away"))
    git(trees["detached"], "checkout", "-q", "--detach")
    return trees


def everything(repository: Path) -> str:
    return git(repository, "for-each-ref", "--format=%(refname) %(objectname)") + git(repository, "worktree", "list")


async def test_another_ramets_refs_are_reported_in_one_line_and_never_touched(
    sandbox: Sandbox, elsewhere: Sandbox, repository: Path
) -> None:
    async with daemon_here(elsewhere), connected(elsewhere) as theirs:
        trees = await leave(theirs, repository)
        sandbox.configure(SHORT)
        async with daemon_here(sandbox), connected(sandbox) as ours:
            await ours.create(repository, name="mine")
            await eventually(lambda: ours.checkpoints("mine"))
            before = everything(repository)

            found = await diagnose(ours, fix=True)
            gone = await garbage(ours, dry_run=False)

            assert everything(repository) == before
            assert {name: item.verdict for name, item in gone.items()} == {"mine": "kept"}
            assert codes(found) == {
                "refs/ramet": ("ref-foreign", "info"),
                str(trees["unplugged"]): ("registration-foreign", "info"),
                str(trees["works"]): ("worktree-unknown", "info"),
                str(trees["detached"]): ("worktree-unknown", "info"),
            }
            assert "of unknown sessions" in found["refs/ramet"].message
            assert not any(each.fixable for each in found.values())
            await remove(ours, "mine")

        trees["unplugged"].with_name("away").rename(trees["unplugged"])
        await restore(theirs, "filed")
        await restore_trash(theirs, "binned")
        for name, tree in trees.items():
            assert (tree / "only.txt").read_text() == f"of {name}\n"
        assert codes(await diagnose(theirs)) == {
            "detached": ("branch-not-checked-out", "warning"),
            "refs/ramet": ("ref-foreign", "info"),  # contents of the first one's trash
        }


async def test_a_branch_that_may_be_another_ramets_is_never_advised_to_be_deleted(
    sandbox: Sandbox, elsewhere: Sandbox, repository: Path
) -> None:
    async with daemon_here(elsewhere), connected(elsewhere) as theirs:
        made = await theirs.create(repository, name="s3")
        git(Path(made.worktree), "commit", "-q", "--allow-empty", "-m", "only here")
        git(Path(made.worktree), "checkout", "-q", "--detach")
        (repository / ".git" / "logs" / "refs" / "heads" / made.branch).unlink()
        async with daemon_here(sandbox), connected(sandbox) as ours:
            await ours.create(repository, name="mine")
            found = await diagnose(ours, fix=True)
            assert codes(found) == {
                "refs/ramet": ("ref-foreign", "info"),
                made.worktree: ("worktree-unknown", "info"),
            }
            assert f"{made.branch}: judged only by the name" in found["refs/ramet"].message
            assert not any(f"-D {made.branch}" in each.advice for each in found.values())
            assert made.branch not in {
                item.name for item in (await garbage(ours)).values() if item.verdict == "orphaned"
            }


async def test_a_stale_worktree_entry_is_removed_unless_it_alone_has_something(
    client: Client, repository: Path
) -> None:
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    nothing, holds = folder / "aaaaaaa2", folder / "aaaaaaa3"
    reason = "in use by ramet (rametctl rm removes it)"
    for path in (nothing, holds):
        git(repository, "worktree", "add", "-q", "--detach", "--lock", "--reason", reason, str(path))
    git(holds, "commit", "-q", "--allow-empty", "-m", "only here")
    tip = git(holds, "rev-parse", "HEAD")
    for path in (nothing, holds):
        shutil.rmtree(path)

    found = await diagnose(client, fix=True)

    assert {Path(subject).name: (each.code, each.fixed) for subject, each in found.items()} == {
        "aaaaaaa2": ("registration-stale", True),
        "aaaaaaa3": ("registration-stale", False),
    }
    assert f"branch NAME {tip}" in found[str(holds)].advice
    assert "1 commit on no other branch" in found[str(holds)].message
    assert git(repository, "worktree", "list").count("aaaaaaa") == 1


async def test_an_orphaned_worktree_that_gc_moved_to_the_trash_is_recognised_later(
    client: Client, repository: Path
) -> None:
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    tree = folder / "aaaaaaa2"
    reason = "in use by ramet (rametctl rm removes it)"
    git(repository, "worktree", "add", "-q", "--detach", "--lock", "--reason", reason, str(tree))

    assert (await garbage(client, dry_run=False))[str(tree)].removed

    assert (folder / ".aaaaaaa2.shelved").is_dir()
    found = codes(await diagnose(client))
    assert found["refs/ramet/trash/aaaaaaa2"] == ("ref-unknown", "info")
    assert set(found.values()) == {("ref-unknown", "info")}
    assert (await garbage(client))["refs/ramet/trash/aaaaaaa2"].reason.startswith("its session is gone")
