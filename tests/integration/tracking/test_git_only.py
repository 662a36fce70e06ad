"""Files whose stored form only git knows: the tracker asks git, or scans."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rametd.git import Tracker
from rametd.git.context import GitContext
from rametd.git.removal import delete_tree
from rametd.git.snapshots.capture import capture
from rametd.git.snapshots.model import CHECKPOINTS
from rametd.git.snapshots.restore import restore_files
from rametd.git.tracking import tracker as trackers

from tests.support.deep import dig
from tests.support.repositories import Sample
from tests.support.tracked import Scans, same

pytestmark = pytest.mark.full

REFUSED = ["git~1", ".GIT", ".git.", "sub/.Git/x", ".git ", "sub/.git::$INDEX_ALLOCATION", "a\\.git"]


@pytest.mark.parametrize("name", REFUSED)
async def test_a_name_that_git_refuses_is_in_no_tree_and_in_the_way_of_no_rewind(
    context: GitContext, linked: Sample, name: str
) -> None:
    tracker = await trackers.track(context, linked.path)
    context.tree_sources = {linked.path: tracker}
    linked.write(name, "x\n")
    linked.write("src/app.py", "v1\n")
    taken = await capture(context, linked.path, ref=f"{CHECKPOINTS}any/1")
    assert taken.files == await same(tracker, context, linked)
    (linked.path / name).unlink()
    linked.write("src/app.py", "v2\n")

    async def nothing(tree: str) -> None: ...

    await restore_files(context, linked.path, taken.files, nothing)
    assert (linked.path / "src/app.py").read_text() == "v1\n"
    await same(tracker, context, linked)
    await tracker.close()


def attributes(sample: Sample, home: Path) -> Iterator[str]:
    sample.git("config", "filter.up.clean", "tr a-z A-Z")
    sample.write("my art.psd", "as it is\n")
    yield "without attributes"
    for number, (rule, name) in enumerate(
        [
            ('"my art.psd" filter=up', "my art.psd"),
            ("*.psd big\n[attr]big filter=up", "a.psd"),
            ("**/x/*.up filter=up", "p/x/b.up"),
            ("*[[:space:]]*.up filter=up", "x y.up"),
            ("*.up filter=up\n*.up !filter", "c.up"),
            ("*.up filter=up text=auto", "d.up"),
            ("*.txt text=auto\n*.txt -crlf", "e.txt"),
            ("*.txt text\n*.bin -text eol=lf", "f.bin"),
            ("* ident", "g"),
        ]
    ):
        sample.write(".gitattributes", f"{rule}\n")
        sample.write(name, f"$Id$ {number}\r\n")
        yield rule
        sample.write(name, f"$Id$ {number} again\r\n")
        yield f"{rule}, again"
    sample.write("sub/.gitattributes", "*.up filter=up\n")
    sample.write("sub/a.up", "shout\n")
    sample.git("add", "-A")
    yield "in a directory, and staged"
    (sample.path / "sub").rename(home / "sub")
    sample.write("sub/a.up", "by the index's attributes\n")
    yield "that goes with them"
    (home / "attributes").write_text("*.late filter=up\n")
    sample.git("config", "core.attributesFile", str(home / "attributes"))
    sample.write("a.late", "shout\n")
    yield "from outside"
    (home / "attributes").write_text("")
    sample.write("b.late", "no more\n")
    yield "and no more"


async def test_files_are_stored_as_git_stores_them_by_its_attributes(
    tracker: Tracker, context: GitContext, sample: Sample, tmp_path: Path
) -> None:
    for what in attributes(sample, tmp_path):
        await same(tracker, context, sample, what)


async def test_rules_that_are_configured_later_count(
    context: GitContext, sample: Sample, environment: dict[str, str], tmp_path: Path
) -> None:
    with (Path(environment["HOME"]) / ".gitconfig").open("a") as file:
        file.write(f"[include]\n\tpath = {tmp_path}/more\n")
    tracker = await trackers.track(context, sample.path)
    (tmp_path / "excludes").write_text("*.secret\n")
    (tmp_path / "more").write_text(f"[core]\n\texcludesFile = {tmp_path}/excludes\n")
    sample.write("a.secret", "x\n")
    await same(tracker, context, sample)
    await tracker.close()


async def test_git_is_asked_for_attributes_once_for_each_file_and_only_where_there_are_any(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = context.process.read

    async def counted(where: Path, *arguments: str, **more: Any) -> bytes:
        asked.extend(word for word in arguments if word == "check-attr")
        return await read(where, *arguments, **more)

    monkeypatch.setattr(context.process, "read", counted)
    tracker = await trackers.track(context, sample.path)
    for words in ("1\n", "2\n"):
        sample.write("src/app.py", words)
        await same(tracker, context, sample)
    assert asked == []
    sample.write(".gitattributes", "*.psd -text\n")
    await same(tracker, context, sample)
    scans = Scans(monkeypatch)
    for words in ("3\n", "4\n"):
        sample.write("src/app.py", words)
        sample.write("README.md", words)
        await same(tracker, context, sample)
    assert (asked, scans.count) == (["check-attr"], 0)
    await tracker.close()


# ── failures ──────────────────────────────────────────────────────────────────────────────────────


async def test_no_depth_is_too_much(context: GitContext, sample: Sample, tmp_path: Path) -> None:
    tracker = await trackers.track(context, sample.path)
    dig(sample.path, 1100)
    await same(tracker, context, sample, "deep")
    sample.write("d/d/near", "1\n")
    await same(tracker, context, sample, "and near")
    await tracker.close()
    delete_tree(sample.path)
    assert not sample.path.exists()


@pytest.mark.parametrize("where", ["tree_of", "is_rule", "begin"])
async def test_whatever_fails_ends_in_a_scan(
    context: GitContext, sample: Sample, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    tracker = await trackers.track(context, sample.path)

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    changes = tracker.changes()
    monkeypatch.setattr(trackers, where, fail)
    sample.write(".gitignore", "*.txt\n")
    sample.write("seen", "1\n")
    await same(tracker, context, sample, "failing")
    monkeypatch.undo()
    sample.write("seen", "2\n")
    await same(tracker, context, sample, "well again")
    scans = Scans(monkeypatch)
    sample.write("seen", "3\n")
    await same(tracker, context, sample, "and following")
    assert scans.count == 0
    assert (await anext(changes)).everything
    await tracker.close()
