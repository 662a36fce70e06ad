"""Alerts in the client's own terminal: a desktop notification by an escape sequence, the bell, and
the window's title.

For verbs that keep the terminal (`watch`, the dashboard). The daemon notifies by the other ways.
Nothing is written where standard output is no terminal, nor with ``notify.terminal = "off"``.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from ramet.visible import visible

if TYPE_CHECKING:
    from ramet.v1.event_pb2 import Event
    from ramet.v1.session_pb2 import Session

    from rametctl.app import App

BELL = "\a"
ESC = "\x1b"
ST = f"{ESC}\\"


def protocol(environ: Mapping[str, str]) -> str:
    """Return the protocol of the terminal's notifications: "99" (kitty), "9" (iTerm2, WezTerm,
    Ghostty), "777" (foot, urxvt, VTE), or ""."""
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if term == "xterm-kitty" or environ.get("KITTY_WINDOW_ID"):
        return "99"
    if (
        program in {"iTerm.app", "WezTerm", "ghostty"}
        or environ.get("LC_TERMINAL") == "iTerm2"
        or environ.get("WEZTERM_PANE")
        or environ.get("GHOSTTY_RESOURCES_DIR")
    ):
        return "9"
    if term.startswith(("foot", "rxvt")) or environ.get("VTE_VERSION"):
        return "777"
    return ""


def sequence(title: str, body: str, environ: Mapping[str, str], setting: str = "auto") -> str:
    """Return the escape sequence of a notification, or the bell if the terminal has none.

    With ``allow-passthrough``, tmux passes a wrapped sequence to its own terminal; it always marks
    the window at a bell.
    """
    kind = protocol(environ) if setting == "auto" and not environ.get("STY") else ""
    title, body = _plain(title), _plain(body)
    match kind:
        case "99":
            text = f"{ESC}]99;i=ramet:d=0;{title}{ST}{ESC}]99;i=ramet:d=1:p=body;{body}{ST}"
        case "9":
            text = f"{ESC}]9;{': '.join(filter(None, (title, body)))}{ST}"
        case "777":
            text = f"{ESC}]777;notify;{title};{body}{ST}"
        case _:
            return BELL
    return tmux(text) + BELL if environ.get("TMUX") else text


def tmux(text: str) -> str:
    """Wrap escape sequences for the terminal around tmux."""
    return f"{ESC}Ptmux;{text.replace(ESC, ESC + ESC)}{ST}"


class Alerts:
    """Alerts on one terminal. ``setting`` is the value of ``notify.terminal``; `close` restores the
    title."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str], setting: str = "auto") -> None:
        self._stream = stream
        self._environ = environ
        self._setting = setting
        self._titled = False
        self.on = setting != "off" and stream.isatty() and environ.get("TERM", "") not in {"", "dumb", "linux"}

    def notify(self, title: str, body: str = "") -> None:
        """Notify the person."""
        self._write(sequence(title, body, self._environ, self._setting))

    def count(self, waiting: int) -> None:
        """Show in the window's title how many items wait."""
        if not self._titled:
            self._titled = True
            self._write(f"{ESC}[22;2t")  # the terminal keeps its title on a stack
        self._write(f"{ESC}]2;{f'({waiting}) ' if waiting else ''}ramet{ST}")

    def close(self) -> None:
        """Restore the title."""
        if self._titled:
            self._titled = False
            self._write(f"{ESC}[23;2t")

    def _write(self, text: str) -> None:
        if self.on:
            self._stream.write(text)
            self._stream.flush()


class InboxAlerts:
    """Alerts about requests: notifications from live events, those with a number above ``known`` (a
    watch repeats earlier ones), and the number of open requests in the title."""

    def __init__(self, alerts: Alerts, known: int = 0) -> None:
        self._alerts = alerts
        self._known = known
        self._count = -1

    def begin_again(self) -> None:
        """Take a new event log, which numbers its events from 1."""
        self._known = 0

    def count(self, sessions: Iterable["Session"]) -> None:
        """Count the open requests of the sessions."""
        count = sum(session.attention for session in sessions)
        if count != self._count:
            self._count = count
            self._alerts.count(count)

    def add(self, event: "Event") -> None:
        if event.seq <= self._known or not event.HasField("request_opened"):
            return
        from rametctl.render.request import kind_name

        request = event.request_opened.request
        words = "is done" if kind_name(request) == "review" else "needs you"
        self._alerts.notify(f"{request.session_name} {words}", request.tool or kind_name(request))

    def close(self) -> None:
        self._alerts.close()


def inbox_alerts(app: "App", known: int) -> InboxAlerts:
    """Alerts on the terminal of a verb, as the daemon's setting says."""
    import json

    from ramet.v1 import daemon_pb2

    from rametctl.errors import ClientError

    setting = "auto" if app.output.terminal else "off"
    if app.output.terminal:
        with suppress(ClientError):  # a configuration that cannot be read right now
            config = app.call(lambda daemon: daemon.daemon.GetConfig, daemon_pb2.GetConfigRequest())
            found = [json.loads(each.value_json) for each in config.settings if each.key == "notify.terminal"]
            setting = found[0] if found else setting
    return InboxAlerts(Alerts(app.output.stdout, app.environ, setting), known)


def _plain(text: str) -> str:
    """Return one short line without the separators of a sequence."""
    line = visible(" ".join(text.split())).replace(";", ",")
    return line if len(line) <= 200 else f"{line[:199]}…"
