"""Snapshots: the files that git would commit, without any change for the user."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rametd.git import Git, RepositoryInfo
from rametd.git.snapshots.model import point

from tests.support import repositories
from tests.support.repositories import Sample, fingerprint
from tests.support.worktrees import mixed_changes, tree_by_git


async def test_a_snapshot_is_what_git_would_commit_and_changes_nothing(git: Git, sample: Sample) -> None:
    mixed_changes(sample)
    sample.git("stash", "store", "-m", "mine", sample.git("stash", "create"))
    before = fingerprint(sample)

    taken = await git.snapshots.take(sample.path)

    assert fingerprint(sample) == before
    assert taken.skipped == ()
    assert taken.files == tree_by_git(sample)
    assert (taken.head, taken.branch) == (sample.head, "main")
    entries = [entry.split() for entry in sample.git("ls-tree", "-r", "-z", taken.files).split("\0")[:-1]]
    assert [(mode, " ".join(name)) for mode, _, _, *name in entries] == [
        ("100644", ".gitignore"),
        ("120000", "link"),
        ("100644", "new/deep/file"),
        ("100644", 'odd "name" ü'),
        ("100755", "run.sh"),
        ("100644", "src/app.py"),
    ]
    assert list((sample.path / ".git" / "ramet").glob("index-*")) == []


async def test_what_others_leave_or_take_away_meanwhile_is_not_in_the_way(git: Git, sample: Sample) -> None:
    corner = sample.path / ".git" / "ramet"
    await git.snapshots.take(sample.path)
    (corner / "index-going").symlink_to(corner / "gone by the time that it is looked at")
    of_a_killed_one = corner / "index-left"
    of_a_killed_one.mkdir()
    os.utime(of_a_killed_one, (0, 0))

    assert (await git.snapshots.take(sample.path)).files == tree_by_git(sample)

    assert not of_a_killed_one.exists()


async def test_a_clean_worktree_is_its_own_snapshot(git: Git, sample: Sample) -> None:
    taken = await git.snapshots.take(sample.path)

    assert taken.files == sample.git("rev-parse", "HEAD^{tree}")


async def test_a_linked_worktree_is_snapshot_without_the_main_one(git: Git, sample: Sample, tree: Sample) -> None:
    sample.write("of the user")
    mixed_changes(tree)
    before = fingerprint(sample)

    taken = await git.snapshots.take(tree.path)

    assert taken.files != (await git.snapshots.take(sample.path)).files
    assert "of the user" not in sample.git("ls-tree", "-r", "--name-only", taken.files)
    assert fingerprint(sample) == before


async def test_an_unborn_branch_can_be_snapshot(git: Git, tmp_path: Path, environment: dict[str, str]) -> None:
    sample = repositories.unborn(tmp_path / "unborn", environment)
    sample.write("first")

    taken = await git.snapshots.take(sample.path)

    assert (taken.head, taken.branch) == ("", "main")
    assert sample.git("ls-tree", "--name-only", taken.files) == "first"


async def test_a_change_of_equal_size_right_after_the_index_was_written_is_seen(git: Git, sample: Sample) -> None:
    for round_ in range(5):
        sample.write("src/app.py", f"round {round_} a\n")
        sample.git("add", "src/app.py")
        sample.write("src/app.py", f"round {round_} b\n")
        taken = await git.snapshots.take(sample.path)
        assert sample.git("show", f"{taken.files}:src/app.py") == f"round {round_} b"


async def test_a_merge_with_conflicts_is_snapshot_unchanged(git: Git, sample: Sample) -> None:
    sample.git("checkout", "-q", "-b", "other", "HEAD~1")
    sample.write("src/app.py", "theirs\n")
    sample.commit()
    sample.git("checkout", "-q", "main")
    with pytest.raises(AssertionError):
        sample.git("merge", "other")
    before = fingerprint(sample)

    taken = await git.snapshots.take(sample.path)

    assert "<<<<<<<" in sample.git("show", f"{taken.files}:src/app.py")
    assert fingerprint(sample) == before


async def test_submodule_entries_are_recorded(git: Git, tmp_path: Path, environment: dict[str, str]) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    sample.write("new")

    taken = await git.snapshots.take(sample.path)

    assert sample.git("rev-parse", f"{taken.files}:lib") == sample.git("rev-parse", "HEAD:lib")


async def test_files_outside_a_sparse_checkout_are_recorded(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.sparse(tmp_path / "sparse", environment)
    sample.write("src/new")
    sample.write("elsewhere/new")

    taken = await git.snapshots.take(sample.path)

    assert sample.git("diff", "--name-status", "HEAD", taken.files).split() == ["A", "elsewhere/new", "A", "src/new"]


@pytest.mark.parametrize("setting", ["index.sparse", "core.splitIndex", "core.untrackedCache", "feature.manyFiles"])
async def test_every_kind_of_index_works(git: Git, tmp_path: Path, environment: dict[str, str], setting: str) -> None:
    sample = repositories.sparse(tmp_path / "sparse", environment)
    sample.git("config", setting, "true")
    sample.git("sparse-checkout", "reapply")
    sample.git("update-index", "--force-write-index")
    sample.write("src/new")
    before = fingerprint(sample)

    taken = await git.snapshots.take(sample.path)

    assert sample.git("diff", "--name-status", "HEAD", taken.files).split() == ["A", "src/new"]
    assert fingerprint(sample) == before


async def test_filters_apply(git: Git, sample: Sample) -> None:
    sample.git("config", "filter.pointer.clean", "wc -c")
    sample.write(".gitattributes", "*.bin filter=pointer\n")
    sample.write("a.bin", "x" * 1000)

    taken = await git.snapshots.take(sample.path)

    assert sample.git("show", f"{taken.files}:a.bin").strip() == "1000"


async def test_a_repository_without_a_commit_inside_is_captured_on_its_own(git: Git, sample: Sample) -> None:
    sample.write("new")
    sample.git("init", "-q", "nested")
    sample.write("nested/file")

    taken = await git.snapshots.take(sample.path)

    assert taken.skipped == ()
    assert [(each.place, each.head) for each in taken.nested] == [("nested", "")]
    assert sample.git("ls-tree", "--name-only", taken.nested[0].files) == "file"
    assert sample.git("ls-tree", "--name-only", taken.files).split() == [".gitignore", "README.md", "new", "src"]


async def test_a_file_that_vanishes_during_the_walk_is_gone_and_nothing_else(git: Git, sample: Sample) -> None:
    # The filter of the first file deletes the second, after git has listed both.
    sample.git("config", "filter.evil.clean", "rm -f zzz; cat")
    sample.write(".gitattributes", "aaa filter=evil\n")
    sample.write("aaa")
    sample.write("zzz")

    taken = await git.snapshots.take(sample.path)

    assert taken.skipped == ()
    assert sample.git("ls-tree", "--name-only", taken.files).split() == [
        ".gitattributes",
        ".gitignore",
        "README.md",
        "aaa",
        "src",
    ]


NAMES = st.sampled_from(
    ["a", "b", "ü", "-x", "a b", "\n", "*", "a.log", ".gitignore", "keep.log", "'", '"', "\\", "HEAD", "[x]", "漢"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CHANGES = st.lists(
    st.tuples(PATHS, st.sampled_from(["file", "script", "link", "delete", "ignore", "chmod"]), st.binary(max_size=8)),
    max_size=12,
)


def apply(root: Path, changes: list[tuple[str, str, bytes]]) -> None:
    for name, kind, content in changes:
        place = root / name
        if any(
            parent.is_symlink() or parent.is_file()
            for parent in place.parents
            if parent != root and root in parent.parents
        ):
            continue
        if place.is_symlink() or place.is_file():
            if kind == "chmod" and not place.is_symlink():
                place.chmod(0o755)
                continue
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)
        if kind in ("delete", "chmod"):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            place.symlink_to(content.hex() or "target")
        else:
            place.write_bytes(b"*.log\n!keep.log\nb\n" if kind == "ignore" or place.name == ".gitignore" else content)
            place.chmod(0o755 if kind == "script" else 0o644)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES, CHANGES)
async def test_any_tree_is_snapshot_as_git_would(
    environment: dict[str, str], git: Git, first: list[tuple[str, str, bytes]], then: list[tuple[str, str, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sample = repositories.unborn(Path(folder) / "repo", environment)
        apply(sample.path, first)
        sample.commit()
        apply(sample.path, then)
        before = fingerprint(sample)

        taken = await git.snapshots.take(sample.path)

        assert (taken.files, taken.skipped) == (tree_by_git(sample), ())
        assert fingerprint(sample) == before


async def test_files_created_during_a_rewind_are_saved(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    """Simulate the git process of a killed daemon, which continues for a while."""
    tree.write("new", "as it was")
    target = await git.snapshots.take(tree.path, ref="refs/ramet/checkpoints/s/1")
    (tree.path / "new").unlink()
    overwritten: list[str] = []

    async def keep(tree_id: str) -> None:
        overwritten.append(tree_id)
        if len(overwritten) == 1:
            tree.write("new", "somebody else's")

    await git.snapshots.restore_files(tree.path, target, keep)

    assert (tree.path / "new").read_text() == "as it was"
    assert [sample.git("ls-tree", "-r", "--name-only", each, "new") for each in overwritten] == ["", "new"]
    assert sample.git("show", f"{overwritten[-1]}:new") == "somebody else's"


@pytest.mark.parametrize(("mark", "missing"), [("--assume-unchanged", ""), ("--skip-worktree", "absent")])
async def test_changes_of_files_that_git_skips_are_work_too(
    git: Git, sample: Sample, repo: RepositoryInfo, mark: str, missing: str
) -> None:
    """A missing file was deleted, or a sparse checkout leaves it out."""
    sample.write("absent")
    sample.commit()
    sample.git("update-index", mark, "src/app.py", "absent")
    sample.write("src/app.py", "mine\n")
    (sample.path / "absent").unlink()
    marks = sample.git("ls-files", "-v")

    taken = await git.snapshots.take(sample.path)

    assert sample.git("show", f"{taken.files}:src/app.py") == "mine"
    assert sample.git("ls-tree", "--name-only", taken.files, "absent") == missing
    assert "src/app.py" in (await git.worktrees.work_at_risk(repo, sample.path, "main", None)).uncommitted
    assert sample.git("ls-files", "-v") == marks

    overwritten: list[str] = []

    async def keep(tree: str) -> None:
        overwritten.append(tree)

    (sample.path / "README.md").write_text("of another time\n")
    await git.snapshots.restore_files(sample.path, taken, keep)
    assert sample.git("show", f"{overwritten[-1]}:src/app.py") == "mine"


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["another object", "the same object"])
def test_the_lock_of_a_killed_daemon_stops_no_ref(sample: Sample, exists: bool, again: bool) -> None:
    ref = "refs/ramet/commits/s/head"
    tree = sample.git("rev-parse", "HEAD^{tree}")
    if exists:
        sample.git("update-ref", ref, tree if again else sample.head)
    lock = sample.path / ".git" / f"{ref}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    point(sample.path / ".git", ref, tree)
    assert (sample.git("rev-parse", ref), lock.exists()) == (tree, False)


async def test_files_replace_what_is_left_of_a_repository_that_the_index_points_at(git: Git, sample: Sample) -> None:
    nest = sample.path / "nest"
    nest.mkdir()
    (nest / "draft").write_text("earlier\n")
    target = await git.snapshots.take(sample.path)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "inner"]):
        sample.git("-C", str(nest), *words)
    sample.git("add", "nest")
    sample.git("commit", "-qm", "points at it")
    shutil.rmtree(nest / ".git")
    (nest / "draft").write_text("later\n")
    captured: list[str] = []

    async def capture(tree: str) -> None:
        captured.append(sample.git("show", f"{tree}:nest/draft"))

    await git.snapshots.restore_files(sample.path, target, capture)

    assert (captured, (nest / "draft").read_text()) == (["later"], "earlier\n")
