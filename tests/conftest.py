"""Fixtures for all tests. A test gets its own sandbox, never a person's directories."""

import json
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.daemon import (
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_here,
    daemon_process,
    make_sandbox,
)
from tests.support.untouched import differences, fingerprint, is_checkout

# A background job of a shell starts with SIGINT ignored, and passes that on: tests of Ctrl-C would
# fail.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Put all temporary files of tests into memory if there is room: no test is about the durability of
# the disk, and half of a test's time would be waiting for it. The path is short, as sockets need
# one.
MEMORY = Path("/dev/shm")
tempfile.tempdir = os.environ["TMPDIR"] = (
    str(MEMORY) if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30 else "/tmp"
)

# No deadline: a loaded machine is no fault. No database: a failure must be reproducible from the
# source. What else Hypothesis stores is beside pytest's cache.
hypothesis.configuration.set_hypothesis_home_dir(Path(__file__).parents[1] / ".venv" / "hypothesis")
hypothesis.settings.register_profile("ramet", deadline=None, database=None)
hypothesis.settings.load_profile("ramet")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if pluginmanager.is_blocked("cacheprovider"):  # by `-p no:cacheprovider`: its setting would be an unknown one
        parser.addini("cache_dir", "unused")
    parser.addoption(
        "--crash-rounds", type=int, default=0, help="rounds of each random crash test, instead of a few; `make soak`"
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help=f"write {DURATIONS.name}; for a run of all tests on a quiet machine",
    )


TESTS = Path(__file__).parent
DURATIONS = TESTS / "durations.json"
"""Seconds of each test of at least `SHOWN_S`, of its slowest row; `make durations` writes it. A new
test counts as quick."""
SHOWN_S = 0.5
QUICK_S = 1.0
"""Seconds that a test outside of unit tests may take in `make test`."""
LONG_S = 5.0
"""Tests over these seconds begin first, so that a run does not end with one worker at a long test
and the others idle."""
ROWS = 2
"""Rows of a table that `make test` runs, outside unit tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that `make test` leaves out as `full`. It runs unit tests, quick integration
    tests, and those marked `smoke`."""
    durations: dict[str, float] = json.loads(DURATIONS.read_text())
    rows: Counter[str] = Counter()
    for item in items:
        tier, table = item.path.relative_to(TESTS).parts[0], _table(item.nodeid)
        rows[table] += 1
        if item.get_closest_marker("smoke") is not None or tier == "unit":
            continue
        if tier in {"crash", "e2e"} or rows[table] > ROWS or durations.get(table, 0) > QUICK_S:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: -max(LONG_S, durations.get(_table(item.nodeid), 0)))


def _table(test: str) -> str:
    """Return a test's id without its row."""
    return test.removeprefix("tests/").partition("[")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--record-durations"):
        return
    seconds: Counter[str] = Counter()
    for report in terminalreporter.getreports("") + terminalreporter.getreports("passed"):
        seconds[report.nodeid] += report.duration
    slowest: dict[str, float] = {}
    for test, took in seconds.items():
        slowest[_table(test)] = max(slowest.get(_table(test), 0), round(took, 1))
    shown = {test: slowest[test] for test in sorted(slowest) if slowest[test] >= SHOWN_S}
    DURATIONS.write_text(json.dumps(shown, indent=0) + "\n")


GUARDED = re.compile(r"test_(plan|landing|radar|pull_request|ownership|pool|checkpoint|rewind)")
"""Modules that work in people's repositories; each of their tests is checked not to change the
person's checkouts."""
BEFORE = pytest.StashKey[dict[Path, dict[str, str]]]()
"""Key in a test's stash: the checkouts' expected state at its end."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Check that the checkouts of a test's fixtures are unchanged after it, byte for byte.

    A test makes its own changes there before it calls `untouched`, or names them, and those of
    git's fast-forward of the target, by ``@pytest.mark.own_changes(GLOB, …)``; without an argument
    anything may change.
    """
    marker = item.get_closest_marker("own_changes")
    before = item.stash.setdefault(BEFORE, {})
    if GUARDED.match(item.path.name) and item.path.parent.name != "unit" and (marker is None or marker.args):
        given = {value for value in getattr(item, "funcargs", {}).values() if is_checkout(value)}
        before |= {checkout: fingerprint(checkout) for checkout in given - before.keys()}
    outcome = yield
    for checkout, was in before.items():
        assert differences(was, fingerprint(checkout), *(marker.args if marker is not None else ())) == {}
    return outcome


@pytest.fixture(autouse=True)
def _private_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests out of the directories of the person who runs them."""
    home = tmp_path_factory.mktemp("home")
    for name in (
        "RAMET_HOME",
        "RAMET_RUNTIME_DIR",
        "RAMET_TOKEN",
        "RAMET_SESSION",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """Private directories; agents are scripted."""
    with make_sandbox() as made:
        yield made


@pytest.fixture
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    """Yield a daemon process that serves in the sandbox."""
    with daemon_process(sandbox) as running:
        yield running


@pytest.fixture
async def client(request: pytest.FixtureRequest, sandbox: Sandbox) -> AsyncIterator[Client]:
    """Yield stubs for the daemon: its process if the test uses `daemon` too, else one inside this
    loop, which starts faster."""
    if "daemon" in request.fixturenames:
        request.getfixturevalue("daemon")
        async with connected(sandbox) as connection:
            yield connection
    else:
        async with daemon_here(sandbox), connected(sandbox) as connection:
            yield connection


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    """A small repository in the sandbox."""
    return sandbox.repository()


@pytest.fixture
def untouched(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Return a function that records a person's checkout; the test's end compares it byte for byte.

    A second call with the same checkout replaces the recorded state.
    """
    before: dict[Path, dict[str, str]] = request.node.stash.setdefault(BEFORE, {})

    def remember(checkout: Path) -> None:
        before[checkout] = fingerprint(checkout)

    return remember
