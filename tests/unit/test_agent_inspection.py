"""Inspection of agents' programs, with small scripts as programs."""

import json
import math
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rametd.agents import inspection
from rametd.agents.inspection import Inspection, inspect, older
from rametd.agents.presets import Preset

from tests.support.eventually import eventually

OPENED: dict[str, object] = {"result": {"sessionId": "s"}}


ASKS = """
print(json.dumps({"id": 0, "method": "fs/read"}), flush=True)
sys.stdin.readline()
assert "error" in json.loads(sys.stdin.readline())
sys.exit()
"""


def program(
    directory: Path,
    *,
    version: str = "agent 2.1.0",
    protocol: int = 1,
    opened: dict[str, object] | None = None,
    say: str = "",
) -> dict[str, str]:
    """Write an agent into ``directory``; return the environment in which it is found."""
    file = directory / "agent"
    file.write_text(
        # The path after `#!` may hold no blank. Python reads these lines as a string.
        f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} \"$0\" \"$@\"\n' '''\n"
        f"""
import json, os, subprocess, sys
if sys.argv[1] == "--version":
    print({version!r})
    sys.exit()
child = subprocess.Popen(["sleep", "100"])
open({str(directory / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
{say}
answers = {{"initialize": {{"result": {{"protocolVersion": {protocol}, "agentInfo": {{"version": "2.1.1"}}}}}},
           "session/new": {json.dumps(opened or OPENED)}}}
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({{"jsonrpc": "2.0", "id": request["id"], **answers[request["method"]]}}), flush=True)
"""
    )  # fmt: skip
    file.chmod(0o755)
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def preset(minimum: str = "") -> Preset:
    return Preset("agent", "Agent", ("agent", "acp"), {}, minimum_version=minimum)


async def test_a_missing_program_is_named() -> None:
    found = await inspect(preset(), {"PATH": "/nowhere"}, start=True)
    assert found == Inspection(installed=False, problem="there is no agent on the PATH")


async def test_a_release_is_shown_without_a_start(tmp_path: Path) -> None:
    found = await inspect(preset(), program(tmp_path), start=False)
    assert (found.installed, found.version, found.logged_in, found.problem) == (True, "2.1.0", None, "")
    assert not (tmp_path / "pids").exists()


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("2.1.0", "2.1.0"),
        ("v1.18.33-beta", "1.18.33"),
        ("Some CLI 1.0.102.\nRun 'some update' to check for updates.", "1.0.102"),
        ("no release", ""),
    ],
)
async def test_a_release_is_the_first_number_that_is_printed(tmp_path: Path, printed: str, version: str) -> None:
    assert (await inspect(preset(), program(tmp_path, version=printed), start=False)).version == version


async def test_an_adapter_that_ignores_its_arguments_gets_the_end_of_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "VERSION_S", math.inf)
    file = tmp_path / "agent"
    file.write_text("#!/bin/sh\nexec cat\n")
    file.chmod(0o755)
    found = await inspect(preset("2.2"), {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, start=False)
    assert found == Inspection(installed=True, path=str(file))


async def test_a_program_that_does_not_end_is_a_problem_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "VERSION_S", 0.0)
    file = tmp_path / "agent"
    file.write_text("#!/bin/sh\nexec sleep 100\n")
    file.chmod(0o755)
    found = await inspect(preset(), {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, start=False)
    assert found.problem == "it cannot be run: it did not end within 0 seconds"


@pytest.mark.parametrize(
    ("given", "logged_in", "problem"),
    [
        ({}, True, ""),
        ({"opened": {"error": {"code": -32000, "message": "Authentication required"}}}, False, ""),
        ({"opened": {"error": {"code": -32603, "message": "broken"}}}, None, "it opens no session: broken"),
        ({"protocol": 2}, None, "it speaks version 2 of the protocol, and Ramet speaks 1"),
        ({"say": "sys.exit('Warning: x\\nno such model')"}, None, "it ends instead of answering: no such model"),
        ({"say": "print('{', flush=True)"}, None, "it does not start: "),
        ({"say": "print('a log line', flush=True)"}, True, ""),
        ({"say": ASKS}, None, "it ends"),
    ],
)  # fmt: skip
async def test_a_check_by_starting_reports_and_leaves_no_process(
    tmp_path: Path, given: dict[str, object], logged_in: bool | None, problem: str
) -> None:
    found = await inspect(preset(), program(tmp_path, **given), start=True)  # type: ignore[arg-type]
    assert found.installed
    assert found.logged_in is logged_in
    assert found.problem.startswith(problem)
    pids = [Path(f"/proc/{pid}/stat") for pid in (tmp_path / "pids").read_text().split()]
    await eventually(lambda: not any(each.exists() and ") Z " not in each.read_text() for each in pids))


async def test_an_old_release_is_a_problem(tmp_path: Path) -> None:
    found = await inspect(preset("2.2"), program(tmp_path), start=False)
    assert found.problem == "2.1.0 is older than 2.2, which Ramet needs"


@pytest.mark.parametrize(
    ("version", "minimum", "is_older"),
    [("0.9.10", "0.10", True), ("0.10.0", "0.10", False), ("v1.2.3-beta", "1.2.4", True), ("", "1.0", False), ("1.0", "", False)],
)  # fmt: skip
def test_releases_are_compared_by_number(version: str, minimum: str, is_older: bool) -> None:
    assert older(version, minimum) is is_older


async def test_a_program_with_a_missing_interpreter_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "agent"
    file.write_text("#!/usr/bin/env no-such-interpreter\n")
    file.chmod(0o755)
    found = await inspect(preset(), {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, start=True)
    assert found.installed
    assert "cannot be run" in found.problem
    assert "no-such-interpreter" in found.problem


@pytest.mark.parametrize("keys", [{}, {"AGENT_KEY": "x"}])
async def test_a_key_that_the_agent_takes_when_it_is_asked_to_counts_as_a_login(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    environment = program(tmp_path, opened={"error": {"code": -32000, "message": "Authentication required"}})
    takes = replace(preset(), keys={"AGENT_KEY": "api-key"})
    assert (await inspect(takes, {**environment, **keys}, start=True)).logged_in is bool(keys)
