"""Checkpoints with a real daemon and scripted agents."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.git.snapshots import capture

from tests.crash.test_failpoints import die_in, start_to_die
from tests.support.agents import script
from tests.support.checkpoints import (
    EDITS,
    START,
    TURN,
    at_work,
    count,
    has_turns,
    turn,
    with_reason,
    worked,
    write,
)
from tests.support.daemon import WAITING, Client, DaemonProcess, Sandbox, connected, daemon_here, git, reason_of
from tests.support.eventually import eventually
from tests.support.family import approve

__all__ = ["worked"]


async def test_the_start_and_every_turn_have_a_checkpoint(
    client: Client, worked: session_pb2.Session, repository: Path
) -> None:
    second, first, start = await count(client, "made", 3)

    assert [each.reason for each in (start, first, second)] == [START, TURN, TURN]
    assert [each.number for each in (start, first, second)] == [1, 2, 3]
    assert [each.turn for each in (start, first, second)] == [0, 1, 2]
    assert (first.files, first.additions, second.files, second.additions, second.deletions) == (1, 1, 2, 2, 2)
    assert first.summary.startswith("please DO")
    assert git(repository, "rev-parse", f"refs/ramet/checkpoints/{worked.id}/3:files") == second.commit
    meta = json.loads(git(repository, "show", f"{second.ref}:meta.json"))
    assert meta["head"] == second.head == worked.base_commit
    assert meta["facts"] | {"reason": "turn", "turn": 2} == meta["facts"]
    assert git(repository, "show", f"{second.commit}:two.txt") == "2"
    # The person's index, HEAD and stash are unchanged.
    assert git(Path(worked.worktree), "status", "--porcelain") == "M dir0/file0.txt\n?? one.txt\n?? two.txt"
    assert git(repository, "stash", "list") == ""
    events = [event for event in await client.log("made") if event.HasField("checkpoint_made")]
    assert second.current
    second.ClearField("current")
    assert [event.checkpoint_made.checkpoint for event in events] == [start, first, second]


async def test_one_asked_for_twice_without_a_change_is_one(client: Client, worked: session_pb2.Session) -> None:
    await count(client, "made", 3)
    (Path(worked.worktree) / "by-hand").write_text("1\n")
    request = worktree_pb2.CreateCheckpointRequest(session="made")

    made = (await client.worktrees.CreateCheckpoint(request, metadata=client.metadata)).checkpoint
    again = (await client.worktrees.CreateCheckpoint(request, metadata=client.metadata)).checkpoint

    assert (made.number, made.reason) == (4, worktree_pb2.CHECKPOINT_REASON_MANUAL)
    assert again == made
    assert len(await client.checkpoints("made")) == 4


async def test_a_failed_checkpoint_blocks_no_turn(client: Client, worked: session_pb2.Session) -> None:
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    pointer = (tree / ".git").read_text()

    async def warned() -> bool:
        return any("no checkpoint" in event.warning.message for event in await client.log("made"))

    # The worktree breaks during a turn, as no turn begins in a broken one.
    await client.send("made", script({"tool": "Bash", "input": {"command": "true"}}, {"text": "without git"}))
    await client.reach("made", WAITING)
    (tree / ".git").write_text("gitdir: /nowhere\n")
    await approve(client, "made")
    await eventually(warned)
    (tree / ".git").write_text(pointer)

    await client.send("made", script({"text": "again"}))
    await eventually(lambda: has_turns(client, 4))


async def test_an_internal_error_in_a_checkpoint_blocks_no_turn(
    sandbox: Sandbox, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody thought of this")

    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.create(repository, script({"text": "first"}), name="made", mode=EDITS)
        await count(client, "made", 2)
        monkeypatch.setattr(capture, "write", fail)
        await turn(client, "made")
        await turn(client, "made")

        async def warned() -> bool:
            words = [event.warning.message for event in await client.log("made")]
            return words.count("no checkpoint was created: nobody thought of this") == 2

        await eventually(warned)
        monkeypatch.undo()
        await turn(client, "made", write("later.txt", "1\n"))
        await count(client, "made", 3)


async def test_names_that_are_no_text_are_recorded_without_delay(
    client: Client, worked: session_pb2.Session, repository: Path
) -> None:
    await count(client, "made", 3)
    unpack: dict[str, object] = {"spawn": "mkdir -p new/deep && printf x > new/deep/$(printf 'caf\\351')"}
    await turn(client, "made", unpack, write("work.py", "1\n"))
    await turn(client, "made", write("work.py", "2\n"))

    last = (await count(client, "made", 5))[0]
    assert git(repository, "show", f"{last.commit}:work.py") == "2"
    assert "new/deep/caf\\351" in git(repository, "ls-tree", "-r", "--name-only", last.commit)


async def test_the_next_turn_waits_for_the_last_ones_checkpoint_after_a_kill_too(
    daemon: DaemonProcess, repository: Path
) -> None:
    daemon.kill()
    daemon.start(RAMET_FAILPOINT="checkpoint.turn-kept")
    async with connected(daemon.sandbox) as client:
        await client.create(repository, script(write("one.txt", "1\n"), {"text": "first"}), name="made", mode=EDITS)
    assert daemon.process is not None
    await asyncio.to_thread(daemon.process.wait, 30)
    daemon.start()
    async with connected(daemon.sandbox) as client:
        await client.send("made", script(write("one.txt", "overwritten\n"), {"text": "second"}))
        await eventually(lambda: has_turns(client, 2))
        first = (await with_reason(client, TURN))[0]
        assert (first.turn, git(repository, "show", f"{first.commit}:one.txt")) == (1, "1")


async def test_a_prompt_during_a_turn_starts_only_after_that_turns_checkpoint(
    client: Client, worked: session_pb2.Session, repository: Path
) -> None:
    await count(client, "made", 3)
    await client.send("made", script({"sleep": 0.5}, write("one.txt", "3\n"), {"text": "third"}))
    await eventually(lambda: at_work(client))

    for number in (4, 5):  # they reach the agent at once, and it continues by itself
        await client.send("made", script(write("one.txt", f"{number}\n"), {"text": str(number)}))
    await eventually(lambda: has_turns(client, 5))

    await count(client, "made", 6)
    files = {each.turn: git(repository, "show", f"{each.commit}:one.txt") for each in await with_reason(client, TURN)}
    assert files == {1: "1", 2: "1", 3: "3", 4: "4", 5: "5"}


async def test_a_diff_compares_with_the_named_state(
    client: Client, worked: session_pb2.Session, repository: Path
) -> None:
    await count(client, "made", 3)
    await client.create(repository, "", name="other")
    tree = Path(worked.worktree)

    async def paths(**fields: object) -> list[str]:
        request = worktree_pb2.GetDiffRequest(session="made", **fields)  # type: ignore[arg-type]
        found = await client.worktrees.GetDiff(request, metadata=client.metadata)
        return [file.path for file in found.files]

    everything = ["dir0/file0.txt", "one.txt", "two.txt"]
    assert await paths() == await paths(against="base") == await paths(against="target") == everything
    assert await paths(against="2") == ["dir0/file0.txt", "two.txt"]
    assert await paths(against="other") == await paths(against="main") == everything
    assert await paths(paths=["dir0", "one.txt"]) == ["dir0/file0.txt", "one.txt"]
    (tree / "one.txt").write_text("1  \n")
    assert await paths(against="3") == ["one.txt"]
    assert await paths(against="3", whitespace=worktree_pb2.WHITESPACE_IGNORE_AT_EOL) == []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await paths(paths=["../outside"])
    assert reason_of(caught.value) == "INVALID_INPUT"


async def test_every_kind_of_change_and_what_is_not_shown_has_a_name(
    client: Client, worked: session_pb2.Session
) -> None:
    await count(client, "made", 3)
    tree = Path(worked.worktree)
    (tree / "dir1/file1.txt").unlink()
    (tree / "dir1/file1.txt").symlink_to("elsewhere")
    (tree / "dir2/file2.txt").rename(tree / "moved.txt")
    (tree / "picture").write_bytes(b"\0\1" * 100)
    (tree / "huge").write_bytes(b"x\n" * (3 << 20))

    found = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="made"), metadata=client.metadata)

    files = {file.path: file for file in found.files}
    assert files["dir1/file1.txt"].kind == worktree_pb2.CHANGE_KIND_TYPE_CHANGED
    assert (files["moved.txt"].kind, files["moved.txt"].old_path) == (
        worktree_pb2.CHANGE_KIND_RENAMED,
        "dir2/file2.txt",
    )
    assert (files["picture"].binary, files["huge"].too_large) == (True, True)
    assert list(found.warnings) == ["too large to be shown: huge"]


async def test_changes_are_streamed_as_they_happen(client: Client, worked: session_pb2.Session) -> None:
    tree = Path(worked.worktree)
    request = worktree_pb2.WatchChangesRequest(session="made", include_patch=True)
    stream: Any = client.worktrees.WatchChanges(request, metadata=client.metadata, timeout=20)
    first = await stream.read()
    assert [file.path for file in first.files] == ["dir0/file0.txt", "one.txt", "two.txt"]
    assert (first.live, first.note) == (True, "")

    (tree / "fresh.txt").write_text("hello\n")
    seen: set[str] = set()
    while "fresh.txt" not in seen:
        answer = await stream.read()
        seen |= set(answer.changed_paths)
    assert b"+hello" in answer.patch
    assert "fresh.txt" in [file.path for file in answer.files]
    stream.cancel()


@pytest.mark.crash
async def test_a_start_gets_its_checkpoint_despite_repeated_kills(sandbox: Sandbox, repository: Path) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT="create.inserted")
    await die_in(daemon, sandbox, lambda client: client.create(repository, name="made"))
    start_to_die(daemon, "checkpoint.start-kept")
    daemon.start()
    async with connected(sandbox) as client:
        (start,) = await count(client, "made", 1)
        assert (start.number, start.reason) == (1, START)
    daemon.stop()
