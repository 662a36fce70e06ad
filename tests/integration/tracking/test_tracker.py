"""The change tracker: a tree from known paths is the tree that looking at every file finds, whatever is done to the files."""

import asyncio
import os
import shutil
from collections.abc import Iterator

import pytest
from rametd.git import Git, Tracker
from rametd.git.context import GitContext
from rametd.git.tracking import suspects
from rametd.git.tracking import tracker as trackers
from rametd.git.tracking.events import InotifyEvents
from rametd.platform import inotify
from rametd.platform.inotify import OutOfWatchesError

from tests.support.eventually import eventually
from tests.support.repositories import Sample
from tests.support.tracked import Scans, scanned


def edits(sample: Sample) -> Iterator[str]:
    """One change after the other, each of a kind of its own."""
    path = sample.path
    sample.write("src/app.py", "changed\n")
    yield "a file is changed"
    sample.write("src/new.py", "new\n")
    yield "a file is new"
    sample.write("very/deep/below/file", "x\n")
    yield "directories are new"
    (path / "very/deep/other").write_text("y\n")
    yield "a file in a new directory"
    (path / "README.md").unlink()
    yield "a file is gone"
    (path / "src/app.py").chmod(0o755)
    yield "a mode"
    (path / "link").symlink_to("src")
    yield "a link to a directory"
    (path / "very").rename(path / "moved")
    yield "a directory is moved"
    (path / "moved/deep/below/file").write_text("after the move\n")
    yield "a file in a moved directory"
    (path / "moved").rename(path / "away")
    (path / "moved").mkdir()
    (path / "moved/lone").write_text("1\n")
    yield "a directory is replaced by another"
    shutil.rmtree(path / "away")
    yield "a directory is gone"
    (path / "src/new.py").unlink()
    (path / "src/new.py").mkdir()
    (path / "src/new.py/inner").write_text("i\n")
    yield "a file becomes a directory"
    shutil.rmtree(path / "src/new.py")
    (path / "src/new.py").write_text("file again\n")
    yield "a directory becomes a file"
    shutil.rmtree(path / "moved")
    (path / "moved").symlink_to("src")
    yield "a directory becomes a link to another"
    sample.write("debug.log", "ignored\n")
    sample.write("build/out.log", "ignored\n")
    yield "ignored files"
    sample.git("add", "-f", "debug.log")
    yield "an ignored file is tracked"
    sample.write("debug.log", "tracked and ignored\n")
    yield "a tracked and ignored file is changed"
    sample.git("rm", "-q", "--cached", "-f", "debug.log")
    yield "it is tracked no longer"
    sample.git("add", "-A")
    sample.git("commit", "-qm", "all")
    yield "a commit"
    (path / "empty/inner").mkdir(parents=True)
    yield "empty directories"
    (path / "src/app.py").replace(path / "src/app2.py")
    yield "a rename"
    sample.write('odd \n"name" ü', "odd\n")
    yield "an odd name"
    (path / "src/app2.py").write_text("one\r\ntwo\r\n")
    yield "line ends without conversion"
    os.mkfifo(path / "pipe")
    yield "a pipe"


async def test_a_tree_from_known_paths_is_the_one_that_a_scan_finds(
    tracker: Tracker, context: GitContext, sample: Sample, scans: Scans
) -> None:
    for what in edits(sample):
        assert (await tracker.tree()).tree == await scanned(context, sample), what
    # Only that an ignored file was tracked, and no longer, makes it look at everything.
    assert scans.count <= 3


