"""The scripted agent's child processes, each in a session of its own as the real CLI's tools
are."""

# pathlib would cost each of hundreds of agents a megabyte.
# ruff: noqa: PTH108

import contextlib
import os
import signal

from ramet_demo.scripted.wire import new_id


class Child:
    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self.status: int | None = None  # the exit code, 128 + the signal's number after a signal
        self._output = output

    def output(self) -> str:
        """Return its output so far, stdout and stderr together, and stop reading."""
        size = os.fstat(self._output).st_size
        text = os.pread(self._output, size, 0).decode(errors="replace")
        os.close(self._output)
        return text.rstrip("\n")


class Children:
    def __init__(self) -> None:
        self._live: dict[int, Child] = {}

    def start(self, command: str, *, tracked: bool = True) -> Child:
        """Run a shell command. An untracked one outlives the agent, as a forgotten development
        server does."""
        path = f"{os.environ.get('CLAUDE_CODE_TMPDIR', '/tmp')}/scripted-{new_id()}"  # noqa: S108 -- as the real CLI does
        output = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
                environment = {**os.environ, "CLAUDECODE": "1", "CLAUDE_PID": str(os.getppid()), "GIT_EDITOR": "true"}
                os.execve("/bin/sh", ["/bin/sh", "-c", command], environment)  # noqa: S606
            finally:
                os._exit(127)
        child = Child(pid, output)
        if tracked:
            self._live[pid] = child
        else:
            os.close(output)
        return child

    def reap(self) -> None:
        """Record the children that have ended; never blocks."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if child := self._live.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                child.status = code if code >= 0 else 128 - code

    def kill(self, child: Child) -> None:
        if child.status is None:
            os.kill(child.pid, signal.SIGKILL)  # before its setsid there is no group to kill
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

    def kill_all(self) -> None:
        for child in list(self._live.values()):
            self.kill(child)
