"""A running daemon applies a changed configuration file, and keeps the previous settings if the new
file is invalid."""

import os
import re
import shutil
import signal
import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.support.daemon import Client, DaemonProcess, Sandbox
from tests.support.doctor import findings
from tests.support.eventually import eventually
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]


def shows(sandbox: Sandbox, limit: int) -> bool:
    shown = sandbox.ctl("config", "show", "--json").json["settings"]
    return any(each["key"] == "max_working" and each["value"] == limit for each in shown)


async def test_a_changed_file_is_applied_and_a_wrong_one_is_not(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    assert sandbox.ctl("config", "set", "max_working", "3").code == 0
    await eventually(lambda: shows(sandbox, 3), every=0.5)

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
    await eventually(lambda: shows(sandbox, 4), every=0.5)


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


async def test_settings_that_are_set_at_the_same_time_are_all_kept(sandbox: Sandbox, running: DaemonProcess) -> None:
    (file,) = [path for path in sandbox.root.rglob("config.toml") if "[pool]" in path.read_text()]
    before = file.read_text()
    file.chmod(0o600)
    keys = ("caps.depth", "caps.tree", "caps.children", "pool.warm_agents", "agents.max_resumes")
    try:
        with ThreadPoolExecutor() as threads:
            for ran in threads.map(lambda key: sandbox.ctl("config", "set", key, "2"), keys):
                assert ran.code == 0, ran.stderr
        written = tomllib.loads(file.read_text())
        assert [written[table][name] for table, _, name in (key.partition(".") for key in keys)] == [2] * len(keys)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert [each.name for each in file.parent.iterdir()] == ["config.toml"]
    finally:
        file.write_text(before)


async def test_an_edit_of_a_file_that_changed_meanwhile_is_kept_apart(sandbox: Sandbox, running: DaemonProcess) -> None:
    (file,) = [path for path in sandbox.root.rglob("config.toml") if "[pool]" in path.read_text()]
    before = file.read_text()
    editor = sandbox.root / "bin" / "editor"
    editor.write_text(f"#!/bin/sh\necho '# theirs' >> {file}\necho '# mine' >> $1\n")
    editor.chmod(0o755)
    try:
        ran = sandbox.ctl("config", "edit", VISUAL=str(editor))
        kept = file.with_name("config.toml.edited")
        assert (ran.code, f"{file} was changed meanwhile; your version is in {kept}" in ran.stderr) == (1, True)
        assert (file.read_text(), kept.read_text()) == (f"{before}# theirs\n", f"{before}# mine\n")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        kept.unlink()
    finally:
        file.write_text(before)


def test_a_new_file_is_readable_only_by_its_owner(sandbox: Sandbox, running: DaemonProcess) -> None:
    elsewhere = sandbox.root / "elsewhere"
    ran = sandbox.ctl("config", "set", "notify.ntfy.token", "secret", XDG_CONFIG_HOME=str(elsewhere))
    assert ran.code == 0, ran.stderr
    assert stat.S_IMODE((elsewhere / "ramet" / "config.toml").stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["written", "replaced", "linked", "new directory"])
async def test_every_way_of_changing_the_file_takes_effect_soon(
    sandbox: Sandbox, running: DaemonProcess, kind: str
) -> None:
    """By hand, without `config set`, which tells the daemon itself."""
    file = sandbox.root / "config" / "ramet" / "config.toml"
    content = re.sub(r"(?m)^max_working = .*\n", "", file.read_text())
    elsewhere = sandbox.root / "dotfiles" / "config.toml"
    elsewhere.parent.mkdir(exist_ok=True)
    for number in (5, 6):  # the second change meets what the first one left
        wanted = f"max_working = {number}\n{content}"
        match kind:
            case "written":
                file.write_text(wanted)
            case "replaced":
                new = file.with_name("config.toml.new")
                new.write_text(wanted)
                new.replace(file)
            case "linked":
                elsewhere.write_text(wanted)
                if not file.is_symlink():
                    file.unlink()
                    file.symlink_to(elsewhere)
            case _:
                shutil.rmtree(file.parent)
                file.parent.mkdir()
                file.write_text(wanted)
        await eventually(partial(shows, sandbox, number), every=0.1)


async def test_a_restart_with_a_broken_file_stops_no_daemon(
    client: Client, sandbox: Sandbox, running: DaemonProcess
) -> None:
    file = sandbox.root / "config" / "ramet" / "config.toml"
    right = file.read_text()
    file.write_text(f"max_wroking = 1\n{right}")
    try:
        ran = sandbox.ctl("daemon", "restart")
    finally:
        file.write_text(right)
    assert ran.code == 1
    assert f"{file}:1: max_wroking" in ran.stderr
    assert "the daemon was not stopped" in ran.stderr
    assert running.process is not None
    assert sandbox.ctl("daemon", "status", "--json").json["pid"] == running.process.pid
