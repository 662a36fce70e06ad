"""The keeper program: ``python -I -S program.py launch DIRECTORY``. Standard library only, and few
modules of it: each agent costs the memory of a keeper.

``launch`` starts a keeper as an orphan in a session of its own, and returns when the keeper has
started its agent or failed to; run.json has the processes or the error. Exit status: 0 for both, 3
if another keeper has the directory; otherwise the keeper failed, and keeper.log says how. ``serve``
runs the keeper; only ``launch`` calls it.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if not __package__:  # run as a file, with -I -S: only the standard library is in the path
    sys.path.append(ROOT)

from rametd.keeper import directory  # noqa: E402 -- after the path is set

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, NoReturn

    from rametd.keeper import child

LOCKED = 3
PR_SET_CHILD_SUBREAPER = 36
SERVE = "import sys; sys.path.append(sys.argv.pop(1)); from rametd.keeper.program import main; sys.exit(main())"
"""Command that imports the module instead of running the file, to use the byte code cache:
compiling takes memory that is never released."""


def launch(path: str) -> int:
    """Start a keeper for ``path``; return the exit status above."""
    lock = directory.acquire_lock(path)
    if lock is None:
        return LOCKED
    ready, tell = os.pipe()
    if os.fork() == 0:
        # Two forks: this one leads the new session and ends, so that the keeper leads none and can
        # never get a terminal.
        os.setsid()
        if os.fork() == 0:
            _become_server(path, lock, tell)
        os._exit(0)
    os.close(tell)
    os.wait()
    return 0 if os.read(ready, 1) else 1  # only EOF: the keeper died


def _become_server(path: str, lock: int, tell: int) -> NoReturn:
    """Exec, which preserves the subreaper attribute and releases the memory of ctypes."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(os.path.join(path, directory.LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, descriptor in enumerate((null, null, log)):
        os.dup2(descriptor, target)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The lock is inherited, so that the directory is locked at every instant.
    for descriptor in (lock, tell):
        os.set_inheritable(descriptor, True)
    os.chdir("/")
    arguments = [ROOT, "serve", path, str(lock), str(tell)]
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", SERVE, *arguments])


def serve(path: str, lock: int, tell: int) -> int:
    """Start the agent, report to the launcher, and serve until the agent's end."""
    from rametd.keeper import child

    for descriptor in (lock, tell):
        os.set_inheritable(descriptor, False)
    spec = directory.read_record(path, directory.SPEC)
    if spec is None:
        raise FileNotFoundError(os.path.join(path, directory.SPEC))
    with open(os.path.join(path, directory.ENVIRONMENT), "rb") as file:
        environment = directory.decode_environment(file.read())
    group, spec["cgroup"] = spec["cgroup"], None  # from here on the agent's own one, once it exists
    try:
        listener = _listen(spec["socket"])
        spec["cgroup"] = child.enter_cgroup(group)
        agent = child.start(spec["argv"], spec["cwd"], environment, spec["cgroup"], spec["nice"])
        _keep(path, spec, agent, listener, tell)
    except child.StartError as error:
        failure = {"stage": error.stage, "errno": error.number, "message": os.strerror(error.number)}
        directory.write_record(path, directory.RUN, {"version": spec["version"], "error": failure})
        os.write(tell, b".")
    child.leave_cgroup(spec["cgroup"])
    with suppress(OSError):
        os.unlink(spec["socket"])
    return 0


def _listen(path: str) -> socket.socket:
    from rametd.keeper import child, control

    try:
        return control.bind(path)
    except OSError as error:
        raise child.StartError(child.SOCKET, error.errno or 0) from error


def _keep(path: str, spec: dict[str, Any], agent: child.Child, listener: socket.socket, tell: int) -> None:
    import signal
    import time

    from rametd.keeper.server import Keeper
    from rametd.platform import processes

    def start_time(pid: int) -> str:
        process = processes.find(pid)
        if process is None:
            raise ProcessLookupError(pid)  # impossible for this process and for an unreaped child
        return process.start

    with ExitStack() as undo:
        undo.callback(os.kill, agent.pid, signal.SIGKILL)  # no agent may run without a record
        identity = {
            "version": spec["version"],
            "session": spec["session"],
            "generation": spec["generation"],
            "keeper_pid": os.getpid(),
            "keeper_start": start_time(os.getpid()),
            "agent_pid": agent.pid,
            "agent_start": start_time(agent.pid),
            "boot_id": processes.boot_id(),
            "socket": spec["socket"],
            "started_at": time.time(),
        }
        keeper = Keeper(path, spec, agent, identity, listener)
        directory.write_record(path, directory.RUN, identity)
        undo.pop_all()
    os.write(tell, b".")
    os.close(tell)
    keeper.run()


def main() -> int:
    """Run one of the two commands; return the exit status."""
    match sys.argv[1:]:
        case ["launch", path]:
            return launch(os.path.abspath(path))
        case ["serve", path, lock, tell]:
            return serve(path, int(lock), int(tell))
        case _:
            return 2


if __name__ == "__main__":
    sys.exit(main())
