"""Paths of state, sockets and configuration, for daemon and client. Standard library only.

platformdirs reads the environment of its own process; a daemon started for a client, and every
test, needs the answer for another one. So this is a function of an environment mapping that follows
the XDG base directory specification.
"""

import json
import os
import pwd
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
"""Bytes that a unix socket's path may have: ``sizeof(sun_path)`` less the final zero."""


class PathsError(Exception):
    """A directory cannot be determined or used safely; ``hint`` says what to set or run. One line
    each."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Directories:
    """Absolute paths; nothing is created by computing them."""

    home: Path  # $RAMET_HOME: everything that must survive
    runtime: Path  # $RAMET_RUNTIME_DIR: lock and sockets, gone after a reboot
    config_home: Path  # $XDG_CONFIG_HOME

    @property
    def config_file(self) -> Path:
        return self.config_home / "ramet" / "config.toml"

    @property
    def socket(self) -> Path:
        return self.runtime / "rametd.sock"

    @property
    def lock(self) -> Path:
        return self.runtime / "rametd.lock"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"


def password_home(uid: int) -> str | None:
    """The home directory that the password database has for ``uid``; None for a user it does not
    know."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def user_home(
    environ: Mapping[str, str], *, uid: int | None = None, lookup: Callable[[int], str | None] = password_home
) -> Path:
    """HOME, or what the password database says where HOME is missing (launchd, ``env -i``, cron).

    Raises PathsError where neither knows an absolute path.
    """
    uid = os.getuid() if uid is None else uid
    for candidate in (environ.get("HOME"), lookup(uid)):
        if candidate and candidate.startswith("/"):
            return Path(candidate)
    raise PathsError(f"no home directory is known for user {uid}", hint="set HOME, or RAMET_HOME and RAMET_RUNTIME_DIR")


def directories(
    environ: Mapping[str, str],
    *,
    uid: int | None = None,
    platform: str = sys.platform,
    lookup: Callable[[int], str | None] = password_home,
    is_directory: Callable[[str], bool] = os.path.isdir,
) -> Directories:
    """The directories for a process with that environment. Raises PathsError.

    An empty variable counts as unset, and so does a relative XDG one (the specification says so); a
    relative RAMET_* one is a mistake of the person and refused.
    """
    uid = os.getuid() if uid is None else uid

    def ours(name: str) -> Path | None:
        value = environ.get(name)
        if not value:
            return None
        if not value.startswith("/"):
            raise PathsError(f"{name} is {value!r}, a relative path", hint=f"set {name} to an absolute path")
        return Path(value)

    def xdg(name: str) -> Path | None:
        value = environ.get(name, "")
        return Path(value) if value.startswith("/") else None

    def below_home(*parts: str) -> Path:
        return user_home(environ, uid=uid, lookup=lookup).joinpath(*parts)

    def runtime() -> Path:
        if given := xdg("XDG_RUNTIME_DIR"):
            return given / "ramet"
        if platform == "darwin":
            return (xdg("TMPDIR") or Path("/tmp")) / f"ramet-{uid}"  # noqa: S108  made 0700 and checked to be ours
        # A cron job or `env -i` lacks the variable; the daemon that the service manager runs has
        # it. They must still meet.
        if is_directory(f"/run/user/{uid}"):
            return Path(f"/run/user/{uid}/ramet")
        return Path(f"/tmp/ramet-{uid}")  # noqa: S108  made 0700 and checked to be ours

    return Directories(
        home=ours("RAMET_HOME") or (xdg("XDG_STATE_HOME") or below_home(".local", "state")) / "ramet",
        runtime=ours("RAMET_RUNTIME_DIR") or runtime(),
        config_home=xdg("XDG_CONFIG_HOME") or below_home(".config"),
    )


STATE_LOCK = "rametd.lock"
"""In the state directory: held by the daemon that has it, and telling where it serves."""


