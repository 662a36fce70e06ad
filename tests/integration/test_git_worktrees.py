"""Making, verifying, listing and removing worktrees; every half state that a kill can leave."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
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


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return repositories.git_environment(tmp_path / "home")


@pytest.fixture
def sample(tmp_path: Path, environment: dict[str, str]) -> Sample:
    """A repository whose user is in the middle of something."""
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.write("src/app.py", "stashed\n")
    sample.git("stash", "-q")
    sample.write("src/app.py", "staged\n")
    sample.git("add", "src/app.py")
    sample.write("src/app.py", "unstaged\n")
    sample.write("untracked")
    sample.write(".env", "SECRET=1\n")
    return sample


@pytest.fixture
async def git(environment: dict[str, str]) -> AsyncIterator[Git]:
    git = Git(environment, threads=2)
    yield git
    await git.aclose()


@pytest.fixture
async def repo(git: Git, sample: Sample) -> RepositoryInfo:
    return await git.discover(sample.path)


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    (tmp_path / "trees").mkdir()
    return tmp_path / "trees"


@pytest.fixture(autouse=True)
def untouched(sample: Sample) -> Iterator[None]:
    """Whatever a test does, the user's checkout, index, stash and settings are the same afterwards, and so are the refs of others."""
    before = fingerprint(sample)
    before.pop("refs")
    yield
    after = fingerprint(sample)
    after.pop("refs")
    assert after == before


def leftovers(sample: Sample, trees: Path) -> list[str]:
    """What a creation may leave: directories, entries, branches other than main, things on their way out."""
    common = sample.path / ".git"
    found = [str(path) for path in trees.iterdir()]
    found += [str(path) for path in (common / "worktrees").iterdir()] if (common / "worktrees").exists() else []
    found += [str(path) for path in (common / "ramet").glob("*") if path.name != "lock"]
    found += [
        name
        for name in sample.git("for-each-ref", "--format=%(refname)", "refs/heads").split()
        if name != "refs/heads/main"
    ]
    found += [str(path) for path in common.rglob("*.lock")]
    return found


