"""Kill all processes at once, as a reboot does; and the limit on automatic resumes."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from ramet.v1 import common_pb2

from tests.crash.scene import (
    Gates,
    approve,
    check_prompts,
    flag_of,
    open_requests,
    settle_down,
    the_pid,
    transcript,
)
from tests.support.agents import script
from tests.support.daemon import (
    FAILED,
    IDLE,
    QUEUED,
    WAITING,
    WORKING,
    Sandbox,
    connected,
    daemon_process,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
PLAN = common_pb2.PERMISSION_MODE_PLAN
EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS


@pytest.mark.smoke
async def test_after_a_reboot_working_sessions_resume(sandbox: Sandbox, repository: Path) -> None:
    gates = Gates(sandbox)
    gates.close("work")
    bash = {"tool": "Bash", "input": {"command": "echo ran >> ran.txt", "description": "x"}}
    held, asks, over = script(gates.wait_for_gate("work")), script(bash), script({"text": "over"})
    wanted = {
        "one": (held, BYPASS, "claude-opus-5-5"),
        "two": (held, BYPASS, "claude-sonnet-5"),
        "three": (held, BYPASS, ""),
        "asks": (asks, EDITS, "claude-sonnet-5"),
        "idle": (over, PLAN, ""),
    }
    at_work = ("one", "two", "three")
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            made = {
                name: await client.create(repository, text, name=name, mode=mode, model=model)
                for name, (text, mode, model) in wanted.items()
            }
            for name in at_work:
                await eventually(partial(transcript, sandbox, made[name].conversation_id))
                await client.reach(name, WORKING)
            await client.reach("asks", WAITING)
            await client.reach("idle", IDLE)
            asked = await open_requests(client)

            sandbox.kill_everything()
            assert daemon.process is not None
            daemon.process.wait()
            daemon.start()

            for name in at_work:
                pid = await eventually(partial(the_pid, sandbox, made[name].conversation_id))
                assert flag_of(pid, "--permission-mode") == "bypassPermissions"
                assert flag_of(pid, "--model") == wanted[name][2]
            await client.reach("asks", WAITING)
            assert await open_requests(client) == asked
            assert (await client.get("idle")).state == IDLE
            assert the_pid(sandbox, made["idle"].conversation_id) == 0
            gates.open("work")
            await approve(client, asked["asks"])
            for name, (text, mode, model) in wanted.items():
                session = await settle_down(client, name)
                assert (session.mode, session.model) == (mode, model)
                assert session.conversation_id == made[name].conversation_id
                await check_prompts(client, sandbox, session, [text])


async def test_an_agent_that_always_dies_is_resumed_so_often_and_no_more(sandbox: Sandbox, repository: Path) -> None:
    gates = Gates(sandbox, max_resumes=1)
    gates.close("dies.die")
    text = script({"text": "alive"})
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            await client.create(repository, text, name="dies", environment={"GATE": "dies"})
            failed = await client.reach("dies", FAILED)
            assert "signal SIGKILL" in failed.state_reason
            assert "resumed 1 time without" in failed.state_reason
            assert "`rametctl resume dies`" in failed.state_reason
            assert gates.tries("dies") == 2

            daemon.restart()
            assert (await client.get("dies")).state == FAILED
            assert gates.tries("dies") == 2

            gates.open("dies.die")
            await client.send("dies", script({"text": "again"}))
            session = await settle_down(client, "dies")
            await check_prompts(client, sandbox, session, [text, script({"text": "again"})])


async def test_what_waits_for_a_slot_keeps_its_place_and_its_living_agent(sandbox: Sandbox, repository: Path) -> None:
    gates = Gates(sandbox, "max_working = 1")
    gates.close("work")
    first, second, held = script({"text": "first"}), script({"text": "second"}), script(gates.wait_for_gate("work"))
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            again = await client.create(repository, first, name="again")
            await settle_down(client, "again")
            await client.create(repository, held, name="holds", mode=BYPASS)
            await client.reach("holds", WORKING)
            await client.send("again", second)
            await client.create(repository, first, name="new")
            pid = the_pid(sandbox, again.conversation_id)

            daemon.restart()

            assert [(await client.get(name)).state for name in ("holds", "again", "new")] == [WORKING, QUEUED, QUEUED]
            assert the_pid(sandbox, again.conversation_id) == pid
            # The kill includes the agent that waits for its slot; its prompt stays queued.
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: the_pid(sandbox, again.conversation_id) == 0)
            gates.open("work")
            for name, texts in (("holds", [held]), ("again", [first, second]), ("new", [first])):
                await check_prompts(client, sandbox, await settle_down(client, name), texts)


async def test_an_agent_killed_in_a_turn_queued_during_the_last_one_resumes_that_turn(
    sandbox: Sandbox, repository: Path
) -> None:
    gates = Gates(sandbox)
    gates.close("first")
    gates.close("second")
    texts = [script(gates.wait_for_gate(name), {"text": name}) for name in ("first", "second")]
    with daemon_process(sandbox):
        async with connected(sandbox) as client:
            made = await client.create(repository, texts[0], name="works", mode=BYPASS)
            await eventually(partial(transcript, sandbox, made.conversation_id))
            await client.send("works", texts[1])
            gates.open("first")
            await eventually(lambda: len(transcript(sandbox, made.conversation_id)) == 2)
            await eventually(lambda: any("gates/second" in " ".join(each.cmdline()) for each in sandbox.processes()))
            pid = the_pid(sandbox, made.conversation_id)

            os.kill(pid, signal.SIGKILL)

            await eventually(lambda: the_pid(sandbox, made.conversation_id) not in {0, pid})
            await eventually(lambda: len(transcript(sandbox, made.conversation_id)) == 3)
            assert "Continue where you left off" in transcript(sandbox, made.conversation_id)[2].text
            gates.open("second")
            session = await settle_down(client, "works")
            await check_prompts(client, sandbox, session, texts)
