"""Watches from a cursor: each event once, in order, over kills, resets and slow readers."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from ramet.v1 import common_pb2, event_pb2
from rametd.api import event as event_api

from tests.support.agents import script
from tests.support.archiving import archive
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, connected, daemon_here
from tests.support.eventually import eventually
from tests.support.rpc import RPCS
from tests.support.running import repo_of

Item = event_pb2.WatchEventsResponse


class Watch:
    """A stream of events that a task reads into a list."""

    def __init__(self, client: Client, **fields: Any) -> None:
        self.items: list[Item] = []
        self._stream = client.events.WatchEvents(event_pb2.WatchEventsRequest(**fields), metadata=client.metadata)
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for item in self._stream:
            self.items.append(item)

    @property
    def kinds(self) -> list[str]:
        return [
            kind
            for item in self.items
            for kind in (*(event.WhichOneof("payload") for event in item.events), item.WhichOneof("item"))
            if kind is not None
        ]

    @property
    def events(self) -> list[event_pb2.Event]:
        return [event for item in self.items for event in item.events]

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.events]

    async def has(self, kind: str) -> None:
        await eventually(lambda: kind in self.kinds)

    async def has_events(self, count: int) -> None:
        await eventually(lambda: len(self.seqs) >= count)

    async def close(self) -> None:
        self._stream.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_snapshot_comes_first_and_then_what_happens(running: DaemonProcess, shared: Client) -> None:
    await shared.create(repo_of(running), name="before")
    await shared.create(repo_of(running), name="filed")
    await archive(shared, "filed")
    watch = Watch(shared, snapshot=True)
    await watch.has("snapshot")
    await shared.create(repo_of(running), name="afterwards")
    await watch.has("worktree_created")
    await watch.close()

    assert watch.kinds[0] == "snapshot"
    names = [session.name for session in watch.items[0].snapshot.sessions]
    assert {"before", "filed"} <= {*names}
    assert "afterwards" not in names
    created = next(event.session_created.session for event in watch.events if event.HasField("session_created"))
    assert created.name == "afterwards"
    assert watch.seqs == list(range(watch.items[0].cursor.seq + 1, watch.items[-1].cursor.seq + 1))


async def test_a_cursor_of_another_log_or_beyond_the_end_of_this_is_an_explicit_reset(shared: Client) -> None:
    info: Any = await RPCS["GetInfo"].call(shared.channel, RPCS["GetInfo"].request())
    for cursor in (
        common_pb2.Cursor(epoch="other", seq=1),
        common_pb2.Cursor(epoch=info.cursor.epoch, seq=info.cursor.seq + 10_000),
        common_pb2.Cursor(epoch=info.cursor.epoch, seq=(1 << 64) - 1),
    ):
        watch = Watch(shared, after=cursor)
        await watch.has("reset")
        await watch._task
        assert [item.reset.epoch for item in watch.items] == [info.cursor.epoch]
        assert (
            await RPCS["ListEvents"].refusal(shared.channel, RPCS["ListEvents"].request(after=cursor)) == "BAD_CURSOR"
        )


async def test_a_watcher_gets_each_event_once_over_kills(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    info: Any = await RPCS["GetInfo"].call(client.channel, RPCS["GetInfo"].request())
    cursor, seen = info.cursor, list[int]()
    await client.create(repository, script({"events": 300, "per_second": 200}, {"text": "done"}), name="talks")
    for _ in range(2):
        async with connected(daemon.sandbox) as other:
            watch = Watch(other, after=cursor)
            await watch.has_events(60)
            daemon.restart()
            await asyncio.gather(watch._task, return_exceptions=True)
            seen += watch.seqs
            cursor = next((item.cursor for item in reversed(watch.items)), cursor)
    await client.reach("talks", IDLE)
    async with connected(daemon.sandbox) as other:
        watch = Watch(other, after=cursor)
        end = (await client.log())[-1].seq
        await eventually(lambda: watch.seqs and watch.seqs[-1] >= end)
        await watch.close()
        seen += [seq for seq in watch.seqs if seq <= end]

    assert seen == list(range(info.cursor.seq + 1, end + 1))
    said = [event for event in await client.log("talks") if event.HasField("assistant_message")]
    numbers = [
        block.text.split()[0] for event in said for block in event.assistant_message.blocks if block.text[:1].isdigit()
    ]
    assert numbers == [str(number) for number in range(1, 301)]


async def test_a_quiet_watch_beats(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_api, "HEARTBEAT_S", 0.05)
    path = sandbox.repository()
    async with daemon_here(sandbox), connected(sandbox) as client:
        quiet = await client.create(path, name="quiet")
        await eventually(lambda: client.checkpoints("quiet"))
        watch = Watch(client, sessions=["quiet"])
        await watch.has("heartbeat")
        noisy = asyncio.create_task(client.create(path, name="noisy"))
        await noisy
        end = (await client.log())[-1].seq
        await eventually(lambda: watch.items[-1].cursor.seq >= end)
        await watch.close()
        assert set(watch.kinds) == {"heartbeat"}
        assert quiet.id not in {event.session_id for event in watch.events}


@pytest.mark.full
async def test_lines_of_megabytes_are_listed_in_pages_that_fit_into_a_message(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    line, lines = 8 << 20, 6
    await client.create(repository, script({"flood": line * lines, "line": line}), name="long")
    await client.reach("long", IDLE)

    page = await client.events.ListEvents(
        event_pb2.ListEventsRequest(session="long", page_size=1000, include_frames=True, newest=True),
        metadata=client.metadata,
    )
    assert page.next_page_token  # of the events beyond the limit
    assert page.ByteSize() < 3 * line
    everything = await client.log("long", frames=True)
    found = [each.seq for each in page.events]
    assert [event.seq for event in everything if found[0] <= event.seq <= found[-1]] == found
    assert sum(len(event.frame) > line for event in everything if event.HasField("assistant_message")) == lines

    raw = await asyncio.to_thread(sandbox.ctl, "log", "long", "--raw", cwd=repository)
    assert (raw.code, raw.stderr) == (0, "")
    assert [row.encode() for row in raw.stdout.splitlines()] == [event.frame for event in everything if event.frame]
    newest = await asyncio.to_thread(sandbox.ctl, "log", "long", "--raw", "-n", "8", cwd=repository)
    assert newest.stdout.splitlines() == raw.stdout.splitlines()[-8:]


@pytest.mark.full
async def test_a_watcher_that_does_not_read_costs_no_memory_and_loses_nothing(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    slow: Any = client.events.WatchEvents(event_pb2.WatchEventsRequest(include_frames=True), metadata=client.metadata)
    await client.create(repository, script({"events": 20, "per_second": 1000, "bytes": 3000}), name="warm")
    await client.reach("warm", IDLE)
    before = psutil.Process(daemon.pid).memory_info().rss
    await client.create(repository, script({"events": 20_000, "per_second": 100_000, "bytes": 3000}), name="loud")
    await client.reach("loud", IDLE, within=60)
    grown = psutil.Process(daemon.pid).memory_info().rss - before

    seqs = [event.seq for event in (await slow.read()).events]
    end = (await client.log())[-1].seq
    while seqs[-1] < end:
        seqs += (event.seq for event in (await slow.read()).events)
    slow.cancel()
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert len(seqs) > 20_000
    assert grown < 48 << 20, f"{grown >> 20} MB for about 120 MB that nobody reads"


async def test_rows_are_sent_instead_of_what_agents_say_and_from_any_cursor_none_is_missed(
    running: DaemonProcess, shared: Client
) -> None:
    repository = repo_of(running)
    quiet = await shared.create(repository, name="rows-quiet")
    loud = await shared.create(repository, name="rows-loud")
    watch = Watch(shared, snapshot=True, rows=True, detailed=[quiet.id])
    await watch.has("snapshot")
    for name in ("rows-quiet", "rows-loud"):
        await shared.send(name, script({"text": name}))
        await shared.reach(name, IDLE)
    ended = (await shared.get("rows-loud")).last_seq
    await eventually(partial(has_row, watch.items, loud.id, ended))
    await watch.close()
    said = {event.session_id for event in watch.events if event.HasField("assistant_message")}
    assert said == {quiet.id}
    later = [
        index
        for index, item in enumerate(watch.items)
        if item.cursor.seq != watch.items[index - 1].cursor.seq and item.cursor.seq < ended
    ]
    for index in later[:: max(len(later) // 3, 1)]:
        again = Watch(shared, after=watch.items[index].cursor, rows=True)
        await eventually(partial(has_row, again.items, loud.id, ended))
        await again.close()


def has_row(items: list[Item], session_id: str, seq: int) -> bool:
    """Return whether a row of a session arrived that includes event ``seq``."""
    return any(row.id == session_id and row.last_seq >= seq for item in items for row in item.changed.sessions)
