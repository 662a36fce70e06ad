"""The change tracker: its tree equals that of a scan, after any change."""

import os
import shutil
from collections.abc import Iterator

import pytest
from rametd.git import Tracker
from rametd.git.context import GitContext
from rametd.git.snapshots.capture import capture
from rametd.git.snapshots.model import CHECKPOINTS
from rametd.git.tracking import tracker as trackers

from tests.support.repositories import Sample
from tests.support.tracked import Scans, scanned


def edits(sample: Sample) -> Iterator[str]:
    """Changes of different kinds, one after the other."""
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
    # Only an ignored file that is no longer tracked causes a scan.
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
    yield "a file with skip-worktree"
    sample.git("update-index", "--no-skip-worktree", "src/app.py")
    yield "and to look at again"
    (path / os.fsdecode(b"not-\xff-text")).write_text("bytes\n")
    yield "a name that is no text"


async def test_what_only_git_knows_gives_the_same_tree_too(
    tracker: Tracker, context: GitContext, sample: Sample
) -> None:
    for what in unusual(sample):
        assert (await tracker.tree()).tree == await scanned(context, sample), what


@pytest.mark.parametrize("name", ["a.up", '"quoted.up', "two\nlines.up"])
async def test_filtered_files_are_stored_without_looking_at_everything(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sample.git("config", "filter.up.clean", "tr a-z A-Z")
    sample.write(".gitattributes", "*.up filter=up\n")
    sample.commit("attributes")
    tracker = await trackers.track(context, sample.path)
    scans = Scans(monkeypatch)
    sample.write(name, "shout\n")

    tree = (await tracker.tree()).tree

    assert (tree, scans.count) == (await scanned(context, sample), 0)
    assert sample.git("cat-file", "blob", f"{tree}:{name}") == "SHOUT"
    await tracker.close()


@pytest.mark.parametrize("then", ["", "README.md"], ids=["unchanged", "changed"])
async def test_a_garbage_collected_tree_is_written_again(
    tracker: Tracker, context: GitContext, sample: Sample, then: str
) -> None:
    context.tree_sources = {sample.path: tracker}
    sample.write("src/feature/important.py", "hours of work\n")
    await tracker.tree()
    sample.write("src/app.py", "edited\n")
    await tracker.mark()
    await tracker.tree()
    await tracker.mark()
    sample.git("gc", "-q", "--prune=now")
    if then:
        sample.write(then, "changed\n")

    taken = await capture(context, sample.path, ref=f"{CHECKPOINTS}any/1")

    assert "src/feature/important.py" in sample.git("ls-tree", "-r", "--name-only", taken.files)
    sample.git("rev-list", "--objects", taken.id)  # fails if an object is missing
    sample.git("fsck", "--connectivity-only", taken.id)
