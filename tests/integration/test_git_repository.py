"""Discovery of repositories and resolution of starting points."""

from pathlib import Path

import pytest
from rametd.domain.errors import (
    AmbiguousError,
    RefNotFoundError,
    RepoNotFoundError,
    UnbornBranchError,
    UnsupportedRepositoryError,
)
from rametd.git import Base, Branch, Git, Head

from tests.support import repositories


async def test_a_repository_is_found_from_every_place_in_it(
    tmp_path: Path, environment: dict[str, str], git: Git
) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    linked = tmp_path / "linked"
    sample.git("worktree", "add", "-q", "-b", "topic", str(linked))

    here = await git.discover(sample.path)
    assert (here.common_dir, here.root, here.worktree_root) == (sample.path / ".git", sample.path, sample.path)
    assert (here.name, here.is_bare, here.is_worktree, here.head) == ("proj", False, False, Head("main", sample.head))
    assert await git.discover(sample.path / "src") == here
    assert await git.discover(sample.path / "src" / "app.py") == here
    there = await git.discover(linked / "src")
    assert (there.common_dir, there.root, there.worktree_root) == (here.common_dir, sample.path, linked)
    assert (there.name, there.is_worktree, there.head) == ("proj", True, Head("topic", sample.head))
    assert (await git.discover(sample.path / ".git")).worktree_root is None


async def test_a_path_through_a_symbolic_link_is_the_same_repository(
    tmp_path: Path, environment: dict[str, str], git: Git
) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    (tmp_path / "link").symlink_to(sample.path)

    assert await git.discover(tmp_path / "link") == await git.discover(sample.path)


