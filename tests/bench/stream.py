"""Agents that write at the same time: events that reach a client, their delay, and losses after a
kill of the daemon."""

import asyncio
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc
from ramet.v1 import common_pb2, daemon_pb2, event_pb2

from tests.bench.dashboard import beside
from tests.bench.figures import Figure, Scale, cpu_time, percentile, progress, run_time
from tests.bench.herd import CONFIG, all_idle, gather_herd
from tests.bench.ready import start_time_of
from tests.bench.web import beside as web_beside
from tests.support.agents import script
from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_process, make_sandbox
from tests.support.eventually import eventually

BYTES = 300
LATE_S = 60.0
"""Seconds after the last event was due, when missing events count as lost."""


@dataclass
class Heard:
    """Events that a client received. ``texts`` are (time, session, text) of agents' messages."""

    cursor: common_pb2.Cursor
    texts: list[tuple[float, str, str]] = field(default_factory=list)
    attached: list[event_pb2.Event] = field(default_factory=list)

    async def listen(self, client: Client) -> None:
        """Watch from the cursor on, until the connection breaks."""
        request = event_pb2.WatchEventsRequest(after=self.cursor)
        with suppress(grpc.aio.AioRpcError):
            async for response in client.events.WatchEvents(request, metadata=client.metadata):
                for event in response.events:
                    if event.HasField("assistant_message"):
                        self.texts.append((time.time(), event.session_id, event.assistant_message.blocks[0].text))
                    elif event.HasField("agent_attached"):
                        self.attached.append(event)
                self.cursor = response.cursor

    @asynccontextmanager
    async def listening(self, client: Client) -> AsyncIterator["asyncio.Task[None]"]:
        """`listen` in a task, ended with the block."""
        task = asyncio.create_task(self.listen(client))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    def faults(self, sessions: Sequence[str], count: int) -> tuple[int, int]:
        """Return how many of the events 1 to ``count`` of each session are missing, and how many
        came twice."""
        seen: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for _, session, text in self.texts:
            seen[session][int(text.split()[0])] += 1
        lost = sum(1 for session in sessions for number in range(1, count + 1) if not seen[session][number])
        doubled = sum(times - 1 for numbers in seen.values() for times in numbers.values())
        return lost, doubled

    def delays(self, numbers: range | None = None) -> list[float]:
        """Return the milliseconds from the agent, whose text has number and time, to here; of the
        events with these numbers, or of all."""
        said = [(when, *map(float, text.split()[:2])) for when, _, text in self.texts]
        return [(when - clock) * 1000 for when, number, clock in said if numbers is None or int(number) in numbers]


async def rows(scale: Scale) -> AsyncIterator[Figure]:
    with make_sandbox(config=CONFIG) as sandbox, daemon_process(sandbox, forked=False) as daemon:
        async with connected(sandbox) as client:
            ids = await gather_herd(client, sandbox.repository(), scale.agents)
        async for figure in steady(scale, sandbox, daemon, ids):
            yield figure
        async for figure in killed(scale, sandbox, daemon, ids):
            yield figure


