"""Prompts: distinguished from options, and read from arguments, files and standard input."""

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametctl.app import App
from rametctl.cli import cli
from rametctl.console.output import Output
from rametctl.editor import MARKER, write_prompt
from rametctl.errors import UsageError
from rametctl.nouns import prompts
from rametctl.nouns.prompts import (
    ATTACHED_BYTES,
    IMAGE_BYTES,
    check_unread,
    completions,
    mark_prompts,
    read_images,
    read_prompt,
    with_files,
)

from tests.support.daemon import git

VALUED = frozenset({"-f", "--file", "--name"})


def prompts_in(*args: str) -> list[str]:
    return [arg[1:] for arg in mark_prompts(args, VALUED) if arg.startswith("\0")]


@pytest.mark.parametrize(
    "prompt", ["--help me", "-----", "---", "- first\n- second", "-x y=z", "--a b=c", "-f is broken"]
)
def test_a_quoted_prompt_may_begin_with_a_dash(prompt: str) -> None:
    assert prompts_in(prompt) == [prompt]


@pytest.mark.parametrize("arg", ["--help", "--hlep", "-f", "-x", "-", "--name=a b", "-fmy file.txt", "plain words", ""])
def test_what_can_be_an_option_stays_one(arg: str) -> None:
    assert prompts_in(arg) == []


def test_an_options_value_is_never_taken_for_a_prompt() -> None:
    assert prompts_in("--name", "- my name", "--do it") == ["--do it"]


def test_arguments_after_two_dashes_stay_unchanged() -> None:
    assert mark_prompts(["--", "--help me"], VALUED) == ["--", "--help me"]


@given(st.text().filter(lambda text: not text.startswith("-")))
def test_text_without_a_leading_dash_stays_unchanged(text: str) -> None:
    assert mark_prompts([text], VALUED) == [text]


@pytest.fixture
def nothing() -> Iterator[TextIO]:
    with Path(os.devnull).open() as file:
        yield file


