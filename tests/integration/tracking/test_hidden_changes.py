"""Changes with missing or misleading events: the tracker's tree still equals a scan's."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rametd.git import Tracker
from rametd.git.context import GitContext
from rametd.git.snapshots.capture import capture
from rametd.git.snapshots.model import CHECKPOINTS
from rametd.git.snapshots.restore import restore_files
from rametd.git.tracking import tracker as trackers
from rametd.git.tracking.events import InotifyEvents
from rametd.git.tracking.notify import NotifyEvents
from rametd.git.tracking.tracker import TRIES
from rametd.platform import files

from tests.support.repositories import Sample
from tests.support.tracked import Scans, exchange, same

pytestmark = pytest.mark.full


def hidden(sample: Sample, outside: Path) -> Iterator[str]:
    """Changes of different kinds, one after the other."""
    path = sample.path
    os.utime(path / ".git")
    yield "the worktree's own .git is touched"
    subprocess.run(["chmod", "-R", "u+w", "."], cwd=path, check=True)
    yield "modes of everything are set"
    for name in ("one/file", "two/file", "three/deep/file"):
        sample.write(name, name)
    yield "directories"
    exchange(path / "one", path / "two")
    yield "two directories change places"
    sample.write("one/file", "later\n")
    sample.write("two/file", "later too\n")
    yield "files in them are changed"
    exchange(path / "one", path / "three/deep")
    exchange(path / "two", path / "README.md")
    yield "a directory and one below another change places, and one and a file"
    sample.write("README.md/file", "a directory by now\n")
    sample.write("three/deep/file", "x\n")
    yield "files in these are changed"
    sample.write("pkg/.gitignore", "dist/\n")
    sample.write("pkg/dist/out.js", "built\n")
    yield "a directory with rules"
    (path / "pkg").rename(outside / "pkg")
    sample.write("pkg/dist/source.js", "by hand\n")
    yield "it goes with its rules, and another takes its name"
    sample.write("pkg/dist/more.js", "by hand too\n")
    yield "what they ignored is not ignored any more"
    sample.write("a.txt", "one\n")
    yield "a file"
    os.link(path / "a.txt", path / "b.txt")
    yield "it gets another name"
    for name in ("a.txt", "b.txt"):
        with (path / name).open("a") as file:
            file.write("more\n")
        yield f"it is written to through {name}"
    (outside / "c.txt").write_text("of nobody here\n")
    os.link(outside / "c.txt", path / "c.txt")
    yield "a file with a name outside"
    (outside / "c.txt").write_text("changed there\n")
    yield "it is changed there"
    (outside / "made").mkdir()
    (outside / "made" / os.fsdecode(b"caf\xe9.txt")).write_text("latin-1\n")
    (outside / "made").rename(path / "made")
    yield "a directory appears with a name that is no text"
    sample.write("README.md/other", "y\n")
    yield "something else is changed"
    sample.git("add", "-A")
    yield "it is staged"
    (path / "made" / os.fsdecode(b"caf\xe9.txt")).write_text("changed\n")
    yield "a file with such a name is changed"


async def test_a_tree_equals_that_of_a_scan_despite_missing_events(
    tracked: Tracker, context: GitContext, linked: Sample, tmp_path: Path
) -> None:
    for what in hidden(linked, tmp_path):
        await same(tracked, context, linked, what)


async def test_events_are_followed_without_scans_after_directories_changed_places(
    context: GitContext, linked: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.write("one/file", "1\n")
    linked.write("two/file", "2\n")
    tracker = await trackers.track(context, linked.path)
    scans = Scans(monkeypatch)
    os.utime(linked.path / ".git")
    exchange(linked.path / "one", linked.path / "two")
    await same(tracker, context, linked)
    linked.write("one/file", "later\n")
    await same(tracker, context, linked)
    assert scans.count == 0
    await tracker.close()


async def test_a_checkpoint_after_every_file_was_touched_can_be_restored(
    tracked: Tracker, context: GitContext, linked: Sample
) -> None:
    context.tree_sources = {linked.path: tracked}
    linked.write("src/app.py", "v1\n")
    for path in linked.path.rglob("*"):
        os.utime(path)
    taken = await capture(context, linked.path, ref=f"{CHECKPOINTS}any/1")
    linked.write("src/app.py", "v2\n")

    async def nothing(tree: str) -> None: ...

    await restore_files(context, linked.path, taken.files, nothing)
    assert (linked.path / "src/app.py").read_text() == "v1\n"


async def test_a_recreated_nested_repository_is_no_part_of_the_tree(
    tracker: Tracker, context: GitContext, sample: Sample, tmp_path: Path
) -> None:
    (sample.path / ".git").rename(tmp_path / "away")
    (tmp_path / "away").rename(sample.path / ".git")
    await same(tracker, context, sample)
    sample.git("commit", "-q", "--allow-empty", "-m", "more")
    await same(tracker, context, sample)


@pytest.mark.parametrize("what", ["the tree", "the directory above"])
async def test_a_tree_is_followed_also_after_a_copy_took_its_place(
    tracked: Tracker, context: GitContext, linked: Sample, tmp_path: Path, what: str
) -> None:
    place = linked.path if what == "the tree" else linked.path.parent
    linked.write("one/file", "1\n")
    await same(tracked, context, linked)
    place.rename(tmp_path / "aside")
    shutil.copytree(tmp_path / "aside", place, symlinks=True)
    for words in ("2\n", "3\n"):
        linked.write("one/file", words)
        await same(tracked, context, linked, words)


# ── while watches are set ─────────────────────────────────────────────────────────────────────────


def after_begin(monkeypatch: pytest.MonkeyPatch, kind: type[InotifyEvents] | type[NotifyEvents], act: Any) -> None:
    """Simulate an agent that acts at the moment when watches are set."""
    begin = kind.begin

    def begin_and_act(self: Any, *arguments: Any) -> Any:
        found = begin(self, *arguments)
        act()
        return found

    monkeypatch.setattr(kind, "begin", begin_and_act)


async def test_directories_created_while_watches_are_set_are_watched(
    context: GitContext, sample: Sample, events: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.write(".gitignore", "/out/\n")
    sample.write("out/built.js", "1\n")

    def scaffold() -> None:
        (sample.path / "new/below").mkdir(parents=True, exist_ok=True)
        sample.write(".gitignore", "*.log\n")

    after_begin(monkeypatch, InotifyEvents if events == "inotify" else NotifyEvents, scaffold)
    tracker = await trackers.track(context, sample.path)
    scans = Scans(monkeypatch)
    try:
        await same(tracker, context, sample, "made")
        for name in ("new/work.py", "new/below/work.py", "out/by_hand.js"):
            sample.write(name, "an hour of work\n")
            await same(tracker, context, sample, name)
        assert scans.count <= 1  # over the .gitignore
    finally:
        await tracker.close()


async def test_rules_that_change_steadily_block_nothing(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    exclude = sample.path / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    begun = [0]

    def change() -> None:
        begun[0] += 1
        exclude.write_text("*.log\n" * begun[0])

    after_begin(monkeypatch, InotifyEvents, change)
    tracker = await trackers.track(context, sample.path)
    assert begun == [TRIES]
    sample.write("seen", "1\n")
    await same(tracker, context, sample)
    monkeypatch.undo()
    await same(tracker, context, sample)
    scans = Scans(monkeypatch)
    sample.write("seen", "2\n")
    await same(tracker, context, sample)
    assert scans.count == 0
    await tracker.close()


async def test_an_index_that_is_written_steadily_blocks_nothing(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [0]

    def stage() -> None:
        begun[0] += 1
        sample.write(f"file{begun[0]}", "1\n")
        sample.git("add", "-A")

    after_begin(monkeypatch, InotifyEvents, stage)
    tracker = await trackers.track(context, sample.path)
    assert begun == [1]
    await same(tracker, context, sample)
    await tracker.close()


# ── missing information in events ─────────────────────────────────────────────────────────────────


async def test_a_file_system_that_others_write_to_is_scanned(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_REPORTING", frozenset())
    tracker = await trackers.track(context, sample.path)
    assert not tracker.live
    assert tracker.note.startswith(f"{sample.path} is on a file system that may not report every change")
    sample.write("seen", "1\n")
    await same(tracker, context, sample)
    await tracker.close()


async def test_a_file_that_is_tracked_in_an_ignored_directory_is_followed(
    context: GitContext, sample: Sample, events: str
) -> None:
    sample.write(".gitignore", "debug/\n")
    sample.write("debug/kept.txt", "1\n")
    sample.git("add", "-f", "debug/kept.txt")
    tracker = await trackers.track(context, sample.path)
    sample.write("debug/kept.txt", "2\n")
    await same(tracker, context, sample)
    await tracker.close()
