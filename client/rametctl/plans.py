"""Find the plan that a person means, and read its text."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rametctl.app import App
from rametctl.errors import RefusedError, UsageError

if TYPE_CHECKING:
    pass

Answer = TypeVar("Answer")
DEFAULT = "plan.toml"


def read_plan(app: App, file: str | None) -> tuple[str, str]:
    """Return the absolute path of a plan, "" for standard input, and its text. Raise UsageError."""
    if file == "-":
        return "", _decoded(sys.stdin.buffer.read(), "standard input")
    path = Path(app.absolute(file)) if file is not None else default_file(app)
    if path is None:
        hint = "name a file, or write one; for its format run: rametctl plan schema"
        raise UsageError(f"there is no {DEFAULT} here or at the repository's root", hint=hint)
    try:
        return str(path), _decoded(path.read_bytes(), f"the file {path}")
    except OSError as error:
        raise UsageError(f"the plan {path} cannot be read: {error.strerror}", hint="name another file") from error


def default_file(app: App) -> Path | None:
    """Return ``plan.toml`` in the current directory, or at the root of its repository."""
    here = Path(app.cwd)
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return next((folder / DEFAULT for folder in (here, root) if (folder / DEFAULT).is_file()), None)


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start})", hint="convert it first") from error


def of_plan(app: App, file: str | None, call: Callable[[str], Answer]) -> Answer:
    """Call with the plan's name: the given file or name, else the usual file if it is applied, else the only plan."""
    if file is not None:
        looks_like_one = "/" in file or file.endswith(".toml") or Path(app.absolute(file)).is_file()
        return call(app.absolute(file) if looks_like_one else file)
    usual = default_file(app)
    if usual is not None:
        try:
            return call(str(usual))
        except RefusedError as error:
            if error.reason != "PLAN_NOT_FOUND":
                raise
    return call("")


def shown(app: App, name: str) -> str:
    """Return the file relative to the current directory."""
    if not name:
        return "standard input"
    path = Path(name)
    return str(path.relative_to(app.cwd)) if path.is_relative_to(app.cwd) else name
