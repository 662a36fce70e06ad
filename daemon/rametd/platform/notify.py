"""Notifications to the service manager by the sd_notify protocol; see sd_notify(3).

Without such a manager (``NOTIFY_SOCKET`` unset, macOS) all functions do nothing.
"""

import socket
from collections.abc import Mapping

import structlog

log = structlog.get_logger(__name__)


class Notifier:
    """Sends datagrams to the manager's socket. Never blocks: it is called from the event loop."""

    def __init__(self, address: str | None) -> None:
        # A leading "@" marks an abstract socket, whose name begins with a zero byte.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Notifier":
        return cls(environ.get("NOTIFY_SOCKET") or None)

    def ready(self, status: str = "") -> None:
        """Report that the daemon serves; systemd then considers a unit of Type=notify as
        started."""
        self._send("READY=1", status)

    def stopping(self, status: str = "") -> None:
        self._send("STOPPING=1", status)

    def watchdog(self) -> None:
        """Report that the event loop is alive. Call it every ``watchdog_interval`` seconds."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send("", text)

    def _send(self, state: str, status: str = "") -> None:
        if self._address is None:
            return
        lines = [state] if state else []
        if status:
            lines.append("STATUS=" + " ".join(status.split()))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.connect(self._address)
                channel.send("\n".join(lines).encode())
        except OSError as error:
            # The manager is gone or overloaded, and will act on its own timeouts. Agents must not
            # be affected.
            log.warning("service manager not reached", state=state, error=str(error))


def watchdog_interval(environ: Mapping[str, str], *, pid: int) -> float | None:
    """Seconds between ``watchdog`` calls, half of the manager's limit; None if it does not watch
    this process."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    limit = environ.get("WATCHDOG_USEC", "")
    return int(limit) / 2_000_000 if limit.isdecimal() and int(limit) > 0 else None
