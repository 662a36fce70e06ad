"""Commands in worktrees: started, followed, reattached after a kill, ended with everything they
started."""

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from ramet.v1 import session_pb2, terminal_pb2

from tests.support.daemon import Client, DaemonProcess, Sandbox, command_of, connected, reason_of
from tests.support.eventually import eventually
from tests.support.shared import client, daemon, repository, sandbox

__all__ = ["client", "daemon", "repository", "sandbox"]

RUNNING = terminal_pb2.COMMAND_STATE_RUNNING
EXITED = terminal_pb2.COMMAND_STATE_EXITED
STOPPED = terminal_pb2.COMMAND_STATE_STOPPED
LOST = terminal_pb2.COMMAND_STATE_LOST

FLOOD = "i=0; while [ $i -lt 160 ]; do head -c 131072 /dev/zero; i=$((i+1)); done; echo; echo the end"


async def start(client: Client, session: str, *argv: str, **fields: Any) -> terminal_pb2.Command:
    fields.setdefault("request_id", str(uuid.uuid4()))
    request = terminal_pb2.StartCommandRequest(session=session, argv=argv, **fields)
    return (await client.terminals.StartCommand(request, metadata=client.metadata)).command


async def get(client: Client, command: str) -> terminal_pb2.Command:
    return (await client.terminals.GetCommand(terminal_pb2.GetCommandRequest(command=command))).command


async def stop(client: Client, command: str) -> terminal_pb2.Command:
    return (await client.terminals.StopCommand(terminal_pb2.StopCommandRequest(command=command))).command


async def watch(client: Client, command: str, offset: int = 0) -> tuple[bytes, terminal_pb2.Command]:
    """Return all output from an offset to the end, and the exit."""
    request = terminal_pb2.WatchOutputRequest(command=command, offset=offset, follow=True)
    output = b""
    async for answer in client.terminals.WatchOutput(request):
        output += answer.data
        if answer.HasField("command"):
            return output, answer.command
    raise AssertionError(f"{command} did not end; it wrote {output!r}")


async def remove(client: Client, session: str) -> None:
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session, force=True))


async def test_output_of_both_streams_comes_in_order_and_the_exit_status_is_its_own(
    client: Client, repository: Path
) -> None:
    await client.create(repository, name="one")
    command = await start(client, "one", "sh", "-c", "echo out; echo err >&2; printf 'no newline'; exit 3")
    output, ended = await watch(client, command.id)
    assert output == b"out\nerr\nno newline"
    assert (ended.state, ended.exit_status, ended.output_bytes) == (EXITED, "code 3", len(output))
    assert ended.session_name == "one"
    assert list(ended.argv)[:2] == ["sh", "-c"]
    assert (await watch(client, command.id[:5], offset=4))[0] == b"err\nno newline"


async def test_what_has_no_newline_yet_is_seen_while_it_runs(client: Client, repository: Path) -> None:
    await client.create(repository, name="one")
    command = await start(client, "one", "sh", "-c", "printf 'ready? '; exec sleep 600")
    request = terminal_pb2.WatchOutputRequest(command=command.id, follow=True)
    async for answer in client.terminals.WatchOutput(request):
        assert answer.data == b"ready? "
        break
    ended = await stop(client, command.id)
    assert (ended.state, ended.exit_status, ended.stop_reason) == (STOPPED, "signal SIGTERM", "stopped by owner")


async def test_a_command_finds_its_place_in_its_environment(client: Client, sandbox: Sandbox, repository: Path) -> None:
    session = await client.create(repository, name="Ports here")
    assert len(session.ports) == 10
    command = await start(client, session.id, "sh", "-c", "pwd; env")
    text = (await watch(client, command.id))[0].decode()
    place, *lines = text.splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    assert place == session.worktree
    assert {name: variables[name] for name in ("RAMET_WORKTREE", "RAMET_REPO_ROOT", "RAMET_BRANCH")} == {
        "RAMET_WORKTREE": session.worktree, "RAMET_REPO_ROOT": str(repository), "RAMET_BRANCH": session.branch,
    }  # fmt: skip
    assert variables["RAMET_SESSION_NAME"] == "Ports here"
    assert [variables[f"RAMET_PORT_{index}"] for index in range(10)] == [str(port) for port in session.ports]
    assert variables["RAMET_COMMAND"] == command.id
    # It acts as the session, so a repository's scripts have no more rights.
    assert variables["RAMET_SESSION"] == session.id
    assert variables["RAMET_TOKEN"].startswith(session.id)


