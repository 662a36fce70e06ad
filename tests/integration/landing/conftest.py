"""What lands in the tests of landing, and the repository of somebody who is in the middle of something."""

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
    """Its owner works on a branch of their own, with changes of every kind; none of it is ever anybody else's business."""
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
