"""A running daemon applies a changed configuration file, and keeps the previous settings if the new
file is invalid."""

import os
import signal

from tests.support.daemon import Client, DaemonProcess, Sandbox
from tests.support.doctor import findings
from tests.support.eventually import eventually
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]


async def test_a_changed_file_is_applied_and_a_wrong_one_is_not(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    def shows(value: str) -> bool:
        shown = sandbox.ctl("config", "show", "--json").json["settings"]
        return any(each["key"] == "max_working" and each["value"] == int(value) for each in shown)

    assert sandbox.ctl("config", "set", "max_working", "3").code == 0
    await eventually(lambda: shows("3"), every=0.5)

    (file,) = [path for path in sandbox.root.rglob("config.toml") if "max_working" in path.read_text()]
    right = file.read_text()
    file.write_text(right.replace("max_working = 3", "max_working = none"))
    assert running.process is not None
    os.kill(running.process.pid, signal.SIGHUP)
    log = sandbox.root / "state" / "logs" / "rametd.log"
    await eventually(lambda: "the former configuration stays in effect" in log.read_text())
    (found,) = [each for each in await findings(client) if each.code == "config-broken"]
    assert (found.subject, "not TOML" in found.message) == (str(file), True)

    file.write_text(right.replace("max_working = 3", "max_working = 4"))
    assert "config-broken" not in {each.code for each in await findings(client)}
    await eventually(lambda: shows("4"), every=0.5)


async def test_a_setting_saved_beside_an_older_error_is_reported_as_not_in_effect(
    sandbox: Sandbox, running: DaemonProcess
) -> None:
    assert sandbox.ctl("config", "set", "max_working", "3").code == 0
    (file,) = [path for path in sandbox.root.rglob("config.toml") if "max_working" in path.read_text()]
    right = file.read_text()
    file.write_text(f"max_wroking = 1\n{right}")
    try:
        result = sandbox.ctl("config", "set", "max_working", "5")
        assert (result.code, "max_working = 5" in file.read_text()) == (1, True)
        assert f"{file} is saved; not in effect: " in result.stderr
        assert "max_wroking" in result.stderr
    finally:
        file.write_text(right)
