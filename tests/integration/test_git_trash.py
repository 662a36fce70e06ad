"""What is at risk, and the trash: no line of work is lost, and nothing of the user's is touched."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from rametd.domain.errors import RefNotFoundError
from rametd.git import Git, RepositoryInfo, Risk

from tests.support import repositories
from tests.support.repositories import Sample
from tests.support.worktrees import mess, tree_by_git_of_worktree


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return repositories.git_environment(tmp_path / "home")


@pytest.fixture
def sample(tmp_path: Path, environment: dict[str, str]) -> Sample:
    return repositories.plain(tmp_path / "repo", environment)


@pytest.fixture
async def git(environment: dict[str, str]) -> AsyncIterator[Git]:
    git = Git(environment, threads=2)
    yield git
    await git.aclose()


@pytest.fixture
async def repo(git: Git, sample: Sample) -> RepositoryInfo:
    return await git.discover(sample.path)


@pytest.fixture
async def tree(git: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path) -> Sample:
    """A worktree of ours on the branch `work`."""
    (tmp_path / "trees").mkdir()
    await git.create_worktree(repo, tmp_path / "trees" / "s-1", "work", sample.head, new_branch=True)
    return Sample(tmp_path / "trees" / "s-1", sample.environment)


async def test_a_fresh_worktree_has_nothing_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    assert not await git.work_at_risk(repo, tree.path, "work", sample.head)


async def test_everything_at_risk_is_listed(git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample) -> None:
    base = sample.head
    tip = tree.commit("Fix it: now")
    mess(tree)

    assert await git.work_at_risk(repo, tree.path, "work", base) == Risk(
        ("README.md", "src/app.py"), ("link", "new/", 'odd \n"name" ü', "run.sh"), ((tip, "Fix it: now"),)
    )


async def test_commits_known_elsewhere_are_not_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    base = sample.head
    for keeper in ("branch copy", "tag keep", "update-ref refs/remotes/origin/work"):
        tip = tree.commit("more")
        assert (await git.work_at_risk(repo, tree.path, "work", base)).unique_commits == ((tip, "more"),)
        sample.git(*keeper.split(), tip)
        assert (await git.work_at_risk(repo, tree.path, "work", base)).unique_commits == ()


async def test_our_own_refs_and_the_stash_do_not_count_as_elsewhere(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("work")
    sample.git("update-ref", "refs/ramet/checkpoints/x", tip)

    assert len((await git.work_at_risk(repo, tree.path, "work", sample.head)).unique_commits) == 1


async def test_commits_on_a_detached_head_are_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.git("checkout", "-q", "--detach")
    tip = tree.commit("adrift")

    assert (await git.work_at_risk(repo, tree.path, "work", sample.head)).unique_commits == ((tip, "adrift"),)


async def test_a_base_that_no_branch_holds_is_not_the_sessions_work(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    base = sample.head
    sample.git("commit", "-q", "--amend", "-m", "amended")

    assert not await git.work_at_risk(repo, tree.path, "work", base)
    assert len((await git.work_at_risk(repo, tree.path, "work", None)).unique_commits) == 1


async def test_commits_are_at_risk_even_when_the_directory_is_gone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("work")
    shutil.rmtree(tree.path)

    assert await git.work_at_risk(repo, tree.path, "work", sample.head) == Risk((), (), ((tip, "work"),))


async def test_changes_inside_a_submodule_are_at_risk(git: Git, tmp_path: Path, environment: dict[str, str]) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    sample.write("lib/new")

    assert (await git.work_at_risk(await git.discover(sample.path), sample.path, "main", None)).uncommitted == ("lib",)


async def test_the_trash_keeps_everything_and_gives_it_back(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, tmp_path: Path
) -> None:
    tip = tree.commit("work")
    mess(tree)
    expected = tree_by_git_of_worktree(tree)

    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)
    sample.git("-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")

    assert (record.ref, record.branch_commit, record.skipped) == ("refs/ramet/trash/s-1", tip, ())
    assert record.size > 0
    assert sample.git("rev-parse", record.ref, f"{record.ref}^{{tree}}", f"{record.ref}^1").split() == [
        record.commit,
        expected,
        tip,
    ]
    again = tmp_path / "trees" / "s-2"
    await git.create_worktree(repo, again, "work", str(record.branch_commit), new_branch=True)
    await git.restore_files(again, record.commit)
    assert (await git.snapshot(again, "restored")).tree == expected
    assert sample.git("status", "--porcelain", at=again).splitlines()[:2] == [" D README.md", " M src/app.py"]
    await git.drop_trash(repo, "s-1")
    assert sample.git("for-each-ref", "refs/ramet") == ""


async def test_trashing_twice_loses_nothing_of_the_first(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("first")
    first = await git.trash(repo, "s-1", tree.path, "work")
    assert await git.trash(repo, "s-1", tree.path, "work") == first
    (tree.path / "first").unlink()
    tree.write("second")

    second = await git.trash(repo, "s-1", tree.path, "work")

    assert sample.git("show", f"{second.commit}:second") == "text"
    assert sample.git("merge-base", "--is-ancestor", first.commit, second.commit) == ""


async def test_a_removal_repeated_after_a_kill_keeps_the_first_trash(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("work")
    first = await git.trash(repo, "s-1", tree.path, "work")
    tree.path.rename(tree.path.with_name(".s-1.removing-0"))

    assert await git.trash(repo, "s-1", tree.path, "work") == first


async def test_commits_made_since_an_earlier_trash_are_kept_where_the_directory_is_gone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("uncommitted")
    first = await git.trash(repo, "s-1", tree.path, "work")
    tip = tree.commit("went on")
    shutil.rmtree(tree.path)

    second = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)

    assert sample.git("merge-base", "--is-ancestor", tip, second.ref) == ""
    assert sample.git("rev-parse", f"{first.commit}^{{tree}}") == sample.git("rev-parse", f"{second.ref}^{{tree}}")
    kept = await git.kept(repo, second.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.later, kept.changed) == (first.branch_commit, tip, ("uncommitted",))
    assert await git.trash(repo, "s-1", tree.path, "work") == replace(second, branch_commit=None)


async def test_a_branch_that_went_on_from_a_clean_tree_comes_back_where_it_was_and_tells_of_it(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    first = await git.trash(repo, "s-1", tree.path, "work")
    tip = tree.commit("went on")
    shutil.rmtree(tree.path)

    second = await git.trash(repo, "s-1", tree.path, "work")

    kept = await git.kept(repo, second.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.later, kept.changed) == (first.branch_commit, tip, ())


async def test_a_branch_is_trashed_when_its_directory_is_gone(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("work")
    shutil.rmtree(tree.path)

    record = await git.trash(repo, "s-1", tree.path, "work")

    assert sample.git("rev-parse", f"{record.ref}^1", f"{record.ref}^{{tree}}").split() == [
        tip,
        sample.git("rev-parse", f"{tip}^{{tree}}"),
    ]
    with pytest.raises(RefNotFoundError, match="is left"):
        await git.trash(repo, "s-2", tree.path, "never")


async def test_work_is_trashed_when_the_git_file_was_deleted(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.write("work")
    (tree.path / ".git").unlink()

    assert (await git.work_at_risk(repo, tree.path, "work", sample.head)).untracked == ("work",)
    record = await git.trash(repo, "s-1", tree.path, "work")

    assert sample.git("show", f"{record.commit}:work") == "text"


async def test_work_is_at_risk_and_trashed_when_the_entry_was_pruned(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("committed")
    tree.write("work")
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")

    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    record = await git.trash(repo, "s-1", tree.path, "work")

    assert risk.untracked == ("work",)
    assert risk.unique_commits == ((tip, "committed"),)
    assert sample.git("show", f"{record.commit}:work") == "text"


async def test_a_directory_that_is_no_worktree_is_neither_at_risk_nor_trashed(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("committed")
    shutil.rmtree(tree.path)
    tree.write("of somebody else")
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")

    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    record = await git.trash(repo, "s-1", tree.path, "work")

    assert risk == Risk((), (), ((tip, "committed"),))
    assert record.skipped == (f"{tree.path}: nothing says that it is a worktree",)
    assert sample.git("rev-parse", f"{record.commit}^1") == tip


async def test_the_users_own_checkout_can_be_looked_at(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    sample.write("mine")

    assert (await git.work_at_risk(repo, sample.path, "main", None)).untracked == ("mine",)
    assert sample.git("show", f"{(await git.trash(repo, 's-1', sample.path, 'main')).commit}:mine") == "text"


async def test_commits_of_a_submodule_that_were_never_pushed_are_kept(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    tree.write("lib/made", "1\n")
    tree.git("add", "made", at=tree.path / "lib")
    tree.git("commit", "-q", "-m", "made", at=tree.path / "lib")
    inner = tree.git("rev-parse", "HEAD", at=tree.path / "lib")
    tree.git("commit", "-q", "-a", "-m", "the submodule went on")

    record = await git.archive(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)

    assert sample.git("merge-base", "--is-ancestor", inner, record.commit) == ""
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    warnings = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)
    assert (tree.path / "lib" / "made").read_text() == "1\n"
    assert any("never pushed" in words for words in warnings)
    sample.git("fsck", "--connectivity-only")


async def test_repositories_inside_the_worktree_are_trashed_too(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    tree.write("lib/deep/in a submodule of a submodule", "1\n")
    tree.git("init", "-q", "own")
    tree.write("own/uncommitted", "2\n")
    tree.git("worktree", "add", "-q", "-b", "side", "side")
    tree.write("side/uncommitted", "3\n")

    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)

    body = sample.git("log", "-1", "--format=%b", record.commit).splitlines()
    nested = {
        place: commit for word, commit, place in (line.split(" ", 2) for line in body if line.startswith("nested"))
    }
    assert sorted(nested) == ["lib/deep", "own", "side"]
    assert sample.git("show", f"{nested['lib/deep']}:in a submodule of a submodule") == "1"
    assert sample.git("show", f"{nested['own']}:uncommitted") == "2"
    assert sample.git("show", f"{nested['side']}:uncommitted") == "3"
    assert set(nested.values()) <= set(sample.git("log", "-1", "--format=%P", record.commit).split())
    sample.git("fsck", "--connectivity-only")


async def test_commits_of_a_branch_that_was_deleted_under_its_worktree_are_kept(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.commit("one")
    tip = tree.commit("two")
    tree.write("untracked")
    sample.git("update-ref", "-d", "refs/heads/work")

    risk = await git.work_at_risk(repo, tree.path, "work", None)
    assert [commit for commit, _ in risk.unique_commits][:1] == [tip]
    record = await git.trash(repo, "s-1", tree.path, "work")

    kept = await git.kept(repo, record.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.head, kept.changed) == (tip, "", ("untracked",))
    assert sample.git("merge-base", "--is-ancestor", tip, record.ref) == ""


async def test_a_worktree_whose_entry_is_gone_is_not_taken_for_the_main_one(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tip = tree.commit("mine")
    tree.write("untracked")
    shutil.rmtree(Path((tree.path / ".git").read_text().removeprefix("gitdir: ").strip()))

    record = await git.trash(repo, "s-1", tree.path, "work")

    kept = await git.kept(repo, record.ref)
    assert kept is not None
    assert (kept.branch_commit, kept.head, kept.on, kept.index, kept.changed) == (tip, "", "", "", ("untracked",))


@pytest.mark.parametrize("what", ["branch", "stash", "tag", "staged"])
async def test_what_only_a_repository_inside_has_counts_as_not_read(
    git: Git, repo: RepositoryInfo, tree: Sample, what: str
) -> None:
    inner = repositories.unborn(tree.path / "sub", tree.environment)
    inner.write("first")
    inner.commit("first")
    assert (await git.trash(repo, "s-1", tree.path, "work")).unread == ()
    if what == "branch":
        inner.git("switch", "-qc", "other")
        inner.write("second")
        inner.commit("second")
        inner.git("switch", "-q", "-")
    elif what == "tag":
        inner.git("switch", "-q", "--detach")
        inner.write("second")
        inner.commit("second")
        inner.git("tag", "v1")
        inner.git("switch", "-q", "-")
    else:
        inner.write("first", "staged")
        inner.git("add", "first")
        if what == "stash":
            inner.git("stash", "-q")
        else:
            inner.write("first", "later")

    (words,) = (await git.trash(repo, "s-1", tree.path, "work")).unread

    assert {"branch": "other", "stash": "stash", "tag": "tags/v1", "staged": "first"}[what] in words
    assert words.startswith("sub is a repository of its own")
