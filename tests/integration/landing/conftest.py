"""Sessions for tests of landing, and the repository of a person with work of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemon import Client, Sandbox, git
from tests.support.landing import Landings

Untouched = Callable[[Path], None]


@pytest.fixture
def landings(client: Client) -> Landings:
    return Landings(client)


@pytest.fixture
def repository(sandbox: Sandbox, untouched: Untouched) -> Path:
    """Create a repository whose owner has changes of every kind on another branch, which no test
    may change."""
    path = sandbox.repository()
    (path / ".gitignore").write_text("*.secret\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "second")
    git(path, "checkout", "-qb", "mine")
    (path / "stashed.txt").write_text("for later\n")
    git(path, "stash", "push", "-qu")
    (path / "dir0" / "file0.txt").write_text("changed\n")
    (path / "staged.txt").write_text("staged\n")
    git(path, "add", "staged.txt")
    (path / "untracked.txt").write_text("untracked\n")
    (path / "key.secret").write_text("ignored\n")
    untouched(path)
    return path
