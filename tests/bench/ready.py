"""Time until a daemon serves, as it notifies a service manager: without polling and a client's
time."""

import socket
import time

from tests.support.daemon import DaemonProcess


def start_time_of(daemon: DaemonProcess, *, within: float = 60.0) -> float:
    """Start it; return the seconds from the spawn to its READY=1, which it sends once it serves and
    recovery has ended."""
    path = daemon.sandbox.root / "run" / "notify"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(within)
        began = time.perf_counter()
        daemon.start(wait=False, NOTIFY_SOCKET=str(path))
        while not manager.recv(4096).startswith(b"READY=1"):
            pass
        return time.perf_counter() - began
