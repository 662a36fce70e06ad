"""A repository with a worktree of ours, for the tests of what git keeps of it."""

from tests.support.git_fixtures import environment, git, repo, sample, tree

__all__ = ["environment", "git", "repo", "sample", "tree"]
