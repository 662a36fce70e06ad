"""Kill a rewind at each of its steps: the next daemon completes it, and no file of the tree is
lost."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from ramet.v1 import common_pb2, session_pb2, terminal_pb2, worktree_pb2

from tests.crash.scene import delete, operations, rows, transcript
from tests.crash.test_failpoints import die_in, start_to_die, wait_for_death
from tests.support.agents import script
from tests.support.daemon import IDLE, QUEUED, Client, DaemonProcess, Sandbox, connected, git, reason_of
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
REWIND = worktree_pb2.CHECKPOINT_REASON_REWIND


def write(name: str, text: str) -> dict[str, object]:
    return {"tool": "Write", "input": {"file_path": name, "content": text}}


async def checkpoints(client: Client) -> list[worktree_pb2.Checkpoint]:
    request = worktree_pb2.ListCheckpointsRequest(session="made")
    return list((await client.worktrees.ListCheckpoints(request, metadata=client.metadata)).checkpoints)


async def at_least(client: Client, number: int) -> list[worktree_pb2.Checkpoint]:
    async def look() -> list[worktree_pb2.Checkpoint]:
        found = await checkpoints(client)
        assert len(found) >= number
        return found

    return await eventually(look)


async def rewind(client: Client) -> worktree_pb2.RewindSessionResponse:
    request = worktree_pb2.RewindSessionRequest(session="made", checkpoint="1", request_id="the one")
    return await client.worktrees.RewindSession(request, metadata=client.metadata)


async def worked_on(client: Client, repository: Path) -> session_pb2.Session:
    """Create a session with a turn, a commit by hand, and staged, changed and new files since; two
    checkpoints."""
    await client.create(repository, script(write("one.txt", "1\n"), {"text": "first"}), name="made", mode=EDITS)
    made = await client.reach("made", IDLE)
    await at_least(client, 2)
    tree = Path(made.worktree)
    (tree / "two.txt").write_text("2\n")
    git(tree, "add", "two.txt")
    git(tree, "commit", "-qm", "two")
    (tree / "dir0/file0.txt").write_text("staged\n")
    git(tree, "add", "dir0/file0.txt")
    (tree / "dir0/file0.txt").write_text("changed\n")
    (tree / "dir1/file1.txt").unlink()
    (tree / "by-hand").write_text("mine\n")
    return made


async def no_operations(sandbox: Sandbox) -> None:
    def nothing() -> bool:
        assert operations(sandbox) == []
        return True

    await eventually(nothing)


def check_overwritten(tree: Path, checkpoint: worktree_pb2.Checkpoint) -> None:
    """Check that a checkpoint has every byte of `worked_on`."""
    listed = git(tree, "ls-tree", "-r", "--name-only", checkpoint.commit).split()
    assert listed == ["by-hand", "dir0/file0.txt", "dir2/file2.txt", "one.txt", "two.txt"]
    found = {name: git(tree, "show", f"{checkpoint.commit}:{name}") for name in listed if name != "dir2/file2.txt"}
    assert found == {"by-hand": "mine", "dir0/file0.txt": "changed", "one.txt": "1", "two.txt": "2"}
    assert git(tree, "show", f"{checkpoint.ref}:index/dir0/file0.txt") == "staged"


def is_as_it_began(tree: Path, made: session_pb2.Session) -> None:
    assert git(tree, "rev-parse", "HEAD") == made.base_commit
    assert git(tree, "status", "--porcelain") == ""


async def test_what_is_written_between_two_kills_of_a_rewind_becomes_a_checkpoint(
    sandbox: Sandbox, repository: Path
) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT="rewind.kept")
    async with connected(sandbox) as client:
        made = await worked_on(client, repository)
    tree = Path(made.worktree)
    index = git(tree, "ls-files", "--stage")

    await die_in(daemon, sandbox, rewind)
    assert (tree / "by-hand").read_text() == "mine\n"
    assert git(tree, "ls-files", "--stage") == index
    # Git has done a part of it, and a person changes files meanwhile.
    git(tree, "restore", "--source", made.base_commit, "--worktree", "dir0", "dir1")
    (tree / "meanwhile").write_text("theirs\n")
    start_to_die(daemon, "rewind.kept")
    daemon.start()
    await no_operations(sandbox)

    is_as_it_began(tree, made)
    async with connected(sandbox) as client:
        answer = await rewind(client)  # the same call gets the same answer, without a second rewind
        *again, undo, turn, start = [
            (each.reason == REWIND, each.current, each.abandoned) for each in await checkpoints(client)
        ]
        assert again  # the state when it began again
        assert set(again) == {(True, False, True)} == {undo}
        assert (turn, start) == ((False, False, True), (False, True, False))
        assert (answer.before.number, answer.checkpoint.number) == (3, 1)
        check_overwritten(tree, answer.before)
        assert git(tree, "show", f"{answer.before.ref.removesuffix('3')}4:files/meanwhile") == "theirs"
        warning = "its files were changed during the rewind: checkpoint 4 has them"
        assert warning in answer.warnings
        assert warning in [event.warning.message for event in await client.log("made")]
        session = await client.get("made")
        assert session.conversation_id == answer.session.conversation_id != made.conversation_id
        await client.send("made", script({"text": "goes on"}))
        assert (await eventually(lambda: turned(client))).state == session_pb2.SESSION_STATE_IDLE
        assert (await at_least(client, len(again) + 4))[0].current
    daemon.kill()


async def turned(client: Client) -> session_pb2.Session:
    session = await client.get("made")
    assert session.turns == 2
    assert session.state == IDLE
    return session


async def test_the_undo_of_a_check_survives_a_kill_at_each_of_its_steps(sandbox: Sandbox, repository: Path) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT="rewind.intended")
    check = "echo built >> dir1/file1.txt; echo report > report"
    async with connected(sandbox) as client:
        await client.create(repository, script({"text": "first"}), name="made", mode=EDITS)
        made = await client.reach("made", IDLE)
        tree = Path(made.worktree)
        (tree / "by-hand").write_text("mine\n")
        request = terminal_pb2.StartCommandRequest(session="made", check=check)
        await client.terminals.StartCommand(request, metadata=client.metadata)
    wait_for_death(daemon)
    for step in ("rewind.agent-ended", "rewind.kept", "rewind.files-written", "rewind.branch-moved", "rewind.recorded"):
        start_to_die(daemon, step)
    daemon.start()

    async with connected(sandbox) as client:

        async def ended() -> terminal_pb2.Command:
            request = terminal_pb2.ListCommandsRequest(session="made", include_ended=True)
            [command] = (await client.terminals.ListCommands(request, metadata=client.metadata)).commands
            assert command.state == terminal_pb2.COMMAND_STATE_EXITED
            return command

        assert (await eventually(ended)).check == check
        assert git(tree, "status", "--porcelain") == "?? by-hand"
        warnings = [event.warning.message for event in await client.log("made") if event.HasField("warning")]
        [undone] = warnings
        assert undone.startswith("undid what changed during the check: dir1/file1.txt, report; ")
        kept = int(undone.rpartition(" ")[2])
        [before] = [each for each in await checkpoints(client) if each.number == kept]
        assert git(tree, "show", f"{before.commit}:report") == "report"
        assert operations(sandbox) == []
    daemon.kill()


@contextmanager
def slow_git(sandbox: Sandbox, repository: Path) -> Iterator[Path]:
    """Configure a filter for ``dir1/file1.txt`` that waits while a gate file exists; return that
    file.

    It writes git's process id to ``begun`` beside it."""
    gate, begun = sandbox.root / "gate", sandbox.root / "begun"
    attributes = repository / ".git/info/attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("file1.txt filter=slow\n")
    command = f"if [ -e {gate} ]; then echo $PPID >{begun}.part; mv {begun}.part {begun}; while [ -e {gate} ]; do sleep 0.05; done; fi; cat"
    git(repository, "config", "filter.slow.smudge", command)
    try:
        yield gate
    finally:
        gate.unlink(missing_ok=True)
        attributes.unlink()
        git(repository, "config", "--remove-section", "filter.slow")


