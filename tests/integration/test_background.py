"""Background commands of agents: shown, awaited on request, named by verbs that end them, and ended
only at their own limit."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, QUEUED, Client, Ran, Sandbox, connected, daemon_here, git
from tests.support.eventually import eventually
from tests.support.family import payloads

pytestmark = pytest.mark.full


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as connection:
        yield connection


async def ctl(sandbox: Sandbox, *arguments: str) -> Ran:
    return await asyncio.to_thread(partial(sandbox.ctl, *arguments))


def building(seconds: float = 600) -> str:
    """Return a script whose turn ends with a background command."""
    return script({"background": seconds, "then": [{"text": "followed up"}]}, {"text": "started"})


async def test_a_background_command_is_shown_and_named_by_whatever_ends_it(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    endings = {"stop": ("stop",), "archive": ("archive",), "rm": ("rm", "--force"), "land": ("land", "--detach")}
    for name in endings:
        await client.create(repository, building(), name=name)

    async def shown(name: str) -> bool:
        session = await client.get(name)
        return session.state == IDLE and [each.description for each in session.background] == ["background"]

    for name, words in endings.items():
        await eventually(partial(shown, name))
        if name == "land":
            git(Path((await client.get(name)).worktree), "commit", "-q", "--allow-empty", "-m", "work")
        listed = (await ctl(sandbox, "ls")).stdout
        assert "in background: background" in listed
        assert "`background` runs in its background" in (await ctl(sandbox, "gc")).stdout
        done = await ctl(sandbox, *words, name)
        assert done.code == 0, done.stderr
        warning = (
            "` runs in the background of land" if name == "land" else "`, which ran in the background of its agent"
        )
        assert f"`background{warning}" in done.stderr + done.stdout


async def test_successors_and_those_who_ask_wait_for_the_background_and_others_do_not(
    client: Client, repository: Path
) -> None:
    await client.create(repository, building(1.5), name="builds")
    await client.create(repository, "hello", name="next", after=["builds"])

    async def ended(condition: "session_pb2.WaitCondition.ValueType") -> int:
        request = session_pb2.WaitSessionsRequest(sessions=["builds"], condition=condition)
        waited = await client.sessions.WaitSessions(request, metadata=client.metadata)
        assert waited.outcome == session_pb2.WAIT_OUTCOME_DONE
        return len(waited.sessions[0].background)

    assert await ended(session_pb2.WAIT_CONDITION_IDLE) == 1

    async def waits() -> bool:
        session = await client.get("next")
        reason = "waits for builds, in whose background `background` runs"
        return (session.state, session.state_reason) == (QUEUED, reason)

    await eventually(waits)
    assert await ended(session_pb2.WAIT_CONDITION_SETTLED) == 0
    await client.reach("next", IDLE)
    assert (await client.get("builds")).turns == 2  # the agent learns of the command's end


@pytest.fixture
def sleepy(sandbox: Sandbox) -> None:
    config = sandbox.directories.config_file.read_text()
    sandbox.configure(f'{config}\n[agents]\nsleep_after = "1s"\nsleep_after_background = "4s"\n')


async def test_a_background_command_keeps_its_agent_awake_up_to_a_limit_with_a_warning(
    sleepy: None, client: Client, repository: Path
) -> None:
    await client.create(repository, "hello", name="sleeps")
    await client.create(repository, building(), name="builds")

    async def asleep(name: str) -> bool:
        return not (await client.get(name)).agent_alive

    await eventually(partial(asleep, "sleeps"))
    assert (await client.get("builds")).agent_alive
    await eventually(partial(asleep, "builds"))
    session = await client.get("builds")
    assert session.state_reason.startswith("the background command `background` was ended")
    assert not session.background
    (warning,) = payloads(await client.log("builds"), "warning")
    assert "sleep_after_background" in warning.warning.message
