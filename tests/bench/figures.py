"""Rows of the bench, and readers of times, memory and processor time."""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MB = 1e6


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. ``most`` is the goal; ``ratio`` compares with a yardstick of the same run, as the
    machine may be slow or busy."""

    name: str
    value: float
    unit: str
    how: str
    most: float | None = None
    ratio: float | None = None
    ratio_to: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        return None if self.most is None else self.value <= self.most

    def row(self) -> dict[str, object]:
        """Return the row as printed."""
        row: dict[str, object] = {"name": self.name, "value": round(self.value, 3), "unit": self.unit}
        row["goal"] = None if self.most is None else f"at most {self.most:g} {self.unit}"
        row["met"] = self.met
        if self.ratio is not None:
            row |= {"ratio": round(self.ratio, 2), "ratio_to": self.ratio_to}
        return row | {"how": self.how}


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the measurements. Figures of a smaller scale only show that the bench works."""

    name: str
    live: int  # sessions for memory and idling
    idle_s: float
    agents: int  # that write events
    per_second: int
    telling_s: float
    sessions: int  # in the stored history
    events: int
    starts: int  # of a daemon on it
    lists: int
    files: int  # in the repository of the creations
    creations: int
    first_requests: int
    monorepo: int  # files in the repository of trees, checkpoints and the radar


FULL = Scale("full", 50, 10.0, 100, 20, 10.0, 1000, 1_000_000, 7, 15, 1000, 12, 3, 40_000)
QUICK = Scale("quick", 10, 2.0, 20, 20, 3.0, 200, 50_000, 3, 5, 1000, 4, 1, 4_000)
TINY = Scale("tiny", 2, 0.1, 2, 20, 0.5, 5, 100, 1, 1, 10, 1, 1, 300)


def machine() -> dict[str, object]:
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def progress(words: str) -> None:
    print(f"bench: {words}", file=sys.stderr, flush=True)


def run_time(command: Sequence[str], *, environ: Mapping[str, str], cwd: Path) -> float:
    """Return the seconds from the spawn of a command to its end; raise if it fails."""
    began = time.perf_counter()
    subprocess.run(command, env=dict(environ), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Paired:
    """Medians of two alternating measurements, in seconds; ``more`` is the median of the
    differences."""

    yardstick: float
    measured: float
    more: float


def paired(yardstick: Callable[[], float], measured: Callable[[], float], runs: int) -> Paired:
    """Run both alternately, so that a slow moment of the machine affects both. The first pair,
    which fills caches, does not count unless it is the only one."""
    pairs = [(yardstick(), measured()) for _ in range(runs + (runs > 1))][-runs:]
    return Paired(
        statistics.median(first for first, _ in pairs),
        statistics.median(second for _, second in pairs),
        statistics.median(second - first for first, second in pairs),
    )


def resident(pid: int) -> float:
    """Return resident memory in MB (10^6 bytes)."""
    return float(psutil.Process(pid).memory_info().rss) / MB


def cpu_time(pid: int) -> float:
    """Return the processor time of all threads of a process in seconds, to the nanosecond if Linux
    reports it."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    except OSError:
        times = psutil.Process(pid).cpu_times()  # in ticks of 10 ms
        return float(times.user + times.system)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
