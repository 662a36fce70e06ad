"""The person's hooks: git runs those of a trusted repository for pushes, and for commits in the
person's name."""

import os
from pathlib import Path

import pytest
from rametd.domain.errors import GitFailedError, PushRefusedError
from rametd.git import Git, RepositoryInfo
from rametd.git.landing import CommittedAll
from rametd.git.remotes import Pushed

from tests.support.repositories import Sample

pytestmark = pytest.mark.full

REFUSE = "echo 'SECRET in app.py'; exit 1"


@pytest.fixture
def remote(sample: Sample, tmp_path: Path) -> Path:
    """Create a bare repository as `origin`."""
    bare = tmp_path / "origin.git"
    sample.git("init", "-q", "--bare", str(bare))
    sample.git("remote", "add", "origin", str(bare))
    return bare


def hook(folder: Path, name: str, script: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


async def push(git: Git, repo: RepositoryInfo, tree: Sample, *, trusted: bool) -> Pushed:
    return await git.remotes.push(
        *(repo, "origin", "work", tree.head),
        ours=frozenset(),
        environment=tree.environment,
        base="HEAD",
        worktree=tree.path,
        trusted=trusted,
    )


def on_remote(sample: Sample, remote: Path) -> str:
    return sample.git("for-each-ref", "--format=%(objectname)", "refs/heads/work", at=remote)


@pytest.mark.parametrize("stream", ["", " >&2"])
async def test_a_push_that_the_hook_of_a_trusted_repository_refuses_does_not_leave(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, remote: Path, stream: str
) -> None:
    hook(repo.common_dir / "hooks", "pre-push", f"echo 'SECRET in app.py'{stream}; exit 1")

    with pytest.raises(PushRefusedError, match=r"the pre-push hook refused work: SECRET in app\.py"):
        await push(git, repo, tree, trusted=True)

    assert on_remote(sample, remote) == ""


async def test_a_hook_runs_in_the_worktree_with_gits_arguments(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, remote: Path
) -> None:
    hook(repo.common_dir / "hooks", "pre-push", 'echo "$1 $(pwd) $(git rev-parse HEAD)"; cat')
    tip = tree.commit("work")

    pushed = await push(git, repo, tree, trusted=True)

    assert on_remote(sample, remote) == tip
    assert pushed.warnings == (f"pre-push: origin {tree.path} {tip}; {tip} {tip} refs/heads/work {'0' * 40}",)


async def test_the_hook_of_a_repository_that_is_not_trusted_is_named_and_does_not_run(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, remote: Path
) -> None:
    hook(repo.common_dir / "hooks", "pre-push", REFUSE)

    pushed = await push(git, repo, tree, trusted=False)

    assert (pushed.skipped, pushed.warnings) == (("pre-push",), ())
    assert on_remote(sample, remote) == tree.head


async def test_hooks_in_the_tree_are_those_of_the_persons_checkout(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, remote: Path
) -> None:
    sample.git("config", "core.hooksPath", ".husky")
    hook(sample.path / ".husky", "pre-push", REFUSE)
    hook(tree.path / ".husky", "pre-push", "exit 0")

    with pytest.raises(PushRefusedError, match="SECRET"):
        await push(git, repo, tree, trusted=True)


async def test_a_refusal_of_the_server_is_not_the_hooks(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, remote: Path
) -> None:
    hook(repo.common_dir / "hooks", "pre-push", "echo fine")
    hook(remote / "hooks", "pre-receive", "echo 'no such ticket'; exit 1")

    with pytest.raises(PushRefusedError, match=r"origin refused work: .*no such ticket"):
        await push(git, repo, tree, trusted=True)


async def test_a_branch_whose_contents_in_lfs_cannot_be_pushed_stays(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, remote: Path, tmp_path: Path
) -> None:
    (repo.common_dir / "lfs").mkdir()
    hook(tmp_path / "bin", "git-lfs", "echo 'Unable to find source for object 4d7a' >&2; exit 2")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"

    with pytest.raises(PushRefusedError, match="Unable to find source for object 4d7a"):
        await push(git, repo, Sample(tree.path, {**tree.environment, "PATH": path}), trusted=False)

    assert on_remote(sample, remote) == ""


async def commit_all(git: Git, repo: RepositoryInfo, tree: Sample, *, trusted: bool = True) -> CommittedAll:
    tree.write("new", "new\n")
    return await git.landing.commit_all(
        repo, tree.path, "work", "message", trusted=trusted, environment=tree.environment
    )


@pytest.mark.parametrize("name", ["pre-commit", "prepare-commit-msg", "commit-msg"])
async def test_a_commit_that_a_hook_refuses_is_not_made(
    git: Git, repo: RepositoryInfo, tree: Sample, name: str
) -> None:
    before = tree.head
    hook(repo.common_dir / "hooks", name, REFUSE)

    with pytest.raises(GitFailedError, match=rf"refused, by a hook \({name}\): SECRET in app\.py"):
        await commit_all(git, repo, tree)

    assert tree.head == before
    made = await commit_all(git, repo, tree, trusted=False)
    assert (made.commit, made.skipped) == (tree.head, (name,))


async def test_hooks_see_and_change_what_is_committed(git: Git, repo: RepositoryInfo, tree: Sample) -> None:
    hook(repo.common_dir / "hooks", "pre-commit", "echo linted; echo linted > new; git add new")
    hook(repo.common_dir / "hooks", "commit-msg", 'echo "Change-Id: I1" >> "$1"')

    made = await commit_all(git, repo, tree)

    assert made.warnings == ("commit hooks: linted",)
    assert tree.git("show", f"{made.commit}:new") == "linted"
    assert tree.git("log", "-1", "--format=%B", made.commit) == "message\nChange-Id: I1"
    assert tree.git("status", "--porcelain") == ""
