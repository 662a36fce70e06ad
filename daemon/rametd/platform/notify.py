"""What the daemon tells the service manager that started it: the sd_notify protocol, see sd_notify(3).

Without such a manager (``NOTIFY_SOCKET`` unset, macOS) everything here does nothing.
"""

import socket
from collections.abc import Mapping

import structlog

log = structlog.get_logger(__name__)


class Notifier:
    """Sends datagrams to the manager's socket. Never blocks: it is called from the event loop."""

    def __init__(self, address: str | None) -> None:
        # A leading "@" is how an abstract socket is written; its name begins with a zero byte.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Notifier":
        return cls(environ.get("NOTIFY_SOCKET") or None)

    def ready(self, status: str = "") -> None:
        """The daemon serves; a unit of Type=notify counts as started from here on."""
        self._send("READY=1", status)

    def stopping(self, status: str = "") -> None:
        self._send("STOPPING=1", status)

    def watchdog(self) -> None:
        """The event loop is alive. Call it every ``watchdog_interval`` seconds."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
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
            # The manager is gone or overwhelmed. It acts on its own timeouts then; the agents must not suffer from it.
            log.warning("service manager not reached", state=state, error=str(error))


def watchdog_interval(environ: Mapping[str, str], *, pid: int) -> float | None:
    """Seconds between two ``watchdog`` calls, half of what the manager allows; None where it does not watch this process."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    limit = environ.get("WATCHDOG_USEC", "")
    return int(limit) / 2_000_000 if limit.isdecimal() and int(limit) > 0 else None
