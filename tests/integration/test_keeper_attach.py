"""Attach: any offset, any length of line, one controller at a time, and reads after the end."""

# A test may block its loop for a moment.

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from rametd.domain.errors import KeeperFencedError, NotFoundError, PromptTooLargeError, WrongStateError
from rametd.keeper import framing
from rametd.keeper.connection import Connection
from rametd.keeper.executor import Handle, JournalLine, Liveness
from rametd.keeper.local import LocalExecutor

from tests.support.eventually import eventually
from tests.support.keepers import (
    ECHO,
    agent,
    is_running,
    journal_bytes,
    keeper_path,
    next_line,
    private_executor,
    read_all,
    read_lines,
    resident_kib,
    rest_of,
    run_record,
)


@pytest.fixture
async def executor() -> AsyncIterator[LocalExecutor]:
    async with private_executor() as executor:
        yield executor


async def test_lines_reach_the_agent_and_its_answers_have_offsets(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)

    assert await attachment.write(b"one\n") == 4
    assert await attachment.write(b"two\nthree\n") == 14

    assert await read_lines(attachment, 3) == [
        JournalLine(0, 8, b"got one\n"),
        JournalLine(8, 16, b"got two\n"),
        JournalLine(16, 26, b"got three\n"),
    ]
    assert await attachment.written_since(4) == [JournalLine(4, 8, b"two\n"), JournalLine(8, 14, b"three\n")]
    await attachment.close()


async def test_the_journal_is_read_from_any_offset(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent("for n in range(50): print('line', n)\nimport time; time.sleep(60)", tmp_path))
    first = await executor.attach(handle, epoch=1, offset=0)
    lines = await read_lines(first, 50)

    for start in (0, 7, 23, 49):
        attachment = await executor.attach(handle, epoch=1, offset=lines[start].start)
        assert await read_lines(attachment, 50 - start) == lines[start:]
        await attachment.close()
    at_the_end = await executor.attach(handle, epoch=1, offset=lines[-1].end)
    with pytest.raises(LookupError):
        await executor.attach(handle, epoch=1, offset=lines[-1].end + 1)
    with pytest.raises(KeeperFencedError):
        await next_line(first)
    await first.close()
    await at_the_end.close()


async def test_a_line_is_forwarded_only_when_it_is_complete(executor: LocalExecutor, tmp_path: Path) -> None:
    script = """
        import sys
        print("half", end="", flush=True)
        for line in sys.stdin:
            print(" whole", flush=True)
    """
    handle = await executor.start(agent(script, tmp_path))
    await eventually(lambda: journal_bytes(handle) == b"half")
    attachment = await executor.attach(handle, epoch=1, offset=0)
    assert (await attachment.status())["journal_end"] == 0

    await attachment.write(b"go on\n")

    assert (await next_line(attachment)).data == b"half whole\n"
    await attachment.close()


