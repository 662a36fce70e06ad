"""The dashboard as a process on a terminal: it begins, survives its daemon and any size, and leaves the terminal as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.client import World
from tests.support.client import world as make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def test_without_a_verb_it_opens_survives_its_daemon_and_sizes_and_restores_the_terminal(world: World) -> None:
    world.state.session("busy", state=session_pb2.SESSION_STATE_WORKING, now="Edit a.py")
    with world.terminal() as terminal:
        terminal.shows("Working 1")
        terminal.shows("▸ busy")
        world.daemon.stop()
        terminal.shows("the daemon is away")
        for columns, rows in ((40, 10), (200, 50), (30, 6), (120, 30)):
            terminal.resize(columns, rows)
        terminal.type("jk\t\t")
        world.daemon.start()
        terminal.shows("ramet all repositories  1 session ")
        terminal.shows("Requests")
        terminal.screen.erase_in_display(2)  # another program wrote there
        terminal.type("\x0c")
        terminal.shows("ramet all repositories  1 session")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.raw.rstrip().endswith(b"\x1b[?1049l") or b"\x1b[?1049l" in terminal.raw
        assert b"Traceback" not in terminal.raw


def test_attach_detaches_with_ctrl_q_and_no_color_has_no_colour(world: World) -> None:
    session = world.state.session("fix", state=session_pb2.SESSION_STATE_WORKING)
    with world.terminal("attach", session.name, env={"NO_COLOR": "1"}) as terminal:
        terminal.shows("ctrl-q detach")
        terminal.type("\x11")
        assert terminal.ends() == 0
    assert b"\x1b[31" not in terminal.raw


@pytest.mark.parametrize("arguments", [("top",), ("attach", "fix")])
def test_without_a_terminal_it_says_what_to_use_instead(world: World, arguments: tuple[str, ...]) -> None:
    world.state.session("fix")
    result = world.run(*arguments)
    assert (result.code, result.err) == (2, "rametctl: the dashboard needs a terminal; use: rametctl ls --watch\n")
