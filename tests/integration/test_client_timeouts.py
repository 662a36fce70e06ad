"""Verbs with ``--timeout`` end in time, even if the daemon does not answer, is missing, or does not
start."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rametctl.commands import run as run_verb
from rametctl.connection import start

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import PATIENCE_S, eventually_sync

OVER = "timed out before the daemon answered"
VERBS = (
    ("wait", "fix", "--timeout", "0.2"),
    ("land", "fix", "--timeout", "0.2"),
    ("land", "fix", "--timeout", "0.2", "--json"),
    ("run", "fix", "--timeout", "0.2", "--", "true"),
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[World]:
    """Listen like a suspended daemon, which never answers."""
    with make_world(tmp_path, serve=False) as made, socket.socket(socket.AF_UNIX) as listener:
        path = made.runtime / "rametd.sock"
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        yield made


@pytest.mark.parametrize("verb", VERBS, ids=[f"{verb[0]}{verb[4:]}" for verb in VERBS])
def test_a_silent_daemon_does_not_hold_up_what_has_a_timeout(
    silent: World, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    monkeypatch.setattr(run_verb, "ENDED", 0.1)
    begin = time.monotonic()
    ran = silent.run(*verb)
    assert time.monotonic() - begin < PATIENCE_S
    assert (ran.code, ran.err.count("\n")) == (124, 1)
    assert OVER in ran.err
    assert not ran.out or json.loads(ran.out)["error"]["reason"] == "TIMED_OUT"


def test_a_wait_ends_if_the_daemon_does_not_return(world: World) -> None:
    world.state.session("fix")
    process = world.popen("wait", "fix", "--timeout", "1.5")
    eventually_sync(lambda: world.state.called("WaitSessions"))
    world.daemon.stop()
    _, words = process.communicate(timeout=PATIENCE_S)
    gone, over = words.splitlines()
    assert (process.returncode, OVER in over) == (124, True)
    assert "the daemon stopped before it answered" in gone


def test_a_daemon_that_takes_its_time_to_come_up_does_not_hold_up_a_wait(
    silent: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket exists but does not serve, which `ensure_running` finds out."""
    answers = iter([False])  # no daemon at the first attempt
    monkeypatch.setattr(start, "listens", lambda path: next(answers, True))
    begin = time.monotonic()
    ran = silent.run("wait", "fix", "--timeout", "0.2", env={"RAMET_AUTOSTART": "1"})
    assert time.monotonic() - begin < PATIENCE_S
    assert (ran.code, OVER in ran.err) == (124, True)
