"""Archive and restore: everything of a session is restored, or a warning names the difference."""

import shutil
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, orchestration_pb2, session_pb2, worktree_pb2
from rametd.git import Git

from tests.support.agents import script
from tests.support.archiving import ARCHIVED, archive, refusal, remove, restore, restore_trash, state_of, turns, work_on
from tests.support.daemon import FAILED, IDLE, PAUSED, Client, DaemonProcess, connected, git
from tests.support.eventually import eventually


async def test_an_archived_session_is_restored_exactly(client: Client, repository: Path) -> None:
    made = await client.create(repository, script({"text": "done"}), name="rest")
    await client.reach("rest", IDLE)
    tree = Path(made.worktree)
    before = work_on(tree)
    tip = git(tree, "rev-parse", "HEAD")

    answer = await archive(client, "rest")

    assert answer.session.state == ARCHIVED
    assert not answer.session.agent_alive
    assert answer.ref == f"refs/ramet/archive/{made.id}"
    assert answer.freed_bytes > 0
    assert not tree.exists()
    assert git(repository, "rev-parse", made.branch) == tip
    assert made.branch not in git(repository, "worktree", "list")
    listed = await client.sessions.ListSessions(session_pb2.ListSessionsRequest())
    assert not listed.sessions

    back = await restore(client, "rest")

    assert not back.warnings
    assert back.session.state == IDLE
    assert state_of(tree) == before
    assert (tree.parent / "by-name" / "rest").resolve() == tree
    assert not git(repository, "for-each-ref", "refs/ramet/archive")
    await client.send("rest", script({"text": "again"}))
    again = await eventually(lambda: turns(client, "rest", 2))
    assert again.conversation_id == made.conversation_id
    kinds = [event.WhichOneof("payload") for event in await client.log("rest")]
    assert kinds.index("session_archived") < kinds.index("session_restored")


async def test_a_diff_of_an_archived_session_equals_its_restored_files(client: Client, repository: Path) -> None:
    tree = Path((await client.create(repository, name="put-away")).worktree)
    await client.create(repository, name="beside")
    await eventually(lambda: client.checkpoints("put-away"))
    (tree / "kept.txt").write_text("at the checkpoint\n")
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="put-away"))
    (tree / "kept.txt").write_text("after it\n")
    (tree / "newer.txt").write_text("after it\n")

    async def diff(name: str, against: str = "") -> worktree_pb2.GetDiffResponse:
        return await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session=name, against=against))

    before, other = (await diff("put-away")).patch, (await diff("beside", "put-away")).patch
    assert before.count(b"+after it") == 2
    await archive(client, "put-away")
    assert (await diff("put-away")).patch == before
    assert (await diff("beside", "put-away")).patch == other
    request = orchestration_pb2.GetMemberDiffRequest(session="put-away")
    assert (await client.orchestration.GetMemberDiff(request)).patch == before.decode()
    await restore(client, "put-away")
    assert (await diff("put-away")).patch == before

    archived = await archive(client, "put-away")
    git(repository, "update-ref", "-d", archived.ref)
    reason, words = await refusal(diff("put-away"))
    assert (reason, words) == ("REF_NOT_FOUND", f"{archived.ref} with the work of put-away is gone")


async def test_a_detached_head_is_restored_detached(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="away")
    tree = Path(made.worktree)
    git(tree, "checkout", "-q", "--detach")
    (tree / "found.txt").write_text("on no branch\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "on no branch")
    (tree / "more.txt").write_text("uncommitted\n")
    before = state_of(tree)

    await archive(client, "away")
    back = await restore(client, "away")

    assert not back.warnings
    assert state_of(tree) == before


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_branch_deleted_before_or_after_the_archiving_is_created_again(
    client: Client, repository: Path, when: str
) -> None:
    made = await client.create(repository, name="gone")
    tree = Path(made.worktree)
    before = work_on(tree)
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="gone"))
    if when == "before":
        git(repository, "update-ref", "-d", f"refs/heads/{made.branch}")
    await archive(client, "gone")
    if when == "after":
        git(repository, "branch", "-D", made.branch)

    back = await restore(client, "gone")

    assert [warning.split(";")[0] for warning in back.warnings] == [f"branch {made.branch} was deleted"]
    assert state_of(tree) == before