async def test_an_older_epoch_is_refused_and_a_newer_one_displaces(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    old = await executor.attach(handle, epoch=3, offset=0)
    new = await executor.attach(handle, epoch=4, offset=0)

    with pytest.raises(KeeperFencedError):
        await next_line(old)
    with pytest.raises(KeeperFencedError):
        await old.write(b"late\n")
    with pytest.raises(KeeperFencedError):
        await executor.attach(handle, epoch=3, offset=0)
    with pytest.raises(KeeperFencedError):
        await executor.signal(handle, "SIGKILL", epoch=3)
    with pytest.raises(KeeperFencedError):
        await executor.end(handle, 0.0, epoch=3)

    await new.write(b"mine\n")
    assert (await next_line(new)).data == b"got mine\n"
    assert await new.written_since(0) == [JournalLine(0, 5, b"mine\n")]
    await old.close()
    await new.close()


async def test_a_line_of_fifty_megabytes_arrives_and_the_keeper_stays_small(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    script = """
        import sys
        for _ in range(50): sys.stdout.buffer.write(b"x" * (1 << 20))
        print("\\nshort", flush=True)
        sys.stdin.read()
    """
    handle = await executor.start(agent(script, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)

    long, short = await read_lines(attachment, 2)

    assert (long.end, set(long.data[:-1]), short.data) == ((50 << 20) + 1, {ord("x")}, b"short\n")
    assert resident_kib(run_record(handle)["keeper_pid"], "VmHWM") < 16 << 10
    await attachment.close()


async def test_a_prompt_of_megabytes_goes_to_an_agent_that_reads_late(executor: LocalExecutor, tmp_path: Path) -> None:
    script = """
        import os, sys
        sys.stdout.write("up\\n"); sys.stdout.flush()
        while not os.path.exists("read"): os.sched_yield()
        print(len(sys.stdin.readline()), flush=True)
    """
    handle = await executor.start(agent(script, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    await next_line(attachment)
    prompt = b"p" * (8 << 20) + b"\n"

    assert await attachment.write(prompt) == len(prompt)
    assert (await attachment.status())["stdin_fed"] < 1 << 20
    (tmp_path / "read").touch()

    assert (await next_line(attachment)).data == b"%d\n" % len(prompt)
    with pytest.raises(PromptTooLargeError):
        await attachment.write(b"p" * framing.MAX_PAYLOAD)
    await attachment.close()


async def test_a_flood_without_and_with_a_stalled_controller_needs_no_memory(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    script = """
        import sys
        for _ in range(30): sys.stdout.buffer.write((b"y" * 1023 + b"\\n") * 1024)
        sys.stdout.flush()
        sys.stdin.readline()
        for _ in range(30): sys.stdout.buffer.write((b"z" * 1023 + b"\\n") * 1024)
        sys.stdout.flush()
        sys.stdin.readline()
    """
    handle = await executor.start(agent(script, tmp_path, segment_bytes=4 << 20))
    keeper = run_record(handle)["keeper_pid"]
    await eventually(lambda: len(journal_bytes(handle)) == 30 << 20)
    attachment = await executor.attach(handle, epoch=1, offset=0)

    await attachment.write(b"more\n")  # answered although the lines are not read
    await eventually(lambda: len(journal_bytes(handle)) == 60 << 20)
    status = await attachment.status()

    assert status["journal_end"] == 60 << 20
    assert resident_kib(keeper, "VmHWM") < 16 << 10
    assert attachment.buffered < 3 * framing.WINDOW
    lines = await read_lines(attachment, 60 << 10)
    assert lines[-1].end == 60 << 20
    await attachment.close()


async def test_the_journal_rotates_and_released_segments_go(executor: LocalExecutor, tmp_path: Path) -> None:
    script = "import sys\nfor n in range(1000): print(f'{n:099d}')\nfor line in sys.stdin: print(line, end='')"
    handle = await executor.start(agent(script, tmp_path, segment_bytes=10_000))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    lines = await read_lines(attachment, 1000)
    assert len(list(keeper_path(handle).glob("journal.*"))) == 10

    attachment.release(lines[550].start)

    await eventually(lambda: len(list(keeper_path(handle).glob("journal.*"))) == 5)
    with pytest.raises(LookupError):
        await executor.attach(handle, epoch=1, offset=0)
    again = await executor.attach(handle, epoch=1, offset=lines[550].start)
    assert await read_lines(again, 450) == lines[550:]
    assert lines[-1].data == b"%099d\n" % 999
    await attachment.close()
    await again.close()


async def test_released_stdin_goes_but_not_what_the_agent_has_not_read(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path, segment_bytes=100))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    end = 0
    for number in range(10):
        end = await attachment.write(b"%049d\n" % number)
        await next_line(attachment)

    attachment.release_stdin(end)

    await eventually(lambda: len(list(keeper_path(handle).glob("stdin.*"))) == 1)
    with pytest.raises(LookupError):
        await attachment.written_since(0)
    assert await attachment.written_since(450) == [JournalLine(450, 500, b"%049d\n" % 9)]
    await attachment.close()


async def test_an_attached_controller_hears_the_end_after_all_lines(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent("import sys\nprint('first')\nprint('tail', end='')\nsys.exit(3)", tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)

    assert await read_all(attachment) == b"first\ntail"
    record = await attachment.wait_exit()

    assert record is not None
    assert (record.code, record.signal, record.asked, record.left) == (3, None, None, ())
    assert record.started_at < record.ended_at
    assert attachment.tail == b"tail"
    with pytest.raises(WrongStateError):
        await attachment.write(b"hello?\n")
    await attachment.close()


async def test_what_a_gone_keeper_left_is_read_from_its_directory(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(
        agent("for n in range(5): print(n)\nprint('tail', end='')", tmp_path, segment_bytes=4)
    )
    await eventually(lambda: not is_running(run_record(handle)["keeper_pid"]))

    attachment = await executor.attach(handle, epoch=1, offset=4)

    assert await read_all(attachment) == b"2\n3\n4\ntail"
    record = await attachment.wait_exit()
    assert record is not None
    assert record.code == 0
    assert (await executor.recover(handle)).exit == record
    await attachment.close()


async def test_detaching_leaves_the_agent_alone(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    await attachment.close()
    assert await rest_of(attachment) == []

    again = await executor.attach(handle, epoch=1, offset=0)
    await again.write(b"still there?\n")

    assert (await next_line(again)).data == b"got still there?\n"
    assert (await executor.recover(handle)).liveness is Liveness.ALIVE
    await again.close()


async def test_a_cancelled_read_loses_no_line(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    received: list[JournalLine] = []
    for number in range(20):
        read = asyncio.ensure_future(next_line(attachment))
        await asyncio.sleep(0)
        read.cancel()  # too late for some, whose line has arrived
        with suppress(asyncio.CancelledError):
            received.append(await read)
        await attachment.write(b"%d\n" % number)

    received += await read_lines(attachment, 20 - len(received))
    assert [line.data for line in received] == [b"got %d\n" % number for number in range(20)]
    await attachment.close()


async def test_an_unknown_frame_is_answered_and_a_malformed_one_drops_only_its_connection(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    reader, writer = await asyncio.open_unix_connection(run_record(handle)["socket"])

    async def frame() -> tuple[int, bytes]:
        length, kind = framing.HEADER.unpack(await reader.readexactly(framing.HEADER.size))
        return kind, await reader.readexactly(length)

    kind, payload = await frame()
    assert (kind, json.loads(payload)["versions"]) == (framing.HELLO, [1])
    writer.write(framing.encode(200, b"from the future") + framing.encode_json(framing.QUERY, id=5))
    kind, payload = await frame()
    assert (kind, json.loads(payload)["reason"]) == (framing.ERROR, "UNKNOWN_FRAME")
    kind, payload = await frame()
    assert (kind, json.loads(payload)["id"]) == (framing.STATUS, 5)
    writer.write(framing.encode(framing.STDIN, framing.U64.pack(1) + b"not attached\n"))
    kind, payload = await frame()
    assert (kind, json.loads(payload)["reason"]) == (framing.ERROR, "NOT_ATTACHED")
    writer.write(framing.encode(framing.ATTACH, b"{"))
    kind, payload = await frame()
    assert (kind, json.loads(payload)["reason"]) == (framing.ERROR, "MALFORMED")
    assert await reader.read() == b""
    writer.close()

    await attachment.write(b"untouched\n")
    assert (await next_line(attachment)).data == b"got untouched\n"
    await attachment.close()


async def test_many_idle_connections_do_not_shut_the_daemon_out(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    attachment = await executor.attach(handle, epoch=1, offset=0)
    idle = [await Connection.open(Path(run_record(handle)["socket"])) for _ in range(40)]

    await attachment.write(b"hello\n")

    assert (await next_line(attachment)).data == b"got hello\n"
    for connection in idle:
        await connection.close()
    await attachment.close()


async def test_a_keeper_listens_again_after_the_runtime_directory_was_emptied(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = await executor.start(agent(ECHO, tmp_path))
    socket = Path(run_record(handle)["socket"])
    socket.unlink()
    socket.parent.rmdir()

    attachment = await executor.attach(handle, epoch=1, offset=0)

    await attachment.write(b"again\n")
    assert (await next_line(attachment)).data == b"got again\n"
    await attachment.close()


async def test_nothing_at_the_handle_is_not_found(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = await executor.start(agent("", tmp_path))
    await executor.end(handle, 1.0)
    await executor.destroy(handle)

    with pytest.raises(NotFoundError):
        await executor.attach(handle, epoch=1, offset=0)
    assert (await executor.recover(handle)).liveness is Liveness.UNKNOWN
    assert (await executor.recover(Handle("{}"))).liveness is Liveness.UNKNOWN
    assert (await executor.recover(Handle("not json"))).liveness is Liveness.UNKNOWN
    assert executor.discover() == []
