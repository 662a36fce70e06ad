"""Processes that listen on TCP ports of this machine. Blocks for some milliseconds: call it in a
thread.

Linux reads /proc/net/tcp and the descriptors of this user's processes; macOS asks ``lsof``.
"""

import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening process. ``pid`` is 0 and ``program`` empty for the process of another user."""

    pid: int = 0
    program: str = ""


# Parsing, the same on every system so that it can be tested anywhere


def parse_proc_net_tcp(text: str) -> dict[int, str]:
    """Port → inode of listening sockets, from the text of /proc/net/tcp or tcp6 (proc(5))."""
    found: dict[int, str] = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def parse_lsof(text: str) -> dict[int, Listener]:
    """Port → listener, from the output of ``lsof -nP -iTCP -sTCP:LISTEN -Fpcn``: lines of pid (p),
    command (c), socket (n)."""
    found: dict[int, Listener] = {}
    pid, program = 0, ""
    for line in text.splitlines():
        match line[:1]:
            case "p":
                pid = int(line[1:])
            case "c":
                program = line[1:]
            case "n" if (port := line.rpartition(":")[2]).isdigit():
                found.setdefault(int(port), Listener(pid, program))
    return found


if sys.platform == "darwin":

    def listeners(ports: Collection[int]) -> Mapping[int, Listener]:
        """Listeners by port, for the ``ports`` that have one."""
        argv = ("/usr/sbin/lsof", "-nP", "-iTCP", "-sTCP:LISTEN", "-Fpcn")
        found = parse_lsof(subprocess.run(argv, check=False, capture_output=True, text=True).stdout)
        return {port: listener for port, listener in found.items() if port in ports}

else:

    def listeners(ports: Collection[int]) -> Mapping[int, Listener]:
        """Listeners by port, for the ``ports`` that have one."""
        inodes: dict[str, int] = {}
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                text = Path(table).read_text(encoding="ascii")
            except FileNotFoundError:
                continue  # a machine without IPv6
            inodes |= {inode: port for port, inode in parse_proc_net_tcp(text).items() if port in ports}
        found = dict.fromkeys(inodes.values(), Listener())
        if found:
            sockets = {f"socket:[{inode}]": port for inode, port in inodes.items()}
            for process in Path("/proc").iterdir():
                if process.name.isdigit() and (held := _held(process, sockets)):
                    found |= dict.fromkeys(held, Listener(int(process.name), _program(process)))
        return found

    def _held(process: Path, sockets: Mapping[str, int]) -> list[int]:
        """Ports whose sockets a process has open; none if this user may not inspect the process."""
        held = []
        try:
            for descriptor in (process / "fd").iterdir():
                try:
                    port = sockets.get(str(descriptor.readlink()))
                except FileNotFoundError:
                    continue
                if port is not None:
                    held.append(port)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return []
        return held

    def _program(process: Path) -> str:
        try:
            return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            return ""
