"""Messages between sessions: delivered, queued or refused, once each, and never treated as the
person's."""

import asyncio
from pathlib import Path

import pytest
from ramet.v1 import event_pb2, orchestration_pb2, session_pb2

from tests.crash.scene import transcript
from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    PAUSED,
    WAITING,
    WORKING,
    Client,
    Sandbox,
    connected,
    daemon_process,
    make_sandbox,
)
from tests.support.eventually import eventually
from tests.support.family import (
    EDITS,
    Member,
    approve,
    bash,
    gate,
    payloads,
    refusal,
    root,
    token_of,
    tool,
    tool_results,
)
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]

QUEUED = orchestration_pb2.MESSAGE_STATE_QUEUED
SENT = orchestration_pb2.MESSAGE_STATE_SENT
RECEIVED = orchestration_pb2.MESSAGE_STATE_RECEIVED


@pytest.fixture
def path(sandbox: Sandbox) -> Path:
    return sandbox.root / "repo"


async def received(client: Client, name: str) -> None:
    """Wait until a session has read all its messages and is idle."""

    async def look() -> bool:
        request = session_pb2.GetSessionRequest(session=name)
        shown = await client.sessions.GetSession(request, metadata=client.metadata)
        return shown.session.state == IDLE and not shown.pending_prompts

    await eventually(look)


def taken_in(sandbox: Sandbox, session: session_pb2.Session) -> list[str]:
    return [each.text for each in transcript(sandbox, session.conversation_id)]


async def test_a_message_to_a_session_at_work_reaches_it_in_its_turn(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    go = sandbox.root / "go-busy"
    lead = await root(client, sandbox, path, "busy-lead", mode=EDITS)
    await lead.spawn("nothing")
    await lead.spawn(script(gate(go), {"text": "done"}), name="busy")
    await client.reach("busy", WAITING)
    await approve(client, "busy")
    await client.reach("busy", WORKING)

    response = await lead.say("busy", "mind the gap")
    assert (response.message.state, response.outcome) == (SENT, "the agent reads it in the running turn")
    assert (response.message.from_id, response.message.from_name) == (lead.id, "busy-lead")
    go.touch()
    await received(client, "busy")

    (message,) = [each for each in await lead.messages() if each.text == "mind the gap"]
    assert (message.state, message.to_name) == (RECEIVED, "busy")
    assert message.HasField("receive_time")
    (text,) = [each for each in taken_in(sandbox, await client.get("busy")) if "mind the gap" in each]
    assert text.startswith(f"[Message from the session 'busy-lead' ({lead.id}), not from the person.")
    assert text.endswith("\n\nmind the gap")


async def test_an_idle_session_and_one_asleep_start_a_turn_with_a_message(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "wakes")
    await lead.spawn(script({"text": "ready"}), name="rests")
    await client.reach("rests", IDLE)
    response = await lead.say("rests", "once more")
    assert response.outcome == "it starts a turn"
    await received(client, "rests")
    assert (await client.get("rests")).turns == 2

    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="rests"), metadata=client.metadata)
    asleep = await client.get("rests")
    assert (asleep.state, asleep.agent_alive) == (IDLE, False)
    await lead.say("rests", "wake up")
    await received(client, "rests")
    assert (await client.get("rests")).turns == 3


@pytest.mark.full
async def test_a_message_to_a_held_session_is_queued_until_it_continues(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "holds")
    await lead.spawn(script({"hang": True}), name="stopped")
    await lead.spawn(script({"text": "ready"}), name="paused")
    await client.reach("stopped", WORKING)
    await client.reach("paused", IDLE)
    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="stopped"), metadata=client.metadata)
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="paused"), metadata=client.metadata)

    for name in ("stopped", "paused"):
        response = await lead.say(name, "for later")
        assert (response.message.state, response.outcome) == (QUEUED, "it waits: the session is paused")
        assert (await client.get(name)).state == PAUSED
    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="paused"), metadata=client.metadata)
    await received(client, "paused")
    assert len([text for text in taken_in(sandbox, await client.get("paused")) if "for later" in text]) == 1


