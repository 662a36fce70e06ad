"""Processes by identity: a pid counts only together with its start time and boot id.

Linux reads /proc and signals through a pidfd; macOS runs ``ps`` and ``sysctl``. The keeper uses
this module too, so it imports only light modules of the standard library. All functions block for
milliseconds: call them in a thread from async code.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Process:
    """One process when it was read. ``start`` is an opaque token: the same pid with another token
    is another process."""

    __slots__ = ("group", "parent", "pid", "start", "zombie")

    def __init__(self, pid: int, parent: int, group: int, start: str, *, zombie: bool) -> None:
        self.pid, self.parent, self.group, self.start, self.zombie = pid, parent, group, start, zombie

    def __repr__(self) -> str:
        return f"Process(pid={self.pid}, parent={self.parent}, group={self.group}, start={self.start!r}, zombie={self.zombie})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and (self.pid, self.start) == (other.pid, other.start)

    def __hash__(self) -> int:
        return hash((self.pid, self.start))


# Parsing, the same on every system so that it can be tested anywhere


def parse_proc_stat(text: bytes) -> Process:
    """Parse a line of /proc/PID/stat (proc(5)). The name is in parentheses and may contain
    anything, parentheses too."""
    pid, _, rest = text.partition(b" (")
    fields = rest[rest.rindex(b")") + 2 :].split()
    return Process(int(pid), int(fields[1]), int(fields[2]), fields[19].decode(), zombie=fields[0] in (b"Z", b"X"))


def parse_ps(text: str) -> list[Process]:
    """Parse lines of ``ps -o pid=,ppid=,pgid=,state=,lstart=``. lstart is five words with a
    resolution of one second."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 9:
            pid, parent, group = (int(field) for field in fields[:3])
            found.append(Process(pid, parent, group, " ".join(fields[4:9]), zombie=fields[3].startswith("Z")))
    return found


def parse_ps_environment(text: str, tags: Mapping[str, str]) -> list[int]:
    """Pids of the lines of ``ps -E -o pid=,command=`` whose environment (after the command) has all
    ``tags``."""
    wanted = [f" {name}={value} " for name, value in tags.items()]
    found = []
    for line in text.splitlines():
        pid, _, rest = line.strip().partition(" ")
        if pid.isdigit() and all(tag in f" {rest} " for tag in wanted):
            found.append(int(pid))
    return found


if sys.platform == "darwin":

    def _output(*argv: str) -> str:
        import subprocess  # late, to save memory in keepers on Linux

        return subprocess.run(argv, check=False, capture_output=True, text=True).stdout

    def boot_id() -> str:
        """Id that changes with every boot."""
        return _output("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid").strip()

    def find(pid: int) -> Process | None:
        """The process that has this pid now."""
        found = parse_ps(_output("/bin/ps", "-o", "pid=,ppid=,pgid=,state=,lstart=", "-p", str(pid)))
        return found[0] if found else None

    def snapshot() -> dict[int, Process]:
        """All processes by pid."""
        found = parse_ps(_output("/bin/ps", "-axo", "pid=,ppid=,pgid=,state=,lstart="))
        return {process.pid: process for process in found}

    def tagged(tags: Mapping[str, str]) -> list[Process]:
        """Processes of this user that were started with all ``tags`` in their environment."""
        pids = parse_ps_environment(_output("/bin/ps", "-xEww", "-o", "pid=,command="), tags)
        found = snapshot()
        return [found[pid] for pid in pids if pid in found and not found[pid].zombie]

    def send_signal(pid: int, start: str, signum: int) -> bool:
        """Signal the process if it is still the same. Return False if it is gone. macOS has no
        handle for a process: the pid could be reused between the check and the signal."""
        process = find(pid)
        if process is None or process.zombie or process.start != start:
            return False
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            return False
        return True

else:

    def boot_id() -> str:
        """Id that changes with every boot."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()

    def find(pid: int) -> Process | None:
        """The process that has this pid now."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return parse_proc_stat(file.read())
        except (FileNotFoundError, ProcessLookupError):
            return None

    def snapshot() -> dict[int, Process]:
        """All processes by pid."""
        found = (find(int(name)) for name in os.listdir("/proc") if name.isdigit())
        return {process.pid: process for process in found if process is not None}

    def tagged(tags: Mapping[str, str]) -> list[Process]:
        """Processes of this user that were started with all ``tags`` in their environment."""
        wanted = [b"\0" + os.fsencode(f"{name}={value}") + b"\0" for name, value in tags.items()]
        user = os.geteuid()
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                if os.stat(f"/proc/{name}").st_uid != user:
                    continue
                # Read the start time before the environment: if another process gets the pid in
                # between, the pair names a process that is gone, and no signal reaches the new one.
                process = find(int(name))
                with open(f"/proc/{name}/environ", "rb") as file:
                    environment = b"\0" + file.read()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if process is not None and not process.zombie and all(tag in environment for tag in wanted):
                found.append(process)
        return found

    def send_signal(pid: int, start: str, signum: int) -> bool:
        """Signal the process if it is still the same; False if it is gone.

        It opens a pidfd first and compares the start time afterwards: the descriptor names one
        process even if the pid is reused.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            process = find(pid)
            if process is None or process.zombie or process.start != start:
                return False
            signal.pidfd_send_signal(descriptor, signum)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def is_alive(pid: int, start: str, boot: str) -> bool:
    """Whether exactly this process is alive; a zombie is not."""
    if boot != boot_id():
        return False
    process = find(pid)
    return process is not None and process.start == start and not process.zombie


def descendants(roots: Iterable[int], among: Mapping[int, Process]) -> list[Process]:
    """Living descendants of ``roots``, without the roots."""
    children: dict[int, list[Process]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    left = list(roots)
    while left:
        below = children.pop(left.pop(), [])
        left += [process.pid for process in below]
        found += [process for process in below if not process.zombie]
    return found
