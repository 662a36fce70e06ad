"""Worktrees with a change tracker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.git import Tracker
from rametd.git.context import GitContext
from rametd.git.tracking import tracker as trackers
from rametd.platform import inotify

from tests.support.repositories import Sample
from tests.support.tracked import SOURCES, Scans


@pytest.fixture
def linked(sample: Sample, tmp_path: Path) -> Sample:
    """Create a linked worktree, as of a session, in a separate directory."""
    sample.git("worktree", "add", "-q", "-b", "work", str(tmp_path / "trees" / "work"))
    return Sample(tmp_path / "trees" / "work", sample.environment)


@pytest.fixture(params=list(SOURCES))
def events(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "inotify" and not inotify.SUPPORTED:
        pytest.skip("inotify is Linux's")
    monkeypatch.setattr(trackers, "source", SOURCES[request.param])
    return str(request.param)


@pytest.fixture
async def tracker(context: GitContext, sample: Sample, events: str) -> AsyncIterator[Tracker]:
    tracker = await trackers.track(context, sample.path)
    yield tracker
    await tracker.close()


@pytest.fixture
async def tracked(context: GitContext, linked: Sample, events: str) -> AsyncIterator[Tracker]:
    """Yield the tracker of `linked`."""
    tracker = await trackers.track(context, linked.path)
    yield tracker
    await tracker.close()


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(monkeypatch)
