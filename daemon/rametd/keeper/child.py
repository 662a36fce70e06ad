"""Start the agent: fork, chdir, exec, and report exactly which of them failed. Standard library
only.

``subprocess`` would cost each keeper a megabyte and a half of memory.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOCKET, CGROUP, CWD, EXEC = "socket", "cgroup", "cwd", "exec"
"""The stages that can fail."""
GROUP_PAUSE = 0.1
"""Minimum number of seconds between two changes of scheduler groups, on the whole machine, that
Linux accepts from users other than root."""


class StartError(Exception):
    """Raised when no agent runs. ``stage`` is one of `STAGES`, ``number`` the errno."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(f"{stage}: {os.strerror(number)}")
        self.stage, self.number = stage, number


class Child:
    """A started agent: its pid, and the keeper's ends of its pipes, all non-blocking."""

    __slots__ = ("pid", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid, self.stdin, self.stdout, self.stderr = pid, stdin, stdout, stderr
        for descriptor in (stdin, stdout, stderr):
            os.set_blocking(descriptor, False)


def enter_cgroup(cgroup: str | None) -> str | None:
    """Move this process into ``cgroup`` and create a group in it for the agent, so that ending that
    group spares the keeper."""
    if cgroup is None:
        return None
    group = os.path.join(cgroup, "agent")
    try:
        _join(cgroup)
        os.makedirs(group, exist_ok=True)
    except OSError as error:
        raise StartError(CGROUP, error.errno or 0) from error
    return group


def leave_cgroup(group: str | None) -> None:
    """Remove the agent's group, unless a process in it survived."""
    if group is not None:
        with suppress(OSError):
            os.rmdir(group)


def _join(cgroup: str) -> None:
    with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write("0")


def lower_group(pid: int, nice: int) -> bool:
    """Lower the priority of an agent's scheduler group to ``nice``; return whether to try again
    later.

    With `sched_autogroup_enabled` Linux divides the processor between process sessions, and
    niceness applies only within one: a hundred agents would get a hundred times the time of their
    daemon. `start` gives each agent a process session, so no other program is in this group. Try
    again after `GROUP_PAUSE`.
    """
    try:
        with open(f"/proc/{pid}/autogroup", "r+b", buffering=0) as file:
            if int(file.read().rpartition(b" ")[2]) < nice:
                return file.write(b"%d" % nice) is None  # None for EAGAIN
    except (OSError, ValueError):
        pass  # no such groups here, or the agent has ended
    return False


def start(
    argv: Sequence[str], cwd: str, environment: Mapping[bytes, bytes], cgroup: str | None, nice: int = 0
) -> Child:
    """Start ``argv`` in a session of its own, looked up in the PATH of ``environment``. Raises
    `StartError`."""
    pipes = [os.pipe() for _ in range(4)]
    (stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr), (failure, our_failure) = pipes
    pid = os.fork()
    if pid == 0:
        _become(argv, cwd, environment, cgroup, nice, (stdin, stdout, stderr), our_failure)
    for descriptor in (stdin, stdout, stderr, our_failure):
        os.close(descriptor)
    report = os.read(failure, 64)  # EOF when exec closes the other end; otherwise the failure
    os.close(failure)
    if not report:
        return Child(pid, our_stdin, our_stdout, our_stderr)
    os.waitpid(pid, 0)
    for descriptor in (our_stdin, our_stdout, our_stderr):
        os.close(descriptor)
    stage, _, number = report.decode().partition(" ")
    raise StartError(stage, int(number))


def _become(
    argv: Sequence[str],
    cwd: str,
    environment: Mapping[bytes, bytes],
    cgroup: str | None,
    nice: int,
    stdio: tuple[int, int, int],
    failure: int,
) -> None:
    """Run the child between fork and exec; never returns."""
    stage = CGROUP
    try:
        if cgroup is not None:
            _join(cgroup)
        stage = CWD
        os.chdir(cwd)
        stage = EXEC
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
        for target, descriptor in enumerate(stdio):
            # A keeper always has 0, 1 and 2 open, so no pipe end has one of these numbers.
            os.dup2(descriptor, target)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # exec would pass an ignored signal on to the agent
        os.execvpe(argv[0], list(argv), dict(environment))
    except OSError as error:
        os.write(failure, f"{stage} {error.errno}".encode())
    finally:
        os._exit(127)
