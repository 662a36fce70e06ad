"""The keeper program: ``python -I -S program.py launch DIRECTORY``. Standard library only, and little of that: it lives in each agent's
memory bill.

``launch`` leaves a keeper behind that is nobody's child, in a session of its own, and returns when that keeper has started its agent
(run.json says whom) or could not (run.json says why). Exit status: 0 for both, 3 when another keeper has the directory, else
the keeper failed and keeper.log says how. ``serve`` is what the keeper runs; only ``launch`` calls it.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if not __package__:  # run as a file, with -I -S: nothing but the standard library is in the path
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
"""Imported rather than run as a file, it comes from the byte code cache: compiling costs memory that never comes back."""


def launch(path: str) -> int:
    """Leave a keeper for ``path`` behind; returns the exit status above."""
    lock = directory.acquire_lock(path)
    if lock is None:
        return LOCKED
    ready, tell = os.pipe()
    if os.fork() == 0:
        # Two forks: this one leads the new session and ends, so the keeper leads none and can never get a terminal.
        os.setsid()
        if os.fork() == 0:
            _become_server(path, lock, tell)
        os._exit(0)
    os.close(tell)
    os.wait()
    return 0 if os.read(ready, 1) else 1  # nothing but the end of the pipe: the keeper died


def _become_server(path: str, lock: int, tell: int) -> NoReturn:
    """Exec, because the subreaper attribute survives it and the memory that ctypes takes does not."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(os.path.join(path, directory.LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, descriptor in enumerate((null, null, log)):
        os.dup2(descriptor, target)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The lock goes along: at no instant is the directory without a holder.
    for descriptor in (lock, tell):
        os.set_inheritable(descriptor, True)
    os.chdir("/")
    arguments = [ROOT, "serve", path, str(lock), str(tell)]
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", SERVE, *arguments])


def serve(path: str, lock: int, tell: int) -> int:
    """Start the agent, tell the launcher, and keep the agent until its end."""
    from rametd.keeper import child

    for descriptor in (lock, tell):
        os.set_inheritable(descriptor, False)
    spec = directory.read_record(path, directory.SPEC)
    if spec is None:
        raise FileNotFoundError(os.path.join(path, directory.SPEC))
    with open(os.path.join(path, directory.ENVIRONMENT), "rb") as file:
        environment = directory.decode_environment(file.read())
    group, spec["cgroup"] = spec["cgroup"], None  # from here on the agent's own one, once it is made
    try:
        listener = _listen(spec["socket"])
        spec["cgroup"] = child.enter_cgroup(group)
        agent = child.start(spec["argv"], spec["cwd"], environment, spec["cgroup"])
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
            raise ProcessLookupError(pid)  # not we, and not our child before it is reaped
        return process.start

    with ExitStack() as undo:
        undo.callback(os.kill, agent.pid, signal.SIGKILL)  # an agent that is recorded nowhere must not run
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
    """Exit status; anything but the two commands is refused."""
    match sys.argv[1:]:
        case ["launch", path]:
            return launch(os.path.abspath(path))
        case ["serve", path, lock, tell]:
            return serve(path, int(lock), int(tell))
        case _:
            return 2


if __name__ == "__main__":
    sys.exit(main())
