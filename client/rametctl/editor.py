"""The person's editor: for prompts, settings, requests and worktrees."""

import json
import shlex

import click
from ramet.v1 import daemon_pb2

from rametctl.app import App
from rametctl.errors import ClientError, UsageError

MARKER = "<!-- Write the prompt above this line; without one, nothing is done. -->"


def editor_command(app: "App") -> str:
    """$VISUAL, $EDITOR or vi."""
    return app.environ.get("VISUAL") or app.environ.get("EDITOR") or "vi"


def configured_editor(app: "App") -> list[str]:
    """Return the program and arguments of the setting ``editor``, or of `editor_command`. Raise
    ClientError if they cannot be parsed."""
    config = app.call(lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())
    found = next((json.loads(each.value_json) for each in config.settings if each.key == "editor"), None)
    try:
        return list(found or shlex.split(editor_command(app)))
    except ValueError as error:
        raise ClientError(f"$EDITOR cannot be parsed: {error}", hint="set VISUAL or EDITOR") from error


def edit(app: "App", text: str, *, extension: str, undone: str) -> str | None:
    """Open ``text`` in the editor; return None if it was not saved. Raise ClientError if the editor
    does not start; ``undone`` begins its message."""
    try:
        return click.edit(text, editor=editor_command(app), extension=extension)
    except click.ClickException as error:
        raise ClientError(f"{undone}: {error.format_message()}", hint="set VISUAL or EDITOR") from error


def write_prompt(app: "App") -> str:
    """Let the person write a prompt. Raises UsageError for an empty one."""
    text = edit(app, f"\n\n{MARKER}\n", extension=".md", undone="no prompt was written") or ""
    prompt = text.partition(MARKER)[0].strip()
    if not prompt:
        raise UsageError(
            "the prompt is empty; nothing was done", hint="write one, or give it as an argument", reason="EMPTY_PROMPT"
        )
    return prompt
