"""The context of a command: output, environment, and the connection on demand."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ramet.paths import Directories, PathsError, directories, served_elsewhere

from rametctl.console.output import Output
from rametctl.errors import ClientError, UnreachableError, UsageError

if TYPE_CHECKING:
    from rametctl.connection.channel import Connection, ListRequest, ListResponse, Method

Item = TypeVar("Item")
Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass
class App:
    """``main`` creates one per run."""

    output: Output
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    connections: "list[Connection]" = field(default_factory=list)
    """All connections of the run, referenced until its end (see ``main``)."""

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
        """Return whether standard input, output and error are a terminal that can show a full
        screen."""
        stdin = sys.stdin
        return self.output.terminal and self.output.error_terminal and stdin is not None and stdin.isatty()

    @property
    def can_ask(self) -> bool:
        """Return whether a person can answer a question on standard error; never with `--json`."""
        stdin = sys.stdin
        return not self.output.json_mode and self.output.error_terminal and stdin is not None and stdin.isatty()

    def refuse_session(self, action: str) -> None:
        """Raise ClientError in a session: its agent must not change what only files of the person
        decide, which the daemon does not guard. ``action`` completes "a session may not …"."""
        if self.environ.get("RAMET_TOKEN") or self.environ.get("RAMET_SESSION"):
            raise ClientError(f"a session may not {action}", hint="ask the person, who can", reason="PERMISSION_DENIED")

    @cached_property
    def connection(self) -> "Connection":
        """Return a connection; its first call starts a daemon if none runs."""
        return self.connect(autostart=self.autostart)

    def call(
        self,
        method: "Callable[[Connection], Method[Request, Response]]",
        request: Request,
        *,
        doing: str = "",
        timeout: float | None = None,
    ) -> Response:
        """Call ``method`` as `Connection.call` does, with ``doing`` beside a spinner. Print the
        answer's warnings on standard error."""
        with self.output.spinner(doing) if doing else nullcontext():
            answer = self.connection.call(method, request, timeout=timeout)
        self.output.warn(getattr(answer, "warnings", ()))
        return answer

    def listed(
        self,
        method: "Callable[[Connection], Method[ListRequest, ListResponse]]",
        request: "ListRequest",
        items: "Callable[[ListResponse], Iterable[Item]]",
    ) -> list[Item]:
        """Return the items of all pages of a list."""
        return [item for page in self.connection.pages(method, request) for item in items(page)]

    def for_each(self, names: Sequence[str], act: Callable[[str], object]) -> int:
        """Call ``act`` for every name and return the exit code of the first failure, or 0.

        ``act`` prints for people and returns the JSON: one object for one name, an array for
        several, with an error in place of a failed name. With a single name, raise its ClientError.
        """
        unique = list(dict.fromkeys(names))
        if len(unique) == 1:
            shown = act(unique[0])
            self.output.json(shown)
            return 0
        status = 0
        answers: list[object] = []
        for name in unique:
            try:
                answers.append(act(name))
            except ClientError as error:
                status = status or error.exit_code
                named = error.message.startswith(f"{name} ") or f"'{name}'" in error.message
                text = error.message if named else f"{name}: {error.message}"
                self.output.note(f"rametctl: {text}" + (f"; {error.hint}" if error.hint else ""))
                answers.append({"error": {"reason": error.reason, "message": error.message, "hint": error.hint}})
        self.output.json(answers)
        return status

    def connect(self, *, autostart: bool, lasting: bool = False) -> "Connection":
        from rametctl.connection.channel import Connection

        connection = Connection(
            self.directories,
            self.environ,
            autostart=autostart,
            directory=_directory(),
            tell=lambda words: self.output.note(f"rametctl: {words}"),
            lasting=lasting,
        )
        self.connections.append(connection)
        return connection

    @cached_property
    def cwd(self) -> str:
        """Return the current directory, absolute; in the shell's spelling if that is the same
        directory."""
        try:
            here = Path.cwd()
        except FileNotFoundError as error:
            raise UsageError("the current directory does not exist any more", hint="change to another one") from error
        return _utf8(str(here))

    def absolute(self, path: str) -> str:
        return _utf8(str(Path(self.cwd, Path(path).expanduser())))

    def repo_here(self) -> str | None:
        """Return the current directory if it is inside a git repository; the daemon finds out
        which."""
        here = Path(self.cwd)
        for directory in (here, *here.parents):
            if (directory / ".git").is_file():
                return str(here) if _git_directory_exists(directory / ".git") else None
            if _is_git_directory(directory / ".git") or _is_git_directory(directory):
                return str(here)
        return None


def _directory() -> str:
    """Return the current directory, "" if it was removed or is unreadable."""
    with suppress(OSError):
        return str(Path.cwd())
    return ""


def _git_directory_exists(link: Path) -> bool:
    """Return whether the git directory that a worktree's ``.git`` file names exists; that of an
    archived or removed session does not."""
    try:
        return Path(link.parent, os.fsdecode(link.read_bytes()).removeprefix("gitdir:").strip()).is_dir()
    except OSError:
        return False


def _is_git_directory(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _utf8(path: str) -> str:
    """The contract's strings are UTF-8; a path need not be."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the path {path!r} is not UTF-8", hint="rename it, or work through a link") from error
    return path
