"""A repository whose user has unfinished work, which no test of worktrees may change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import repositories
from tests.support.repositories import Sample, fingerprint


@pytest.fixture
def sample(tmp_path: Path, environment: dict[str, str]) -> Sample:
    """Create a repository whose user has unfinished work."""
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
def trees(tmp_path: Path) -> Path:
    (tmp_path / "trees").mkdir()
    return tmp_path / "trees"


@pytest.fixture(autouse=True)
def untouched(sample: Sample) -> Iterator[None]:
    """Check after each test that the user's checkout, index, stash, settings and other refs are
    unchanged."""
    before = fingerprint(sample)
    before.pop("refs")
    yield
    after = fingerprint(sample)
    after.pop("refs")
    assert after == before