def unusual(sample: Sample) -> Iterator[str]:
    path = sample.path
    sample.write("sub/.gitignore", "*.tmp\nout/\n!keep.tmp\n")
    sample.write("sub/a.tmp", "1\n")
    sample.write("sub/keep.tmp", "1\n")
    sample.write("sub/out/x", "1\n")
    yield "a nested .gitignore"
    sample.write("sub/.gitignore", "*.other\n")
    yield "it changes"
    sample.write("sub/out/y", "2\n")
    yield "what was ignored is not any more"
    (path / "sub/.gitignore").unlink()
    yield "it is gone"
    sample.git("config", "filter.up.clean", "tr a-z A-Z")
    sample.write(
        ".gitattributes", "*.up filter=up\n*.txt text=auto\n*.id ident\n*.u16 working-tree-encoding=UTF-16LE\n"
    )
    yield "attributes"
    sample.write("a.up", "shout\n")
    yield "a filter"
    sample.write("a.up", "louder\n")
    sample.write("b.up", "and another\n")
    yield "a filter again"
    sample.write("t.txt", "one\r\ntwo\r\n")
    yield "line ends"
    sample.git("add", "t.txt")
    sample.write("t.txt", "one\r\ntwo\r\nthree\r\n")
    yield "line ends of a tracked file"
    sample.write("w.id", "$Id: 1234$\n")
    yield "ident"
    sample.write("w.u16", "wide\n".encode("utf-16-le"))
    yield "an encoding"
    sample.git("config", "core.autocrlf", "true")
    sample.write("plain.c", "a\r\nb\r\n")
    yield "configuration"
    sample.git("config", "--unset", "core.autocrlf")
    (sample.path / ".git/info").mkdir(exist_ok=True)
    (sample.path / ".git/info/exclude").write_text("plain.c\n")
    yield "an exclude file"
    (path / "nested").mkdir()
    Sample(path / "nested", sample.environment).git("init", "-q")
    yield "a repository inside, without a commit"
    sample.write("nested/file", "1\n")
    inner = Sample(path / "nested", sample.environment)
    inner.git("add", "-A")
    inner.git("commit", "-qm", "inner")
    yield "a repository inside"
    shutil.rmtree(path / "nested")
    yield "it is gone"
    sample.git("update-index", "--skip-worktree", "src/app.py")
    sample.write("src/app.py", "not looked at\n")
    yield "a file that git is told not to look at"
    sample.git("update-index", "--no-skip-worktree", "src/app.py")
    yield "and to look at again"
    (path / os.fsdecode(b"not-\xff-text")).write_text("bytes\n")
    yield "a name that is no text"


async def test_what_only_git_knows_gives_the_same_tree_too(
    tracker: Tracker, context: GitContext, sample: Sample
) -> None:
    for what in unusual(sample):
        assert (await tracker.tree()).tree == await scanned(context, sample), what


async def test_filtered_files_are_stored_without_looking_at_everything(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.git("config", "filter.up.clean", "tr a-z A-Z")
    sample.write(".gitattributes", "*.up filter=up\n")
    sample.commit("attributes")
    tracker = await trackers.track(context, sample.path)
    scans = Scans(monkeypatch)
    sample.write("a.up", "shout\n")

    tree = (await tracker.tree()).tree

    assert (tree, scans.count) == (await scanned(context, sample), 0)
    assert sample.git("cat-file", "blob", f"{tree}:a.up") == "SHOUT"
    await tracker.close()


async def test_subscribers_are_told_of_paths_but_not_of_ignored_ones(tracker: Tracker, sample: Sample) -> None:
    told: set[str] = set()
    changes = tracker.changes()
    sample.write("noise.log", "ignored\n")
    sample.write("src/app.py", "changed\n")
    sample.write("fresh/file", "new\n")
    told |= (await anext(changes)).paths
    while not {"src/app.py", "fresh/file"} <= told:
        told |= (await anext(changes)).paths
    assert not {path for path in told if path.endswith(".log")}
    changes.close()


async def test_what_changed_since_a_moment_is_known(tracker: Tracker, sample: Sample) -> None:
    sample.write("before", "1\n")
    mark = await tracker.mark()
    sample.write("after", "1\n")
    sample.write("after.log", "1\n")

    assert await tracker.since(mark) == frozenset({"after"})
    assert await tracker.since(await tracker.mark()) == frozenset()


async def test_lost_events_are_made_good_by_a_scan(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = await trackers.track(context, sample.path)
    mark = await tracker.mark()
    # The queue is over when 16,384 changes wait in it; that it is reported is all that differs.
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
    """Its events were out of the queue, and nobody had looked at them yet."""
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


async def test_a_system_without_watches_is_told_of_and_scanned(
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


async def test_watches_running_out_later_are_told_of(
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


async def test_snapshots_and_diffs_use_the_tracker_of_a_worktree(
    environment: dict[str, str], sample: Sample, scans: Scans
) -> None:
    git = Git(environment, threads=2)
    tracker = await git.watch_changes(sample.path)
    assert await git.watch_changes(sample.path) is tracker
    scans.count = 0
    sample.write("src/app.py", "changed\n")

    assert await git.changed_files(sample.path, "HEAD") == ("src/app.py",)
    assert [file.path for file in (await git.diff(sample.path, "HEAD")).files] == ["src/app.py"]
    assert (await git.snapshot(sample.path, "all")).created
    assert scans.count == 0

    await git.unwatch_changes(sample.path)
    assert git.tracker(sample.path) is None
    assert await git.changed_files(sample.path, "HEAD") == ("src/app.py",)
    await git.aclose()


async def test_a_tracker_whose_tree_is_gone_says_so_and_can_be_closed(context: GitContext, sample: Sample) -> None:
    tracker = await trackers.track(context, sample.path)
    changes = tracker.changes()
    shutil.rmtree(sample.path)

    assert await anext(changes) is not None
    await tracker.close()
    assert [each async for each in changes] == []
    await eventually(lambda: not tracker.live)
