"""Every verb, on a terminal, with hostile texts in everything that it shows: none controls the
terminal, none is invisible."""

import os
import re
import unicodedata
from collections.abc import Iterator

import click
import pytest
from ramet.v1 import event_pb2
from ramet.visible import escaped, visible
from rametctl.cli import cli
from rametctl.console.lines import cell_width, truncated

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.hostile import CLIPBOARD, HOSTILE, Handler, hostile_daemon

OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r")
"""Control sequences of Output itself: colours, and those that redraw a view in place."""

LEFT_OUT = {
    "help": "explains the command line itself",
    "mcp": "speaks JSON to a program",
    "completion": "prints a script that is part of it",
    "config edit": "runs the person's editor",
    "demo": "becomes another program",
    "shell": "becomes the person's shell",
    "attach": "becomes the agent's own program",
    "top": "draws a screen of its own",
    "watch": "never ends against a daemon whose streams do",
    "daemon run": "becomes the daemon",
    "daemon start": "shows paths of our own only",
    "daemon stop": "waits for the end of the daemon",
    "daemon restart": "waits for the end of the daemon",
    "run": "passes a command's output on, as a shell does",
    "setup": "passes a command's output on",
    "service install": "changes the person's service manager",
    "service uninstall": "changes the person's service manager",
    "service status": "asks the person's service manager",
}

ARGUMENTS = {
    "adopt": [[".", "hello"]],
    "web revoke": [["--all"]],
    "answer": [["s", "yes"]],
    "config set": [["max_working", "4"]],
    "diff": [["s"], ["s", "--stat"], ["s", "--name-only"]],
    "done": [["s"], ["--all"]],
    "conflicts": [["s"], ["--repo", "x"]],
    "doctor": [[], ["--fix"]],
    "fork": [["s", "hello"]],
    "land": [["s", "--detach"], ["s", "--timeout", "1"]],
    "logs": [["s"], ["s", "--full", "--no-pager"], ["s", "--turns", "1"]],
    "events": [["s"], ["s", "--raw"], ["s", "--audit"]],
    "ls": [[], ["--all"], ["--tree"]],
    "messages": [["s"]],
    "new": [["--name", "x", "hello"], ["--name", "x", "hello", "--count", "2"]],
    "plan apply": [["plan.toml"]],
    "plan check": [["plan.toml"]],
    "pr link": [["s", "--pr", "7"]],
    "repo trust": [[".", "--yes"]],
    "rm": [["s"], ["s", "--force"]],
    "send": [["s", "more"]],
    "set": [["s", "--name", "x"], ["s", "--own", "x"]],
    "trash empty": [["--yes"]],
    "unsend": [["s"], ["s", "--all"]],
    "wait": [["s", "--timeout", "1"]],
}


def verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


TREE = dict(verbs(cli))


def command_lines(verb: str) -> list[list[str]]:
    if verb in ARGUMENTS:
        return ARGUMENTS[verb]
    return [["x" for each in TREE[verb].params if isinstance(each, click.Argument) and each.required]]


def assert_safe(text: str, where: object) -> None:
    rest = OURS.sub("", text)
    assert visible(rest) == rest, (where, ascii(rest))


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Handler]]:
    with (
        make_world(tmp_path_factory.mktemp("evil"), serve=False) as world,
        hostile_daemon(world.runtime / "rametd.sock") as handler,
    ):
        world.extra = {"PAGER": "cat"}
        (world.cwd / "plan.toml").write_text('[plan]\nname = "p"\n[threads.a]\nprompt = "x"\n')
        (world.cwd / ".git").mkdir()
        quoted = HOSTILE.translate({code: f"\\U{code:08x}" for code in range(0x20)} | {0x7F: "\\u007f"})
        (world.cwd / ".ramet.toml").write_text(f'"{quoted}" = 1\nsetup = ["{quoted}"]\n')
        yield world, handler


@pytest.mark.parametrize("verb", [verb for verb in TREE if verb not in LEFT_OUT])
def test_no_text_of_a_stranger_controls_the_terminal_or_hides(verb: str, evil: tuple[World, Handler]) -> None:
    world, handler = evil
    for args in command_lines(verb):
        for json in ([], ["--json"]):
            for handler.pick, handler.refuse in ((0, False), (1, False), (2, False), (0, True)):
                result = world.run(*verb.split(), *args, *json, terminal=True, stdin=b"")
                assert result.code != 2 or handler.refuse, (args, result.err)
                assert_safe(result.out, (verb, args, json, handler.pick, handler.refuse))
                assert_safe(result.err, (verb, args, json, handler.pick, handler.refuse))


