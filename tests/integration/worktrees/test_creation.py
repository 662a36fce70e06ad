"""Creation, listing and removal of worktrees."""

import asyncio
import shlex
from pathlib import Path

import pytest
from rametd.domain.errors import (
    BadNameError,
    BranchTakenError,
    GitFailedError,
    PathTakenError,
    RefNotFoundError,
    WorktreeChangedError,
)
from rametd.git import Git, Removal, RepositoryInfo

from tests.support import repositories
from tests.support.eventually import eventually
from tests.support.repositories import Sample, fingerprint
from tests.support.worktrees import create, directories, leftovers


async def test_a_worktree_is_created_and_removed(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    path = trees / "s-1"

    assert await create(git, repo, path, "feature/x") == ()

    await git.worktrees.verify(path, "feature/x")
    assert (path / "src" / "app.py").read_text() == "print('two')\nprint('three')\n"
    assert sample.git("status", "--porcelain", at=path) == ""
    assert sample.git("rev-parse", "HEAD", at=path) == sample.head
    assert await git.worktrees.remove(repo, path, "feature/x", delete_branch=True) == Removal(sample.head, ())
    assert leftovers(sample, trees) == []


async def test_the_list_agrees_with_gits_own(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    await create(git, repo, trees / "s-1", "one")
    sample.git("worktree", "add", "-q", "--detach", str(trees / "s-2"), "HEAD~1")

    listed = await git.worktrees.list(repo)

    theirs = sample.git("worktree", "list", "--porcelain").split("\n\n")
    ours = []
    for tree in listed:
        lines = [
            f"worktree {tree.path}",
            f"HEAD {tree.commit}",
            f"branch refs/heads/{tree.branch}" if tree.branch else "detached",
        ]
        ours.append("\n".join([*lines, f"locked {tree.locked}"] if tree.locked else lines))
    assert ours == theirs
    assert [tree.is_main for tree in listed] == [True, False, False]


async def test_ten_at_once_all_succeed(tmp_path: Path, environment: dict[str, str], git: Git, trees: Path) -> None:
    sample = repositories.large(tmp_path / "large", environment, 1000)
    repo = await git.discover(sample.path)
    names = [f"s-{number}" for number in range(10)]

    await asyncio.gather(*(create(git, repo, trees / name, f"work/{name}") for name in names))

    assert directories(trees) == names
    assert {(tree.path, tree.branch) for tree in await git.worktrees.list(repo) if not tree.is_main} == {
        (trees / n, f"work/{n}") for n in names
    }
    assert {branch.name for branch in await git.branches.list(repo)} == {"main", *(f"work/{name}" for name in names)}
    for name in names:
        assert sample.git("status", "--porcelain", at=trees / name) == ""
        assert sample.git("ls-files", "--", "*.txt", at=trees / name).count("\n") == 999
    assert "[branch" not in (sample.path / ".git" / "config").read_text()
    removed = await asyncio.gather(
        *(git.worktrees.remove(repo, trees / n, f"work/{n}", delete_branch=True) for n in names)
    )
    assert [removal.left for removal in removed] == [()] * 10
    assert leftovers(sample, trees) == []


async def test_two_daemons_at_once_do_not_interleave(
    environment: dict[str, str], repo: RepositoryInfo, git: Git, trees: Path
) -> None:
    other = Git(environment, threads=2)

    await asyncio.gather(*(create((git, other)[n % 2], repo, trees / f"s-{n}", f"b{n}") for n in range(6)))
    await other.aclose()

    assert len(await git.worktrees.list(repo)) == 7


async def test_hooks_do_not_run(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        sample.write(f".git/hooks/{hook}", f"#!/bin/sh\ntouch {trees}/{hook}\nexit 1\n").chmod(0o755)

    await create(git, repo, trees / "s-1", "one")

    await git.worktrees.verify(trees / "s-1", "one")
    assert [path.name for path in trees.iterdir()] == ["s-1"]


async def test_an_existing_branch_is_continued_and_never_deleted_by_undoing(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.git("branch", "mine", "HEAD~1")

    await create(git, repo, trees / "s-1", "mine", new=False)
    assert sample.git("rev-parse", "HEAD", at=trees / "s-1") == sample.git("rev-parse", "HEAD~1")

    await git.worktrees.undo_create(repo, trees / "s-1", "mine", None)
    assert leftovers(sample, trees) == ["refs/heads/mine"]


async def test_a_branch_that_exists_is_refused_and_left(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.git("branch", "mine")

    with pytest.raises(BranchTakenError, match="mine exists already") as caught:
        await create(git, repo, trees / "s-1", "mine")

    assert "--existing mine" in caught.value.hint
    # Recovery may still undo the creation: the branch is at this commit, but Ramet did not create
    # it.
    await git.worktrees.undo_create(repo, trees / "s-1", "mine", sample.head)
    assert leftovers(sample, trees) == ["refs/heads/mine"]


@pytest.mark.parametrize("new", [True, False])
async def test_a_branch_checked_out_elsewhere_says_where(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, new: bool
) -> None:
    with pytest.raises(BranchTakenError) as caught:
        await create(git, repo, trees / "s-1", "main", new=new)

    assert caught.value.data["worktree"] == str(sample.path)
    assert leftovers(sample, trees) == []


async def test_a_branch_being_rebased_elsewhere_is_taken(
    git: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path, trees: Path
) -> None:
    place = tmp_path / "rebasing"
    sample.git("worktree", "add", "-q", "-b", "topic", str(place), "HEAD~1")
    sample.write("src/app.py", "conflict\n", at=place)
    sample.commit("conflict", at=place)
    with pytest.raises(AssertionError, match="could not apply"):
        sample.git("rebase", "main", at=place)

    with pytest.raises(BranchTakenError, match=str(place)):
        await create(git, repo, trees / "s-1", "topic", new=False)


@pytest.mark.parametrize(("existing", "wanted"), [("a", "a/b"), ("a/b", "a")])
async def test_a_branch_that_would_be_both_file_and_folder_is_refused(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, existing: str, wanted: str
) -> None:
    sample.git("branch", existing)

    with pytest.raises(BranchTakenError, match=f"cannot exist beside {existing}"):
        await create(git, repo, trees / "s-1", wanted)

    assert leftovers(sample, trees) == [f"refs/heads/{existing}"]


async def test_invalid_input_is_refused_before_anything_is_created(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    with pytest.raises(BadNameError):
        await create(git, repo, trees / "s-1", "--force")
    with pytest.raises(RefNotFoundError):
        await git.worktrees.create(repo, trees / "s-1", "one", "0" * 39 + "1", new_branch=True)
    with pytest.raises(RefNotFoundError):
        await create(git, repo, trees / "s-1", "missing", new=False)
    assert leftovers(sample, trees) == []


async def test_a_foreign_directory_at_the_path_is_neither_used_nor_removed(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.write("precious", at=trees / "s-1")

    with pytest.raises(PathTakenError):
        await create(git, repo, trees / "s-1", "one")
    undone = await git.worktrees.undo_create(repo, trees / "s-1", "one", sample.head)

    assert undone.left == (f"{trees / 's-1'}: nothing says that it is a worktree",)
    assert (trees / "s-1" / "precious").exists()
    assert leftovers(sample, trees) == [str(trees / "s-1")]


async def test_a_users_own_worktree_is_never_cleaned_up(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.git("worktree", "add", "-q", "-b", "mine", str(trees / "mine"))

    with pytest.raises(PathTakenError):
        await create(git, repo, trees / "mine", "one")
    undone = await git.worktrees.undo_create(repo, trees / "mine", "mine", sample.head)

    assert undone.left == (f"{trees / 'mine'}: the worktree existed before",)
    await git.worktrees.verify(trees / "mine", "mine")


async def test_an_empty_first_commit_works(tmp_path: Path, environment: dict[str, str], git: Git, trees: Path) -> None:
    repo = await git.discover(repositories.empty_first_commit(tmp_path / "empty", environment).path)

    await create(git, repo, trees / "s-1", "one")
    await create(git, repo, trees / "s-1", "one")

    await git.worktrees.verify(trees / "s-1", "one")


async def test_a_bare_repository_works(tmp_path: Path, environment: dict[str, str], git: Git, trees: Path) -> None:
    bare = repositories.bare_with_worktrees(tmp_path / "proj" / "main", environment)

    for place in (bare.path, bare.path.parent):
        repo = await git.discover(place)
        await create(git, repo, trees / "s-1", "one")
        assert bare.git("status", "--porcelain", at=trees / "s-1") == ""
        assert (await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)).left == ()


async def test_a_sparse_checkout_is_inherited(
    tmp_path: Path, environment: dict[str, str], git: Git, trees: Path
) -> None:
    sparse = repositories.sparse(tmp_path / "sparse", environment)

    await create(git, await git.discover(sparse.path), trees / "s-1", "one")

    assert (trees / "s-1" / "src" / "app.py").exists()
    assert not (trees / "s-1" / "docs").exists()
    assert sparse.git("status", "--porcelain", at=trees / "s-1") == ""


async def test_submodules_are_populated_without_the_network(
    tmp_path: Path, environment: dict[str, str], git: Git, trees: Path
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    before = fingerprint(sample)
    repo = await git.discover(sample.path)

    assert await create(git, repo, trees / "s-1", "one") == ()

    assert (trees / "s-1" / "lib" / "src" / "app.py").exists()
    assert (trees / "s-1" / "lib" / "deep" / "src" / "app.py").exists()
    assert sample.git("status", "--porcelain", at=trees / "s-1") == ""
    origin = sample.git("config", "remote.origin.url", at=sample.path / "lib")
    assert sample.git("config", "remote.origin.url", at=trees / "s-1" / "lib") == origin
    assert (await git.worktrees.remove(repo, trees / "s-1", "one", delete_branch=True)).left == ()
    assert fingerprint(sample) == before


async def test_a_submodule_that_cannot_be_filled_is_a_warning(
    tmp_path: Path, environment: dict[str, str], git: Git, trees: Path
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    sample.git("update-index", "--cacheinfo", f"160000,{'1' * 40},lib")
    sample.git("commit", "-q", "-m", "a commit that nobody has")

    warnings = await create(git, await git.discover(sample.path), trees / "s-1", "one")

    assert [line.partition(":")[0] for line in warnings] == ["submodule lib is not populated"]
    await git.worktrees.verify(trees / "s-1", "one")


async def test_filters_of_the_user_apply(git: Git, tmp_path: Path, environment: dict[str, str], trees: Path) -> None:
    sample = repositories.plain(tmp_path / "filtered", environment)
    sample.git("config", "filter.shout.smudge", "tr a-z A-Z")
    sample.git("config", "filter.shout.clean", "tr A-Z a-z")
    sample.write(".gitattributes", "*.txt filter=shout\n")
    sample.write("a.txt", "HELLO\n")
    sample.commit()
    repo = await git.discover(sample.path)

    await create(git, repo, trees / "s-1", "one")

    assert (trees / "s-1" / "a.txt").read_text() == "HELLO\n"
    assert sample.git("status", "--porcelain", at=trees / "s-1") == ""


async def test_a_checkout_that_fails_leaves_nothing(
    git: Git, tmp_path: Path, environment: dict[str, str], trees: Path
) -> None:
    sample = repositories.plain(tmp_path / "filtered", environment)
    sample.write("a.txt")
    sample.commit()
    sample.write(".gitattributes", "*.txt filter=broken\n")
    sample.commit()
    sample.git("config", "filter.broken.smudge", "false")
    sample.git("config", "filter.broken.required", "true")

    with pytest.raises(GitFailedError, match="smudge filter broken failed"):
        await create(git, await git.discover(sample.path), trees / "s-1", "one")

    assert leftovers(sample, trees) == []


async def test_cancelling_leaves_nothing(git: Git, tmp_path: Path, environment: dict[str, str], trees: Path) -> None:
    sample = repositories.plain(tmp_path / "slow", environment)
    started = tmp_path / "started"
    sample.write(".gitattributes", "*.py filter=slow\n")
    sample.commit()
    sample.git("config", "filter.slow.smudge", f"touch {started}; exec sleep 600")
    repo = await git.discover(sample.path)

    task = asyncio.create_task(create(git, repo, trees / "s-1", "one"))
    await eventually(started.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert leftovers(sample, trees) == []


async def test_a_worktree_whose_top_level_is_elsewhere_is_refused_with_the_remedy(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    """As a worktree made by hand in a submodule's repository, where git would add the files of its
    own directory."""
    path = trees / "by-hand"
    config = sample.path / ".git" / "config"
    before = config.read_bytes()
    sample.git("worktree", "add", "-q", "-b", "hand", str(path))
    sample.git("config", "core.worktree", str(sample.path))
    await git.worktrees.verify(path, "hand")
    sample.git("config", "extensions.worktreeConfig", "true")
    assert sample.git("rev-parse", "--show-toplevel", at=path) == str(sample.path)

    with pytest.raises(WorktreeChangedError) as caught:
        await git.worktrees.verify(path, "hand")
    assert str(sample.path) in caught.value.message

    command = caught.value.hint.partition("`")[2].rstrip("`")
    sample.git(*shlex.split(command)[3:], at=path)
    assert sample.git("rev-parse", "--show-toplevel", at=path) == str(path)
    await git.worktrees.verify(path, "hand")
    config.write_bytes(before)
