"""One daemon for the tests of a module that do not change it; and a repository with a `Git`, for
tests of the git layer."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from rametd.git import Git, RepositoryInfo
from rametd.git.context import GitContext

from tests.support import repositories
from tests.support.daemon import Client, DaemonProcess, connected, daemon_process, make_sandbox
from tests.support.repositories import Sample


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    """Yield a daemon for tests that do not change it; its sandbox has a repository ``repo``."""
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.fixture
async def shared(running: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(running.sandbox) as client:
        yield client


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
