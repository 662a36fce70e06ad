"""What a command works with: the output, the environment, and the connection once it is needed."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ramet.paths import Directories, PathsError, directories, served_elsewhere

from rametctl.errors import UnreachableError, UsageError
from rametctl.output import Output

if TYPE_CHECKING:
    from rametctl.connection import Connection


@dataclass
class App:
    """Made once per run by ``main``."""

    output: Output
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    connections: "list[Connection]" = field(default_factory=list)
    """All that were made, kept to the end of the run (see ``main``)."""

    @cached_property
    def directories(self) -> Directories:
        try:
            return served_elsewhere(directories(self.environ))
        except PathsError as error:
            raise UnreachableError(error.message, hint=error.hint, reason="DIRECTORIES") from error

    @property
    def autostart(self) -> bool:
        return self.environ.get("RAMET_AUTOSTART", "1") not in {"0", "false", "no", "off"}

    @property
    def on_terminal(self) -> bool:
        """Whether a person can use a full screen: standard input, output and error are a capable terminal."""
        stdin = sys.stdin
        return self.output.terminal and self.output.error_terminal and stdin is not None and stdin.isatty()

    @cached_property
    def connection(self) -> "Connection":
        """The way to the daemon, which is started when the first call finds none."""
        return self.connect(autostart=self.autostart)

    def connect(self, *, autostart: bool, lasting: bool = False) -> "Connection":
        from rametctl.connection import Connection

        made = Connection(
            self.directories,
            self.environ,
            autostart=autostart,
            directory=_directory(),
            tell=lambda words: self.output.note(f"rametctl: {words}"),
            lasting=lasting,
        )
        self.connections.append(made)
        return made

    @cached_property
    def cwd(self) -> str:
        """Where the caller stands, absolute; as the shell says it where that is the same directory."""
        try:
            here = Path.cwd()
        except FileNotFoundError as error:
            raise UsageError("the current directory does not exist any more", hint="change to another one") from error
        return _utf8(str(here))

    def absolute(self, path: str) -> str:
        return _utf8(str(Path(self.cwd, Path(path).expanduser())))

    def repo_here(self) -> str | None:
        """The current directory where it lies inside a git repository; the daemon finds out in which."""
        here = Path(self.cwd)
        for directory in (here, *here.parents):
            if (directory / ".git").is_file() or _is_git_directory(directory / ".git") or _is_git_directory(directory):
                return str(here)
        return None


def _directory() -> str:
    """Return the current directory, "" where it was removed or cannot be told."""
    with suppress(OSError):
        return str(Path.cwd())
    return ""


def _is_git_directory(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _utf8(path: str) -> str:
    """The contract's strings are UTF-8; a path need not be."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the path {path!r} is not UTF-8", hint="rename it, or work through a link") from error
    return path
