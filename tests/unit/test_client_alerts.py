"""Alerts in the client's terminal."""

import io
import re

import pytest
from ramet.v1.attention_pb2 import AttentionRequest
from ramet.v1.event_pb2 import Event, RequestOpened
from ramet.v1.session_pb2 import Session
from rametctl.alerts import Alerts, InboxAlerts, protocol, sequence

HOSTILE = "a\x1b]52;c;x\x07b\nc\x9c;d"
TERMINALS = [
    ({"TERM": "xterm-kitty"}, "99"),
    ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "9"),
    ({"TERM": "screen-256color", "TMUX": "x", "TERM_PROGRAM": "tmux", "LC_TERMINAL": "iTerm2"}, "9"),
    ({"TERM": "xterm-ghostty", "GHOSTTY_RESOURCES_DIR": "/x"}, "9"),
    ({"TERM": "foot"}, "777"),
    ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "777"),
    ({"TERM": "xterm-256color"}, ""),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("environ", "kind"), TERMINALS)
def test_each_terminal_gets_what_it_understands(environ: dict[str, str], kind: str) -> None:
    assert protocol(environ) == kind
    text = sequence("parser needs you", "Bash", environ)
    assert (f"]{kind};" in text) if kind else text == "\a"


@pytest.mark.parametrize("environ", [each for each, kind in TERMINALS if kind])
@pytest.mark.parametrize("tmux", [{}, {"TMUX": "x"}])
def test_a_text_cannot_end_its_sequence(environ: dict[str, str], tmux: dict[str, str]) -> None:
    text = sequence(HOSTILE, HOSTILE, environ | tmux)
    if "TMUX" in environ | tmux:
        wrapped, bell = text[:-1], text[-1]
        assert (bell, wrapped[:7], wrapped[-2:]) == ("\a", "\x1bPtmux;", "\x1b\\")
        assert "\x1b" not in wrapped[7:-2].replace("\x1b\x1b", ""), "each escape is doubled"
        text = wrapped[7:-2].replace("\x1b\x1b", "\x1b")
    assert re.fullmatch(r"(\x1b\][^\x00-\x1f\x7f-\x9f]*\x1b\\)+", text), ascii(text)
    assert "]52;" not in text


@pytest.mark.parametrize(
    ("stream", "term", "setting"),
    [(io.StringIO(), "xterm", "auto"), (Terminal(), "dumb", "auto"), (Terminal(), "xterm", "off"), (Terminal(), "", "auto")],
)  # fmt: skip
def test_nothing_is_written_without_a_reader(stream: io.StringIO, term: str, setting: str) -> None:
    alerts = Alerts(stream, {"TERM": term}, setting)
    alerts.notify("x")
    alerts.count(3)
    alerts.close()
    assert stream.getvalue() == ""


def test_the_title_counts_and_is_restored() -> None:
    stream = Terminal()
    alerts = Alerts(stream, {"TERM": "xterm-256color"}, "bell")
    alerts.notify("x")
    alerts.count(2)
    alerts.count(0)
    alerts.close()
    alerts.close()
    assert stream.getvalue() == "\a\x1b[22;2t\x1b]2;(2) ramet\x1b\\\x1b]2;ramet\x1b\\\x1b[23;2t"


def opened(seq: int) -> Event:
    request = AttentionRequest(id=f"r{seq}", session_name="fix", tool="Bash")
    return Event(seq=seq, request_opened=RequestOpened(request=request))


def test_repeated_events_give_no_alert_and_a_new_log_starts_again() -> None:
    stream = Terminal()
    alerts = InboxAlerts(Alerts(stream, {"TERM": "xterm-256color"}, "bell"), 10)
    alerts.add(opened(10))
    assert stream.getvalue() == ""
    alerts.add(opened(11))
    alerts.begin_again()
    alerts.add(opened(3))
    assert stream.getvalue() == "\a\a"


def test_the_title_has_the_requests_of_the_sessions_and_is_written_when_they_change() -> None:
    stream = Terminal()
    alerts = InboxAlerts(Alerts(stream, {"TERM": "xterm-256color"}, "bell"))
    for counts in ([2, 1], [1, 2], [0, 0], [4]):
        alerts.count(Session(attention=each) for each in counts)
    titles = re.findall(r"\x1b\]2;(.*?)\x1b", stream.getvalue())
    assert titles == ["(3) ramet", "ramet", "(4) ramet"]