async def test_stopping_ends_what_called_setsid_and_spares_others(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="one")
    other = await start(client, "one", "sleep", "601")
    script = "setsid sleep 602 & setsid sh -c 'trap \"\" TERM; sleep 603 & wait; wait' & wait"
    command = await start(client, "one", "sh", "-c", script)

    def sleeping() -> set[str]:
        commands = [command_of(each) for each in sandbox.processes()]  # none, of one that has just ended
        return {command[1] for command in commands if command[:1] == ["sleep"]}

    await eventually(lambda: sleeping() == {"601", "602", "603"})
    assert (await stop(client, command.id)).state == STOPPED
    assert sleeping() == {"601"}
    assert (await get(client, other.id)).state == RUNNING
    again = await stop(client, command.id)
    assert (again.state, again.stop_reason) == (STOPPED, "stopped by owner")


async def test_a_command_whose_time_is_over_is_ended_and_says_so(client: Client, repository: Path) -> None:
    from google.protobuf.duration_pb2 import Duration

    await client.create(repository, name="one")
    command = await start(client, "one", "sleep", "600", timeout=Duration(nanos=200_000_000))
    _, ended = await watch(client, command.id)
    assert (ended.state, ended.stop_reason) == (STOPPED, "it timed out")


async def test_no_more_than_its_share_of_a_flood_is_stored(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, name="one")
    command = await start(client, "one", "sh", "-c", FLOOD)
    ended = await eventually(lambda: ended_one(client, command.id))
    assert ended is not None
    assert ended.output_bytes == 160 * 131072 + len("\nthe end\n")
    stored = sum(file.stat().st_size for file in (sandbox.root / "state" / "commands").glob("*/journal.*"))
    assert 16 << 20 <= stored <= 19 << 20
    output, _ = await watch(client, command.id)
    assert len(output) == stored
    assert output.endswith(b"\nthe end\n")


async def ended_one(client: Client, command: str) -> terminal_pb2.Command | None:
    found = await get(client, command)
    return found if found.HasField("end_time") else None