def test_every_kind_of_event_is_safe(evil: tuple[World, Handler]) -> None:
    world, handler = evil
    handler.refuse = False
    payloads = event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
    hostile = 0
    for handler.pick in range(len(payloads)):
        for verb in (["logs", "s"], ["events", "s"], ["events", "s", "--audit"]):
            result = world.run(*verb, terminal=True)
            assert_safe(result.out, (verb, handler.pick))
            hostile += "evil" in result.out
    assert hostile > len(payloads)


def test_hostile_texts_do_arrive_as_signs(evil: tuple[World, Handler]) -> None:
    world, handler = evil
    handler.pick, handler.refuse = 1, False
    signs = visible(CLIPBOARD)[:4]
    for verb in (["ls", "--all"], ["show", "s"], ["inbox"], ["queue"], ["plan", "status", "p"], ["diff", "s"]):
        assert signs in world.run(*verb, terminal=True).out, verb
    handler.refuse = True
    assert signs in world.run("rm", "s", terminal=True).err


def test_what_is_left_out_exists() -> None:
    assert set(LEFT_OUT) <= set(TREE)
    assert set(ARGUMENTS) <= set(TREE)


INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Cs"}


def test_each_character_that_prints_nothing_gets_a_sign() -> None:
    for code in range(0x110000):
        if unicodedata.category(char := chr(code)) in INVISIBLE and char != "\n":
            assert visible(char) != char, hex(code)
    for char in "\u034f\u115f\u1160\u3164\uffa0\u2800\ufe0f\ufe00\U000e0100\U000e01ef\U000e0041\u17b4\u180b\U0001d159":
        assert visible(char) == "\N{REPLACEMENT CHARACTER}", ascii(char)


EMOJI = {
    "\U0001f469\u200d\U0001f4bb": 2,  # a woman at a computer: joined
    "\U0001f9d1\U0001f3fd\u200d\u2764\ufe0f\u200d\U0001f48b\u200d\U0001f9d1\U0001f3fb": 2,  # a couple: joined, coloured, skin tones
    "\U0001f3f3\ufe0f\u200d\U0001f308": 2,  # the rainbow flag
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f": 2,  # the flag of Scotland
    "\U0001f1e9\U0001f1ea": 2,  # the flag of Germany
    "\u26a0\ufe0f": 2,  # coloured
    "\u26a0": 1,
    "1\ufe0f\u20e3": 2,  # a key cap
    "\U0001f44d\U0001f3fd": 2,
}
"""Emoji, and the columns of each."""


@pytest.mark.parametrize(
    "text", ["plain", "日本語 é e\u0301 ß", "👍 🇩🇪", "a\nb", "\u00a0\u3000", "\ue0b0", *EMOJI, " ".join(EMOJI)]
)
def test_what_prints_something_stays(text: str) -> None:
    assert visible(text) == text
    assert escaped(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "rm a#b", "#\U0001f469", "\U0001f469#", "\U0001f469##\U0001f4bb", "a\U0001f469#b", "\U0001f1e9#\U0001f1ea",
        "x\ufe0f", "1\ufe0f", "\U0001f44d\ufe0e", "\ufe0f#\U0001f469", "日#本", "\u2192#\u2192",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U0001f3f4\U000e0072\U000e006d\U000e007f", "\U0001f44d\U000e007f",
        "\U0001f469\u202e\u200d\U0001f4bb", "\U0001f469\u200d\u202e\U0001f4bb", "\U0001f469\u200b\U0001f4bb", "\U0001f469\U000e0100",
    ],
)  # fmt: skip
def test_what_joins_or_colours_emoji_is_drawn_outside_of_one(text: str) -> None:
    text = text.replace("#", "\u200d")
    hidden = [char for char in text if visible(char) != char]
    assert hidden
    assert visible(text).count("\N{REPLACEMENT CHARACTER}") == len(hidden)
    assert not any(char in escaped(text) for char in hidden)


def test_an_emoji_is_coloured_once() -> None:
    assert visible("\u26a0\ufe0f\ufe0f") == "\u26a0\ufe0f\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", EMOJI)
def test_an_emoji_is_measured_and_cut_as_one(text: str) -> None:
    columns = EMOJI[text]
    assert cell_width(text) == columns
    assert truncated(f"a{text}bcdef", 2 + columns) == f"a{text}…"
    assert truncated(f"a{text}bcdef", 1 + columns) in {"a…", f"a{text[0]}…"}


def test_json_keeps_its_meaning_and_is_safe() -> None:
    import json

    text = json.dumps({HOSTILE: ["\U0001d173", "日本"]}, ensure_ascii=False)
    assert json.loads(escaped(text)) == json.loads(text)
    assert visible(escaped(text)) == escaped(text)
    assert "日本" in escaped(text)
    assert os.linesep in visible(HOSTILE + os.linesep)


def test_a_carriage_return_is_hidden_only_at_the_end_of_a_line() -> None:
    assert visible("a\r\nb\rc") == "a\nb␍c"
