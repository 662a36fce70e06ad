"""Create and inspect worktrees in tests."""

import shutil
import tempfile
from pathlib import Path

from rametd.git import Git, RepositoryInfo

from tests.support.repositories import Sample


def leftovers(sample: Sample, trees: Path) -> list[str]:
    """Return what a creation may leave: directories, entries, branches other than main,
    half-deleted directories."""
    common = sample.path / ".git"
    found = [str(path) for path in trees.iterdir()]
    found += [str(path) for path in (common / "worktrees").iterdir()] if (common / "worktrees").exists() else []
    found += [str(path) for path in (common / "ramet").glob("*") if path.name != "lock"]
    found += [
        name
        for name in sample.git("for-each-ref", "--format=%(refname)", "refs/heads").split()
        if name != "refs/heads/main"
    ]
    found += [str(path) for path in common.rglob("*.lock")]
    return found


def directories(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def create(git: Git, repo: RepositoryInfo, path: Path, branch: str, *, new: bool = True) -> tuple[str, ...]:
    return await git.worktrees.create(repo, path, branch, str(repo.head.commit), new_branch=new)


def tree_by_git(sample: Sample) -> str:
    """Return the tree of `git add -A && git write-tree` in a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Sample(Path(folder) / "copy", sample.environment)
        shutil.copytree(sample.path, copy.path, symlinks=True)
        copy.git("add", "-A", "--sparse")
        return copy.git("write-tree")


def mixed_changes(sample: Sample) -> None:
    """Make one change of every kind."""
    sample.write("src/app.py", "staged\n")
    sample.git("add", "src/app.py")
    sample.write("src/app.py", "unstaged\n")
    (sample.path / "README.md").unlink()
    sample.write("new/deep/file", b"\x00\x01")
    sample.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    sample.write('odd \n"name" ü', "odd\n")
    sample.write("debug.log", "ignored\n")
    sample.write(".env", "SECRET=1\n")
    (sample.path / "link").symlink_to("/nowhere/at all")
    (sample.path / "empty").mkdir(exist_ok=True)


def tree_by_git_of_worktree(tree: Sample) -> str:
    """`tree_by_git` for a linked worktree, whose copy would share its index."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        shutil.copy2(tree.git("rev-parse", "--path-format=absolute", "--git-path", "index"), index)
        there = Sample(tree.path, {**tree.environment, "GIT_INDEX_FILE": str(index)})
        there.git("add", "-A")
        return there.git("write-tree")
