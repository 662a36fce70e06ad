"""Archive and restore, removal and trash: whatever a session had comes back, or it is said what did not."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import attention_pb2, session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, PAUSED, Client, DaemonProcess, Sandbox, connected, daemon_here, git, reason_of
from tests.support.eventually import eventually

ARCHIVED = session_pb2.SESSION_STATE_ARCHIVED


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


async def archive(client: Client, name: str, **fields: Any) -> session_pb2.ArchiveSessionResponse:
    return await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name, **fields))


async def restore(client: Client, name: str) -> session_pb2.RestoreSessionResponse:
    return await client.sessions.RestoreSession(session_pb2.RestoreSessionRequest(session=name))


async def remove(client: Client, name: str, *, force: bool = False) -> session_pb2.DeleteSessionResponse:
    return await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=name, force=force))


async def bring_back(client: Client, name: str) -> worktree_pb2.RestoreTrashResponse:
    return await client.worktrees.RestoreTrash(worktree_pb2.RestoreTrashRequest(entry=name))


async def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason_of(caught.value), str(caught.value.details())


def work_on(tree: Path) -> str:
    """Something of every kind; what git says of it, and what the files hold."""
    (tree / "committed.txt").write_text("committed\n")
    git(tree, "add", "committed.txt")
    git(tree, "commit", "-q", "-m", "committed")
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "staged.txt")
    (tree / "committed.txt").write_text("changed\n")
    (tree / "sub dir").mkdir()
    (tree / "sub dir" / "untrackéd").write_bytes(b"\0bytes")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("nowhere")
    return state_of(tree)


def state_of(tree: Path) -> str:
    files = {
        str(path.relative_to(tree)): (
            str(path.readlink()) if path.is_symlink() else f"{path.stat().st_mode:o} {path.read_bytes()!r}"
        )
        for path in sorted(tree.rglob("*"))
        if (path.is_file() or path.is_symlink()) and path.name != ".git"
    }
    status = git(tree, "status", "--porcelain=v2", "--branch", "--untracked-files=all")
    return f"{status}\n{files}"


async def test_an_archived_session_keeps_everything_but_its_tree_and_comes_back_as_it_was(
    client: Client, repository: Path
) -> None:
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


async def turns(client: Client, name: str, count: int) -> session_pb2.Session:
    session = await client.get(name)
    assert session.turns >= count
    assert session.state == IDLE
    return session


async def test_a_detached_head_comes_back_detached(client: Client, repository: Path) -> None:
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


async def test_a_branch_that_was_deleted_is_made_again(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="gone")
    tree = Path(made.worktree)
    before = work_on(tree)
    await archive(client, "gone")
    git(repository, "branch", "-D", made.branch)

    back = await restore(client, "gone")

    assert [warning.split(":")[0] for warning in back.warnings] == [f"branch {made.branch} was deleted"]
    assert state_of(tree) == before


async def test_a_branch_that_moved_or_is_taken_is_left_alone_and_the_work_comes_back_beside_it(
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


async def test_a_branch_that_went_on_from_where_all_was_committed_is_taken_up_where_it_is(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, name="on")
    await archive(client, "on")
    tip = git(repository, "commit-tree", "-p", made.branch, "-m", "by hand", f"{made.branch}^{{tree}}")
    git(repository, "update-ref", f"refs/heads/{made.branch}", tip)

    back = await restore(client, "on")

    assert "its files are those of now" in back.warnings[0]
    assert git(Path(made.worktree), "rev-parse", "HEAD") == tip


async def test_a_path_that_is_taken_is_said_and_the_archive_stays_whole(client: Client, repository: Path) -> None:
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


async def test_what_is_at_work_is_archived_by_force_alone_and_does_not_go_on_by_itself(
    client: Client, repository: Path
) -> None:
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


@pytest.mark.parametrize("way", ["in place", "adopted"])
async def test_a_checkout_that_is_not_ours_stays_as_it_is_whatever_becomes_of_its_session(
    client: Client, repository: Path, tmp_path: Path, way: str
) -> None:
    tree = repository
    if way == "adopted":
        tree = tmp_path / "mine"
        git(repository, "worktree", "add", "-q", "-b", "mine", str(tree))
        await client.create(repository, adopt_path=str(tree), name="guest")
    else:
        await client.create(repository, in_place=True, name="guest")
    before = work_on(tree)

    answer = await archive(client, "guest")
    assert not answer.ref
    assert "as it was" in answer.session.state_reason
    assert state_of(tree) == before
    assert not (await restore(client, "guest")).warnings
    assert state_of(tree) == before

    gone = await remove(client, "guest")
    assert gone.HasField("expire_time")
    assert state_of(tree) == before
    assert (await bring_back(client, "guest")).session.state == IDLE
    assert state_of(tree) == before
    assert not git(repository, "for-each-ref", "refs/ramet/trash", "refs/ramet/archive")


async def test_an_archived_session_that_is_removed_comes_back_from_the_trash_with_what_the_archive_held(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, name="twice")
    tree = Path(made.worktree)
    before = work_on(tree)
    await archive(client, "twice")

    reason, words = await refusal(remove(client, "twice"))
    assert reason == "WORK_AT_RISK"
    assert "uncommitted" in words
    await remove(client, "twice", force=True)
    assert git(repository, "for-each-ref", "--format=%(refname)", "refs/ramet") == f"refs/ramet/trash/{made.id}"

    back = await bring_back(client, "twice")
    assert not back.warnings
    assert state_of(tree) == before


async def test_what_somebody_committed_on_the_branch_of_an_archived_session_goes_to_the_trash_too(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, name="goes-on")
    was = work_on(Path(made.worktree))
    await archive(client, "goes-on")
    ours = f"refs/heads/{made.branch}"
    tip = git(repository, "commit-tree", "-p", ours, "-m", "by hand", f"{ours}^{{tree}}")
    git(repository, "update-ref", ours, tip)

    removed = await remove(client, "goes-on", force=True)

    assert not git(repository, "branch", "--list", made.branch)
    git(repository, "merge-base", "--is-ancestor", tip, removed.trash_ref)
    back = await bring_back(client, "goes-on")
    # What was in its worktree comes back as it was; where others went on is told, and kept.
    assert git(repository, "rev-parse", ours) == git(repository, "rev-parse", f"{tip}^")
    assert state_of(Path(made.worktree)) == was
    assert any(tip[:12] in warning for warning in back.warnings)
    assert git(repository, "rev-parse", "--verify", removed.trash_ref)


async def test_a_removed_session_comes_back_by_one_command_as_it_was(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(
        repository, script({"text": "done"}), name="back", environment={"ANTHROPIC_API_KEY": "the key"}
    )
    was = await client.reach("back", IDLE)
    rule = attention_pb2.CreateRuleRequest(
        repo=str(repository), session="back", effect=attention_pb2.RULE_EFFECT_ALLOW, rule="Bash(ls:*)"
    )
    await client.attention.CreateRule(rule)
    tree = Path(made.worktree)
    before = work_on(tree)
    secret = sandbox.root / "state" / "secrets"

    gone = await remove(client, "back", force=True)
    assert gone.trash_ref == f"refs/ramet/trash/{made.id}"
    assert not tree.exists()
    assert not git(repository, "branch", "--list", made.branch)
    (entry,) = (await client.worktrees.ListTrash(worktree_pb2.ListTrashRequest())).entries
    assert (entry.id, entry.name, entry.branch, entry.repo) == (made.id, "back", made.branch, made.repo)

    answer = await bring_back(client, "back")

    assert not answer.warnings
    session = await client.get("back")
    assert (session.id, session.branch, session.conversation_id) == (made.id, made.branch, made.conversation_id)
    assert (session.turns, session.cost_usd) == (was.turns, was.cost_usd)
    assert state_of(tree) == before
    rules = await client.attention.ListRules(attention_pb2.ListRulesRequest(repo=str(repository)))
    assert [each.rule for each in rules.rules] == ["Bash(ls:*)"]
    assert not (await client.worktrees.ListTrash(worktree_pb2.ListTrashRequest())).entries
    assert list(secret.rglob(f"{made.id}.env"))
    await client.send("back", script({"text": "again"}))
    await eventually(lambda: turns(client, "back", 2))
    texts = [event.prompt_queued.prompt.text for event in await client.log("back") if event.HasField("prompt_queued")]
    assert len(texts) == 2


async def test_what_is_taken_by_now_is_told_and_nothing_of_others_is_touched(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="name")
    work_on(Path(made.worktree))
    await remove(client, "name", force=True)
    other = await client.create(repository, name="name", branch=made.branch)

    answer = await bring_back(client, made.id)

    assert answer.session.name == "name-2"
    assert answer.session.branch == f"{made.branch}-restored"
    assert len(answer.warnings) == 3  # branch, name, ports
    assert git(Path(other.worktree), "status", "--porcelain") == ""
    assert git(repository, "for-each-ref", "refs/ramet/trash")  # what did not come back as it was is kept twice


async def test_a_session_in_the_trash_is_named_by_prefix_or_name_and_one_that_fits_several_by_its_id(
    client: Client, repository: Path
) -> None:
    first = await client.create(repository, name="same")
    await remove(client, "same")
    second = await client.create(repository, name="same")
    await remove(client, "same")
    reason, words = await refusal(bring_back(client, "same"))
    assert reason == "AMBIGUOUS"
    assert first.id in words
    assert second.id in words
    assert (await refusal(bring_back(client, "nothing")))[0] == "TRASH_ENTRY_NOT_FOUND"
    assert (await bring_back(client, second.id[:7])).session.id == second.id


@pytest.mark.parametrize("way", ["archive", "trash"])
async def test_where_tree_and_branch_were_deleted_by_hand_the_newest_checkpoint_comes_back(
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
        await bring_back(client, "lost")

    assert git(tree, "rev-parse", made.branch, "HEAD").split() == [committed, committed]
    assert git(tree, "status", "--porcelain", "--untracked-files=all").splitlines() == [
        "M committed.txt",
        "?? link",
        "?? run.sh",
        "?? staged.txt",
        '?? "sub dir/untrack\\303\\251d"',
    ]
    assert len(
        (await client.worktrees.ListCheckpoints(worktree_pb2.ListCheckpointsRequest(session="lost"))).checkpoints
    )


async def test_an_emptied_trash_keeps_nothing_and_its_repository_can_be_forgotten_then(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    from ramet.v1 import repo_pb2

    made = await client.create(repository, name="waste", environment={"ANTHROPIC_API_KEY": "the key"})
    work_on(Path(made.worktree))
    git(repository, "update-ref", f"refs/ramet/checkpoints/{made.id}/1", "main")
    await remove(client, "waste", force=True)
    forget = repo_pb2.RemoveRepoRequest(repo=str(repository))
    reason, words = await refusal(client.repos.RemoveRepo(forget))
    assert reason == "WRONG_STATE"
    assert "trash" in words

    answer = await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(entries=["waste"]))

    assert [entry.id for entry in answer.entries] == [made.id]
    assert not git(repository, "for-each-ref", "refs/ramet")
    assert not list((sandbox.root / "state").rglob(f"{made.id}.env"))
    await client.repos.RemoveRepo(forget)


async def test_work_that_was_squashed_into_the_base_is_no_longer_at_risk(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="landed")
    tree = Path(made.worktree)
    (tree / "new.txt").write_text("one\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    assert (await refusal(remove(client, "landed")))[0] == "WORK_AT_RISK"
    git(repository, "merge", "-q", "--squash", made.branch)
    git(repository, "commit", "-q", "-m", "squashed")

    async def told() -> bool:
        return (await client.get("landed")).landed_reason == "its content is on main"

    await eventually(told)
    (tree / "dirty.txt").write_text("not covered\n")
    assert (await refusal(remove(client, "landed")))[0] == "WORK_AT_RISK"
    (tree / "dirty.txt").unlink()
    await remove(client, "landed")


async def test_a_predecessor_that_is_removed_unfinished_holds_its_successors_until_the_person_lets_them_go(
    client: Client, repository: Path
) -> None:
    first = await client.create(repository, script({"hang": True}), name="first")
    await client.reach("first", session_pb2.SESSION_STATE_WORKING)
    await client.create(repository, script({"text": "second"}), name="second", after=["first"])
    await remove(client, "first", force=True)

    async def held() -> session_pb2.Session:
        session = await client.get("second")
        assert "was removed before it was done" in session.state_reason
        assert "rametctl trash restore first" in session.state_reason
        assert session.state == session_pb2.SESSION_STATE_QUEUED
        return session

    await eventually(held)
    await bring_back(client, first.id)

    async def waits() -> bool:
        return (await client.get("second")).state_reason == "waits for first"

    await eventually(waits)
    await remove(client, "first", force=True)
    await eventually(held)
    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="second"))
    await client.reach("second", IDLE)


async def test_a_predecessor_that_was_done_holds_nobody_when_it_is_gone(client: Client, repository: Path) -> None:
    await client.create(repository, script({"text": "first"}), name="first")
    await client.reach("first", IDLE)
    await eventually(lambda: turns(client, "first", 1))
    await client.create(repository, script({"text": "second"}), name="second", after=["first"], priority=-1)
    await remove(client, "first")
    await client.reach("second", IDLE)
    await eventually(lambda: turns(client, "second", 1))


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


@pytest.mark.parametrize("way", ["archive", "remove"])
async def test_a_departure_that_git_holds_up_is_refused_and_the_session_works_on_as_before(
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


async def test_review_comments_come_back_from_the_trash(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="reviewed")
    (Path(made.worktree) / "a.txt").write_text("line\n")
    added = await client.worktrees.AddComment(
        worktree_pb2.AddCommentRequest(session="reviewed", path="a.txt", line=0, text="why?")
    )
    await remove(client, "reviewed", force=True)
    await bring_back(client, "reviewed")
    listed = await client.worktrees.ListComments(worktree_pb2.ListCommentsRequest(session="reviewed"))
    assert [each.id for each in listed.comments] == [added.comment.id]


async def test_files_that_git_cannot_read_are_not_archived_away(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    made = await client.create(repository, name="unread")
    tree = Path(made.worktree)
    git(repository, "config", "filter.broken.clean", "false")
    git(repository, "config", "filter.broken.required", "true")
    (repository / ".git" / "info" / "attributes").write_text("secret filter=broken\n")
    (tree / "secret").write_text("only here\n")

    reason, words = await refusal(archive(client, "unread"))

    assert reason in {"WORK_AT_RISK", "GIT_FAILED"}
    assert "secret" in words
    assert (tree / "secret").read_text() == "only here\n"
    assert not git(repository, "for-each-ref", "refs/ramet/archive")
