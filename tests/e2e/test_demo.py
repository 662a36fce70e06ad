"""The demonstration, as a person without an account runs it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_cli

DEMO = (sys.executable, "-P", "-m", "ramet_demo")
MILESTONES = (
    "The model is scripted",
    "Hello, Alan!",
    "$ rametctl ls --watch",
    "bug is waiting",
    "$ kill -9 ",
    "is dead. The three agents still run",
    "$ rametctl inbox",
    "permission: Bash",
    "bug  permission: Bash  approved by owner",
    "feature is idle, 1 turn, $0.0",
    "tests is idle, 1 turn, $0.0",
    '+parser.add_argument("--shout"',
    "tests/test_greet.py | 10",
    "All processes have ended, and",
    "With your own Claude login",
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment without a usable HOME, whose temporary files the test can see."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(tmp_path), "LANG": "C.UTF-8"}


def root_of(output: str) -> str:
    """Return the directory that the demonstration names in its first lines."""
    found = re.search(r"/tmp/ramet-demo-\w+", output)
    assert found is not None, output
    return found[0]


def processes_of(root: str) -> Sequence[str]:
    """Return the command lines of processes that name ``root`` there or in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if root.encode() in arguments + environment:
            found.append(os.fsdecode(arguments.replace(b"\0", b" ")))
    return found


def test_the_demo_shows_all_it_promises_and_leaves_nothing_behind(environ: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    at = 0
    for milestone in MILESTONES:
        assert milestone in done.stdout[at:], f"after {done.stdout[:at][-200:]!r}"
        at = done.stdout.index(milestone, at)
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) < 160
    assert not Path(root_of(done.stdout)).exists()
    assert not processes_of(root_of(done.stdout))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGINT, " is working"), (signal.SIGTERM, "worktree  ")])
def test_a_demo_that_is_interrupted_leaves_nothing_behind(
    environ: dict[str, str], tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    seen = ""
    with subprocess.Popen(
        DEMO, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen += line
            if moment in line:
                process.send_signal(number)
                break
        seen += process.stdout.read()
    root = root_of(seen)

    assert process.returncode == 128 + number
    assert not Path(root).exists()
    assert not processes_of(root)
    assert list(tmp_path.iterdir()) == []