def directories(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def create(git: Git, repo: RepositoryInfo, path: Path, branch: str, *, new: bool = True) -> tuple[str, ...]:
    return await git.create_worktree(repo, path, branch, str(repo.head.commit), new_branch=new)


async def test_a_worktree_is_made_and_removed(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    path = trees / "s-1"

    assert await create(git, repo, path, "feature/x") == ()

    await git.verify_worktree(path, "feature/x")
    assert (path / "src" / "app.py").read_text() == "print('two')\nprint('three')\n"
    assert sample.git("status", "--porcelain", at=path) == ""
    assert sample.git("rev-parse", "HEAD", at=path) == sample.head
    assert await git.remove_worktree(repo, path, "feature/x", delete_branch=True) == Removal(sample.head, ())
    assert leftovers(sample, trees) == []


async def test_the_list_agrees_with_gits_own(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    await create(git, repo, trees / "s-1", "one")
    sample.git("worktree", "add", "-q", "--detach", str(trees / "s-2"), "HEAD~1")

    listed = await git.worktrees(repo)

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
    assert {(tree.path, tree.branch) for tree in await git.worktrees(repo) if not tree.is_main} == {
        (trees / n, f"work/{n}") for n in names
    }
    assert {branch.name for branch in await git.branches(repo)} == {"main", *(f"work/{name}" for name in names)}
    for name in names:
        assert sample.git("status", "--porcelain", at=trees / name) == ""
        assert sample.git("ls-files", "--", "*.txt", at=trees / name).count("\n") == 999
    assert "[branch" not in (sample.path / ".git" / "config").read_text()
    removed = await asyncio.gather(
        *(git.remove_worktree(repo, trees / n, f"work/{n}", delete_branch=True) for n in names)
    )
    assert [removal.kept for removal in removed] == [()] * 10
    assert leftovers(sample, trees) == []


async def test_two_daemons_at_once_do_not_interleave(
    environment: dict[str, str], repo: RepositoryInfo, git: Git, trees: Path
) -> None:
    other = Git(environment, threads=2)

    await asyncio.gather(*(create((git, other)[n % 2], repo, trees / f"s-{n}", f"b{n}") for n in range(6)))
    await other.aclose()

    assert len(await git.worktrees(repo)) == 7


async def test_hooks_do_not_run(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        sample.write(f".git/hooks/{hook}", "#!/bin/sh\nexit 1\n").chmod(0o755)

    await create(git, repo, trees / "s-1", "one")

    await git.verify_worktree(trees / "s-1", "one")


async def test_an_existing_branch_is_continued_and_never_deleted_by_undoing(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.git("branch", "mine", "HEAD~1")

    await create(git, repo, trees / "s-1", "mine", new=False)
    assert sample.git("rev-parse", "HEAD", at=trees / "s-1") == sample.git("rev-parse", "HEAD~1")

    await git.undo_create(repo, trees / "s-1", "mine", None)
    assert leftovers(sample, trees) == ["refs/heads/mine"]


async def test_a_branch_that_exists_is_refused_and_left(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.git("branch", "mine")

    with pytest.raises(BranchTakenError, match="mine exists already") as caught:
        await create(git, repo, trees / "s-1", "mine")

    assert "--existing mine" in caught.value.hint
    # Recovery may still undo the intent: the branch is at the very commit, but not made by us.
    await git.undo_create(repo, trees / "s-1", "mine", sample.head)
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


async def test_nonsense_is_refused_before_anything_is_made(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    with pytest.raises(BadNameError):
        await create(git, repo, trees / "s-1", "--force")
    with pytest.raises(RefNotFoundError):
        await git.create_worktree(repo, trees / "s-1", "one", "0" * 39 + "1", new_branch=True)
    with pytest.raises(RefNotFoundError):
        await create(git, repo, trees / "s-1", "missing", new=False)
    assert leftovers(sample, trees) == []


async def test_what_lies_at_the_path_is_neither_used_nor_removed(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.write("precious", at=trees / "s-1")

    with pytest.raises(PathTakenError):
        await create(git, repo, trees / "s-1", "one")
    undone = await git.undo_create(repo, trees / "s-1", "one", sample.head)

    assert undone.kept == (f"{trees / 's-1'}: nothing says that it is a worktree",)
    assert (trees / "s-1" / "precious").exists()
    assert leftovers(sample, trees) == [str(trees / "s-1")]


async def test_a_users_own_worktree_is_never_cleaned_up(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    sample.git("worktree", "add", "-q", "-b", "mine", str(trees / "mine"))

    with pytest.raises(PathTakenError):
        await create(git, repo, trees / "mine", "one")
    undone = await git.undo_create(repo, trees / "mine", "mine", sample.head)

    assert undone.kept == (f"{trees / 'mine'}: it is a worktree that was there before",)
    await git.verify_worktree(trees / "mine", "mine")


async def test_an_empty_first_commit_works(tmp_path: Path, environment: dict[str, str], git: Git, trees: Path) -> None:
    repo = await git.discover(repositories.empty_first_commit(tmp_path / "empty", environment).path)

    await create(git, repo, trees / "s-1", "one")
    await create(git, repo, trees / "s-1", "one")

    await git.verify_worktree(trees / "s-1", "one")


async def test_a_bare_repository_works(tmp_path: Path, environment: dict[str, str], git: Git, trees: Path) -> None:
    bare = repositories.bare_with_worktrees(tmp_path / "proj" / "main", environment)

    for place in (bare.path, bare.path.parent):
        repo = await git.discover(place)
        await create(git, repo, trees / "s-1", "one")
        assert bare.git("status", "--porcelain", at=trees / "s-1") == ""
        assert (await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)).kept == ()


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
    assert (await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)).kept == ()
    assert fingerprint(sample) == before


async def test_a_submodule_that_cannot_be_filled_is_a_warning(
    tmp_path: Path, environment: dict[str, str], git: Git, trees: Path
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    sample.git("update-index", "--cacheinfo", f"160000,{'1' * 40},lib")
    sample.git("commit", "-q", "-m", "a commit that nobody has")

    warnings = await create(git, await git.discover(sample.path), trees / "s-1", "one")

    assert [line.partition(":")[0] for line in warnings] == ["submodule lib is not populated"]
    await git.verify_worktree(trees / "s-1", "one")


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


def half_made(kind: str, sample: Sample, path: Path) -> None:
    """What a kill leaves behind at each step of a creation of ``path`` with the branch `one`."""
    reason = "in use by ramet (rametctl rm removes it)"
    admin = sample.path / ".git" / "worktrees" / path.name
    branch = ("update-ref", "--create-reflog", "-m", f"ramet: made for {path}", "refs/heads/one", "HEAD", "0" * 40)
    add = ("worktree", "add", "-q", "--no-checkout", "--lock", "--reason", reason, str(path), "one")
    match kind:
        case "directory":
            path.mkdir()
        case "entry without anything":
            admin.mkdir(parents=True)
        case "entry that git is initializing":
            admin.mkdir(parents=True)
            (admin / "locked").write_text("initializing")
        case "entry with a path and a directory without .git":
            admin.mkdir(parents=True)
            (admin / "locked").write_text(reason)
            (admin / "gitdir").write_text(f"{path / '.git'}\n")
            path.mkdir()
        case "branch":
            sample.git(*branch)
        case "branch and entry without HEAD":
            sample.git(*branch)
            sample.git(*add)
            (admin / "HEAD").unlink()
        case "entry without a directory":
            sample.git(*branch)
            sample.git(*add)
            shutil.rmtree(path)
        case "no files":
            sample.git(*branch)
            sample.git(*add)
        case "some files":
            sample.git(*branch)
            sample.git(*add)
            sample.write("src/app.py", "print('tw", at=path)
        case "some files and a lock":
            sample.git(*branch)
            sample.git(*add)
            sample.write("src/app.py", "print('tw", at=path)
            (admin / "index.lock").touch()
        case "everything":
            sample.git(*branch)
            sample.git(*add)
            sample.git("reset", "-q", "--hard", at=path)
        case "a removal cut short":
            aside = path.with_name(f".{path.name}.removing-0")
            sample.write("old", at=aside)
            sample.write("HEAD", at=sample.path / ".git" / "ramet" / f"removing-{path.name}-0")
            sample.git(*branch)


KINDS = [
    "directory",
    "entry without anything",
    "entry that git is initializing",
    "entry with a path and a directory without .git",
    "branch",
    "branch and entry without HEAD",
    "entry without a directory",
    "no files",
    "some files",
    "some files and a lock",
    "everything",
    "a removal cut short",
]


@pytest.mark.parametrize("kind", KINDS)
async def test_undoing_a_creation_cut_short_leaves_nothing(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, kind: str
) -> None:
    half_made(kind, sample, trees / "s-1")

    assert (await git.undo_create(repo, trees / "s-1", "one", sample.head)).kept == ()

    assert leftovers(sample, trees) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_creation_cut_short_can_be_done_again(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, kind: str
) -> None:
    half_made(kind, sample, trees / "s-1")

    await create(git, repo, trees / "s-1", "one")

    assert sample.git("status", "--porcelain", at=trees / "s-1") == ""
    assert sorted(leftovers(sample, trees)) == sorted(
        ["refs/heads/one", str(trees / "s-1"), str(sample.path / ".git/worktrees/s-1")]
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_removal_completes_whatever_the_state(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path, kind: str
) -> None:
    half_made(kind, sample, trees / "s-1")

    assert (await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)).kept == ()

    assert leftovers(sample, trees) == []


async def test_repeating_a_finished_creation_keeps_the_work(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    sample.write("new", at=trees / "s-1")
    sample.write("src/app.py", "work\n", at=trees / "s-1")

    await create(git, repo, trees / "s-1", "one")

    assert sample.git("status", "--porcelain", at=trees / "s-1").split("\n") == [" M src/app.py", "?? new"]


async def test_a_git_killed_in_the_middle_is_undone(
    tmp_path: Path, environment: dict[str, str], git: Git, trees: Path
) -> None:
    sample = repositories.plain(tmp_path / "slow", environment)
    started = tmp_path / "started"
    sample.write(".gitattributes", "*.py filter=slow\n")
    sample.commit()
    sample.git("config", "filter.slow.smudge", f"touch {started}; exec sleep 600")
    half_made("no files", sample, trees / "s-1")
    process = await asyncio.create_subprocess_exec(
        *("git", "reset", "--hard"),
        cwd=trees / "s-1",
        env=environment,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    await eventually(started.exists)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()

    await git.undo_create(await git.discover(sample.path), trees / "s-1", "one", sample.head)

    assert leftovers(sample, trees) == []


async def test_a_deleted_directory_frees_the_branch(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.rmtree(trees / "s-1")

    assert (await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)).kept == ()
    assert leftovers(sample, trees) == []


async def test_a_pruned_entry_does_not_keep_the_directory(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")

    assert (await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)).kept == ()
    assert leftovers(sample, trees) == []


async def test_a_deleted_git_file_does_not_keep_the_directory(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    (trees / "s-1" / ".git").unlink()

    assert (await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)).kept == ()
    assert leftovers(sample, trees) == []


async def test_a_worktree_that_was_moved_is_left_where_it_is(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    sample.git("worktree", "unlock", str(trees / "s-1"))
    sample.git("worktree", "move", str(trees / "s-1"), str(trees / "moved"))

    removal = await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)

    assert removal == Removal(None, (f"branch one: it is checked out at {trees / 'moved'}",))
    await git.verify_worktree(trees / "moved", "one")


async def test_a_copy_of_a_worktree_is_not_removed_for_it(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.copytree(trees / "s-1", trees / "s-2")

    removal = await git.remove_worktree(repo, trees / "s-2", "two", delete_branch=True)

    assert removal.kept == (f"{trees / 's-2'}: it is a copy of another worktree",)
    with pytest.raises(WorktreeChangedError, match="copy of the worktree"):
        await git.verify_worktree(trees / "s-2", "one")
    await git.verify_worktree(trees / "s-1", "one")


async def test_another_repository_at_the_path_is_not_removed(
    git: Git, repo: RepositoryInfo, sample: Sample, environment: dict[str, str], trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    shutil.rmtree(trees / "s-1")
    repositories.plain(trees / "s-1", environment)

    removal = await git.remove_worktree(repo, trees / "s-1", "one", delete_branch=True)

    assert removal == Removal(sample.head, (f"{trees / 's-1'}: it is a repository of its own",))
    assert (trees / "s-1" / "README.md").exists()


async def test_a_symbolic_link_at_the_path_is_not_followed(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")
    (trees / "s-2").symlink_to(trees / "s-1")

    removal = await git.remove_worktree(repo, trees / "s-2", "two", delete_branch=True)

    assert removal.kept == (f"{trees / 's-2'}: it is a symbolic link",)
    await git.verify_worktree(trees / "s-1", "one")


async def test_the_users_own_checkout_is_never_removed(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    for path in (sample.path, sample.path.parent):
        with pytest.raises(WorktreeChangedError, match="never removed"):
            await git.remove_worktree(repo, path, "main", delete_branch=True)


async def test_a_git_directory_inside_the_worktree_of_another_is_not_climbed_to(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    inside = sample.path / "untracked-folder"
    inside.mkdir()

    with pytest.raises(WorktreeChangedError, match=r"its \.git file is missing"):
        await git.snapshot(inside, "no")
    inside.rmdir()


async def test_read_only_folders_and_odd_names_are_removed(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    path = trees / "s-1[x]"
    await create(git, repo, path, "one")
    sample.write("cache/deep/file", at=path)
    (path / "cache" / "deep").chmod(0o500)
    (path / "cache").chmod(0o500)

    assert (await git.remove_worktree(repo, path, "one", delete_branch=True)).kept == ()
    assert leftovers(sample, trees) == []


async def test_a_branch_that_moved_on_is_kept(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    await create(git, repo, trees / "s-1", "one")
    tip = sample.commit("work", at=trees / "s-1")

    assert (await git.undo_create(repo, trees / "s-1", "one", sample.head)).kept == (
        f"branch one: it has moved on to {tip[:12]}",
    )
    assert await git.delete_branch(repo, "one", sample.head) == f"branch one: it has moved on to {tip[:12]}"
    assert await git.delete_branch(repo, "main", sample.head) == f"branch main: it is checked out at {sample.path}"
    assert await git.delete_branch(repo, "one", tip) is None
    assert await git.delete_branch(repo, "one", tip) is None


async def test_settings_of_a_deleted_branch_go_with_it(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one.two")
    sample.git("config", "branch.one.two.remote", "origin")
    sample.git("config", "branch.one.remote", "origin")

    await git.remove_worktree(repo, trees / "s-1", "one.two", delete_branch=True)

    assert sample.git("config", "--get-regexp", r"^branch\.") == "branch.one.remote origin"
    sample.git("config", "--remove-section", "branch.one")


async def test_git_itself_does_not_prune_or_remove_our_worktrees(
    git: Git, repo: RepositoryInfo, sample: Sample, trees: Path
) -> None:
    await create(git, repo, trees / "s-1", "one")

    with pytest.raises(AssertionError, match="in use by ramet"):
        sample.git("worktree", "remove", "--force", str(trees / "s-1"))
    (trees / "s-1").rename(trees / "away")
    sample.git("worktree", "prune", "--expire", "now")
    (trees / "away").rename(trees / "s-1")

    await git.verify_worktree(trees / "s-1", "one")


async def test_verifying_says_which_end_is_wrong(git: Git, repo: RepositoryInfo, sample: Sample, trees: Path) -> None:
    path = trees / "s-1"
    await create(git, repo, path, "one")

    sample.git("checkout", "-q", "--detach", at=path)
    with pytest.raises(WorktreeChangedError, match="checked out, not one"):
        await git.verify_worktree(path, "one")
    await git.verify_worktree(path, None)
    (sample.path / ".git" / "worktrees" / "s-1" / "gitdir").unlink()
    with pytest.raises(WorktreeChangedError, match="half registered"):
        await git.verify_worktree(path, None)
    shutil.rmtree(sample.path / ".git" / "worktrees" / "s-1")
    with pytest.raises(WorktreeChangedError, match="registered nowhere"):
        await git.verify_worktree(path, None)
    shutil.rmtree(path)
    with pytest.raises(WorktreeChangedError, match="is gone"):
        await git.verify_worktree(path, None)
