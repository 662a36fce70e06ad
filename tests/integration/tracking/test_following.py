"""The change tracker: its subscribers, lost events, systems without watches, and its end."""

import asyncio
import shutil
from pathlib import Path

import pytest
from rametd.git import Git, Tracker
from rametd.git.context import GitContext
from rametd.git.tracking import suspects
from rametd.git.tracking import tracker as trackers
from rametd.git.tracking.events import InotifyEvents
from rametd.platform import inotify, watches
from rametd.platform.inotify import OutOfWatchesError

from tests.support.eventually import eventually
from tests.support.repositories import Sample
from tests.support.tracked import Scans, scanned


async def test_subscribers_get_paths_but_not_ignored_ones(tracker: Tracker, sample: Sample) -> None:
    paths: set[str] = set()
    changes = tracker.changes()
    sample.write("noise.log", "ignored\n")
    sample.write("src/app.py", "changed\n")
    sample.write("fresh/file", "new\n")
    paths |= (await anext(changes)).paths
    while not {"src/app.py", "fresh/file"} <= paths:
        paths |= (await anext(changes)).paths
    assert not {path for path in paths if path.endswith(".log")}
    changes.close()


async def test_what_changed_since_a_moment_is_known(tracker: Tracker, sample: Sample) -> None:
    sample.write("before", "1\n")
    mark = await tracker.mark()
    sample.write("after", "1\n")
    sample.write("after.log", "1\n")

    assert await tracker.since(mark) == frozenset({"after"})
    assert await tracker.since(await tracker.mark()) == frozenset()


