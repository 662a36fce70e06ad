"""The dashboard as a process on a terminal: start, daemon restarts, any size, and a restored
terminal."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.eventually import PATIENCE_S, eventually


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def test_the_dashboard_survives_its_daemon_and_resizes_and_restores_the_terminal(world: World) -> None:
    world.state.session("busy", state=session_pb2.SESSION_STATE_WORKING, now="Edit a.py")
    with world.terminal() as terminal:
        terminal.shows("Working 1")
        terminal.shows("▸ busy")
        terminal.type("\udcff")  # a byte that is no UTF-8
        terminal.type("rm -rf x\n")  # a paste, on a terminal without bracketed paste
        terminal.shows("pasted text is ignored here")
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


MODES_LEFT = (b"\x1b[?1049", b"\x1b[?1000", b"\x1b[?1003", b"\x1b[?1006", b"\x1b[?2004", b"\x1b[?1004")
"""Alternate screen, mouse, pasting and focus: each is switched on by "h" and off by "l"."""


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_and_restores_the_terminal(world: World, number: signal.Signals, early: bool) -> None:
    world.state.session("fix")
    with world.terminal() as terminal:
        if early:
            terminal.writes("\x1b[?1049h")  # before anything is drawn
        else:
            terminal.shows("· fix")
        terminal.process.send_signal(number)
        assert terminal.ends() == 128 + number
        left_on = [mode for mode in MODES_LEFT if terminal.raw.rfind(mode + b"h") > terminal.raw.rfind(mode + b"l")]
        assert not left_on
        assert b"Traceback" not in terminal.raw


def test_it_ends_with_a_terminal_that_closes_without_a_signal(world: World) -> None:
    world.state.session("fix")
    with world.terminal() as terminal:
        terminal.shows("· fix")
        terminal.close()
        # 120: Python could not write its last bytes to the closed terminal.
        assert terminal.process.wait(PATIENCE_S) in {128 + signal.SIGHUP, 120}


async def test_what_was_typed_while_another_program_had_the_terminal_is_no_key(world: World, tmp_path: Path) -> None:
    world.state.session("fix", worktree=str(tmp_path))
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\necho editing\nwhile [ ! -e {tmp_path}/done ]; do sleep 0.05; done\n")
    editor.chmod(0o755)
    with world.terminal(env={"VISUAL": str(editor)}) as terminal:
        terminal.shows("· fix")
        terminal.type("o")
        terminal.shows("editing")
        terminal.type("xy")
        (tmp_path / "done").touch()

        def lands() -> bool:  # a key before the editor has ended does not count either
            terminal.type("L")
            terminal.shows("Land fix on", within=2)
            return True

        await eventually(lands)
        assert not world.state.called("DeleteSession")
        assert not any("Remove fix" in line for line in terminal.screen.display)


async def test_ctrl_c_ends_the_program_that_has_the_terminal_and_not_the_dashboard(
    world: World, tmp_path: Path
) -> None:
    world.state.session("fix", worktree=str(tmp_path))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\ntrap 'exit 0' INT\necho editing\nwhile :; do sleep 0.05; done\n")
    editor.chmod(0o755)
    with world.terminal(env={"VISUAL": str(editor)}) as terminal:
        terminal.shows("· fix")
        terminal.type("o")
        terminal.shows("editing")
        terminal.interrupt()

        def has_keys() -> bool:
            terminal.type("x")
            terminal.shows("Remove fix with", within=2)
            return True

        await eventually(has_keys)


def test_attach_detaches_with_ctrl_q_and_no_color_has_no_colour(world: World) -> None:
    session = world.state.session("fix", state=session_pb2.SESSION_STATE_WORKING)
    with world.terminal("attach", session.name, env={"NO_COLOR": "1"}) as terminal:
        terminal.shows("ctrl-q detach")
        terminal.type("\x11")
        assert terminal.ends() == 0
    assert b"\x1b[31" not in terminal.raw


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("top",), "the dashboard needs a terminal; use: rametctl ls --watch"),
        (("attach", "fix"), "attach needs a terminal; use: rametctl watch fix"),
    ],
)
def test_without_a_terminal_it_says_what_to_use_instead(world: World, arguments: tuple[str, ...], words: str) -> None:
    world.state.session("fix")
    result = world.run(*arguments)
    assert (result.code, result.err) == (2, f"rametctl: {words}\n")
