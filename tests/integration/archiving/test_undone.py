"""Removals and archives that fail, whose caller hangs up, or that meet an unexpected state."""

import shutil
import subprocess
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.domain.models import Session
from rametd.domain.operations import Operation
from rametd.services.archiving import archive as archiving
from rametd.services.archiving import remove as removing
from rametd.services.archiving import steps
from rametd.services.core import Core

from tests.support.archiving import archive, remove, restore
from tests.support.daemon import Client, git, reason_of
from tests.support.eventually import eventually
from tests.support.landing import CHECKING, LANDED, Landings, with_work

pytestmark = pytest.mark.full


async def shelve_and_restore(client: Client, name: str, way: str) -> tuple[list[str], list[str]]:
    """Archive or remove a session and restore it; return the warnings of both answers."""
    if way == "archive":
        gone = await archive(client, name)
        back = await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))
        return list(gone.warnings), list(back.warnings)
    removed = await remove(client, name, force=True)
    restored = await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry=name))
    return list(removed.warnings), list(restored.warnings)


async def checkpoint(client: Client, name: str) -> None:
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=name))


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_tree_deleted_by_hand_is_restored_from_its_newest_checkpoint(
    client: Client, repository: Path, way: str
) -> None:
    made = await client.create(repository, name="lost")
    tree = Path(made.worktree)
    # A snapshot left over from an earlier archive is older than the checkpoint.
    git(repository, "update-ref", f"refs/ramet/{'archive' if way == 'archive' else 'trash'}/{made.id}", made.branch)
    (tree / "new.txt").write_text("new\n")
    await checkpoint(client, "lost")
    shutil.rmtree(tree)

    gone, back = await shelve_and_restore(client, "lost", way)

    assert gone == [
        f"{tree} was gone already; if it was moved by hand, bring the session back and move its files, which stay where they are, into its place"
    ]
    assert back == []
    assert git(tree, "status", "--porcelain") == "?? new.txt"
    assert (tree / "new.txt").read_text() == "new\n"


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_commits_after_the_newest_checkpoint_are_reported_and_can_be_returned_to(
    client: Client, repository: Path, way: str
) -> None:
    made = await client.create(repository, name="went-on")
    await eventually(lambda: client.checkpoints("went-on"))
    tree = Path(made.worktree)
    (tree / "uncommitted.txt").write_text("uncommitted\n")
    await checkpoint(client, "went-on")
    (tree / "uncommitted.txt").unlink()
    (tree / "committed.txt").write_text("committed\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "went on")
    shutil.rmtree(tree)

    _, back = await shelve_and_restore(client, "went-on", way)

    assert len(back) == 1
    assert "`rametctl rewind went-on 2`" in back[0]
    assert git(tree, "status", "--porcelain") == ""
    assert (tree / "committed.txt").exists()
    await client.worktrees.RewindSession(worktree_pb2.RewindSessionRequest(session="went-on", checkpoint="2"))
    assert (tree / "uncommitted.txt").read_text() == "uncommitted\n"


async def test_a_worktree_moved_by_hand_stays_and_every_answer_says_so(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    made = await client.create(repository, name="moved")
    place = tmp_path / "elsewhere"
    git(repository, "worktree", "move", "-f", "-f", made.worktree, str(place))
    (place / "mine.txt").write_text("mine\n")

    first = await remove(client, "moved", force=True, request_id="moved")

    assert any(words.startswith(f"it was moved to {place}, and stays there") for words in first.warnings)
    assert not any("gone already" in words for words in first.warnings)
    assert "locked" not in git(repository, "worktree", "list", "--porcelain"), "it belongs to the person now"
    assert (place / "mine.txt").read_text() == "mine\n"
    assert await remove(client, "moved", force=True, request_id="moved") == first


async def test_the_removal_of_a_locked_worktree_is_a_warning(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="locked")
    git(repository, "worktree", "unlock", made.worktree)
    git(repository, "worktree", "lock", "--reason", "on a stick", made.worktree)

    removed = await remove(client, "locked")

    assert list(removed.warnings) == ["it was locked by hand (on a stick), and was moved anyway"]
    assert not Path(made.worktree).exists()


async def test_a_failed_removal_leaves_the_session_in_its_queue(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    landings = Landings(client)
    made = await with_work(client, repository, "stays", base_ref="main")
    gate = tmp_path / "gate"
    await landings.land("stays", check=[f"while [ ! -e {gate} ]; do sleep 0.05; done"])
    await landings.reach("stays", CHECKING)
    git(repository, "update-ref", f"refs/ramet/trash/{made.id}/in-the-way", "main")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await remove(client, "stays", force=True)

    assert reason_of(caught.value) == "GIT_FAILED"
    gate.touch()
    assert (await landings.wait("stays"))["stays"].state == LANDED
    assert Path(made.worktree).exists()


async def test_a_failure_of_any_kind_is_said_on_the_session_and_can_be_tried_again(
    client: Client, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await client.create(repository, name="fails")

    def refuse(worktree: Path) -> None:
        raise PermissionError(13, "Permission denied", str(worktree))

    with monkeypatch.context() as patch:
        patch.setattr(archiving, "unlink_by_name", refuse)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await archive(client, "fails")
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    reason = (await client.get("fails")).state_reason
    assert "Permission denied" in reason
    assert "retry with `rametctl archive fails`" in reason

    assert (await archive(client, "fails")).session.state == session_pb2.SESSION_STATE_ARCHIVED
    assert (await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=made.id))).session.id


async def test_a_stale_ref_lock_of_a_killed_daemon_prevents_no_checkpoint(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="locked")
    await checkpoint(client, "locked")
    (Path(made.worktree) / "new.txt").write_text("new\n")
    (repository / ".git" / "refs" / "ramet" / "checkpoints" / made.id / "2.lock").touch()

    await checkpoint(client, "locked")

    assert git(repository, "show", f"refs/ramet/checkpoints/{made.id}/2:files/new.txt") == "new"


async def test_files_that_a_restore_shelved_survive_a_later_restore(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="twice")
    inner = Path(made.worktree) / "sub"
    git(inner.parent, "init", "-q", "sub")
    for text in ("first\n", "second\n"):
        (inner / "file").write_text(text)
        git(inner, "add", "-A")
        git(inner, "commit", "-q", "-m", text)
    tip = git(inner, "rev-parse", "HEAD")

    await archive(client, "twice")
    shutil.rmtree(inner.parent.with_name(f".{made.id}.shelved"))
    (warning,) = (await restore(client, "twice")).warnings
    _, later = await shelve_and_restore(client, "twice", "archive")

    assert "its commits are in" in warning
    assert later == []
    assert tip in git(repository, "rev-list", "--all").split()


async def test_a_commit_during_the_removal_of_its_branch_saves_the_branch(
    client: Client, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await client.create(repository, name="late")
    tree, goes = Path(made.worktree), steps.note_removal

    async def commit(core: Core, operation: Operation, session: Session) -> None:
        git(tree, "commit", "-q", "--allow-empty", "-m", "late")
        await goes(core, operation, session)

    monkeypatch.setattr(removing, "note_removal", commit)

    (warning,) = (await remove(client, "late")).warnings

    assert warning.startswith(f"branch {made.branch}: it has moved on to ")
    assert git(repository, "log", "-1", "--format=%s", made.branch) == "late"


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_session_does_not_go_while_another_one_works_inside_its_worktree(
    client: Client, repository: Path, way: str
) -> None:
    made = await client.create(repository, name="outer")
    inner = Path(made.worktree) / "fix"
    git(inner.parent, "worktree", "add", "-q", "-b", "fix", "fix")
    await client.create(repository, name="inner", adopt_path=str(inner))

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelve_and_restore(client, "outer", way)

    assert reason_of(caught.value) == "WRONG_STATE"
    assert "inner works in" in str(caught.value.details())
    assert inner.is_dir()
    await remove(client, "inner", force=True)
    await shelve_and_restore(client, "outer", way)


@pytest.mark.parametrize("way", ["archive", "rm"])
async def test_a_rebase_under_way_is_restored_with_its_autostash(client: Client, repository: Path, way: str) -> None:
    made = await client.create(repository, name="rebasing")
    tree = Path(made.worktree)
    (tree / "both.txt").write_text("mine\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "mine")
    (repository / "both.txt").write_text("theirs\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "theirs")
    (tree / "dir1" / "file1.txt").write_text("a day's work\n")
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "rebase", "--autostash", "main")
    assert (tree / "dir1" / "file1.txt").read_text() != "a day's work\n"

    _, back = await shelve_and_restore(client, "rebasing", way)

    assert back == []
    git(repository, "-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")
    git(tree, "rebase", "--abort")
    assert (tree / "dir1" / "file1.txt").read_text() == "a day's work\n"
