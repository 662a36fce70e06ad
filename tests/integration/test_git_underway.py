"""Unfinished git commands in a worktree: Ramet names them, and commits nothing into them."""

import pytest
from rametd.domain.errors import WrongStateError
from rametd.git import Git, RepositoryInfo

from tests.support.repositories import Sample


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (("merge", "other"), "a merge"),
        (("rebase", "other"), "a rebase"),
        (("rebase", "-x", "git commit -q --amend -m again; false", "HEAD~1"), "a rebase"),
        (("cherry-pick", "other"), "a cherry-pick"),
        (("revert", "--no-edit", "HEAD~1"), "a revert"),
        (("bisect", "start"), "a bisect"),
        # Entries of a conflict without a command under way, as after `git stash pop`.
        (("read-tree", "-m", "HEAD~1", "HEAD", "other"), ""),
    ],
)
async def test_nothing_is_committed_while_a_git_command_is_under_way(
    git: Git, repo: RepositoryInfo, tree: Sample, begin: tuple[str, ...], name: str
) -> None:
    tree.git("checkout", "-q", "-b", "other")
    tree.write("both.txt", "theirs\n")
    tree.commit()
    tree.git("checkout", "-q", "work")
    for text in ("ours\n", "ours again\n"):
        tree.write("both.txt", text)
        tree.commit()
    tip = tree.head
    tree.run(*begin)  # it stops at a conflict
    tree.write("loose.txt")

    assert await git.landing.under_way(tree.path) == name
    with pytest.raises(WrongStateError, match=f"{name} is under way" if name else "conflicts are not resolved"):
        await git.landing.commit_all(repo, tree.path, "work", "all", trusted=False, environment=tree.environment)
    assert tree.git("rev-parse", "work") == tip
