"""Kill the daemon at each step of attaching and detaching: there is at most one writer, and each
outside turn counts once."""

from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2

from tests.crash.scene import the_pid
from tests.crash.test_failpoints import start_to_die, wait_for_death
from tests.support.agents import script
from tests.support.daemon import IDLE, DaemonProcess, Sandbox, connected
from tests.support.eventually import eventually
from tests.support.outside import attach, make_turn, process

pytestmark = pytest.mark.crash


async def test_an_attachment_that_is_killed_at_each_step_ends_with_one_turn(sandbox: Sandbox, repository: Path) -> None:
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT="attach.leased")
    async with connected(sandbox) as client:
        made = await client.create(repository, script({"text": "first"}), name="mine")
        before = await client.reach("mine", IDLE)
    with process() as person:
        for point in ("attach.ended", ""):
            async with connected(sandbox) as client:
                with pytest.raises(grpc.aio.AioRpcError):
                    await attach(client, "mine", person.pid)
            wait_for_death(daemon)
            daemon.start(RAMET_FAILPOINT=point)
        async with connected(sandbox) as client:
            await attach(client, "mine", person.pid)  # the client repeats its call until a daemon answers
            assert the_pid(sandbox, made.conversation_id) == 0, "the agent is gone"
            await client.send("mine", script({"text": "afterwards"}))
            assert (await client.get("mine")).state_reason == "attached at pts/7"
        daemon.kill()
        make_turn(sandbox, made.conversation_id, "by hand", "done", cost=0.5)
    # The person's program ended while no daemon ran.
    for point in ("attach.over", "attach.taken"):
        start_to_die(daemon, point)
    daemon.start()
    async with connected(sandbox) as client:

        async def over() -> session_pb2.Session:
            session = await client.get("mine")
            assert (session.turns, session.state) == (before.turns + 2, IDLE), session.state_reason
            return session

        session = await eventually(over)
        ends = [event.turn_ended for event in await client.log("mine") if event.WhichOneof("payload") == "turn_ended"]
        assert [end.text for end in ends] == ["first", "done", "afterwards"]
        assert session.cost_usd == pytest.approx(sum(end.cost_usd for end in ends))
        assert len([each for each in await client.checkpoints("mine") if each.turn]) >= 2
    daemon.kill()