async def test_the_same_request_starts_one_command_also_over_a_kill(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    await client.create(repository, name="one")
    first = await start(client, "one", "sleep", "604", request_id="same")
    daemon.restart()
    async with connected(daemon.sandbox) as later:
        assert (await start(later, "one", "sleep", "604", request_id="same")).id == first.id
        listed = await later.terminals.ListCommands(terminal_pb2.ListCommandsRequest(session="one"))
        assert [command.id for command in listed.commands] == [first.id]


@pytest.mark.parametrize("failpoint", ["command.intended", "command.started"])
async def test_a_kill_in_the_middle_of_a_start_leaves_one_command_that_runs(
    daemon: DaemonProcess, sandbox: Sandbox, repository: Path, failpoint: str
) -> None:
    daemon.kill()
    daemon.start(RAMET_FAILPOINT=failpoint)
    async with connected(sandbox) as client:
        await client.create(repository, name="one")
        with pytest.raises(grpc.aio.AioRpcError):
            await start(client, "one", "sleep", "605", request_id=f"once {failpoint}")
    assert daemon.process is not None
    daemon.process.wait(timeout=20)
    daemon.start()
    async with connected(sandbox) as later:
        command = await start(later, "one", "sleep", "605", request_id=f"once {failpoint}")
        assert await eventually(lambda: running(later, command.id))
        assert len([each for each in sandbox.processes() if each.cmdline() == ["sleep", "605"]]) == 1
        await remove(later, "one")


async def running(client: Client, command: str) -> bool:
    return (await get(client, command)).state == RUNNING


async def test_events_without_a_daemon_are_notified_afterwards(
    daemon: DaemonProcess, client: Client, sandbox: Sandbox, repository: Path
) -> None:
    session = await client.create(repository, name="one")
    gate = Path(session.worktree, "gate")
    ends = await start(
        client, "one", "sh", "-c", "echo begun; until [ -e gate ]; do sleep 0.05; done; echo over; exit 7"
    )
    lives = await start(client, "one", "sh", "-c", "echo up; exec sleep 606")
    lost = await start(client, "one", "sh", "-c", "setsid sleep 607 & exec sleep 608")
    await eventually(lambda: len([each for each in sandbox.processes() if command_of(each)[:1] == ["sleep"]]) >= 3)
    daemon.kill()
    gate.touch()
    keeper = next(
        parent for each in sandbox.processes() if each.pid == lost.pid and (parent := each.parent()) is not None
    )
    keeper.kill()
    await eventually(lambda: not psutil.pid_exists(ends.pid))
    daemon.start()
    async with connected(sandbox) as later:
        output, ended = await watch(later, ends.id)
        assert (output, ended.state, ended.exit_status) == (b"begun\nover\n", EXITED, "code 7")
        again = await get(later, lives.id)
        assert (again.state, again.pid) == (RUNNING, lives.pid)
        _, gone = await watch(later, lost.id)
        assert (gone.state, gone.exit_status) == (LOST, "")
        left = [each.cmdline()[1] for each in sandbox.processes() if each.cmdline()[:1] == ["sleep"]]
        assert left == ["606"]
        kinds = [event.WhichOneof("payload") for event in await later.log("one")]
        assert (kinds.count("command_started"), kinds.count("command_ended")) == (3, 2)


async def test_with_a_session_all_its_commands_and_what_they_wrote_are_gone(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="one")
    await start(client, "one", "sh", "-c", "setsid sleep 609 & exec sleep 610")
    done = await start(client, "one", "true")
    await watch(client, done.id)
    await remove(client, "one")
    assert [each for each in sandbox.processes() if each.cmdline()[:1] == ["sleep"]] == []
    await eventually(lambda: not list((sandbox.root / "state" / "commands").iterdir()))
    listed = await client.terminals.ListCommands(terminal_pb2.ListCommandsRequest(include_ended=True))
    assert list(listed.commands) == []


async def test_only_the_newest_ended_ones_stay(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, name="one")
    made = [await start(client, "one", "true") for _ in range(22)]
    for command in made:
        await eventually(lambda command=command: over(client, command.id))  # type: ignore[misc]
    listed = await client.terminals.ListCommands(terminal_pb2.ListCommandsRequest(session="one", include_ended=True))
    assert len(listed.commands) == 20
    await eventually(lambda: len(list((sandbox.root / "state" / "commands").iterdir())) == 20)


async def over(client: Client, command: str) -> bool:
    try:
        return (await get(client, command)).HasField("end_time")
    except grpc.aio.AioRpcError as error:
        return reason_of(error) == "COMMAND_NOT_FOUND"


async def test_what_cannot_be_started_is_refused_and_leaves_nothing(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    session = await client.create(repository, name="one")
    refusals = (
        ({"argv": ()}, "INVALID_INPUT"),
        ({"argv": ("true",), "name": "web"}, "INVALID_INPUT"),
        ({"argv": (), "name": "web"}, "COMMAND_NOT_FOUND"),
        ({"argv": ("tr\0ue",)}, "INVALID_INPUT"),
    )
    for fields, reason in refusals:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await start(client, "one", *fields.pop("argv"), **fields)
        assert reason_of(caught.value) == reason, fields
    Path(session.worktree).rename(sandbox.root / "elsewhere")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await start(client, "one", "true")
    assert reason_of(caught.value) == "WORKING_DIRECTORY"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.terminals.GetShell(terminal_pb2.GetShellRequest(session="one"))
    assert reason_of(caught.value) == "WORKING_DIRECTORY"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await get(client, "nothing")
    assert reason_of(caught.value) == "COMMAND_NOT_FOUND"
    listed = await client.terminals.ListCommands(terminal_pb2.ListCommandsRequest(include_ended=True))
    assert list(listed.commands) == []


@pytest.mark.parametrize(("kind", "words"), [("fork", ""), ("rewind", "one is being rewound")])
async def test_only_what_touches_its_worktree_keeps_commands_of_a_session_waiting(
    client: Client, sandbox: Sandbox, repository: Path, kind: str, words: str
) -> None:
    session = await client.create(repository, name="one")
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db")) as db:
        with db:
            db.execute(
                "INSERT INTO operations (id, kind, session_id, create_time, update_time) VALUES ('i', ?, ?, 0, 0)",
                (kind, session.id),
            )
        try:
            if words:
                with pytest.raises(grpc.aio.AioRpcError, match=words):
                    await start(client, "one", "true")
            else:
                assert (await start(client, "one", "true")).state == RUNNING
        finally:
            with db:
                db.execute("DELETE FROM operations")
