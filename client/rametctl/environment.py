"""Which of the person's variables a request carries: the client decides, by its own list and the person's configuration."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ramet.environment import ALLOWED, FORGE, NEVER, matches

from rametctl.app import App


def sent_environment(app: App) -> dict[str, str]:
    """The part of the environment that requests which create sessions send to the daemon.

    A variable is sent if the daemon asks for it *and* the list in `ramet.environment` or the person's own
    ``agents.claude.pass_env`` names it: a daemon cannot ask for more than that.
    """
    ours = (*ALLOWED, *FORGE, *_pass_env(app.directories.config_file))
    return selected(app.environ, ours, app.connection.info().environment_patterns)


def selected(environ: Mapping[str, str], ours: Iterable[str], asked: Iterable[str]) -> dict[str, str]:
    """The variables whose names match both lists of patterns; a value that is not UTF-8 cannot be sent."""
    ours, asked = tuple(ours), tuple(asked)
    return {
        name: value
        for name, value in environ.items()
        if matches(name, ours) and matches(name, asked) and not matches(name, NEVER) and _is_utf8(name + value)
    }


def _pass_env(file: Path) -> list[str]:
    """``agents.claude.pass_env`` of the configuration; the daemon is the one to report a broken file."""
    try:
        value: Any = tomllib.loads(file.read_text(encoding="utf-8"))
        for key in ("agents", "claude", "pass_env"):
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
