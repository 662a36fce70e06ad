"""The environment of agents and commands: variables from the owner's calls override the daemon's
own.

A service manager may have started the daemon last week with a minimal PATH; the person who types
``new`` has today's PATH, SSH agent socket and credentials. `ramet.environment` lists the variables
that apply, and for how long.
"""

import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ramet.environment import NAME, NEVER, Kind, allowed, family_of, group_of, matches
from ramet.paths import PathsError, open_private_directory

from rametd.domain.errors import BadEnvironmentError, RuntimeDirectoryError

UNSENDABLE = "remove it from the environment"
SET, UNSET = "+", "-"
"""Prefixes of the record of a variable that was set or removed by name. No name begins with
them."""

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")


@dataclass(frozen=True, slots=True)
class Variables:
    """A session's variables. ``called``: from calls of its owner. ``given``: set by name, None for
    a removed one."""

    called: Mapping[str, str] = field(default_factory=dict, repr=False)
    given: Mapping[str, str | None] = field(default_factory=dict, repr=False)

    def over(self, daemon_env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables from calls over the daemon's own. Of an account that calls have, use
        none of the daemon's variables."""
        groups = {group_of(name) for name in self.called} - {None}
        daemons = {name: value for name, value in daemon_env.items() if group_of(name) not in groups}
        return daemons | dict(self.called)

    def refreshed(self, caller: Mapping[str, str]) -> "Variables":
        """Replace the fresh variables that ``caller`` has, and all of the same accounts."""
        fresh = {name: value for name, value in caller.items() if family_of(name) is not None}
        brought = {group_of(name) for name in fresh}
        stays = {name: value for name, value in self.called.items() if group_of(name) not in brought}
        return replace(self, called=stays | fresh)

    def changed(self, values: Mapping[str, str], taken: Mapping[str, str], removed: Collection[str]) -> "Variables":
        """Set ``values``, remove ``removed``, and take ``taken`` over from the caller.

        A taken variable that a session inherits anyway follows the caller again. Any other is set.
        Raises BadEnvironmentError.
        """
        for name in (*values, *taken, *removed):
            if matches(name, NEVER):
                raise BadEnvironmentError(f"no session may have {name}", name=name, hint="leave it out")
        follows = allowed(taken)
        given = {name: value for name, value in self.given.items() if name not in follows}
        given |= {name: value for name, value in taken.items() if name not in follows}
        given |= {**values, **dict.fromkeys(removed)}
        _encode({name: value or "" for name, value in given.items()})
        return Variables({**self.called, **{name: taken[name] for name in follows}}, given)

    def differing(self, other: "Variables") -> list[str]:
        """Return the names of the variables that differ."""
        names = {*self.called, *self.given, *other.called, *other.given}
        return sorted(
            name
            for name in names
            if self.called.get(name) != other.called.get(name) or self.given.get(name) != other.given.get(name)
        )

    def kinds(self, pass_env: Iterable[str] = ()) -> dict[str, Kind]:
        """Return the kinds of the variables of the session's processes, by name."""
        kinds = {
            name: Kind.PINNED if family_of(name) is None else Kind.FRESH for name in allowed(self.called, pass_env)
        }
        return kinds | {name: Kind.UNSET if value is None else Kind.SET for name, value in self.given.items()}

    def deciding(self, daemon_env: Mapping[str, str]) -> bytes:
        """Return, for comparison, the variables whose change gives an idle agent a new process."""
        fresh = {
            name: value
            for name, value in self.over(daemon_env).items()
            if (family := family_of(name)) is not None and family.restarts
        }
        records = [f"{name}={value}" for name, value in fresh.items() if name not in self.given]
        records += [UNSET + name if value is None else f"{SET}{name}={value}" for name, value in self.given.items()]
        return "\0".join(sorted(records)).encode("utf-8", "surrogateescape")


def build(
    daemon_env: Mapping[str, str],
    session: Variables,
    pass_env: Iterable[str] = (),
    fixed: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build a process's environment: allowed variables of the daemon, overridden by the session's,
    overridden by ``fixed``.

    The daemon adds nothing to an account that the session has (see `Variables.over`). ``fixed``
    (RAMET_SESSION, RAMET_TOKEN, …) is not filtered. Raises BadEnvironmentError for an invalid name
    or value.
    """
    all_of_them = session.over(daemon_env)
    environment = {name: all_of_them[name] for name in allowed(all_of_them, tuple(pass_env))}
    for name, value in session.given.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    environment |= fixed or {}
    _encode(environment)
    return environment


class EnvironmentFiles:
    """The variables of sessions, one file for each, from which a restarted daemon starts the agents
    again.

    They contain secrets: the files are 0600 in a 0700 directory, and their content never enters the
    database, an event or a log. Format: ``NAME=value`` and a zero byte, as in /proc/PID/environ;
    `SET` or `UNSET` begins the record of a variable that was given by name. Calls block for a disk
    write.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._changing = threading.Lock()

    def change(self, session: str, change: Callable[[Variables], Variables]) -> Variables:
        """Apply ``change`` to the variables of ``session``, store the result if it differs, and
        return it."""
        with self._changing:
            before = self.read(session)
            after = change(before)
            if after != before:
                self.write(session, after)
            return after

    def write(self, session: str, variables: Variables) -> None:
        """Replace the file of ``session`` (an id) atomically. Raises BadEnvironmentError,
        RuntimeDirectoryError, OSError."""
        given = {name: value for name, value in variables.given.items() if value is not None}
        removed = {name: "" for name, value in variables.given.items() if value is None}
        parts = (("", variables.called), (SET, given), (UNSET, removed))
        content = b"".join(prefix.encode() + record + b"\0" for prefix, part in parts for record in _encode(part))
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

    def read(self, session: str) -> Variables:
        """Read the variables of ``session``; none if none were written."""
        name = _file_name(session)
        directory = self._open()
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return Variables()
        finally:
            os.close(directory)
        with os.fdopen(descriptor, "rb") as file:
            records = file.read().decode("utf-8", "surrogateescape").split("\0")
        called: dict[str, str] = {}
        given: dict[str, str | None] = {}
        for record in filter(None, records):
            name, _, value = record.partition("=")
            if name[0] in (SET, UNSET):
                given[name[1:]] = value if name[0] == SET else None
            else:
                called[name] = value
        return Variables(called, given)

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


def _encode(environment: Mapping[str, str]) -> list[bytes]:
    """Return a record ``NAME=value`` for each variable. Raises BadEnvironmentError for one that no
    process can have."""
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
        records.append(record)
    return records