async def test_a_scan_replaces_lost_events(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = await trackers.track(context, sample.path)
    mark = await tracker.mark()
    # The kernel's queue overflows at 16,384 changes; only the report differs.
    overflow = iter([inotify.Event(-1, inotify.IN_Q_OVERFLOW, "")])
    events = tracker._events
    assert isinstance(events, InotifyEvents)
    monkeypatch.setattr(events._queue, "read", lambda: overflow)
    sample.write("missed", "1\n")

    assert await tracker.since(mark) is None
    monkeypatch.undo()

    assert (await tracker.tree()).tree == await scanned(context, sample)
    sample.write("seen", "1\n")
    assert (await tracker.tree()).tree == await scanned(context, sample)
    await tracker.close()


async def test_a_caller_that_is_cancelled_takes_no_change_with_it(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel after its events were read from the queue and before they were processed."""
    tracker = await trackers.track(context, sample.path)
    (sample.path / "written before it is cancelled").write_text("1\n")
    begun, never = asyncio.Event(), asyncio.Event()

    async def stand_still(*_: object) -> frozenset[str]:
        begun.set()
        await never.wait()
        return frozenset()

    monkeypatch.setattr(suspects, "ignored", stand_still)
    asked = asyncio.create_task(tracker.tree())
    await begun.wait()
    asked.cancel()
    await asyncio.wait([asked])
    monkeypatch.undo()

    assert asked.cancelled()
    assert (await tracker.tree()).tree == await scanned(context, sample)
    await tracker.close()


async def test_a_system_without_watches_is_reported_and_scanned(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, directory: str) -> int:
        raise OutOfWatchesError("the system is out of file watches: raise fs.inotify.max_user_watches")

    monkeypatch.setattr(inotify.Inotify, "watch", refuse)
    monkeypatch.setattr(trackers, "POLL_S", 0.02)
    tracker = await trackers.track(context, sample.path)
    assert (tracker.live, tracker.note) == (
        False,
        "the system is out of file watches: raise fs.inotify.max_user_watches",
    )
    changes = tracker.changes()
    sample.write("seen", "1\n")

    assert (await tracker.tree()).tree == await scanned(context, sample)
    assert await tracker.since(0) is None
    sample.write("seen", "2\n")
    assert (await anext(changes)).everything
    changes.close()
    await tracker.close()


async def test_watches_running_out_later_are_reported(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = await trackers.track(context, sample.path)
    assert tracker.live

    def refuse(self: object, directory: str) -> int:
        raise OutOfWatchesError("no more")

    monkeypatch.setattr(inotify.Inotify, "watch", refuse)
    sample.write("new/directory/file", "1\n")

    assert (await tracker.tree()).tree == await scanned(context, sample)
    assert (tracker.live, tracker.note) == (False, "no more")
    await tracker.close()


async def test_ignored_directories_take_no_watches(context: GitContext, sample: Sample) -> None:
    sample.write(".gitignore", "*.log\nnode_modules/\n")
    for number in range(20):
        sample.write(f"node_modules/package{number}/index.js", "1\n")
    tracker = await trackers.track(context, sample.path)
    events = tracker._events
    assert isinstance(events, InotifyEvents)
    assert not [path for path in events._watches if path.startswith("node_modules")]
    shutil.rmtree(sample.path / "node_modules")
    sample.write("node_modules/again/index.js", "1\n")
    assert (await tracker.tree()).tree == await scanned(context, sample)
    assert not [path for path in events._watches if path.startswith("node_modules")]
    await tracker.close()


def instances() -> int:
    """Return the inotify instances of this process."""
    descriptors = Path("/proc/self/fd").iterdir()
    return sum("inotify" in str(each.readlink()) for each in descriptors if each.is_symlink())


@pytest.mark.skipif(not inotify.SUPPORTED, reason="inotify is Linux's")
async def test_all_trackers_share_one_instance_and_the_watches_of_a_directory(
    context: GitContext, sample: Sample, linked: Sample
) -> None:
    before = instances()
    followed = [(await trackers.track(context, each.path), each) for each in (sample, linked, sample)]
    assert instances() == before + 1
    for number in range(3):
        for _, each in followed:
            each.write("src/app.py", f"{number}\n")
        for tracker, each in followed:
            assert (await tracker.tree()).tree == await scanned(context, each)
            assert tracker.live
    first, _ = followed.pop(0)
    await first.close()
    for tracker, each in followed:
        each.write("src/app.py", "after another was closed\n")
        each.write("new/file", "1\n")
        assert (await tracker.tree()).tree == await scanned(context, each)
    for tracker, _ in followed:
        await tracker.close()

    async def is_closed() -> bool:
        return instances() == before

    await eventually(is_closed)


@pytest.mark.skipif(not inotify.SUPPORTED, reason="inotify is Linux's")
async def test_an_unused_tracker_queues_a_bounded_number_of_events(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MOST", 10)
    tracker = await trackers.track(context, sample.path)
    mark = await tracker.mark()
    for number in range(20):
        sample.write(f"file{number}", "1\n")
    assert await tracker.since(mark) is None
    assert (await tracker.tree()).tree == await scanned(context, sample)
    await tracker.close()


async def test_snapshots_and_diffs_use_the_tracker_of_a_worktree(
    environment: dict[str, str], sample: Sample, scans: Scans
) -> None:
    git = Git(environment, threads=2)
    tracker = await git.trackers.watch(sample.path)
    assert await git.trackers.watch(sample.path) is tracker
    scans.count = 0
    sample.write("src/app.py", "changed\n")

    assert await git.diffs.changed_files(sample.path, "HEAD") == ("src/app.py",)
    assert [file.path for file in (await git.diffs.of_worktree(sample.path, "HEAD")).files] == ["src/app.py"]
    assert (await git.snapshots.take(sample.path)).files == await git.diffs.tree(sample.path)
    assert scans.count == 0

    await git.trackers.unwatch(sample.path)
    assert git.trackers.get(sample.path) is None
    assert await git.diffs.changed_files(sample.path, "HEAD") == ("src/app.py",)
    await git.aclose()


async def test_a_tracker_whose_tree_is_gone_says_so_and_can_be_closed(context: GitContext, sample: Sample) -> None:
    tracker = await trackers.track(context, sample.path)
    changes = tracker.changes()
    shutil.rmtree(sample.path)

    assert await anext(changes) is not None
    await tracker.close()
    assert [each async for each in changes] == []
    await eventually(lambda: not tracker.live)
