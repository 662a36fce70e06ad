"""`run`, `setup`, `shell`, `ports` and `repo trust` as a person types them."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Client, DaemonProcess, Sandbox, git
from tests.support.eventually import eventually, eventually_sync
from tests.support.shared import client, daemon, repository, sandbox

__all__ = ["client", "daemon", "repository", "sandbox"]

SETTINGS = """
setup = ["echo setting up"]
teardown = "echo down"
[run]
web = "echo web on $PORT; exit 5"
"""


@pytest.fixture
def trusted(sandbox: Sandbox, daemon: DaemonProcess, repository: Path) -> Path:
    (repository / ".ramet.toml").write_text(SETTINGS)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "settings")
    assert sandbox.ctl("repo", "add", str(repository)).code == 0
    assert sandbox.ctl("repo", "trust", "--yes", cwd=repository).code == 0
    return repository


async def test_run_follows_to_the_end_and_exits_with_the_commands_code(
    client: Client, sandbox: Sandbox, trusted: Path
) -> None:
    session = await client.create(trusted, name="one")
    ran = sandbox.ctl("run", "one", "--", "sh", "-c", "echo --json; echo err >&2; exit 3", cwd=trusted)
    assert (ran.code, ran.stdout, ran.stderr) == (3, "--json\nerr\n", "")
    named = sandbox.ctl("run", "one", "web", cwd=trusted)
    assert (named.code, named.stdout) == (5, f"web on {session.ports[0]}\n")
    killed = sandbox.ctl("run", "one", "--", "sh", "-c", "kill -9 $$", cwd=trusted)
    assert killed.code == 128 + signal.SIGKILL
    late = sandbox.ctl("run", "one", "--timeout", "0.2", "--", "sleep", "600", cwd=trusted)
    assert (late.code, late.stderr) == (128 + signal.SIGTERM, "rametctl: ended: it timed out\n")


async def test_output_that_is_not_stored_any_more_is_a_note(client: Client, sandbox: Sandbox, trusted: Path) -> None:
    await client.create(trusted, name="one")
    flood = "i=0; while [ $i -lt 160 ]; do head -c 131072 /dev/zero; i=$((i+1)); done; echo the end"
    sandbox.ctl("run", "one", "--", "sh", "-c", flood, cwd=trusted)
    listed = sandbox.ctl("run", "one", "--list", "--all", "--json", cwd=trusted).json
    (ran,) = (each["id"] for each in listed if flood in each["argv"])
    shown = sandbox.ctl("run", "one", "--logs", ran, cwd=trusted)
    missing = 160 * 131072 + len("the end\n") - len(shown.stdout)
    assert missing > 0
    assert shown.stderr == f"rametctl: {missing:,} bytes are missing here: Ramet stores the last 16 MiB of an output\n"


async def test_a_detached_command_is_listed_shown_and_stopped(client: Client, sandbox: Sandbox, trusted: Path) -> None:
    await client.create(trusted, name="one")
    started: dict[str, Any] = sandbox.ctl(
        "run", "one", "--detach", "--json", "--", "sh", "-c", "echo up; exec sleep 600", cwd=trusted
    ).json
    assert started["state"] == "running"
    listed = sandbox.ctl("run", "one", "--list", "--json", cwd=trusted).json
    assert [each["id"] for each in listed] == [started["id"]]
    assert "sleep 600" in sandbox.ctl("run", "one", "--list", cwd=trusted).stdout
    eventually_sync(lambda: sandbox.ctl("run", "one", "--logs", started["id"], cwd=trusted).stdout == "up\n")
    stopped = sandbox.ctl("run", "one", "--stop", started["id"][:6], cwd=trusted)
    assert "ended: stopped by owner" in stopped.stdout
    assert sandbox.ctl("run", "one", "--list", cwd=trusted).stdout == "no commands are running\n"
    assert "ended: stopped by owner" in sandbox.ctl("run", "one", "--list", "--all", cwd=trusted).stdout


def test_ctrl_c_leaves_the_command_running_and_says_how_to_end_it(sandbox: Sandbox, trusted: Path) -> None:
    sandbox.ctl("new", "--name", "one", cwd=trusted)
    argv = [sys.executable, "-m", "rametctl", "run", "one", "--", "sh", "-c", "echo up; exec sleep 600"]
    with subprocess.Popen(
        argv, cwd=trusted, env=sandbox.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=20)
    assert process.returncode == 130
    (runs,) = sandbox.ctl("run", "one", "--list", "--json", cwd=trusted).json
    assert words == f"the command keeps running; to stop it: rametctl run one --stop {runs['id']}\n"
    assert sandbox.ctl("rm", "one", "--force", cwd=trusted).code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give one thing to do"),
        (("npm", "test"), "put -- before a command"),
        (("web", "--", "ls"), "give one thing to do"),
        (("--all",), "give one thing to do"),
        (("web", "--follow"), "--follow needs --logs"),
    ],
)
def test_what_cannot_be_meant_is_refused(sandbox: Sandbox, arguments: tuple[str, ...], words: str) -> None:
    ran = sandbox.ctl("run", "one", *arguments)
    assert ran.code == 2
    assert words in ran.stderr


async def test_setup_runs_or_shows_what_would_fit(client: Client, sandbox: Sandbox, trusted: Path) -> None:
    await client.create(trusted, name="one")
    ran = sandbox.ctl("setup", "one", cwd=trusted)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "$ echo setting up\nsetting up\n", "setup done\n")
    (trusted / ".ramet.toml").unlink()
    (trusted / "go.mod").touch()
    git(trusted, "add", "-A")
    git(trusted, "commit", "-qm", "go")
    made = sandbox.ctl("new", "--name", "two", cwd=trusted)
    assert "for a setup that prepares each worktree: rametctl setup two" in made.stderr
    shown = sandbox.ctl("setup", "two", cwd=trusted)
    assert (shown.code, shown.stdout) == (0, 'setup = ["go mod download"]\n')


async def test_shell_opens_the_person_s_own_in_the_worktree(client: Client, sandbox: Sandbox, trusted: Path) -> None:
    session = await client.create(trusted, name="one")
    script = sandbox.root / f"shell-{uuid.uuid4().hex}"
    script.write_text('#!/bin/sh\necho "$PWD $RAMET_PORT_0 ${RAMET_SESSION-nobody} $MINE"\n')
    script.chmod(0o755)
    ran = sandbox.ctl("shell", "one", cwd=trusted, SHELL=str(script), MINE="mine")
    assert (ran.code, ran.stdout) == (0, f"{session.worktree} {session.ports[0]} nobody mine\n")
    Path(session.worktree).rename(sandbox.root / uuid.uuid4().hex)
    gone = sandbox.ctl("shell", "one", cwd=trusted)
    assert gone.code == 1
    assert "is gone" in gone.stderr


async def test_ports_say_who_listens(client: Client, sandbox: Sandbox, trusted: Path) -> None:
    session = await client.create(trusted, name="one")
    serve = "import os, http.server as h; h.HTTPServer(('', int(os.environ['RAMET_PORT_0'])), None).serve_forever()"
    sandbox.ctl("run", "one", "--detach", "--", "python3", "-c", serve, cwd=trusted)
    shown = await eventually(lambda: next((each for each in ports(sandbox, trusted) if each["listening"]), None))
    assert shown is not None
    assert (shown["number"], shown["name"], shown["own"]) == (session.ports[0], "web", True)
    table = sandbox.ctl("ports", "one", cwd=trusted).stdout.splitlines()
    assert len(table) == 11
    assert re.search(rf"python\S* \({shown['pid']}\)", table[1]), table[1]


def ports(sandbox: Sandbox, cwd: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sandbox.ctl("ports", "one", "--json", cwd=cwd).json
    return found


async def test_trust_shows_in_full_what_would_run_and_asks_once(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    (repository / ".ramet.toml").write_text(SETTINGS)
    (repository / ".claude").mkdir()
    (repository / ".claude" / "settings.json").write_text(json.dumps({"hooks": "say hello"}))
    await client.create(repository, name="one")
    answers = [ask(sandbox, repository, answer) for answer in ("n\n", "y\n")]
    for code, text in answers:
        for words in ("echo setting up", "echo down", "run.web", "echo web on $PORT; exit 5", "say hello", "Trust "):
            assert words in text
        assert code in {0, 1}
    assert [code for code, _ in answers] == [1, 0]
    assert sandbox.ctl("repo", "show", "--json", cwd=repository).json["trusted"] is True


def ask(sandbox: Sandbox, cwd: Path, answer: str) -> tuple[int, str]:
    """Run ``repo trust`` on a terminal and type ``answer``; return the exit code and the screen's
    text."""
    master, slave = pty.openpty()
    environment = {**sandbox.environ, "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "rametctl", "repo", "trust"],
        cwd=cwd, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    screen, typed = b"", False
    try:
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            screen += piece
            if not typed and b"[y/N]" in screen:
                os.write(master, answer.encode())
                typed = True
    finally:
        os.close(master)
    return process.wait(timeout=20), screen.decode()
