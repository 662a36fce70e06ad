"""Files in which an agent may put more than memory has, where the daemon expects a few bytes."""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rametd.config import Config
from rametd.domain.errors import GitFailedError
from rametd.git.foreign import has_no_links
from rametd.git.process import GitProcess
from rametd.git.registrations import borrowed, fault_of, line_of
from rametd.platform.files import read_regular
from rametd.services.commands.scripts import digest_of

from tests.support import repositories

SIZE = 1 << 30
MOST = 64 << 20
"""Bytes of memory that reading one such file may take."""


def sparse(file: Path) -> Path:
    """Create a large file that takes no space on the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as made:
        made.truncate(SIZE)
    return file


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("HEAD", lambda top: line_of(top / "HEAD")),
        (".git", lambda top: fault_of(top, "main")),
        ("index", lambda top: has_no_links(top / "index")),
        (".git/config", lambda top: borrowed(top / ".git", top)),
        ("package-lock.json", lambda top: digest_of(top, replace(Config(), setup=("true",)))),
    ],
)
def test_a_large_file_takes_little_memory(tmp_path: Path, name: str, read: Callable[[Path], object]) -> None:
    sparse(tmp_path / name)
    read(tmp_path)


def test_what_is_no_file_is_not_read_and_leaves_nothing_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    before = psutil.Process().num_fds()
    for name in ("pipe", "directory", "/dev/zero"):
        assert read_regular(tmp_path / name, 100) is None
        assert line_of(tmp_path / name) is None
        assert not has_no_links(tmp_path / name)
    assert psutil.Process().num_fds() == before


async def test_git_does_not_run_with_a_configuration_that_cannot_be_checked(tmp_path: Path) -> None:
    sample = repositories.plain(tmp_path / "repo", repositories.git_environment(tmp_path / "home"))
    git = GitProcess(sample.environment, trusted={(sample.path / ".git").resolve(): frozenset()})
    nested = sample.path / "nested"
    await git.write(sample.path, "init", "-q", str(nested))
    sparse(nested / ".git" / "config")
    with pytest.raises(GitFailedError, match=r"config has more than"):
        await git.read(nested, "status")
