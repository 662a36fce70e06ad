"""Syncs of a branch with its base, and moves of a branch: commits and branches of others stay."""

from pathlib import Path

import pytest
from rametd.domain.errors import GitBusyError, GitFailedError, WorktreeChangedError
from rametd.git import CutOff, Git, RepositoryInfo, Synced

from tests.support import repositories
from tests.support.repositories import Sample


async def test_a_rebase_moves_no_other_branch(git: Git, sample: Sample, tree: Sample) -> None:
    sample.git("config", "rebase.updateRefs", "true")
    first = tree.commit("first")
    tree.commit("second")
    sample.git("branch", "stacked", first)
    base = sample.commit("base")

    synced = await git.syncing.sync(tree.path, "work", base, rebase=True, message="")

    assert (synced.new, synced.commits) == (tree.head, 1)
    assert sample.git("rev-parse", "stacked") == first


@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("forward", [False, True])
async def test_nothing_that_is_ignored_is_overwritten(
    git: Git, sample: Sample, tree: Sample, rebase: bool, forward: bool
) -> None:
    if not forward:
        tree.write("own")
        tree.commit("own")
    ignored = {".env": "SECRET=mine\n", "cache/big": "computed for hours\n", "folder": "a file of mine\n"}
    sample.write(".git/info/exclude", ".env\ncache\nfolder\n")
    for name, content in ignored.items():
        tree.write(name, content)
    for name in (".env", "cache", "folder/below"):
        sample.write(name, "the base's\n")
    sample.git("add", "--force", ".env", "cache", "folder/below")
    base, before = sample.commit("base"), tree.head

    with pytest.raises(WorktreeChangedError, match=r"in the way: \.env, cache/big, folder$"):
        await git.syncing.sync(tree.path, "work", base, rebase=rebase, message="base")

    assert tree.head == before
    assert {name: (tree.path / name).read_text() for name in ignored} == ignored
    for name in ignored:
        (tree.path / name).rename(tree.path.parent / Path(name).name)
    assert (await git.syncing.sync(tree.path, "work", base, rebase=rebase, message="base")).commits == 1
    assert (tree.path / "cache").read_text() == "the base's\n"


async def test_what_an_own_commit_added_for_a_while_overwrites_nothing_when_it_is_rebased(
    git: Git, sample: Sample, tree: Sample
) -> None:
    tree.write("secret")
    tree.commit("by mistake")
    tree.git("rm", "-q", "secret")
    tree.commit("taken back")
    sample.write(".git/info/exclude", "secret\n")
    tree.write("secret", "mine\n")
    sample.write("base")
    base = sample.commit("base")

    assert (await git.syncing.sync(tree.path, "work", base, rebase=True, message="base")).commits == 1

    assert (tree.path / "secret").read_text() == "mine\n"
    assert tree.git("log", "--format=%s", "-3").splitlines() == ["taken back", "by mistake", "base"]


@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("name", ["changed", "untracked", "ignored", "ignored/inside"])
async def test_what_is_written_in_the_way_at_the_last_moment_is_not_overwritten(
    git: Git, sample: Sample, tree: Sample, name: str, rebase: bool
) -> None:
    tree.write("own")
    tree.commit("own")
    sample.write(".git/info/exclude", "ignored\n")
    place = name.partition("/")[0] if name != "changed" else "README.md"
    sample.write(place, "the base's\n")
    sample.git("add", "--force", place)
    base, before = sample.commit("base"), tree.head
    mine = tree.path / (name if name != "changed" else "README.md")

    async def write(coming: Synced) -> None:
        assert (coming.old, coming.commits) == (before, 1)
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine, just now\n")

    with pytest.raises((WorktreeChangedError, GitFailedError)):
        await git.syncing.sync(tree.path, "work", base, rebase=rebase, message="base", before_changing=write)

    assert mine.read_text() == "mine, just now\n"
    assert (tree.head, tree.git("branch", "--show-current")) == (before, "work")


@pytest.mark.parametrize("lock", ["worktrees/s-1/index", "worktrees/s-1/HEAD", "refs/heads/work"])
async def test_a_lock_that_a_killed_git_left_is_named_before_any_file_changes(
    environment: dict[str, str], repo: RepositoryInfo, sample: Sample, tree: Sample, lock: str
) -> None:
    before, git = tree.head, Git(environment, threads=1, lock_timeout=0.05)
    sample.write("base")
    base = sample.commit("base")
    left = repo.common_dir / f"{lock}.lock"
    left.touch()

    for change in (
        git.syncing.sync(tree.path, "work", base, rebase=False, message="base"),
        git.snapshots.refuse_locked(tree.path),  # before a rewind
    ):
        with pytest.raises(GitBusyError, match=str(left)):
            await change
    assert (tree.head, tree.git("branch", "--show-current")) == (before, "work")
    assert tree.git("status", "--porcelain") == ""
    left.unlink()
    await git.syncing.sync(tree.path, "work", base, rebase=False, message="base")
    await git.aclose()


@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
async def test_a_file_with_skip_worktree_is_not_overwritten(
    git: Git, sample: Sample, tree: Sample, mark: str, rebase: bool
) -> None:
    tree.write("own")
    tree.commit("own")
    tree.git("update-index", mark, "README.md")
    tree.write("README.md", "mine\n")
    sample.write("README.md", "the base's\n")
    base, before = sample.commit("base"), tree.head

    with pytest.raises(WorktreeChangedError, match=r"README\.md"):
        await git.syncing.sync(tree.path, "work", base, rebase=rebase, message="base")

    assert (tree.path / "README.md").read_text() == "mine\n"
    assert tree.head == before


