"""Every verb's help as it is at 80 columns; RAMET_UPDATE_GOLDEN=1 writes it anew."""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from rametctl.cli import VERBS, cli

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