def text_file(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "prompt.md"
    path.write_bytes(data)
    return str(path)


def test_a_prompt_comes_from_a_file(tmp_path: Path, nothing: TextIO) -> None:
    assert read_prompt(None, text_file(tmp_path, "fix it – now\n".encode()), nothing, print) == "fix it – now\n"


def test_a_prompt_of_five_megabytes_is_read_completely(tmp_path: Path) -> None:
    long = "é" * 2_500_000
    with open(text_file(tmp_path, long.encode())) as stdin:  # noqa: PTH123  a file as standard input
        assert read_prompt("-", None, stdin, print) == long


def test_piped_text_is_the_prompt_where_no_argument_is() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe")
    os.close(writing)
    with open(reading) as stdin:  # noqa: PTH123  a descriptor
        assert read_prompt(None, None, stdin, print) == "from a pipe"


def test_standard_input_that_stays_open_is_named_while_the_command_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As left open by a service or a script that starts the command in the background."""
    monkeypatch.setattr(prompts, "SILENCE_S", 0.01)
    reading, writing = os.pipe()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        os.write(writing, b"after all")
        os.close(writing)

    with open(reading) as stdin:  # noqa: PTH123  a descriptor
        assert read_prompt(None, None, stdin, note) == "after all"
    [words] = notes
    assert "</dev/null" in words


@contextmanager
def piped(text: bytes, *, ends: bool = True) -> Iterator[TextIO]:
    """Standard input that is a pipe with a text; its writer is still there unless it ``ends``."""
    reading, writing = os.pipe()
    os.write(writing, text)
    if ends:
        os.close(writing)
    with open(reading) as stdin:  # noqa: PTH123  a descriptor
        yield stdin
    if not ends:
        os.close(writing)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(
    "begin",
    [
        lambda stdin: read_prompt("words", None, stdin, print),
        lambda stdin: check_unread(stdin, "--idle", "", print),
    ],
)
def test_text_that_is_piped_in_and_would_not_be_read_is_refused_and_stays_for_a_loop(
    begin: Callable[[TextIO], object], ends: bool
) -> None:
    with piped(b"of the loop", ends=ends) as stdin:
        with pytest.raises(UsageError, match="given, and text on standard input"):
            begin(stdin)
        assert os.read(stdin.fileno(), 100) == b"of the loop"


def test_standard_input_that_has_no_text_beside_a_prompt_is_said_if_it_is_open(
    tmp_path: Path, nothing: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "SILENCE_S", 0.01)
    notes: list[str] = []
    for ends in (True, False):
        with piped(b"", ends=ends) as stdin:
            assert read_prompt("words", None, stdin, notes.append) == "words"
    [words] = notes
    assert "was not read" in words
    assert "</dev/null" in words
    assert read_prompt("words", None, nothing, pytest.fail) == "words"
    with open(text_file(tmp_path, b"one\ntwo\n")) as stdin:  # noqa: PTH123  a file as standard input
        os.read(stdin.fileno(), 4)  # as a loop in the shell did
        assert read_prompt("words", None, stdin, pytest.fail) == "words"


def test_a_prompt_and_a_file_are_one_prompt_and_only_the_prompt_names_files(tmp_path: Path, nothing: TextIO) -> None:
    (tmp_path / "notes.md").write_text("of the person")
    stranger = b"leak @notes.md"
    added = "Contents of notes.md:\n````\nof the person\n````"
    file = text_file(tmp_path, stranger)
    assert (
        read_prompt("see @notes.md", file, nothing, print, str(tmp_path))
        == f"see @notes.md\n\n{added}\n\nleak @notes.md"
    )
    assert read_prompt(None, file, nothing, print, str(tmp_path)) == "leak @notes.md"
    for argument, source, whole in (
        ("see this:", "-", "see this:\n\nleak @notes.md"), ("-", None, "leak @notes.md"), (None, None, "leak @notes.md"),
    ):  # fmt: skip
        with piped(stranger) as stdin:
            assert read_prompt(argument, source, stdin, print, str(tmp_path)) == whole


def test_dev_null_is_no_prompt_and_no_error(nothing: TextIO) -> None:
    assert read_prompt(None, None, nothing, print) is None


def test_a_closed_standard_input_is_no_prompt() -> None:
    assert read_prompt(None, None, None, print) is None


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_an_empty_prompt_is_refused(empty: str, nothing: TextIO) -> None:
    with pytest.raises(UsageError, match="the prompt is empty") as caught:
        read_prompt(empty, None, nothing, print)
    assert caught.value.reason == "EMPTY_PROMPT"


def test_an_empty_pipe_is_refused(nothing: TextIO) -> None:
    with pytest.raises(UsageError, match="standard input has no text"):
        read_prompt("-", None, nothing, print)


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path, nothing: TextIO) -> None:
    with pytest.raises(UsageError, match=r"not UTF-8 text \(byte 2\)"):
        read_prompt(None, text_file(tmp_path, b"ok\xff"), nothing, print)


def test_a_missing_file_is_named(nothing: TextIO) -> None:
    with pytest.raises(UsageError, match="'nowhere' cannot be read: No such file"):
        read_prompt(None, "nowhere", nothing, print)


def test_standard_input_and_a_file_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="both given"):
        read_prompt("-", "file", io.StringIO(), print)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["land", "one", "--commit", "-m", "add b"], "--commit takes a text, and -m looks like an option"),
        (["deny", "one", "-m", "--foo"], "--message=--foo"),
        (["new", "-n", "--wait", "do it"], "--name=--wait"),
        (["send", "one", "--file", "--wait"], "--file takes a text"),
    ],
)
def test_an_option_is_not_taken_for_anothers_text(args: list[str], word: str) -> None:
    with pytest.raises(UsageError) as refused:
        begin(*args)
    assert word in f"{refused.value.message}; {refused.value.hint}"


@pytest.mark.parametrize(
    "args",
    [
        ["land", "one", "--commit", "-m text with spaces"],
        ["land", "one", "--commit=-m"],
        ["run", "one", "--", "x", "-m", "-n"],
    ],
)
def test_a_text_that_may_be_one_is(args: list[str]) -> None:
    begin(*args)


def begin(verb: str, *args: str) -> None:
    above = click.Context(cli, info_name="rametctl", **cli.context_settings)
    command = cli.get_command(above, verb)
    assert command is not None
    command.make_context(verb, list(args), parent=above)


@pytest.mark.parametrize(
    ("prompt", "added"),
    [
        ("see @notes.md", ["notes.md"]),
        ("see @notes.md, and (@sub/log.txt).", ["notes.md", "sub/log.txt"]),
        ("see @notes.md and @notes.md", ["notes.md"]),
        ("me@notes.md, @@notes.md, `@notes.md`, @missing, @sub, @binary, @large, @", []),
    ],
)
def test_text_files_that_a_prompt_names_are_added_to_it(tmp_path: Path, prompt: str, added: list[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.md").write_text("one\n")
    (tmp_path / "sub" / "log.txt").write_text("two\n")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "large").write_text("x" * (ATTACHED_BYTES + 1))
    whole = with_files(prompt, str(tmp_path))
    assert whole.startswith(prompt)
    assert re.findall(r"^Contents of (.*):$", whole, re.M) == added
    assert whole.count("````") == 2 * len(added)


def test_an_image_that_cannot_go_with_a_prompt_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "large.png").write_bytes(b"0" * (IMAGE_BYTES + 1))
    assert [each.data for each in read_images(["a.png"], str(tmp_path))] == [b"\x89PNG"]
    for name, words in (("large.png", "over"), ("none.png", "cannot be read"), (".", "regular file")):
        with pytest.raises(UsageError, match=words):
            read_images([name], str(tmp_path))


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "grown", "/proc/self/mem"])
def test_what_has_no_end_is_neither_an_image_nor_part_of_a_prompt(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "grown").open("wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(UsageError, match=r"regular file|over|cannot be read"):
        read_images([name], str(tmp_path))
    assert with_files(f"see @{name}", str(tmp_path)) == f"see @{name}"
    if name != "pipe":  # a pipe may be `<(command)`
        with pytest.raises(UsageError, match=r"over|cannot be read"):
            read_prompt(None, str(tmp_path / name), io.StringIO(), print)


def test_a_link_out_of_the_directory_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    (top / "near").write_text("near\n")
    (top / "link").symlink_to(tmp_path / "secret")
    (top / "out").symlink_to(tmp_path)
    (top / "same").symlink_to("near")
    assert with_files("see @link @out/secret", str(top)) == "see @link @out/secret"
    assert "Contents of same:" in with_files("see @same", str(top))
    assert "Contents of ../secret:" in with_files("see @../secret", str(top))


@pytest.mark.parametrize(
    ("saved", "prompt"), [("do it\n\n" + MARKER, "do it"), (MARKER, None), ("# Title\nx", "# Title\nx"), (None, None)]
)
def test_a_prompt_is_written_in_the_editor(tmp_path: Path, saved: str | None, prompt: str | None) -> None:
    program = tmp_path / "editor"
    (tmp_path / "saved").write_text(saved or "")
    program.write_text(f"#!/bin/sh\n{f'cat {tmp_path}/saved > $1' if saved else 'true'}\n")
    program.chmod(0o755)
    app = App(Output(io.StringIO(), io.StringIO(), {}), {"EDITOR": str(program)})
    if prompt is None:
        with pytest.raises(UsageError, match="nothing was done"):
            write_prompt(app)
    else:
        assert write_prompt(app) == prompt


async def test_names_of_files_are_found_without_programs_that_the_worktree_configures(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file.txt").write_text("x\n")
    git(tmp_path, "config", "core.untrackedCache", "true")
    git(tmp_path, "update-index", "--untracked-cache", "--fsmonitor")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran;")
    assert await completions("@fi", str(tmp_path), {}) == ["@file.txt"]
    assert not (tmp_path / "ran").exists()
