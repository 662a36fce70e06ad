"""The comparison at the end of every test that works in a person's repository notices every change
of a checkout."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemon import Sandbox, git
from tests.support.untouched import differences, fingerprint, is_checkout

FILE = "dir0/file0.txt"


def refresh_index(path: Path) -> None:
    """Refresh the index, as a `git status` that may write."""
    os.utime(path / FILE, ns=(1, 1))
    git(path, "update-index", "--refresh")


def stash(path: Path) -> None:
    (path / FILE).write_text("for later\n")
    git(path, "stash", "push", "-q")


DONE: dict[str, tuple[Callable[[Path], object], str]] = {
    "an ignored file is gone": (lambda path: (path / "key.secret").unlink(), "key.secret"),
    "an untracked file is there": (lambda path: (path / "new.txt").touch(), "new.txt"),
    "a mode is another": (lambda path: (path / FILE).chmod(0o755), FILE),
    "the index was refreshed": (refresh_index, "index"),
    "something is staged": (lambda path: git(path, "rm", "-q", "--cached", FILE), "what the index says"),
    "something is stashed": (stash, "stash"),
    "another commit is checked out": (lambda path: git(path, "commit", "-q", "--allow-empty", "-m", "x"), "HEAD at"),
    "another branch is checked out": (lambda path: git(path, "checkout", "-q", "-b", "other"), ".git/HEAD"),
    "a setting is another": (lambda path: git(path, "config", "x.y", "z"), ".git/config"),
}


@pytest.fixture
def checkout(repository: Path) -> Path:
    (repository / ".git" / "info" / "exclude").write_text("*.secret\n")
    (repository / "key.secret").write_text("ignored\n")
    return repository


@pytest.mark.parametrize("case", DONE, ids=list(DONE))
def test_whatever_is_done_to_a_checkout_is_noticed(checkout: Path, case: str) -> None:
    do, name = DONE[case]
    before = fingerprint(checkout)

    do(checkout)

    assert name in differences(before, fingerprint(checkout))
    assert name not in differences(before, fingerprint(checkout), name)


def test_looking_at_a_checkout_and_working_beside_it_changes_nothing(checkout: Path, sandbox: Sandbox) -> None:
    before = fingerprint(checkout)
    os.utime(checkout / FILE, ns=(1, 1))
    before |= {FILE: fingerprint(checkout)[FILE]}

    git(checkout, "status")
    git(checkout, "worktree", "add", "-q", "-b", "beside", str(sandbox.root / "beside"))
    (sandbox.root / "beside" / FILE).write_text("work\n")
    git(sandbox.root / "beside", "commit", "-qam", "work")

    assert differences(before, fingerprint(checkout)) == {}
    assert [is_checkout(each) for each in (checkout, sandbox.root / "beside", "text")] == [True, False, False]
