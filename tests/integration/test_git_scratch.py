"""Checkouts by Ramet with a git directory beside the worktree's."""

import pytest
from rametd.git.context import GitContext
from rametd.git.file_trees import private_index
from rametd.git.registrations import verify_worktree
from rametd.git.scratch import change_files

from tests.support.repositories import Sample

pytestmark = pytest.mark.full


async def test_a_filter_finds_what_it_keeps_in_the_git_directory(
    context: GitContext, sample: Sample, tree: Sample
) -> None:
    git_dir = verify_worktree(tree.path, "work")
    (git_dir / "git-crypt/keys").mkdir(parents=True)
    (git_dir / "git-crypt/keys/default").write_text("a-z A-Z")
    sample.git("config", "filter.key.clean", "cat")
    sample.git("config", "filter.key.smudge", 'tr $(cat "$(git rev-parse --git-dir)/git-crypt/keys/default")')
    sample.git("config", "filter.key.required", "true")
    tree.write(".gitattributes", "secret filter=key\n")
    now = tree.commit("attributes")
    tree.write("secret", "hidden\n")
    target = tree.commit("secret")
    tree.git("checkout", "-q", "--detach", now)

    async with private_index(context, git_dir) as index:
        await change_files(context, tree.path, git_dir, index, now, target)

    assert (tree.path / "secret").read_text() == "HIDDEN\n"