@pytest.mark.parametrize("rebase", [False, True])
async def test_what_is_changed_or_staged_and_in_nobodys_way_stays_so(
    git: Git, sample: Sample, tree: Sample, rebase: bool
) -> None:
    tree.write("own")
    tree.commit("own")
    tree.write("own", "changed\n")
    tree.write("staged")
    tree.git("add", "staged")
    status = tree.git("status", "--porcelain")
    sample.write("base")

    await git.syncing.sync(tree.path, "work", sample.commit("base"), rebase=rebase, message="base")

    assert tree.git("status", "--porcelain") == status
    assert (tree.path / "base").exists()


@pytest.mark.parametrize("rebase", [False, True])
async def test_a_concurrent_commit_stays_on_its_branch(git: Git, sample: Sample, tree: Sample, rebase: bool) -> None:
    tree.commit("own")
    sample.write("base")
    base = sample.commit("base")

    async def commit(_: Synced) -> None:
        tree.write("later")
        tree.commit("later")

    with pytest.raises(WorktreeChangedError, match="moved in the same moment"):
        await git.syncing.sync(tree.path, "work", base, rebase=rebase, message="base", before_changing=commit)

    assert tree.git("log", "--format=%s", "-1") == "later"
    assert (tree.git("branch", "--show-current"), tree.git("status", "--porcelain")) == ("work", "")
    assert not (tree.path / "base").exists()


async def test_a_rebase_that_conflicts_touches_no_file(git: Git, sample: Sample, tree: Sample) -> None:
    tree.write("both", "mine\n")
    tree.commit("own")
    sample.write("both", "the base's\n")
    sample.write("other")
    base = sample.commit("base")
    before = {path: path.stat().st_mtime_ns for path in tree.path.iterdir()}

    synced = await git.syncing.sync(tree.path, "work", base, rebase=True, message="base")

    assert synced.conflicts == ("both",)
    assert {path: path.stat().st_mtime_ns for path in tree.path.iterdir()} == before
    assert tree.git("reflog", "-1", "--format=%gs").startswith("commit")
    assert not list((sample.path / ".git/ramet").glob("index-*"))


async def cut_off(git: Git, sample: Sample, tree: Sample) -> tuple[str, str]:
    """Create a base with new commits, and return the commits before and after."""
    tree.write("own")
    tree.commit("own")
    sample.write("base")
    sample.write("README.md", "the base's\n")
    base = sample.commit("base")
    old = tree.head
    await git.syncing.sync(tree.path, "work", base, rebase=True, message="base")
    new = tree.head
    tree.git("reset", "-q", "--hard", old)
    return old, new


async def test_an_interrupted_sync_is_ended_if_its_files_are_complete(git: Git, sample: Sample, tree: Sample) -> None:
    old, new = await cut_off(git, sample, tree)
    tree.write("draft", "mine\n")
    assert await git.syncing.settle(tree.path, "work", old, new) == CutOff.NOTHING
    tree.git("checkout", "-q", "--detach", new)
    tree.write("README.md", "mine, since\n")

    assert await git.syncing.settle(tree.path, "work", old, new) == CutOff.DONE

    assert (tree.git("branch", "--show-current"), tree.head) == ("work", new)
    assert tree.git("status", "--porcelain").split() == ["M", "README.md", "??", "draft"]
    assert await git.syncing.settle(tree.path, "work", old, new) == CutOff.DONE


async def test_recovery_keeps_half_written_files_and_later_changes_to_them(
    git: Git, sample: Sample, tree: Sample
) -> None:
    old, new = await cut_off(git, sample, tree)
    tree.write("README.md", "the base's\n")

    assert await git.syncing.settle(tree.path, "work", old, new) == CutOff.HALF
    assert (tree.path / "README.md").read_text() == "the base's\n"

    tree.git("checkout", "-q", "--force", "--detach", new)
    tree.write("more")
    mine = tree.commit("more")
    assert await git.syncing.settle(tree.path, "work", old, new) == CutOff.DETACHED
    assert (tree.head, tree.git("rev-parse", "work")) == (mine, old)


async def test_a_tracked_directory_that_becomes_a_file_is_in_nobodys_way(
    git: Git, sample: Sample, tree: Sample
) -> None:
    sample.write("place/one")
    first = sample.commit("a directory")
    await git.syncing.sync(tree.path, "work", first, rebase=False, message="base")
    sample.git("rm", "-rq", "place")
    sample.write("place", "a file\n")

    await git.syncing.sync(tree.path, "work", sample.commit("a file"), rebase=False, message="base")

    assert (tree.path / "place").read_text() == "a file\n"


async def test_a_branch_that_was_deleted_is_said(git: Git, sample: Sample, tree: Sample) -> None:
    sample.git("update-ref", "-d", "refs/heads/work")
    with pytest.raises(WorktreeChangedError, match="no longer has a commit"):
        await git.syncing.sync(tree.path, "work", sample.head, rebase=False, message="")


async def test_a_branch_is_not_moved_under_a_checkout_that_cannot_be_found(git: Git, tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "apart", environment, "--separate-git-dir", str(tmp_path / "elsewhere"))
    repo, old = await git.discover(sample.path), sample.head
    branch = sample.git("branch", "--show-current")
    new = sample.git("commit-tree", "-p", old, "-m", "new", f"{old}^{{tree}}")

    assert "checkout" in await git.landing.targets.move(repo, branch, old, new, "land")
    assert sample.head == old


async def test_a_branch_that_its_owner_has_put_back_is_not_moved(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    branch, old = sample.git("branch", "--show-current"), sample.head
    new = sample.git("commit-tree", "-p", old, "-m", "new", f"{old}^{{tree}}")
    sample.git("reset", "-q", "--hard", "HEAD~1")
    back = sample.head

    assert "has moved" in await git.landing.targets.move(repo, branch, old, new, "land")
    assert sample.head == back
