"""Usage limits of the account, and the queue: held sessions, continuing ones, and their order."""

import time
from pathlib import Path

import pytest
from ramet.v1 import common_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import (
    FAILED,
    IDLE,
    PAUSED,
    QUEUED,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
)
from tests.support.eventually import eventually
from tests.support.family import EDITS, Step, gate, payloads

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
ALLOWED = "[permissions]\nallow_bypass = true\n"


def limited(status: str, seconds: float) -> Step:
    return {"rate_limit": {"status": status, "resetsAt": time.time() + seconds}}


@pytest.mark.full
async def test_a_session_at_the_usage_limit_waits_for_its_end_and_resumes_once(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    # Its agent runs already, so that only a turn must fit into the time until the limit ends.
    await client.create(repository, script({"text": "ready"}), name="limited")
    await client.reach("limited", IDLE)
    reset = time.time() + 5
    step = {"rate_limit": {"status": "rejected", "resetsAt": int(reset)}}
    await client.send("limited", script(step, {"fail": "You have hit your limit", "unless": "lifted"}))
    held = await client.reach("limited", PAUSED)
    (Path(held.worktree) / "lifted").touch()
    assert held.state_reason == f"usage limit; continues by itself at {time.strftime('%H:%M', time.localtime(reset))}"
    assert held.turns == 2
    daemon.restart()  # the next daemon resumes at the promised time

    session = await client.reach("limited", IDLE)
    assert time.time() >= int(reset)
    assert session.turns == 3
    log = await client.log("limited")
    queued = [event.prompt_queued.prompt for event in payloads(log, "prompt_queued")]
    assert [prompt.source for prompt in queued] == ["owner", "owner", "daemon"]
    assert "interrupted" in queued[2].text
    limit = payloads(log, "rate_limit")[0].rate_limit
    assert (limit.status, limit.reset_time.seconds) == ("rejected", int(reset))


@pytest.mark.full
async def test_a_limit_that_comes_again_and_again_ends_with_the_person(client: Client, repository: Path) -> None:
    # The continuation quotes the prompt, so that the script runs again each time.
    words = script({"rate_limit": {"status": "rejected", "resetsAt": 1}}, {"fail": "limit"})
    await client.create(repository, words, name="again")
    session = await client.reach("again", FAILED)
    assert session.state_reason == "the usage limit was hit 4 times in a row"
    assert session.turns == 4


async def test_allowed_limits_without_an_error_hold_no_session(client: Client, repository: Path) -> None:
    steps = [limited("allowed", 3600), limited("allowed_warning", 3600), {"text": "went on"}]
    await client.create(repository, script(*steps), name="allowed")
    session = await client.reach("allowed", IDLE)
    assert session.turns == 1
    await client.create(repository, script(limited("rejected", 3600), {"text": "done all the same"}), name="lucky")
    await client.reach("lucky", IDLE)
    await client.create(repository, script(limited("allowed", 3600), {"fail": "broken"}), name="broken")
    failed = await client.reach("broken", FAILED)
    assert failed.state_reason == "broken"


async def test_a_retry_of_the_api_is_shown(client: Client, repository: Path) -> None:
    await client.create(
        repository, script({"retry": {"attempt": 2, "error": "overloaded"}}, {"text": "x"}), name="tries"
    )
    await client.reach("tries", IDLE)
    (event,) = payloads(await client.log("tries"), "api_retry")
    assert (event.api_retry.attempt, event.api_retry.max_attempts, event.api_retry.error) == (2, 10, "overloaded")
    assert event.api_retry.delay.ToMilliseconds() == 500


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────


async def started(client: Client) -> list[str]:
    """Return the names of sessions in the order in which they began to work."""
    names = {session.id: session.name for session in await _all(client)}
    return [names[event.session_id] for event in await client.log() if event.HasField("agent_started")]


async def _all(client: Client) -> list[session_pb2.Session]:
    request = session_pb2.ListSessionsRequest(page_size=1000)
    return list((await client.sessions.ListSessions(request, metadata=client.metadata)).sessions)


async def test_the_queue_goes_by_priority_and_by_turns_between_repositories(sandbox: Sandbox) -> None:
    config = sandbox.directories.config_file.read_text()
    sandbox.configure(f"max_working = 1\n{ALLOWED}{config}")
    go = sandbox.root / "go"
    one, other = sandbox.repository("one"), sandbox.repository("other")
    with daemon_process(sandbox):
        async with connected(sandbox) as client:
            await client.create(one, script(gate(go), {"text": "x"}), name="first", mode=BYPASS)
            await client.reach("first", WORKING)
            for name in ("one-1", "one-2", "one-3"):
                await client.create(one, "hello", name=name)
            for name in ("other-1", "other-2"):
                await client.create(other, "hello", name=name)
            await client.create(one, "hello", name="urgent", priority=5)
            await client.create(one, "hello", name="later", priority=-1)
            assert (await client.get("one-1")).state == QUEUED
            go.touch()
            await client.reach("later", IDLE)
            assert await started(client) == [
                "first", "urgent", "other-1", "one-1", "other-2", "one-2", "one-3", "later",
            ]  # fmt: skip


@pytest.mark.full
async def test_sessions_after_a_failed_one_are_held_with_the_reason_until_it_succeeds(
    client: Client, repository: Path
) -> None:
    await client.create(repository, script({"fail": "no luck"}), name="before")
    await client.reach("before", FAILED)
    await client.create(repository, script({"text": "x"}), name="middle", after=["before"])
    await client.create(repository, script({"text": "x"}), name="last", after=["middle", "before"])

    async def held() -> bool:
        middle, last = await client.get("middle"), await client.get("last")
        assert middle.state_reason == "held: before, which it waits for, failed"
        assert last.state_reason == "waits for middle"
        return middle.state == last.state == QUEUED

    await eventually(held)
    await client.send("before", script({"text": "better now"}))
    for name in ("before", "middle", "last"):
        await client.reach(name, IDLE)
    order = await started(client)
    assert order.index("middle") < order.index("last")


async def test_a_paused_session_queues_prompts_and_resume_sends_them(client: Client, repository: Path) -> None:
    await client.create(repository, script({"text": "one"}), name="pauses", mode=EDITS)
    await client.reach("pauses", IDLE)
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="pauses"), metadata=client.metadata)
    for number in range(2):
        await client.send("pauses", script({"text": f"kept {number}"}))
    held = await client.get("pauses")
    assert (held.state, held.state_reason) == (PAUSED, "held: `rametctl resume pauses` continues it")

    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="pauses"), metadata=client.metadata)

    async def all_said() -> bool:
        events = payloads(await client.log("pauses"), "assistant_message")
        said = [block.text for event in events for block in event.assistant_message.blocks]
        return [text for text in said if text.startswith("kept")] == ["kept 0", "kept 1"]

    await eventually(all_said)
