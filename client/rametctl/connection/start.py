"""Find a daemon, or start exactly one, even if many commands need one at the same moment.

Steps: try to connect; take the clients' start lock; try to connect again; spawn; wait until it
serves; release the lock. The daemon's own lock prevents a second daemon. This module never signals
a process.
"""

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ramet.paths import Directories, PathsError, make_private_directory, open_private_directory

from rametctl.connection.listener import listens, unreachable
from rametctl.errors import ClientError, UnreachableError

if TYPE_CHECKING:
    import subprocess

START_DEADLINE = 30.0
"""Seconds that a daemon may take from its start until it serves, including recovery."""
START_LOCK = "start.lock"
START_LOG = "start.log"
TAIL_LINES = 5
WARNING = "warning: "
"""Beginning of the warnings among the problems of a configuration; the others are errors."""
ANOTHER_SERVES = os.EX_TEMPFAIL
"""Exit status of a daemon that finds the lock of another."""

NOT_INSTALLED = "the daemon is not installed beside this rametctl"
INSTALL = 'pip install "ramet[daemon]"'


SESSION_MARKERS = frozenset({"RAMET_SESSION", "RAMET_TOKEN", "RAMET_GENERATION", "RAMET_KEEPER"})
"""Variables that mark the processes of a session. A daemon that a session's command starts must not
have them, or the session's end would end it."""


def daemon_command() -> list[str]:
    """Return the daemon's command: the module in this Python, else ``rametd`` on PATH. Never
    imports it.

    ``-P`` ignores a ``rametd.py`` in the current directory.
    """
    if find_spec("rametd") is not None:
        return [sys.executable, "-P", "-m", "rametd"]
    import shutil

    found = shutil.which("rametd")
    if found is None:
        raise UnreachableError(NOT_INSTALLED, hint=f"run: {INSTALL}", reason="DAEMON_NOT_INSTALLED")
    return [found]


def daemon_python() -> str:
    """Return the Python that runs the daemon: this one, or that of the ``rametd`` script on
    PATH."""
    if find_spec("rametd") is not None:
        return sys.executable
    import shutil

    script = shutil.which("rametd")
    if script is not None:
        with Path(script).open("rb") as file:
            first = file.readline(4096).decode("utf-8", "replace").strip()
        if first.startswith("#!/") and "python" in first and " " not in first:
            return first[2:]
    raise UnreachableError(NOT_INSTALLED, hint=f"run: {INSTALL}", reason="DAEMON_NOT_INSTALLED")


def ensure_running(
    directories: Directories,
    environ: Mapping[str, str],
    *,
    serving: Callable[[], bool],
    deadline: float = START_DEADLINE,
) -> bool:
    """Return once a daemon serves; True if it was started here.

    ``serving`` asks the daemon (False while it is absent or recovers). Raise UnreachableError, with
    the end of the daemon's output if it could not start.
    """
    end = time.monotonic() + deadline
    with _start_lock(directories, end):
        # The previous holder of the lock may have started it.
        process = None if listens(directories.socket) else _spawn(directories, environ, patience=deadline)
        while not serving():
            ended = None if process is None else process.poll()
            # A daemon that found the lock of another is no failure: the other is about to serve.
            if ended is not None and ended != ANOTHER_SERVES and not listens(directories.socket):
                raise _start_failed(ended, directories.logs / START_LOG)
            if time.monotonic() > end:
                raise _never_served(directories, deadline, refused=ended == ANOTHER_SERVES)
            time.sleep(0.02)
    return process is not None


@contextmanager
def _start_lock(directories: Directories, end: float) -> Iterator[None]:
    try:
        directory = open_private_directory(directories.runtime)
    except PathsError as error:
        raise unreachable(error) from error
    try:
        lock = os.open(START_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError as error:
        message = f"{directories.runtime / START_LOCK} cannot be opened: {error.strerror}"
        raise UnreachableError(message, hint="set RAMET_RUNTIME_DIR to a place you own") from error
    finally:
        os.close(directory)
    try:
        # A blocking flock would miss the deadline if a stopped process holds the lock.
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    message = "another rametctl is starting the daemon and has not finished"
                    raise UnreachableError(
                        message, hint="try again; is a rametctl stopped in some terminal?"
                    ) from error
                time.sleep(0.02)
        yield
    finally:
        os.close(lock)


def _spawn(directories: Directories, environ: Mapping[str, str], *, patience: float) -> "subprocess.Popen[bytes]":
    log = directories.logs / START_LOG
    try:
        make_private_directory(directories.home)  # no messages at exit; the daemon's log has them
        make_private_directory(directories.logs)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except PathsError as error:
        raise unreachable(error) from error
    except OSError as error:
        raise UnreachableError(
            f"the daemon cannot be started: {log}: {error.strerror}", hint="set RAMET_HOME to a place you own"
        ) from error
    import subprocess

    # An agent's command may start the daemon, which belongs to no session.
    environment = {key: value for key, value in environ.items() if key not in SESSION_MARKERS}
    try:
        return subprocess.Popen(
            [*daemon_command(), "run", f"--patience={patience:.0f}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise UnreachableError(f"the daemon cannot be started: {error}", hint=f"run: {INSTALL}") from error
    finally:
        os.close(output)


def _never_served(directories: Directories, deadline: float, *, refused: bool) -> UnreachableError:
    message = f"the daemon did not serve within {deadline:.0f} s"
    if refused and (output := _last_output(directories.logs / START_LOG)):
        message += f": {output}"
    return UnreachableError(message, hint="see: rametctl daemon logs")


def _start_failed(status: int, log: Path) -> UnreachableError:
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return UnreachableError(
        f"the daemon could not be started ({how}): {_last_output(log) or 'it printed nothing'}",
        hint=f"see {log}",
        reason="START_FAILED",
    )


def _last_output(log: Path) -> str:
    """Return the end of the daemon's output, in one line."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines()[-TAIL_LINES:] if line.strip())


def config_problems(
    environ: Mapping[str, str], repository_file: Path | None = None, *, owner_file: Path | None = None
) -> list[str]:
    """Return the errors and warnings that ``rametd`` reports for the configuration, one line each;
    ``owner_file`` in place of config.toml. Raise ClientError if it reports none, nor success."""
    import subprocess

    command = [*daemon_command(), "check"]
    if repository_file is not None:
        command += ["--repository-file", str(repository_file)]
    if owner_file is not None:
        command += ["--owner-file", str(owner_file)]
    done = subprocess.run(command, env=dict(environ), capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in {0, 1} or done.stderr:
        words = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        raise ClientError(f"the configuration cannot be checked: {words}", hint="is the daemon of the same release?")
    return done.stdout.decode("utf-8", "replace").splitlines()