async def steady(scale: Scale, sandbox: Sandbox, daemon: DaemonProcess, ids: Sequence[str]) -> AsyncIterator[Figure]:
    count = round(scale.per_second * scale.telling_s)
    between = range(count // 4, count * 3 // 4)  # all turns have begun, and none has ended
    async with connected(sandbox) as client:
        heard = Heard(await now(client))
        async with heard.listening(client):
            used = used_by(sandbox, daemon)
            await tell(client, ids, count, scale)
            await eventually(lambda: len(heard.texts) >= len(ids) * between.start, within=LATE_S, every=0.02)
            first, begun = len(heard.texts), used_by(sandbox, daemon)
            await eventually(lambda: len(heard.texts) >= len(ids) * between.stop, within=LATE_S, every=0.02)
            events, ending = max(len(heard.texts) - first, 1), used_by(sandbox, daemon)
            await all_heard(heard, len(ids) * count, scale.telling_s)
        await all_idle(client, len(ids))
        ended = used_by(sandbox, daemon)
        await tell(client, ids, count, scale)
        share, answers, growth = await asyncio.to_thread(beside, sandbox, "session", scale.telling_s * 0.6)
        await all_idle(client, len(ids))
        await tell(client, ids, count, scale)
        tabs = ["/", "/inbox", f"/sessions/{ids[0]}"]
        web_share, web_growth = await asyncio.to_thread(web_beside, sandbox, tabs, scale.telling_s * 0.6)
        await all_idle(client, len(ids))
    lost, doubled = heard.faults(ids, count)
    delays = heard.delays()
    what = f"{len(ids)} scripted agents, {scale.per_second} events/s each for {scale.telling_s:g} s, one WatchEvents client"
    yield Figure("events lost", lost, "events", what, 0)
    yield Figure("events doubled", doubled, "events", what, 0)
    beside_what = f"`rametctl top` on {len(ids)} scripted agents that tell {scale.per_second} events/s each"
    yield Figure("dashboard beside agents", share, "% of a core", beside_what, 30)
    sent = len(ids) * scale.per_second * scale.telling_s * 0.3
    yield Figure("dashboard, growth in 10,000 events", growth * 10_000 / sent, "MB", beside_what)
    yield Figure("dashboard, key to screen, p99", percentile(answers, 99), "ms", beside_what, 100)
    web_what = (
        f"`rametctl web` with three tabs on {len(ids)} scripted agents that tell {scale.per_second} events/s each"
    )
    yield Figure("web page beside agents", web_share, "% of a core", f"{web_what}; wanted: 50")
    yield Figure("web page, growth in 10,000 events", web_growth * 10_000 / sent, "MB", web_what)
    yield Figure("event delay, p50", percentile(delays, 50), "ms", f"agent's clock to client's, {what}", 30)
    yield Figure("event delay, p99", percentile(delays, 99), "ms", f"agent's clock to client's, {what}", 100)
    delays = heard.delays(between)
    steadily = f"only events while all turns run, without their begin and end at one moment; {what}"
    yield Figure("event delay within turns, p50", percentile(delays, 50), "ms", steadily, 30)
    yield Figure("event delay within turns, p99", percentile(delays, 99), "ms", steadily, 100)
    for who, began, end in zip(("daemon", "keepers"), begun, ending, strict=True):
        yield Figure(f"processor time of an event, {who}", (end - began) / events * 1e6, "µs", steadily)
    of_events = (ending[0] - begun[0]) / events * (len(heard.texts) - events)
    turn = (ended[0] - used[0] - (ending[0] - begun[0]) - of_events) / len(ids) * 1000
    yield Figure("processor time of a turn, daemon", turn, "ms", f"begin and end of a turn without its events; {what}")


async def killed(scale: Scale, sandbox: Sandbox, daemon: DaemonProcess, ids: Sequence[str]) -> AsyncIterator[Figure]:
    count = round(scale.per_second * scale.telling_s)
    async with connected(sandbox) as client:
        heard = Heard(await now(client))
        async with heard.listening(client) as listening:
            await tell(client, ids, count, scale)
            await asyncio.sleep(scale.telling_s / 4)
            daemon.kill()
            await listening
    yardstick = run_time([sys.executable, "-c", "import rametd.app"], environ=sandbox.environ, cwd=sandbox.root)
    before = len(heard.texts)
    began = time.time()
    serving = start_time_of(daemon)
    progress(f"killed after {before} events; serving again after {serving:.2f} s")
    async with connected(sandbox) as client, heard.listening(client):
        await all_heard(heard, len(ids) * count, scale.telling_s)
    lost, doubled = heard.faults(ids, count)
    last = max(event.time.ToMicroseconds() / 1e6 for event in heard.attached) - began
    missing = len(ids) - len({event.session_id for event in heard.attached})
    what = f"SIGKILL of the daemon while {len(ids)} agents tell {scale.per_second} events/s each, and a start at once"
    yield Figure("agents not reattached", missing, "agents", what, 0)
    yield Figure(
        "reattached after a kill",
        last,
        "s",
        f"spawn to the last agent_attached event; {what}",
        2,
        last / yardstick,
        "python -c 'import rametd.app'",
    )
    yield Figure(
        "serving after a kill",
        serving,
        "s",
        f"spawn to READY=1; {what}",
        1,
        serving / yardstick,
        "python -c 'import rametd.app'",
    )
    yield Figure("events lost in a kill", lost, "events", what, 0)
    yield Figure("events doubled in a kill", doubled, "events", what, 0)


def used_by(sandbox: Sandbox, daemon: DaemonProcess) -> tuple[float, float]:
    """Return the processor time of the daemon and of all keepers, in seconds."""
    return cpu_time(daemon.pid), sum(cpu_time(keeper.pid) for keeper in sandbox.keepers())


async def now(client: Client) -> common_pb2.Cursor:
    return (await client.daemon.GetInfo(daemon_pb2.GetInfoRequest(), metadata=client.metadata)).cursor


async def tell(client: Client, ids: Sequence[str], count: int, scale: Scale) -> None:
    prompt = script({"events": count, "per_second": scale.per_second, "bytes": BYTES})
    await asyncio.gather(*(client.send(each, prompt) for each in ids))


async def all_heard(heard: Heard, expected: int, seconds: float) -> None:
    """Wait for the last event; the caller counts missing ones."""
    with suppress(AssertionError):
        await eventually(lambda: len(heard.texts) >= expected, within=seconds + LATE_S, every=0.1)
    await asyncio.sleep(0.2)  # a duplicate would arrive now
