"""Fixtures for tests of the git layer: a repository, a `Git` for it, and a worktree of Ramet. Modules import them by name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rametd.git import Git, RepositoryInfo
from rametd.git.context import GitContext

from tests.support import repositories
from tests.support.repositories import Sample


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of git: a private home, without the machine's configuration."""
    return repositories.git_environment(tmp_path / "home")


@pytest.fixture
def sample(tmp_path: Path, environment: dict[str, str]) -> Sample:
    return repositories.plain(tmp_path / "repo", environment)


@pytest.fixture
async def context(environment: dict[str, str]) -> AsyncIterator[GitContext]:
    context = GitContext(2, environment, 5.0)
    yield context
    await context.aclose()


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
    """A worktree of Ramet on the branch `work`."""
    (tmp_path / "trees").mkdir()
    await git.worktrees.create(repo, tmp_path / "trees" / "s-1", "work", sample.head, new_branch=True)
    return Sample(tmp_path / "trees" / "s-1", sample.environment)