async def test_restore_leaves_a_moved_or_taken_branch_alone_and_makes_another(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    made = await client.create(repository, name="moved")
    tree = Path(made.worktree)
    work_on(tree)
    tip = git(tree, "rev-parse", "HEAD")
    await archive(client, "moved")
    git(repository, "worktree", "add", "-q", str(tmp_path / "mine"), made.branch)

    back = await restore(client, "moved")
    assert "is checked out at" in back.warnings[0]
    assert back.session.branch == f"{made.branch}-restored"
    assert git(tree, "rev-parse", "HEAD") == tip
    assert (tree / "committed.txt").read_text() == "changed\n"

    await archive(client, "moved")
    git(repository, "branch", "-f", back.session.branch, "main")
    again = await restore(client, "moved")
    assert "has moved on" in again.warnings[0]
    assert again.session.branch == f"{made.branch}-restored-restored"
    assert git(repository, "rev-parse", back.session.branch) == git(repository, "rev-parse", "main")
    assert (tree / "committed.txt").read_text() == "changed\n"


async def test_a_restore_takes_a_branch_that_only_moved_forward_at_its_tip(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="on")
    await archive(client, "on")
    tip = git(repository, "commit-tree", "-p", made.branch, "-m", "by hand", f"{made.branch}^{{tree}}")
    git(repository, "update-ref", f"refs/heads/{made.branch}", tip)

    back = await restore(client, "on")

    assert "the worktree has its current files" in back.warnings[0]
    assert git(Path(made.worktree), "rev-parse", "HEAD") == tip


async def test_a_taken_path_is_refused_and_the_archive_stays_intact(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="path")
    tree = Path(made.worktree)
    before = work_on(tree)
    await archive(client, "path")
    tree.mkdir(parents=True)
    (tree / "mine.txt").write_text("somebody's\n")

    assert (await refusal(restore(client, "path")))[0] == "PATH_TAKEN"

    assert (tree / "mine.txt").read_text() == "somebody's\n"
    assert (await client.get("path")).state == ARCHIVED
    (tree / "mine.txt").unlink()
    await restore(client, "path")
    assert state_of(tree) == before


@pytest.mark.full
async def test_a_working_session_is_archived_only_by_force_and_stays_paused(client: Client, repository: Path) -> None:
    await client.create(repository, script({"hang": True}), name="busy")
    await client.reach("busy", session_pb2.SESSION_STATE_WORKING)
    assert (await refusal(archive(client, "busy")))[0] == "WRONG_STATE"

    answer = await archive(client, "busy", force=True)
    assert answer.session.state == ARCHIVED
    assert (await refusal(archive(client, "busy")))[0] == "WRONG_STATE"
    assert (await refusal(client.send("busy", "more")))[0] == "WRONG_STATE"

    back = await restore(client, "busy")
    assert back.session.state == PAUSED
    assert "rametctl resume busy" in back.session.state_reason


async def test_a_failed_session_is_restored_as_failed_with_its_reason(client: Client, repository: Path) -> None:
    await client.create(repository, script({"fail": "broken"}), name="broke")
    await client.reach("broke", FAILED)
    await archive(client, "broke")
    back = (await restore(client, "broke")).session
    assert (back.state, back.state_reason) == (FAILED, "broken")

    await archive(client, "broke")
    await remove(client, "broke", force=True)
    again = (await restore_trash(client, "broke")).session
    assert (again.state, again.state_reason) == (FAILED, "broken")
    requests = await client.attention.ListRequests(attention_pb2.ListRequestsRequest())
    assert [each.reason for each in requests.requests] == ["failed: broken"]

    await client.send("broke", script({"text": "mended"}))
    await client.reach("broke", IDLE)


@pytest.mark.parametrize("way", ["in place", "adopted"])
async def test_a_foreign_checkout_stays_unchanged_in_every_state_of_its_session(
    client: Client, repository: Path, tmp_path: Path, way: str
) -> None:
    tree = repository
    if way == "adopted":
        tree = tmp_path / "mine"
        git(repository, "worktree", "add", "-q", "-b", "mine", str(tree))
        await client.create(repository, adopt_path=str(tree), name="guest")
    else:
        await client.create(repository, in_place=True, name="guest")
    await eventually(lambda: client.checkpoints("guest"))
    before = work_on(tree)

    answer = await archive(client, "guest")
    assert not answer.ref
    assert "stays as it is" in answer.session.state_reason
    assert state_of(tree) == before
    assert not (await restore(client, "guest")).warnings
    assert state_of(tree) == before

    gone = await remove(client, "guest")
    assert gone.HasField("expire_time")
    assert state_of(tree) == before
    assert (await restore_trash(client, "guest")).session.state == IDLE
    assert state_of(tree) == before
    assert not git(repository, "for-each-ref", "refs/ramet/trash", "refs/ramet/archive")


@pytest.mark.parametrize("way", ["archive", "trash"])
async def test_deleted_tree_and_branch_are_restored_from_the_newest_checkpoint(
    client: Client, repository: Path, way: str
) -> None:
    made = await client.create(repository, name="lost")
    tree = Path(made.worktree)
    work_on(tree)
    committed = git(tree, "rev-parse", "HEAD")
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="lost"))
    shutil.rmtree(tree)
    git(repository, "update-ref", "-d", f"refs/heads/{made.branch}")

    if way == "archive":
        await archive(client, "lost")
        await restore(client, "lost")
    else:
        await remove(client, "lost", force=True)
        await restore_trash(client, "lost")

    assert git(tree, "rev-parse", made.branch, "HEAD").split() == [committed, committed]
    assert git(tree, "status", "--porcelain", "--untracked-files=all").splitlines() == [
        "M committed.txt",
        "A  staged.txt",  # git's entry of the worktree still had it
        "?? link",
        "?? run.sh",
        '?? "sub dir/untrack\\303\\251d"',
    ]
    assert len(
        (await client.worktrees.ListCheckpoints(worktree_pb2.ListCheckpointsRequest(session="lost"))).checkpoints
    )


