"""The dashboard on a terminal: time until it shows a thousand sessions, its cost beside busy
agents, its latency for a key."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import psutil
from rametctl.dashboard.rows import ARRANGEMENTS

from tests.bench.figures import MB, cpu_time
from tests.support.client import Terminal
from tests.support.daemon import Sandbox

COLUMNS, ROWS = 120, 40
KEY_S = 0.25
"""Seconds between two keys, as of a person in a hurry. Without a pause a faster dashboard would
process more keys and so use more time."""


@contextmanager
def dashboard(sandbox: Sandbox) -> Iterator[Terminal]:
    """`rametctl top --all` on a terminal."""
    environ = {**sandbox.environ, "TERM": "xterm-256color", "RAMET_AUTOSTART": "0"}
    command = [sys.executable, "-m", "rametctl", "top", "--all"]
    with Terminal(command, environ, sandbox.root, COLUMNS, ROWS) as terminal:
        yield terminal


def first_screen(sandbox: Sandbox, shown: str) -> float:
    """Return the seconds from the spawn to the first screen with ``shown``."""
    began = time.perf_counter()
    with dashboard(sandbox) as terminal:
        terminal.shows(shown)
        return time.perf_counter() - began


def beside(sandbox: Sandbox, shown: str, seconds: float) -> tuple[float, list[float], float]:
    """Run it for a while. Return its share of one core in percent, the milliseconds from a key to
    its output, and the MB by which it grew in the second half; in the first its caches fill."""
    with dashboard(sandbox) as terminal:
        terminal.shows(shown)
        pid = terminal.process.pid
        began, used = time.perf_counter(), cpu_time(pid)
        answers: list[float] = []
        half = 0
        for arrangement in cycle((*ARRANGEMENTS[1:], ARRANGEMENTS[0])):
            pressed = time.perf_counter()
            terminal.type("v")
            terminal.writes(f"arranged by {arrangement}")
            answers.append((time.perf_counter() - pressed) * 1000)
            time.sleep(max(pressed + KEY_S - time.perf_counter(), 0.0))
            gone = time.perf_counter() - began
            half = half or (psutil.Process(pid).memory_info().rss if gone > seconds / 2 else 0)
            if gone > seconds:
                break
        growth = (psutil.Process(pid).memory_info().rss - half) / MB
        return (cpu_time(pid) - used) / (time.perf_counter() - began) * 100, answers, growth