def state_holder(home: Path) -> tuple[int | None, Path | None]:
    """Process id and socket that the state's lock file tells of; they may be of a daemon that is no
    more."""
    try:
        holder = json.loads((home / STATE_LOCK).read_text())
        return int(holder["pid"]), Path(str(holder["socket"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def served_elsewhere(places: Directories) -> Directories:
    """The directories with the runtime directory of the daemon that has the state, where that is
    another one.

    A shell without XDG_RUNTIME_DIR (cron, ``su``) looks for the socket in another place than the
    daemon that a desktop has started.
    """
    if places.socket.exists():
        return places
    _, socket = state_holder(places.home)
    return replace(places, runtime=socket.parent) if socket is not None and socket.exists() else places


def open_private_directory(path: Path, *, variable: str = "RAMET_RUNTIME_DIR") -> int:
    """Create ``path`` (0700) if it is missing, and return a descriptor of it once it is verified to
    be only ours.

    The checks are made on the descriptor, so that the directory cannot be exchanged afterwards: a
    caller goes through the descriptor (``dir_fd``). A symbolic link, a foreign owner, or a mode
    that lets others in raises PathsError. ``variable`` is the one that moves the directory, for
    hints.
    """
    descriptor = _create(path, variable)
    try:
        check_private(path, descriptor, variable=variable)
    except PathsError:
        os.close(descriptor)
        raise
    return descriptor


def make_private_directory(path: Path, *, variable: str = "RAMET_HOME") -> str:
    """Create ``path`` (0700) if it is missing; if it is ours and open to others, close it and
    return a sentence that says so.

    Raises PathsError for a symbolic link, for a directory of another user, and for one that others
    could write to and that has entries of another user.
    """
    descriptor = _create(path, variable)
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid == os.getuid() and mode & 0o077:
            if mode & 0o022:
                _check_entries(path, descriptor, variable)
            os.fchmod(descriptor, mode & 0o700)
            return f"{path} was open to others (mode {mode:04o}); it is closed now"
        check_private(path, descriptor, variable=variable)
        return ""
    finally:
        os.close(descriptor)


def _check_entries(path: Path, descriptor: int, variable: str) -> None:
    for name in os.listdir(descriptor):
        owner = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid
        if owner != os.getuid():
            raise PathsError(
                f"{path} was open to others, and {name} in it belongs to user {owner}",
                hint=f"remove it, or set {variable} to a place you own",
            )


def _create(path: Path, variable: str) -> int:
    try:
        for directory in (*reversed(path.parents), path):
            # One by one: with parents=True, pathlib gives the parents the mode that the umask
            # leaves.
            if not directory.is_dir():
                directory.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unusable(path, variable, error) from error
    descriptor = open_directory(path, variable=variable)
    if descriptor is None:
        raise PathsError(f"{path} was removed as soon as it was created", hint=f"set {variable} to a place you own")
    return descriptor


def open_directory(path: Path, *, variable: str = "RAMET_RUNTIME_DIR") -> int | None:
    """A descriptor of the directory ``path``, None where there is nothing. Raises PathsError, also
    for a symbolic link."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, variable, error) from error


def check_private(path: Path, descriptor: int, *, variable: str = "RAMET_RUNTIME_DIR") -> None:
    """Raise PathsError unless the open directory is ours and closed to others; ``path`` is its
    name, for messages."""
    status = os.fstat(descriptor)
    if status.st_uid != os.getuid():
        raise PathsError(
            f"{path} belongs to user {status.st_uid}, not to you", hint=f"set {variable} to a place you own"
        )
    if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
        raise PathsError(f"{path} is open to others (mode {mode:04o})", hint=f"run: chmod 700 {path}")


def _unusable(path: Path, variable: str, error: OSError) -> PathsError:
    if path.is_symlink():
        return PathsError(f"{path} is a symbolic link", hint=f"remove it (rm {path}), or set {variable} to its target")
    if isinstance(error, FileExistsError | NotADirectoryError):
        return PathsError(f"{path} is not a directory", hint=f"move what is there away, or set {variable}")
    return PathsError(f"{path} cannot be used: {error.strerror}", hint=f"set {variable} to a place you own")


def check_socket_path(path: Path) -> None:
    """Raise PathsError where ``path`` is longer than the system takes for a socket: it would be cut
    off or refused."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        raise PathsError(
            f"the socket path {path} has {length} bytes, {SOCKET_PATH_LIMIT} are the most the system takes",
            hint="set RAMET_RUNTIME_DIR to a shorter path",
        )
