"""Rewinds with a real daemon and scripted agents."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from ramet.v1 import attention_pb2, event_pb2, session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.checkpoints import (
    EDITS,
    REWIND,
    START,
    TURN,
    at_work,
    count,
    rewind,
    transcript,
    turn,
    worked,
    write,
)
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, git, hint_of, reason_of
from tests.support.doctor import commands_in, run
from tests.support.eventually import eventually

__all__ = ["worked"]


async def open_requests(client: Client, name: str) -> list[attention_pb2.AttentionRequest]:
    asked = attention_pb2.ListRequestsRequest(session=name)
    return list((await client.attention.ListRequests(asked, metadata=client.metadata)).requests)


async def test_a_rewind_brings_files_and_conversation_back_and_is_undone_by_another(
    client: Client, worked: session_pb2.Session, daemon: DaemonProcess
) -> None:
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    (tree / "by-hand").write_text("mine\n")
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "debug.log").write_text("ignored\n")

    answer = await rewind(client, "made", "2")

    assert not (tree / "two.txt").exists()
    assert not (tree / "by-hand").exists()
    assert (tree / "one.txt").read_text() == "1\n"
    assert (tree / "dir0/file0.txt").read_text() == "line one of 0\nline two\n"
    assert (tree / "debug.log").read_text() == "ignored\n"
    assert (answer.before.reason, answer.before.number, answer.checkpoint.number) == (REWIND, 4, 2)
    assert {file.path for file in answer.files} == {"two.txt", "by-hand", ".gitignore", "dir0/file0.txt"}
    assert answer.session.conversation_id != worked.conversation_id
    assert [event for event in await client.log("made") if event.HasField("session_rewound")]
    assert not await open_requests(client, "made"), "the turn to review no longer exists"

    # The next turn continues after the messages until then, and none later.
    after = await turn(client, "made", write("three.txt", "3\n"))
    assert after.conversation_id == answer.session.conversation_id
    said = transcript(daemon, after.conversation_id)
    assert "one.txt" in said
    assert "two.txt" not in said

    await rewind(client, "made", str(answer.before.number))
    assert (tree / "two.txt").read_text() == "2\n"
    assert (tree / "by-hand").read_text() == "mine\n"
    again = await turn(client, "made", write("four.txt", "4\n"))
    assert "two.txt" in transcript(daemon, again.conversation_id)
    assert "three.txt" not in transcript(daemon, again.conversation_id)


async def test_files_alone_are_rewound_on_request(client: Client, worked: session_pb2.Session) -> None:
    await count(client, "made", 3)

    answer = await rewind(client, "made", "1", files_only=True)

    assert not (Path(worked.worktree) / "one.txt").exists()
    assert answer.session.conversation_id == worked.conversation_id
    assert await open_requests(client, "made"), "the turn to review is still part of the conversation"


async def test_the_start_has_no_conversation_to_continue(
    client: Client, worked: session_pb2.Session, daemon: DaemonProcess
) -> None:
    await count(client, "made", 3)

    await rewind(client, "made", "1")

    after = await turn(client, "made", write("anew.txt", "3\n"))
    assert "one.txt" not in transcript(daemon, after.conversation_id)


async def test_commits_made_since_are_taken_back_and_stay_reachable(
    client: Client, worked: session_pb2.Session
) -> None:
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "all of it")
    made = git(tree, "rev-parse", "HEAD")

    answer = await rewind(client, "made", "2")

    assert git(tree, "rev-parse", "HEAD") == worked.base_commit
    assert git(tree, "rev-parse", "--abbrev-ref", "HEAD") == worked.branch
    assert git(tree, "status", "--porcelain") == "?? one.txt"
    assert answer.before.head == made
    assert git(tree, "rev-parse", f"refs/ramet/commits/{worked.id}/head") == made


async def test_an_ignored_file_in_the_way_is_saved_first(client: Client, worked: session_pb2.Session) -> None:
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    (tree / ".gitignore").write_text("two.txt\n")
    (tree / "two.txt").unlink()
    await client.worktrees.CreateCheckpoint(
        worktree_pb2.CreateCheckpointRequest(session="made"), metadata=client.metadata
    )
    (tree / "two.txt").write_text("secret\n")

    answer = await rewind(client, "made", "3")

    assert (tree / "two.txt").read_text() == "2\n"
    assert git(tree, "show", f"{answer.before.commit}:two.txt") == "secret"


@pytest.mark.parametrize("place", ["thing", "thing/deep", "sub"])
@pytest.mark.parametrize("how", ["repository", "ignored repository", "worktree"])
async def test_a_rewind_puts_no_file_in_the_place_of_a_repository_inside(
    client: Client, repository: Path, place: str, how: str
) -> None:
    tree = Path((await client.create(repository, name="made")).worktree)
    (tree / "thing").write_text("a file\n")
    (tree / "sub").mkdir()
    (tree / "sub" / "below").write_text("another\n")
    made = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="made"))
    (tree / "thing").unlink()
    shutil.rmtree(tree / "sub")
    inner = tree / place
    if how == "worktree":
        git(tree, "worktree", "add", "-q", "--detach", place)
    else:
        git(tree, "init", "-q", place)
        git(inner, "commit", "-q", "--allow-empty", "-m", "only here")
    if how == "ignored repository":
        (tree / ".gitignore").write_text(f"/{place}\n")
    (inner / "draft").write_text("only here\n")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rewind(client, "made", str(made.checkpoint.number))

    assert (reason_of(caught.value), place in str(caught.value.details())) == ("WORKTREE_CHANGED", True)
    assert ((inner / ".git").exists(), (inner / "draft").read_text()) == (True, "only here\n")
    assert not (inner / "below").exists()


async def test_a_rewind_moves_no_branch_but_the_sessions_own(client: Client, repository: Path) -> None:
    session = await client.create(repository, name="made")
    tree = Path(session.worktree)
    made = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="made"))
    git(tree, "checkout", "-q", "-b", "mine")
    (tree / "by-hand").write_text("mine\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "mine")
    tip = git(repository, "rev-parse", "mine")

    answer = await rewind(client, "made", str(made.checkpoint.number))

    assert git(repository, "rev-parse", "mine") == git(tree, "rev-parse", "HEAD") == tip
    assert list(answer.warnings) == ["mine is checked out there, and stays where it is"]
    assert not (tree / "by-hand").exists()


@pytest.mark.parametrize("begun", ["merge", "cherry-pick", "revert", "rebase", "bisect"])
async def test_what_is_under_way_in_a_tree_is_not_rewound_under_it(
    client: Client, repository: Path, begun: str
) -> None:
    session = await client.create(repository, name="made")
    tree = Path(session.worktree)
    made = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="made"))
    git(tree, "checkout", "-q", "--detach")
    (tree / "dir0" / "file0.txt").write_text("theirs\n")
    git(tree, "commit", "-qam", "theirs")
    theirs = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "-q", session.branch)
    for text in ("mine\n", "mine too\n"):
        (tree / "dir0" / "file0.txt").write_text(text)
        git(tree, "commit", "-qam", "mine")
    words = {"revert": ("revert", "HEAD~1"), "bisect": ("bisect", "start")}.get(begun, (begun, theirs))
    with suppress(subprocess.CalledProcessError):  # it conflicts
        git(tree, *words)
    before = git(tree, "status", "--porcelain=v2", "--branch"), (tree / "dir0" / "file0.txt").read_bytes()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await rewind(client, "made", str(made.checkpoint.number))

    assert reason_of(refused.value) == "WORKTREE_CHANGED"
    assert f"is in the middle of a {begun}" in (refused.value.details() or "")
    assert before == (git(tree, "status", "--porcelain=v2", "--branch"), (tree / "dir0" / "file0.txt").read_bytes())
    assert (await client.get("made")).state == IDLE


async def test_a_detached_head_is_rewound_and_restored_with_its_commit(client: Client, repository: Path) -> None:
    session = await client.create(repository, name="made")
    tree = Path(session.worktree)
    made = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="made"))
    git(tree, "checkout", "-q", "--detach")
    (tree / "mine").write_text("mine\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "mine")
    tip = git(tree, "rev-parse", "HEAD")

    answer = await rewind(client, "made", str(made.checkpoint.number))

    assert [words.partition(", and")[0] for words in answer.warnings] == ["HEAD is on no branch"]
    assert f"{session.branch} stays where it is" in answer.warnings[0]
    assert git(tree, "rev-parse", "HEAD") != tip
    await rewind(client, "made", str(answer.before.number))
    assert (git(tree, "rev-parse", "HEAD"), git(tree, "status", "--porcelain")) == (tip, "")


async def test_a_list_marks_the_current_checkpoint_and_those_before_a_rewind(
    client: Client, worked: session_pb2.Session
) -> None:
    async def places() -> dict[int, str]:
        found = await client.checkpoints("made")
        return {each.number: "here" if each.current else "left" if each.abandoned else "" for each in found}

    await count(client, "made", 3)
    assert await places() == {3: "here", 2: "", 1: ""}
    (Path(worked.worktree) / "by-hand").write_text("1\n")
    await rewind(client, "made", "2")
    assert await places() == {4: "left", 3: "left", 2: "here", 1: ""}
    await turn(client, "made", write("three.txt", "3\n"))
    await count(client, "made", 5)
    assert await places() == {5: "here", 4: "left", 3: "left", 2: "", 1: ""}
    await rewind(client, "made", "4")
    assert await places() == {5: "left", 4: "here", 3: "", 2: "", 1: ""}


async def test_a_rewind_keeps_what_was_only_staged(
    client: Client, worked: session_pb2.Session, repository: Path
) -> None:
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    (tree / "one.txt").write_text("only staged\n")
    git(tree, "add", "one.txt")
    (tree / "one.txt").write_text("1\n")

    before = (await rewind(client, "made", "2")).before

    assert before.number == 4  # the files equal the previous checkpoint's; the staged ones do not
    assert git(repository, "show", f"{before.ref}:index/one.txt") == "only staged"
    assert git(repository, "show", f"{before.commit}:one.txt") == "1"


async def test_checkpoints_are_known_again_after_their_rows_went_with_a_damaged_database(
    daemon: DaemonProcess, client: Client, worked: session_pb2.Session
) -> None:
    checkpoints = await count(client, "made", 3)
    daemon.kill()
    for part in ("ramet.db", "ramet.db-wal", "ramet.db-shm"):
        (daemon.sandbox.root / "state" / part).write_bytes(b"no database at all " * 400)

    daemon.start()

    def facts(each: worktree_pb2.Checkpoint) -> worktree_pb2.Checkpoint:
        copy = worktree_pb2.Checkpoint()
        copy.CopyFrom(each)
        copy.ClearField("id")
        copy.ClearField("create_time")  # of the row; the ref has the commit's time, a moment earlier
        return copy

    found = await count(client, "made", 3)
    assert [facts(each) for each in found] == [facts(each) for each in checkpoints]
    assert all(0 <= b.create_time.seconds - a.create_time.seconds <= 5 for a, b in zip(found, checkpoints, strict=True))

    async def read_again() -> bool:
        return (await client.get("made")).turns == worked.turns

    await eventually(read_again)
    await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="made"))
    assert len(await client.checkpoints("made")) == 3, "turns that the journal repeats have a checkpoint already"
    await rewind(client, "made", "2")
    assert (Path(worked.worktree) / "one.txt").exists()
    assert not (Path(worked.worktree) / "two.txt").exists()
    assert (await client.checkpoints("made"))[0].number >= 3


async def test_a_rewind_waits_for_no_turn_and_names_what_is_not_there(
    client: Client, worked: session_pb2.Session
) -> None:
    await count(client, "made", 3)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rewind(client, "made", "77")
    assert reason_of(caught.value) == "CHECKPOINT_NOT_FOUND"

    await client.send("made", script({"sleep": 30}, {"text": "late"}))
    await eventually(lambda: at_work(client))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rewind(client, "made", "1")
    assert reason_of(caught.value) == "WRONG_STATE"


@pytest.mark.own_changes("dir0/file0.txt")
async def test_the_refusal_to_overwrite_a_checkout_names_commands_that_work(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, in_place=True, name="my own")
    file = repository / "dir0" / "file0.txt"
    before = file.read_text()
    (first,) = await eventually(lambda: client.checkpoints("my own"))
    file.write_text("changed\n")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rewind(client, "my own", str(first.number))

    assert reason_of(caught.value) == "WRONG_STATE"
    diff, restore = commands_in(hint_of(caught.value))
    assert "changed" in await run(sandbox, repository, diff)
    await run(sandbox, repository, restore.replace("PATH", "dir0/file0.txt"))
    assert file.read_text() == before


def test_an_event_describes_a_rewind() -> None:
    from rametctl.render.event import summary_spans

    event = event_pb2.Event(
        session_rewound=event_pb2.SessionRewound(
            checkpoint=worktree_pb2.Checkpoint(number=2), before=worktree_pb2.Checkpoint(number=4), conversation=True
        )
    )
    assert (
        summary_spans(event)[0][0] == "back at checkpoint 2, its conversation too; checkpoint 4 holds what was before"
    )


async def test_what_only_the_conversation_lost_by_a_rewind_is_gone_back_to_by_another(
    client: Client, worked: session_pb2.Session, daemon: DaemonProcess, sandbox: Sandbox
) -> None:
    await turn(client, "made", {"text": "only said"})
    await count(client, "made", 4)  # the files of 4 are those of 3

    shown = sandbox.ctl("rewind", "made", "3").stdout
    assert "is back at checkpoint 3, 0 files changed; its conversation ends with turn 2" in shown
    assert "to undo this: rametctl rewind made 4" in shown
    shown = sandbox.ctl("rewind", "made", "4").stdout
    assert "its conversation ends with turn 3" in shown
    assert "to undo this: rametctl rewind made 5" in shown
    again = await turn(client, "made", {"text": "and more"})
    assert "only said" in transcript(daemon, again.conversation_id)
    await count(client, "made", 6)

    await rewind(client, "made", "5")
    after = await turn(client, "made", {"text": "another way"})
    assert "only said" not in transcript(daemon, after.conversation_id)
    assert "two.txt" in transcript(daemon, after.conversation_id)


async def test_a_rewind_to_the_current_state_changes_nothing(
    daemon: DaemonProcess, client: Client, worked: session_pb2.Session, sandbox: Sandbox
) -> None:
    await count(client, "made", 3)
    ran = sandbox.ctl("rewind", "made", "3")
    assert (ran.code, ran.stdout) == (0, "made was at checkpoint 3 already: nothing was changed\n")
    assert len(await client.checkpoints("made")) == 3


@pytest.mark.own_changes
async def test_a_sync_is_undone_to_the_last_staged_line(
    daemon: DaemonProcess, client: Client, worked: session_pb2.Session, sandbox: Sandbox, repository: Path
) -> None:
    """Also if all changes are staged, so that index and files are equal."""
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    git(tree, "add", "one.txt")
    (tree / "one.txt").write_text("not staged\n")
    (tree / "dir0/file0.txt").write_text("changed again\n")
    git(tree, "add", "-A", "dir0")
    before = (git(tree, "status", "--porcelain"), git(tree, "diff", "--cached"), git(tree, "rev-parse", "HEAD"))
    (repository / "of-the-base.txt").write_text("new\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "the base goes on")

    synced = sandbox.ctl("sync", "made").stdout
    assert (tree / "of-the-base.txt").exists()
    undo = synced.splitlines()[-1].removeprefix("to undo this: rametctl ")
    assert sandbox.ctl(*undo.split()).code == 0

    assert (git(tree, "status", "--porcelain"), git(tree, "diff", "--cached"), git(tree, "rev-parse", "HEAD")) == before
    assert (tree / "one.txt").read_text() == "not staged\n"
    listed = sandbox.ctl("checkpoints", "made").stdout
    assert "before sync" in listed
    assert "before rewind" in listed
    assert "manual" not in listed
    git(tree, "add", "-A")
    everything = git(tree, "status", "--porcelain")
    answer = await rewind(client, "made", "1")
    await rewind(client, "made", str(answer.before.number))
    assert git(tree, "status", "--porcelain") == everything


async def test_a_session_without_a_prompt_has_a_checkpoint_of_its_start(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="made", mode=EDITS)
    (start,) = await count(client, "made", 1)
    assert (start.number, start.reason, start.files, start.head) == (1, START, 0, made.base_commit)
    (Path(made.worktree) / "by-hand").write_text("mine\n")

    await turn(client, "made", write("one.txt", "1\n"))

    assert [each.reason for each in await count(client, "made", 2)] == [TURN, START]
    await rewind(client, "made", "1")
    assert git(Path(made.worktree), "status", "--porcelain") == ""
