"""Fixtures of the tests of change trackers, on those of `git_fixtures`."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from rametd.git import Tracker
from rametd.git.context import GitContext
from rametd.git.snapshot import write_tree
from rametd.git.tracking import tracker as trackers
from rametd.git.tracking.events import InotifyEvents, NotifyEvents
from rametd.platform import inotify

from tests.support.repositories import Sample


@pytest.fixture(params=["inotify", "watchfiles"])
def events(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both sources of events; the second is what other systems than Linux have."""
    if request.param == "inotify" and not inotify.SUPPORTED:
        pytest.skip("inotify is Linux's")
    make: Callable[..., Any] = {
        "inotify": lambda worktree, git_dir, news: InotifyEvents(worktree, news),
        "watchfiles": NotifyEvents,
    }[request.param]
    monkeypatch.setattr(trackers, "source", make)
    return str(request.param)


@pytest.fixture
async def tracker(context: GitContext, sample: Sample, events: str) -> AsyncIterator[Tracker]:
    tracker = await trackers.track(context, sample.path)
    yield tracker
    await tracker.close()


class Scans:
    """Counts the scans of a tracker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        async def counted(*arguments: Any) -> Any:
            self.count += 1
            return await write_tree(*arguments)

        monkeypatch.setattr(trackers, "write_tree", counted)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(monkeypatch)


async def scanned(context: GitContext, sample: Sample) -> str:
    return (await write_tree(context, sample.path)).tree
