"""Warnings of archive and remove: an ended turn, ended commands, deleted ignored files, a missing
worktree."""

import shlex
import shutil
import uuid
from pathlib import Path

import pytest
from ramet.v1 import session_pb2, terminal_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.archiving import archive, refusal, remove, restore, restore_trash
from tests.support.daemon import WORKING, Client, Sandbox, git
from tests.support.doctor import diagnose, follow

pytestmark = pytest.mark.full


async def start(client: Client, session: str, *argv: str) -> None:
    await client.terminals.StartCommand(
        terminal_pb2.StartCommandRequest(session=session, argv=argv, request_id=str(uuid.uuid4()))
    )


async def test_a_command_and_a_turn_that_a_removal_ends_are_named(client: Client, repository: Path) -> None:
    await client.create(repository, script({"hang": True}), name="busy")
    await client.reach("busy", WORKING)
    await start(client, "busy", "sh", "-c", "exec sleep 600")
    quiet = await client.create(repository, name="quiet")
    await start(client, "quiet", "sleep", "600")

    assert list((await remove(client, "busy", force=True)).warnings) == [
        "ended its agent in the middle of a turn",
        "ended `sh -c 'exec sleep 600'`, which ran in its worktree",
    ]
    assert list((await archive(client, "quiet")).warnings) == ["ended `sleep 600`, which ran in its worktree"]
    assert list((await remove(client, quiet.id)).warnings) == []


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_ignored_files_that_go_are_counted_but_for_those_that_the_main_worktree_has(
    client: Client, repository: Path, way: str
) -> None:
    (repository / ".gitignore").write_text("build/\n.env\n*.log\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "ignored")
    (repository / ".env").write_text("carried\n")
    tree = Path((await client.create(repository, name="built")).worktree)
    shutil.copy2(repository / ".env", tree / ".env")
    gone = archive if way == "archive" else remove
    back = restore if way == "archive" else restore_trash
    assert list((await gone(client, "built")).warnings) == []
    await back(client, "built")

    (tree / "build" / "deep").mkdir(parents=True)
    (tree / "build" / "one").write_bytes(b"x" * 2048)
    (tree / "build" / "deep" / "two").write_bytes(b"x" * 1024)
    (tree / "build" / "link").symlink_to("one")
    (tree / "new.log").touch()

    assert list((await gone(client, "built")).warnings) == [
        "deleted 3 ignored files (3.0 KiB), which cannot be restored"
    ]


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_deleted_snapshot_ref_is_named_with_the_command_that_restores_it(
    client: Client, sandbox: Sandbox, repository: Path, way: str
) -> None:
    tree = Path((await client.create(repository, name="one")).worktree)
    (tree / "only.txt").write_text("here\n")
    ref = (
        (await archive(client, "one")).ref if way == "archive" else (await remove(client, "one", force=True)).trash_ref
    )
    commit = git(repository, "rev-parse", ref)
    git(repository, "update-ref", "-d", ref)
    back = restore if way == "archive" else restore_trash

    _, words = await refusal(back(client, "one"))
    assert f"{ref} with the work of one is gone; its snapshot, {commit[:12]}, is still there" in words
    command = shlex.join(("git", "-C", str(repository), "update-ref", ref, commit))
    await follow(
        sandbox, repository, f"create the ref again, then retry: {command}", "create the ref again, then retry"
    )

    await back(client, "one")
    assert (tree / "only.txt").read_text() == "here\n"


async def test_a_session_whose_tree_is_gone_is_listed_as_such_until_it_is_back(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="one")).worktree)
    (tree / "only.txt").write_text("here\n")
    await client.create(repository, name="filed")
    await archive(client, "filed")

    async def gone() -> dict[str, bool]:
        listed = await client.sessions.ListSessions(session_pb2.ListSessionsRequest(include_archived=True))
        found = {each.name: each.worktree_gone for each in listed.sessions}
        assert found == {name: (await client.get(name)).worktree_gone for name in found}
        return found

    assert await gone() == {"one": False, "filed": False}
    tree.rename(tree.with_name("away"))
    assert await gone() == {"one": True, "filed": False}
    tree.with_name("away").rename(tree)
    assert await gone() == {"one": False, "filed": False}


async def test_the_advice_restores_a_worktree_without_files_and_git_file(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    tree = Path((await client.create(repository, name="emptied")).worktree)
    (tree / "only.txt").write_text("at the checkpoint\n")
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="emptied"))
    for path in tree.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    found = (await diagnose(client))["emptied"]

    assert found.code == "worktree-broken"
    await follow(sandbox, repository, found.advice, "repair all worktrees of the repository")
    await follow(sandbox, repository, found.advice, "then, if files are missing")
    assert (tree / "only.txt").read_text() == "at the checkpoint\n"
    assert git(tree, "status", "--porcelain") == "?? only.txt"