async def test_only_the_person_reaches_sessions_outside_the_family(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead, stranger = await root(client, sandbox, path, "mine"), await root(client, sandbox, path, "theirs")
    child = await lead.spawn(name="mine-child")
    assert await refusal(lead.say("theirs", "psst")) == ("PERMISSION_DENIED", "theirs is not in your family")
    assert (await refusal(lead.say("nobody", "psst")))[0] == "SESSION_NOT_FOUND"
    assert (await refusal(lead.say("mine", "psst")))[0] == "INVALID_INPUT"
    assert (await refusal(lead.say("parent", "psst")))[0] == "PERMISSION_DENIED"
    assert (await refusal(lead.get("theirs")))[0] == "PERMISSION_DENIED"
    assert (await refusal(lead.stop("theirs")))[0] == "PERMISSION_DENIED"
    assert (await refusal(Member(client, sandbox, child.id).stop("mine")))[0] == "PERMISSION_DENIED"
    assert (await refusal(lead.wait("theirs")))[0] == "PERMISSION_DENIED"
    assert await lead.members() == {"mine": "self", "mine-child": "child"}
    assert stranger.id not in {message.to_id for message in await lead.messages()}

    owner = Member(client, sandbox)
    said = await owner.say("theirs", "hello")
    assert said.message.from_id == "owner"
    await received(client, "theirs")
    assert taken_in(sandbox, await client.get("theirs")) == ["hello"], "the person's prompt is not marked"


async def test_a_message_over_16_kib_is_refused(client: Client, sandbox: Sandbox, path: Path) -> None:
    lead = await root(client, sandbox, path, "wordy")
    await lead.spawn(name="wordy-child")
    reason, words = await refusal(lead.say("wordy-child", "é" * (8 << 10) + "x"))
    assert (reason, words) == ("PROMPT_TOO_LARGE", "the message is over 16,384 bytes")
    assert (await refusal(lead.report("é" * (8 << 10) + "x")))[0] == "PROMPT_TOO_LARGE"
    await lead.say("wordy-child", "é" * (8 << 10))


async def test_messages_in_a_minute_are_capped(client: Client, sandbox: Sandbox, path: Path) -> None:
    lead = await root(client, sandbox, path, "chatty")
    await lead.spawn(name="chatty-child")
    await client.reach("chatty-child", IDLE)
    await client.sessions.PauseSession(
        session_pb2.PauseSessionRequest(session="chatty-child"), metadata=client.metadata
    )
    for number in range(20):
        await lead.say("chatty-child", f"number {number}")
    reason, words = await refusal(lead.say("chatty-child", "one more"))
    assert (reason, words) == ("TOO_MANY_MESSAGES", "you have sent 20 messages within a minute")


@pytest.mark.full
async def test_two_sessions_that_only_answer_each_other_are_stopped_after_eight_messages(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    left = await root(client, sandbox, path, "left")
    right = Member(client, sandbox, (await left.spawn("wait for me", name="right")).id)
    await received(client, "right")
    speakers = [(left, "right"), (right, "left")] * 4
    for number, (speaker, name) in enumerate(speakers):
        await speaker.say(name, f"answer {number}")
        await received(client, name)
    reason, words = await refusal(left.say("right", "and another thing"))
    assert (reason, words) == ("TOO_MANY_MESSAGES", "8 messages in a row have answered each other")

    await client.send("left", "the person speaks")  # a new conversation
    await received(client, "left")
    await left.say("right", "by order")


async def test_the_same_message_asked_twice_is_said_once(client: Client, sandbox: Sandbox, path: Path) -> None:
    lead = await root(client, sandbox, path, "stutters")
    child = await lead.spawn(name="stutters-child")
    first = await lead.say("stutters-child", "hello", request_id="twice")
    assert await lead.say("stutters-child", "hello", request_id="twice") == first
    request = session_pb2.SendPromptRequest(session=child.id, prompt="again", request_id="thrice")
    metadata = (*client.metadata, ("ramet-token", token_of(sandbox, lead.id)))
    for _ in range(2):
        await client.sessions.SendPrompt(request, metadata=metadata)
    texts = [message.text for message in await lead.messages()]
    assert (texts.count("hello"), texts.count("again")) == (1, 1)


async def test_what_sessions_do_to_each_other_is_on_record_with_who_did_it(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "audited")
    await lead.spawn("first words", name="audited-child")
    await lead.say("audited-child", "second words")
    await refusal(lead.spawn(mode="bypassPermissions"))
    request = event_pb2.ListEventsRequest(audit=True, newest=True, page_size=1000)
    audit = (await client.events.ListEvents(request, metadata=client.metadata)).events
    events = [event for event in audit if event.principal == f"session:{lead.id}"]
    created = [event.session_created.session.name for event in payloads(events, "session_created")]
    queued = [event.prompt_queued.prompt.text for event in payloads(events, "prompt_queued")]
    denied = [event.call_denied.method for event in payloads(events, "call_denied")]
    assert (created, queued) == (["audited-child"], ["first words", "second words"])
    assert denied == ["/ramet.v1.OrchestrationService/SpawnSession"]


async def test_a_parent_hears_of_a_turns_end_and_of_a_question_once_also_across_a_kill() -> None:
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        path = sandbox.repository()
        async with connected(sandbox) as client:
            lead = await root(client, sandbox, path, "asked")
            await client.sessions.PauseSession(
                session_pb2.PauseSessionRequest(session="asked"), metadata=client.metadata
            )
            prompt = script(bash("true"), tool("report_result", text="all is well"), {"text": "done"})
            await lead.spawn(prompt, name="tells", notify=True)
            await lead.spawn(script({"text": "done"}), name="keeps-quiet")
            await client.reach("tells", WAITING)
            daemon.restart()
            await client.reach("tells", WAITING)
            await approve(client, "tells")
            await client.reach("tells", IDLE)
            await client.reach("keeps-quiet", IDLE)
            daemon.restart()

            async def told_of() -> bool:
                assert [(each.from_name, each.text) for each in await lead.messages() if each.to_id == lead.id] == [
                    ("tells", "Waiting for the person: this session wants to run: true"),
                    ("tells", "My turn has ended (idle). all is well"),
                ]
                return True

            await eventually(told_of)  # the second perhaps by the last daemon, once it serves
            assert (await lead.get("tells")).session.result == "all is well"


@pytest.mark.full
async def test_a_wait_returns_changes_and_ends_at_once_if_a_person_is_needed(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "waits")
    go = sandbox.root / "go-waits"
    await lead.spawn(script({"text": "done"}), name="quick")
    await lead.spawn(script(gate(go), {"text": "done"}), name="asks-first")
    await client.reach("quick", IDLE)
    first = await lead.wait()
    assert (first.done, first.advice) == (True, "done; asks-first waits for the person")
    assert sorted(member.name for member in first.sessions) == ["asks-first", "quick"]

    again = await lead.wait(cursor=first.cursor, timeout_seconds=1)
    assert (again.done, list(again.sessions)) == (False, []), "an earlier message does not end another wait"

    await approve(client, "asks-first")
    waiting = asyncio.create_task(lead.wait(cursor=again.cursor, any=True))
    go.touch()
    last = await waiting
    assert (last.done, [(each.name, each.state) for each in last.sessions]) == (True, [("asks-first", "idle")])
    everything = await lead.wait()
    assert (everything.done, len(everything.sessions)) == (True, 2)


async def test_a_wait_without_anybody_to_wait_for_is_refused(client: Client, sandbox: Sandbox, path: Path) -> None:
    lead = await root(client, sandbox, path, "alone")
    assert await refusal(lead.wait()) == ("INVALID_INPUT", "there is no session to wait for")
    assert (await refusal(lead.wait("alone", cursor="nonsense")))[0] == "BAD_PAGE_TOKEN"


async def test_tools_that_are_called_wrongly_answer_with_what_they_take(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    steps = [
        tool("spawn_session", wish="x"),
        tool("send_message", session=["a"], text="x"),
        tool("wait_for_sessions", timeout_seconds=-1),
        tool("nonsense"),
        tool("list_sessions"),
    ]
    await client.create(path, script(*steps, {"text": "done"}), name="fumbles")
    await client.reach("fumbles", IDLE)
    answers = await tool_results(client, "fumbles")
    assert "unknown: ['wish'], missing: ['prompt']; spawn_session takes prompt, name" in answers[0]
    assert "there is no tool 'nonsense'" in answers[3]
    assert '"fumbles"' in answers[4]
    assert len(answers) == 5
