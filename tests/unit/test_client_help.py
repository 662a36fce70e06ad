"""Snapshots of every verb's help at 80 columns; RAMET_UPDATE_GOLDEN=1 writes them."""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from rametctl.app import App
from rametctl.cli import ALIASES, GROUPS, NEAR, VERBS, cli, unknown_verb
from rametctl.commands.help import TOPICS
from rametctl.console.output import Output
from rametctl.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "support" / "golden" / "help"


def commands() -> Iterator[tuple[str, ...]]:
    yield ()
    for verb in VERBS:
        yield (verb,)
        command = import_module(f"rametctl.commands.{verb}").command
        if isinstance(command, click.Group):
            yield from ((verb, name) for name in command.commands)


def help_of(path: tuple[str, ...]) -> str:
    context = click.Context(cli, info_name="rametctl", terminal_width=80, **cli.context_settings)
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=name)
    return command.get_help(context) + "\n"


@pytest.mark.parametrize("path", [pytest.param(path, id="-".join(path) or "rametctl") for path in commands()])
def test_help_is_as_recorded(path: tuple[str, ...]) -> None:
    file = GOLDEN / f"{'-'.join(('rametctl', *path))}.txt"
    text = help_of(path)
    if os.environ.get("RAMET_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not path or "Example" in text


def test_no_recorded_help_is_of_a_verb_that_is_gone() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {"-".join(("rametctl", *path)) for path in commands()}


def test_the_overview_fits_forty_lines_and_names_every_verb_once() -> None:
    text = help_of(())
    assert len(text.splitlines()) <= 40
    named = [verb for rows in GROUPS.values() for row in rows for verb in row.split()]
    assert len(named) == len(set(named))
    commands = Path(import_module("rametctl.commands").__path__[0])
    assert set(named) == {file.stem for file in commands.glob("[a-z]*.py")}


@pytest.mark.parametrize("alias", ALIASES)
def test_a_name_from_other_tools_is_the_verb_itself(alias: str) -> None:
    context = click.Context(cli)
    assert isinstance(cli, click.Group)
    assert cli.get_command(context, alias) is cli.get_command(context, ALIASES[alias])
    assert alias not in VERBS


def test_words_that_people_try_lead_to_verbs() -> None:
    assert {*ALIASES.values(), *(word.split()[0] for word in NEAR.values())} <= set(VERBS)
    assert not {*NEAR} & {*VERBS, *ALIASES}


@pytest.mark.parametrize(
    ("typed", "meant"), [("lss", "ls"), ("aprove", "approve"), ("lits", "ls"), ("undo", "rewind"), ("budget", "set")]
)
def test_a_mistyped_verb_is_answered_with_the_right_one(typed: str, meant: str) -> None:
    error = unknown_verb(typed)
    assert isinstance(error, UsageError)
    assert f"did you mean `rametctl {meant}`?" in error.hint


def test_a_word_like_no_verb_is_answered_with_the_list() -> None:
    error = unknown_verb("xyzzy")
    assert isinstance(error, UsageError)
    assert error.hint == "all verbs: rametctl help"


@pytest.mark.parametrize(
    ("words", "within"),
    [
        ((), "Usage: rametctl VERB ..."),
        (("all",), "approve      Approve requests."),
        (("pr", "create"), "Usage: rametctl pr create "),
        (("ps",), "Usage: rametctl ls "),
        *(((topic,), text.splitlines()[0]) for topic, text in TOPICS.items()),
    ],
)
def test_help_explains_verbs_and_topics(
    words: tuple[str, ...], within: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(Output(sys.stdout, sys.stderr, {}))
    cli.main(["help", *words], prog_name="rametctl", standalone_mode=False, obj=app)
    text = capsys.readouterr().out
    assert within in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("words", [("nothing",), ("pr", "nothing"), ("ls", "nothing")])
def test_help_on_what_does_not_exist_says_what_does(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        cli.main(
            ["help", *words], prog_name="rametctl", standalone_mode=False, obj=App(Output(sys.stdout, sys.stderr, {}))
        )
    assert "rametctl" in caught.value.hint


# Letters of options as in git, docker and gh: a verb with the long option has the letter too.
LETTERS = {"--all": "-a", "--yes": "-y", "--follow": "-f", "--force": "-f", "--lines": "-n", "--message": "-m"}


@pytest.mark.parametrize("path", [pytest.param(path, id="-".join(path)) for path in commands() if path])
def test_options_have_the_letters_that_fingers_know(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    options = [each for each in command.params if isinstance(each, click.Option)]
    for each in options:
        for long, letter in LETTERS.items():
            if long in each.opts:
                assert letter in each.opts, (path, long)
    letters = [name for each in options for name in each.opts if not name.startswith("--")]
    assert len(letters) == len(set(letters))
