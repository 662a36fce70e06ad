"""The view model against a daemon that is killed, replaced and slow."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from ramet.paths import directories
from ramet.v1 import attention_pb2, event_pb2, session_pb2
from rametctl.connection.link import Link
from rametctl.errors import ClientError
from rametctl.view.model import Change, Topic, View
from rametctl.view.parts import CHECKPOINTS, DETAILS, REQUESTS

from tests.support.agents import script
from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.daemon import IDLE, WAITING, DaemonProcess, connected, make_sandbox
from tests.support.eventually import eventually
from tests.support.fake_state import Call, Refusal

WORKING, PAUSED = session_pb2.SESSION_STATE_WORKING, session_pb2.SESSION_STATE_PAUSED


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


@pytest.fixture
async def view(world: World) -> AsyncIterator[View]:
    async with current(world.environ) as made:
        yield made


@asynccontextmanager
async def current(environ: Mapping[str, str]) -> AsyncIterator[View]:
    """Yield a view that is updated inside the block."""
    link = Link(directories(environ), environ, autostart=False)
    view = View(link)
    task = asyncio.create_task(view.run())
    try:
        await eventually(view.ready.is_set)
        yield view
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await link.close()


def warn(world: World, session: session_pb2.Session, text: str) -> None:
    world.state.event(session, warning=event_pb2.Warning(message=text))


def move(world: World, session: session_pb2.Session, state: "session_pb2.SessionState.ValueType") -> None:
    session.state, session.state_reason = state, "why"
    world.state.event(session, state_changed=event_pb2.StateChanged(new_state=state, reason="why"))


def say(world: World, session: session_pb2.Session, text: str) -> None:
    block = event_pb2.ContentBlock(text=text)
    world.state.event(session, assistant_message=event_pb2.AssistantMessage(blocks=[block]))


def watches_only(world: World, session: session_pb2.Session) -> bool:
    return list(world.state.called("WatchEvents")[-1].detailed) == [session.id]


def said(event: event_pb2.Event) -> str:
    return event.assistant_message.blocks[0].text


def state_of(view: View, session: session_pb2.Session) -> int | None:
    held = view.sessions.get(session.id)
    return None if held is None else held.state


def texts(view: View, session: session_pb2.Session) -> list[str]:
    return [event.warning.message for event in view.transcripts[session.id].fresh]


async def test_it_begins_with_the_present_sessions_and_follows_their_states(world: World, view: View) -> None:
    session = world.state.session("late")
    world.state.event(session, session_created=event_pb2.SessionCreated(session=session))
    await eventually(lambda: session.id in view.sessions)
    move(world, session, WORKING)
    await eventually(lambda: state_of(view, session) == WORKING)
    assert view.sessions[session.id].state_reason == "why"
    del world.state.sessions[session.id]
    world.state.event(session, session_removed=event_pb2.SessionRemoved(name="late"))
    await eventually(lambda: session.id not in view.sessions)


@pytest.mark.parametrize("stops", [1, 4])
async def test_a_killed_daemon_leaves_neither_a_gap_nor_a_double(world: World, view: View, stops: int) -> None:
    session = world.state.session("fix")
    warn(world, session, "0")
    view.want([], [session.id])
    await eventually(lambda: texts(view, session) == ["0"])
    for number in range(1, stops + 1):
        warn(world, session, f"{number} before")
        await asyncio.to_thread(world.daemon.stop)
        await eventually(lambda: view.outage is not None)
        warn(world, session, f"{number} while it is away")
        move(world, session, PAUSED if number % 2 else WORKING)
        world.daemon.start()
        await eventually(lambda: view.outage is None)
        warn(world, session, f"{number} after")
    await eventually(lambda: texts(view, session)[-1:] == [f"{stops} after"])
    shown = [text for text in texts(view, session) if text]
    words = ("before", "while it is away", "after")
    assert shown == ["0", *(f"{number} {when}" for number in range(1, stops + 1) for when in words)]
    await eventually(lambda: state_of(view, session) == session.state)


async def test_concurrent_calls_continue_with_the_next_daemon(world: World) -> None:
    """The first call to fail closes the channel, which cancels all others; this must not cancel the
    waiting tasks."""
    link = Link(directories(world.environ), world.environ, autostart=True)
    forever = session_pb2.WaitSessionsRequest()
    calls = [asyncio.create_task(link.call(lambda daemon: daemon.sessions.WaitSessions, forever)) for _ in range(3)]
    await eventually(lambda: len(world.state.called("WaitSessions")) == 3)
    before = link._stubs
    await link.drop(before)
    await eventually(lambda: len(world.state.called("WaitSessions")) == 6)
    assert link._stubs is not before
    calls[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    with world.state.changed:
        world.state.wait.outcome = session_pb2.WAIT_OUTCOME_DONE
    assert [answer.outcome for answer in await asyncio.gather(*calls[1:])] == [session_pb2.WAIT_OUTCOME_DONE] * 2
    await link.close()


async def test_another_event_log_replaces_everything_that_was_known(world: World, view: View) -> None:
    gone = world.state.session("gone")
    warn(world, gone, "of the old log")
    world.state.event(gone, session_created=event_pb2.SessionCreated(session=gone))
    await eventually(lambda: gone.id in view.sessions)
    view.want([(REQUESTS, "")], [gone.id])
    await eventually(lambda: view.part(REQUESTS).value == [])
    await asyncio.to_thread(world.daemon.stop)
    world.state.epoch = "epoch2"
    world.state.sessions.clear()
    world.state.events.clear()
    other = world.state.session("kept")
    request = world.state.request(other)
    world.daemon.start()
    await eventually(lambda: [session.name for session in view.sessions.values()] == ["kept"])
    await eventually(lambda: view.part(REQUESTS).value == [request])
    await eventually(lambda: not view.transcripts[gone.id].fresh)


async def test_an_older_event_does_not_undo_what_was_read_since(world: World, view: View) -> None:
    """The session is read before its events arrive."""
    session = world.state.session("fix")
    world.state.event(session, session_created=event_pb2.SessionCreated(session=session))
    await eventually(lambda: session.id in view.sessions)
    newer = session_pb2.Session()
    newer.CopyFrom(session)
    newer.state, newer.last_seq = PAUSED, session.last_seq + 10
    view._take_session(newer)
    move(world, session, WORKING)
    warn(world, session, "has arrived")
    view.want([], [session.id])
    await eventually(lambda: "has arrived" in texts(view, session))
    assert view.sessions[session.id].state == PAUSED


async def test_a_transcript_opened_later_has_every_event_once(world: World, view: View) -> None:
    first, second = world.state.session("first"), world.state.session("second")
    for number in range(3):
        for session in (first, second):
            say(world, session, f"{number}")
        shown = first if number % 2 else second
        view.want([], [shown.id])
        await eventually(partial(watches_only, world, shown))
    say(world, second, "live")
    held = view.transcripts[second.id]
    await eventually(lambda: [said(event) for event in held.fresh] == ["0", "1", "2", "live"])


async def test_a_part_is_read_when_it_is_wanted_and_again_when_an_event_makes_it_stale(
    world: World, view: View
) -> None:
    session = world.state.session("fix")
    request = world.state.request(session)
    view.want([(REQUESTS, "")])
    await eventually(lambda: view.part(REQUESTS).value == [request])
    second = world.state.request(session)
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=second))
    await eventually(lambda: view.part(REQUESTS).value == [request, second])
    view.want([])
    calls = len(world.state.called("ListRequests"))
    world.state.event(session, request_opened=event_pb2.RequestOpened(request=second))
    warn(world, session, "a moment later")
    view.want([], [session.id])
    await eventually(lambda: "a moment later" in texts(view, session))
    assert len(world.state.called("ListRequests")) == calls
    view.want([(REQUESTS, "")])
    await eventually(lambda: len(world.state.called("ListRequests")) == calls + 1)


async def test_a_part_that_becomes_stale_while_it_is_read_is_read_again(world: World, view: View) -> None:
    session = world.state.session("fix")
    late: list[attention_pb2.AttentionRequest] = []

    def on_call(call: Call) -> None:
        if call.method == "ListRequests" and not late:
            late.append(attention_pb2.AttentionRequest())  # the next call is another one
            world.state.event(session, request_opened=event_pb2.RequestOpened())

    world.state.on_call = on_call
    view.want([(REQUESTS, "")])
    await eventually(lambda: len(world.state.called("ListRequests")) == 2)


async def test_a_part_that_is_refused_says_why_and_keeps_what_was_known(world: World, view: View) -> None:
    session = world.state.session("fix")
    view.want([(DETAILS, session.id)])
    await eventually(lambda: view.part(DETAILS, session.id).value)
    world.state.refusals["GetSession"] = [Refusal("INTERNAL", "no")]
    view.refresh(DETAILS, session.id)
    await eventually(lambda: view.part(DETAILS, session.id).error == "no")
    assert view.part(DETAILS, session.id).value
    view.refresh(DETAILS, session.id)
    await eventually(lambda: not view.part(DETAILS, session.id).error)


async def test_changes_names_what_changed_since_the_last_look_once(world: World, view: View) -> None:
    session = world.state.session("fix")
    world.state.event(session, session_created=event_pb2.SessionCreated(session=session))
    await eventually(lambda: session.id in view.sessions)
    version, _ = view.changes(0)
    for _ in range(50):
        move(world, session, WORKING)
    await eventually(lambda: view.sessions[session.id].last_seq == len(world.state.events))
    version, changes = view.changes(version)
    assert changes == {Change(Topic.SESSION, session.id)}
    assert view.changes(version)[1] == set()


async def test_what_will_not_pass_by_itself_ends_the_view(world: World) -> None:
    world.state.refusals["WatchEvents"] = [Refusal("PERMISSION_DENIED", "not yours", "NOT_ALLOWED")]
    link = Link(directories(world.environ), world.environ, autostart=False)
    with pytest.raises(ClientError, match="not yours"):
        await View(link).run()
    await link.close()


async def test_it_holds_what_a_real_daemon_says_over_two_kills() -> None:
    """One session ends a turn, one asks; afterwards the view equals fresh lists."""
    with make_sandbox() as sandbox:
        repository = sandbox.repository()
        daemon = DaemonProcess(sandbox)
        daemon.start()
        async with connected(sandbox) as client, current(sandbox.environ) as view:
            done = await client.create(repository, script({"text": "hello"}), name="done")
            view.want([(REQUESTS, ""), (CHECKPOINTS, done.id)], [done.id])
            await client.reach("done", IDLE)
            await asyncio.to_thread(daemon.restart)
            asks = await client.create(repository, script({"tool": "Bash", "input": {"command": "make"}}), name="asks")
            await client.reach("asks", WAITING)
            await asyncio.to_thread(daemon.restart)

            async def as_told() -> bool:
                listed = await client.sessions.ListSessions(session_pb2.ListSessionsRequest(), metadata=client.metadata)
                open_requests = await client.attention.ListRequests(
                    attention_pb2.ListRequestsRequest(), metadata=client.metadata
                )
                for session in listed.sessions:
                    held = session_pb2.Session()
                    held.CopyFrom(view.sessions[session.id])
                    for message in (held, session):
                        message.ClearField("update_time")
                    assert held == session
                assert view.part(REQUESTS).value == list(open_requests.requests)
                assert view.part(CHECKPOINTS, done.id).value == await client.checkpoints("done")
                return True

            assert set(view.sessions) == {done.id, asks.id}
            await eventually(as_told)
            stored = [event.seq for event in await client.log("done") if not event.HasField("partial")]
            fresh = view.transcripts[done.id].fresh
            await eventually(lambda: [event.seq for event in fresh if not event.HasField("partial")] == stored)