async def test_a_rewind_whose_git_outlives_the_daemon_ends_while_the_next_one_serves(
    sandbox: Sandbox, repository: Path
) -> None:
    daemon = DaemonProcess(sandbox)
    with slow_git(sandbox, repository) as gate:
        daemon.start()
        async with connected(sandbox) as client:
            made = await worked_on(client, repository)
            other = await client.create(repository, name="other")
            tree, begun = Path(made.worktree), gate.with_name("begun")
            gate.touch()
            asked = asyncio.ensure_future(rewind(client))
            await eventually(begun.exists)
            daemon.kill()
            with pytest.raises(grpc.aio.AioRpcError):
                await asked
        begun.unlink()

        daemon.start()  # and does not wait for it

        async with connected(sandbox) as client:
            assert rows(sandbox, "SELECT kind FROM operations") == [("rewind",)]
            asked = asyncio.ensure_future(rewind(client))
            text = script({"text": "goes on"})
            await client.send("made", text)
            await client.reach("made", QUEUED)
            await eventually(lambda: says(client, "it is being rewound"))
            for call in (
                client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="made")),
                client.worktrees.RewindSession(worktree_pb2.RewindSessionRequest(session="made", checkpoint="2")),
                client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="made")),
                client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="made")),
                client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="made", force=True)),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert reason_of(caught.value) == "WRONG_STATE"
                assert "made is " in str(caught.value.details())
            await client.send("other", script({"text": "served meanwhile"}))
            await eventually(lambda: has_turns(client, "other", 1))
            assert launches(sandbox, made) == 1
            assert not asked.done()

            gate.unlink()

            answer = await asked
            check_overwritten(tree, answer.before)
            assert (await eventually(lambda: turned(client))).conversation_id == answer.session.conversation_id
            lines = transcript(sandbox, answer.session.conversation_id)
            assert [each.text for each in lines] == [text]
            is_as_it_began(tree, made)
            await delete(client, other.id)
    daemon.kill()


def launches(sandbox: Sandbox, session: session_pb2.Session) -> int:
    return [of for (of,) in rows(sandbox, "SELECT session_id FROM agents")].count(session.id)


async def says(client: Client, reason: str) -> bool:
    return (await client.get("made")).state_reason == reason


async def has_turns(client: Client, name: str, turns: int) -> bool:
    return (await client.get(name)).turns == turns
