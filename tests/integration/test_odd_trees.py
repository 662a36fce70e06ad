"""Broken and replaced worktrees: each is shown as such, and verbs that would work on another
repository are refused."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, Sandbox, git
from tests.support.shared import client, daemon, repository, sandbox

__all__ = ["client", "daemon", "repository", "sandbox"]


def moved_aside(tree: Path) -> Path:
    return tree.rename(tree.with_name("elsewhere"))


def lend(tree: Path) -> None:
    """Make the tree's git work in the person's own checkout, as after a tool that recreates a
    directory without `git worktree add`."""
    common = git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir")
    (tree / ".git").unlink()
    (tree / ".git").symlink_to(common)


FAULTS: dict[str, tuple[Callable[[Path], object], str, bool]] = {
    "no .git": (lambda tree: (tree / ".git").unlink(), "its .git is missing", True),
    "a link": (lambda tree: tree.symlink_to(moved_aside(tree)), "a symbolic link is in its place", True),
    "a .git of another tree": (lend, "its .git leads to the repository of ", True),
    "no entry": (
        lambda tree: shutil.rmtree(git(tree, "rev-parse", "--absolute-git-dir")),
        "git's entry of it is gone",
        True,
    ),
    "detached": (lambda tree: git(tree, "checkout", "-q", "--detach"), "HEAD is detached in it, not on ramet/", False),
    "another branch": (
        lambda tree: git(tree, "checkout", "-qb", "other"),
        "other is checked out in it, not ramet/",
        False,
    ),
}
"""A change of a tree, its description, and whether nothing may run in it (an agent may switch
branches)."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_a_worktree_is_shown_and_what_would_go_wrong_is_refused(
    client: Client, sandbox: Sandbox, repository: Path, fault: str
) -> None:
    name = repository.name
    session = await client.create(repository, script({"text": "hi"}), name=name)
    await client.reach(name, IDLE)
    tree = Path(session.worktree)
    (tree / "late.txt").write_text("late\n")
    happens, words, broken = FAULTS[fault]
    happens(tree)
    if not broken:
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", "late")

    assert words in (await client.get(name)).worktree_fault
    for verb in (("ls",), ("show", name)):
        assert words in sandbox.ctl(*verb, "--json", cwd=repository).stdout
        assert words[:20] in sandbox.ctl(*verb, cwd=repository, COLUMNS="200").stdout
    for given in (("send", name, "hello"), ("run", name, "--", "true")):
        assert (sandbox.ctl(*given, cwd=repository).code == 0) != broken, given
    if broken:  # also without a living agent, whose start would fail
        assert sandbox.ctl("stop", name, cwd=repository).code == 0
        for start in (("send", name, "hello"), ("resume", name)):
            said = sandbox.ctl(*start, cwd=repository)
            assert (said.code, "rametctl doctor" in said.stderr) == (1, True), said
    await client.reach(name, IDLE)
    landed = sandbox.ctl("land", name, "--target", "main", cwd=repository)
    assert landed.code == 1, "neither a broken tree nor commits that are not on the branch"
    if not broken:
        command = re.search(r"`git -C \S+ switch -C [^`]+`", landed.stderr)
        assert command is not None, landed.stderr
        git(tree, *shlex.split(command[0].strip("`"))[3:])
        assert sandbox.ctl("land", name, "--target", "main", cwd=repository).code == 0
        assert git(repository, "show", "main:late.txt") == "late"
