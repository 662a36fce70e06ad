"""The environment of an agent, built from the daemon's and the caller's.

A service manager may have started the daemon last week with a minimal PATH; the person who types ``new`` has today's PATH,
SSH agent socket and credentials. So one allow-list filters both, and the caller's values override the daemon's.
"""

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from ramet.environment import NAME, allowed
from ramet.paths import PathsError, open_private_directory

from rametd.domain.errors import BadEnvironmentError, RuntimeDirectoryError

UNSENDABLE = "remove it from the environment"

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")


def build(
    daemon_env: Mapping[str, str],
    caller_env: Mapping[str, str],
    pass_env: Iterable[str] = (),
    fixed: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build the agent's environment: allowed variables of the daemon, overridden by the caller's, overridden by ``fixed``.

    ``fixed`` (RAMET_SESSION, RAMET_TOKEN, …) is not filtered. Raises BadEnvironmentError for an invalid name or value.
    """
    pass_env = tuple(pass_env)
    environment: dict[str, str] = {}
    for source in (daemon_env, caller_env):
        environment |= {name: source[name] for name in allowed(source, pass_env)}
    environment |= fixed or {}
    _encode(environment)
    return environment


class EnvironmentFiles:
    """The environments of agents, one file per session, so that a restarted daemon can start the agents again.

    They contain secrets: the files are 0600 in a 0700 directory, and their content never enters the database, an event or a
    log. Format: ``NAME=value`` and a zero byte, as in /proc/PID/environ. Calls block for a disk write.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, session: str, environment: Mapping[str, str]) -> None:
        """Replace the file of ``session`` (an id) atomically. Raises BadEnvironmentError, RuntimeDirectoryError, OSError."""
        content = _encode(environment)
        name = _file_name(session)
        temporary = f".{name}.{secrets.token_hex(8)}"
        directory = self._open()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            with ExitStack() as undo:
                undo.callback(os.unlink, temporary, dir_fd=directory)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                undo.pop_all()
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self, session: str) -> dict[str, str] | None:
        """Read the environment of ``session``; None if none was written."""
        name = _file_name(session)
        directory = self._open()
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return None
        finally:
            os.close(directory)
        with os.fdopen(descriptor, "rb") as file:
            records = file.read().decode("utf-8", "surrogateescape").split("\0")
        return dict(record.split("=", 1) for record in records if record)

    def delete(self, session: str) -> None:
        """Delete the file of ``session``, if it exists."""
        name = _file_name(session)
        directory = self._open()
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)

    def _open(self) -> int:
        try:
            return open_private_directory(self._directory, variable="RAMET_HOME")
        except PathsError as error:
            raise RuntimeDirectoryError(error.message, hint=error.hint) from error


def _file_name(session: str) -> str:
    if not _ID.fullmatch(session):  # anything but an id could be a path
        raise ValueError(f"not a session id: {session!r}")
    return f"{session}.env"


def _encode(environment: Mapping[str, str]) -> bytes:
    records: list[bytes] = []
    for name, value in environment.items():
        if not NAME.fullmatch(name):
            raise BadEnvironmentError(
                f"{name!r} is not a valid name of an environment variable", name=name, hint=UNSENDABLE
            )
        try:
            record = f"{name}={value}".encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise BadEnvironmentError(f"the value of {name} is not valid text", name=name, hint=UNSENDABLE) from error
        if b"\0" in record:
            raise BadEnvironmentError(f"the value of {name} contains a zero byte", name=name, hint=UNSENDABLE)
        records.append(record + b"\0")
    return b"".join(records)