async def test_both_answers_are_given_again_after_a_kill(daemon: DaemonProcess, repository: Path) -> None:
    async with connected(daemon.sandbox) as client:
        await client.create(repository, name="kill")
        first = await archive(client, "kill", request_id="a")
        request = session_pb2.RestoreSessionRequest(session="kill", request_id="r")
        second = await client.sessions.RestoreSession(request)
    daemon.restart()
    async with connected(daemon.sandbox) as client:
        again = await archive(client, "kill", request_id="a")
        assert (str(again), again) == (str(first), first)
        assert await client.sessions.RestoreSession(request) == second


async def test_an_archived_session_is_archived_in_a_rebuilt_database_too(
    daemon: DaemonProcess, repository: Path
) -> None:
    async with connected(daemon.sandbox) as client:
        made = await client.create(repository, script({"text": "done"}), name="rest")
        await client.reach("rest", IDLE)
        (Path(made.worktree) / "draft.txt").write_text("mine")
        await archive(client, "rest")
    assert daemon.stop() == 0
    (daemon.sandbox.directories.home / "ramet.db").write_bytes(b"no database")
    daemon.start()
    async with connected(daemon.sandbox) as client:
        found = await client.get("rest")
        assert (found.state, found.turns, found.agent_alive) == (ARCHIVED, 1, False)
        assert not (await restore(client, "rest")).warnings
        assert (Path(made.worktree) / "draft.txt").read_text() == "mine"
        await client.send("rest", script({"text": "again"}))
        await eventually(lambda: turns(client, "rest", 2))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let daemons that start afterwards wait only briefly for a lock file."""
    defaults = Git.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(Git.__init__, "__kwdefaults__", {**defaults, "lock_timeout": 0.3})


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["archive", "remove"])
async def test_an_archive_that_git_refuses_leaves_the_session_working_as_before(
    client: Client, repository: Path, way: str
) -> None:
    made = await client.create(repository, name="held")
    lock = repository / ".git" / "refs" / "ramet" / ("archive" if way == "archive" else "trash") / f"{made.id}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()

    reason, _ = await refusal(archive(client, "held") if way == "archive" else remove(client, "held"))

    assert reason in {"GIT_BUSY", "GIT_FAILED"}
    lock.unlink()
    assert Path(made.worktree).exists()
    await client.send("held", script({"text": "on"}))
    await eventually(lambda: turns(client, "held", 1))
    assert not git(repository, "for-each-ref", "refs/ramet/trash", "refs/ramet/archive")


async def test_files_that_git_cannot_read_are_archived_unchanged(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="unread")
    tree = Path(made.worktree)
    git(repository, "config", "filter.broken.clean", "false")
    git(repository, "config", "filter.broken.required", "true")
    (repository / ".git" / "info" / "attributes").write_text("secret filter=broken\n")
    (tree / "secret").write_text("only here\n")

    await archive(client, "unread")
    assert not tree.exists()
    assert list((await restore(client, "unread")).warnings) == []

    assert (tree / "secret").read_text() == "only here\n"
    assert not git(repository, "for-each-ref", "refs/ramet/archive")
