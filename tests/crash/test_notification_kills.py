"""Kill the daemon while a notification is queued, sent and marked as sent: each item arrives, and a
repeated message has the first one's id."""

from pathlib import Path

import pytest

from tests.crash.test_failpoints import wait_for_death
from tests.support.agents import script
from tests.support.daemon import WAITING, DaemonProcess, Sandbox, connected
from tests.support.eventually import eventually, eventually_sync
from tests.support.receivers import receiver

pytestmark = pytest.mark.crash


async def test_a_notification_survives_a_kill_at_each_step(sandbox: Sandbox, repository: Path) -> None:
    bash = {"tool": "Bash", "input": {"command": "echo ran >> ran.txt", "description": "x"}}
    daemon = DaemonProcess(sandbox)
    with receiver() as server:
        file = sandbox.root / "config" / "ramet" / "config.toml"
        sandbox.configure(
            f'{file.read_text()}\n[notify]\nmin_age = "1s"\n[notify.webhook]\nurl = "{server.url}/hook"\n'
        )
        daemon.start(RAMET_FAILPOINT="notify.queued")
        async with connected(sandbox) as client:
            made = await client.create(repository, script(bash), name="asks")
        wait_for_death(daemon)
        for point, arrived in (("notify.sending", 0), ("notify.sent", 1)):
            daemon.start(wait=False, RAMET_FAILPOINT=point)
            wait_for_death(daemon)
            assert len(server.posted) == arrived, point
        daemon.start()
        eventually_sync(lambda: len(server.posted) == 2)
        first, again = server.posted
        assert first.document == again.document
        assert first.headers["Idempotency-Key"] == again.headers["Idempotency-Key"] == first.document["id"]
        assert [each["session_id"] for each in first.document["items"]] == [made.id]
        async with connected(sandbox) as client:
            await client.reach("asks", WAITING)

        daemon.restart()  # delivered items are not sent again
        async with connected(sandbox) as client:
            await client.create(repository, script(bash), name="later")
            await client.reach("later", WAITING)
            await eventually(lambda: len(server.posted) > 2)
        assert [each["session"] for each in server.posted[-1].document["items"]] == ["later"]
    daemon.kill()