async def test_a_bare_repository_with_linked_worktrees(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.bare_with_worktrees(tmp_path / "proj" / "main", environment)

    for place, worktree in (
        (sample.path, sample.path),
        (sample.path.parent, None),
        (tmp_path / "proj" / ".bare", None),
    ):
        info = await git.discover(place)
        assert (info.common_dir, info.root) == (tmp_path / "proj" / ".bare", tmp_path / "proj" / ".bare")
        assert (info.worktree_root, info.is_bare, info.name) == (worktree, True, "proj")


async def test_a_git_directory_outside_the_worktree(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment, "--separate-git-dir", str(tmp_path / "elsewhere"))
    linked = tmp_path / "linked"
    sample.git("worktree", "add", "-q", str(linked))

    info = await git.discover(sample.path)
    assert (info.common_dir, info.worktree_root, info.is_worktree) == (tmp_path / "elsewhere", sample.path, False)
    assert (await git.discover(linked)).root == tmp_path / "elsewhere"


async def test_a_submodule_is_a_separate_repository(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.with_submodule(tmp_path / "proj", environment)

    info = await git.discover(sample.path / "lib" / "src")
    assert (info.common_dir, info.root) == (sample.path / ".git" / "modules" / "lib", sample.path / "lib")
    assert info.name == "lib"


async def test_no_repository_is_an_error_with_a_hint(tmp_path: Path, git: Git) -> None:
    with pytest.raises(RepoNotFoundError, match="no git repository around") as caught:
        await git.discover(tmp_path)
    assert "--repo" in caught.value.hint
    with pytest.raises(RepoNotFoundError, match="cannot be read"):
        await git.discover(tmp_path / "missing")


async def test_a_git_file_that_points_nowhere_is_named(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    sample.write("inner/.git", "gitdir: /nowhere/at/all\n")

    with pytest.raises(RepoNotFoundError, match=r"inner/\.git points to a repository that is not there"):
        await git.discover(sample.path / "inner")


async def test_a_sha256_repository_is_refused_in_one_line(
    tmp_path: Path, environment: dict[str, str], git: Git
) -> None:
    sample = repositories.plain(tmp_path / "proj", environment, "--object-format=sha256")

    with pytest.raises(UnsupportedRepositoryError, match="unknown object format 'sha256'"):
        await git.discover(sample.path)


async def test_a_partial_clone_works(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    sample.git("config", "core.repositoryFormatVersion", "1")
    sample.git("config", "extensions.partialClone", "origin")

    assert (await git.discover(sample.path)).head.commit == sample.head


async def test_the_base_is_what_the_caller_has_checked_out(
    tmp_path: Path, environment: dict[str, str], git: Git
) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    first = sample.git("rev-parse", "HEAD~1")
    sample.git("worktree", "add", "-q", "-b", "topic", str(tmp_path / "topic"), first)
    sample.git("worktree", "add", "-q", "--detach", str(tmp_path / "detached"), first)
    repo = await git.discover(sample.path)

    assert await git.branches.resolve_base(repo, None, sample.path / "src") == Base("main", sample.head)
    assert await git.branches.resolve_base(repo, None, tmp_path / "topic") == Base("topic", first)
    assert await git.branches.resolve_base(repo, None, tmp_path / "detached") == Base(first, first)
    assert await git.branches.resolve_base(repo, None, tmp_path) == Base("main", sample.head)
    assert await git.branches.resolve_base(repo, "HEAD", tmp_path / "topic") == Base("HEAD", first)


async def test_a_caller_in_another_repository_gets_the_named_ones_head(
    tmp_path: Path, environment: dict[str, str], git: Git
) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    other = repositories.detached(tmp_path / "other", environment)

    assert await git.branches.resolve_base(await git.discover(sample.path), None, other.path) == Base(
        "main", sample.head
    )


async def test_a_repository_without_a_commit_is_refused(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    repo = await git.discover(repositories.unborn(tmp_path / "proj", environment).path)

    assert repo.head == Head("main", None)
    with pytest.raises(UnbornBranchError, match="no commit on main") as caught:
        await git.branches.resolve_base(repo)
    assert "--initial-commit" in caught.value.hint


async def test_every_kind_of_ref_is_a_base(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.with_remote(tmp_path / "proj", environment)
    first = sample.git("rev-parse", "HEAD~1")
    repo = await git.discover(sample.path)

    for ref, name, commit in (
        ("main", "main", sample.head),
        ("refs/heads/main", "main", sample.head),
        ("origin/topic", "origin/topic", first),
        ("v1", "v1", first),
        (first[:9], first[:9], first),
        ("main~1", "main~1", first),
        ("@", "@", sample.head),
    ):
        assert await git.branches.resolve_base(repo, ref) == Base(name, commit)


async def test_a_branch_wins_over_a_tag_of_the_same_name(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    sample.git("tag", "main", "HEAD~1")

    assert await git.branches.resolve_base(await git.discover(sample.path), "main") == Base("main", sample.head)


@pytest.mark.parametrize(
    ("ref", "near"),
    [("mian", "main"), ("topci", "origin/topic"), ("v2", "v1"), ("--help", ""), ("", ""), ("\udcff", "")],
)
async def test_an_unknown_ref_suggests_near_ones(
    tmp_path: Path, environment: dict[str, str], git: Git, ref: str, near: str
) -> None:
    repo = await git.discover(repositories.with_remote(tmp_path / "proj", environment).path)

    with pytest.raises(RefNotFoundError) as caught:
        await git.branches.resolve_base(repo, ref)
    assert near in caught.value.data["near"].split(" ")


async def test_a_tree_is_not_a_base(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)

    with pytest.raises(RefNotFoundError):
        await git.branches.resolve_base(await git.discover(sample.path), "main:src")


async def test_a_hash_too_short_is_ambiguous(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)

    with pytest.raises((AmbiguousError, RefNotFoundError)):
        await git.branches.resolve_base(await git.discover(sample.path), sample.head[:2])


async def test_branches_say_where_they_are_checked_out(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    sample.git("branch", "free")
    sample.git("worktree", "add", "-q", "-b", "feature/x", str(tmp_path / "x"))

    assert await git.branches.list(await git.discover(sample.path)) == (
        Branch("feature/x", sample.head, tmp_path / "x"),
        Branch("free", sample.head, None),
        Branch("main", sample.head, sample.path),
    )


async def test_ahead_and_behind(tmp_path: Path, environment: dict[str, str], git: Git) -> None:
    sample = repositories.plain(tmp_path / "proj", environment)
    sample.git("branch", "topic", "HEAD~1")
    sample.git("worktree", "add", "-q", str(tmp_path / "t"), "topic")
    sample.commit("a", at=tmp_path / "t")
    sample.commit("b", at=tmp_path / "t")
    repo = await git.discover(sample.path)

    assert await git.branches.ahead_behind(repo, "topic", "main") == (2, 1)
    with pytest.raises(RefNotFoundError):
        await git.branches.ahead_behind(repo, "topic", "gone")
