"""Refs of ours: reading, deleting and listing them, and how much of what they keep nothing else has."""

from pathlib import Path

import pygit2

from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, last_of, open_repository
from rametd.git.snapshot import write_commit


def read_ref(repo: RepositoryInfo, ref: str) -> str | None:
    """The object that a ref keeps; None when there is no such ref. Blocks."""
    reference = open_repository(repo.common_dir).references.get(ref)
    return str(reference.target) if reference is not None else None


async def refs_below(git: GitContext, repo: RepositoryInfo, folders: tuple[str, ...]) -> dict[str, str]:
    """The refs below some folders of ``refs/``, with what they keep: cheaper than an inventory where there are many others."""
    output = await git.process.read(repo.common_dir, "for-each-ref", "--format=%(objectname) %(refname)", *folders)
    lines = (line.partition(" ") for line in output.decode(errors="surrogateescape").splitlines())
    return {ref: commit for commit, _, ref in lines}


async def drop(git: GitContext, repo: RepositoryInfo, ref: str, name: str | None = None) -> None:
    """Delete a ref of ours, where ``name`` is given only while it keeps that; none is fine without."""
    await git.process.write(repo.common_dir, "update-ref", "-d", ref, *([name] if name else []))


async def drop_all(git: GitContext, repo: RepositoryInfo, *folders: str) -> None:
    """Delete all refs below some folders, in one transaction."""
    output = await git.process.read(repo.common_dir, "for-each-ref", "--format=delete %(refname)%00", *folders)
    commands = output.replace(b"\0\n", b"\0\0")  # `update-ref -z`: each delete has an old value, here any
    if commands:
        await git.process.write(repo.common_dir, "update-ref", "--stdin", "-z", stdin=commands)


async def size_of(git: GitContext, repo: RepositoryInfo, name: str, branch: str = "") -> int:
    """Bytes on disk that nothing but an object of ours and a branch has; 0 where some of it is lost, so that git cannot say."""
    known = ("--not", f"--exclude={branch}", "--branches", "--remotes", "--tags", "--")
    done = await git.process.run(repo.common_dir, "rev-list", "--disk-usage", "--objects", name, *known)
    return int(done.stdout) if done.returncode == 0 else 0


def last_target(common_dir: Path, ref: str) -> str:
    """What a ref kept last, by its reflog, which git writes where it was told to for every ref; "" where there is none. Blocks."""
    return last_of(common_dir / "logs" / ref) or ""


async def set_ref(git: GitContext, repo: RepositoryInfo, ref: str, commit: str) -> None:
    """Make a ref, or have it keep another commit."""
    await git.process.write(repo.common_dir, "update-ref", ref, commit)


async def move(git: GitContext, repo: RepositoryInfo, old: str, new: str) -> str | None:
    """Have ``new`` keep what ``old`` keeps beside what it keeps already, and delete ``old``. The commit; None when neither is there."""
    commit, there = await git.compute(read_ref, repo, old), await git.compute(read_ref, repo, new)
    if commit is None:
        return there
    made = commit if there is None else await git.compute(_beside, repo, commit, there)
    await set_ref(git, repo, new, made)
    await git.make_durable(repo.common_dir)
    await drop(git, repo, old)
    return made


def _beside(repo: RepositoryInfo, commit: str, there: str) -> str:
    """A commit that keeps what ``commit`` keeps, and ``there``; ``there`` itself where an interrupted run has made it that."""
    repository = open_repository(repo.common_dir)
    kept = repository[commit].peel(pygit2.Commit)
    tree, parents = str(kept.tree.id), [str(oid) for oid in kept.parent_ids]
    if keeps(repository, there, tree, kept.message, parents):
        return there
    return write_commit(repository, tree, kept.message, [*parents, there])


def keeps(repository: pygit2.Repository, kept: str, tree: str, message: str, parents: list[str]) -> bool:
    """Whether a commit says the same and has at least these parents, itself among them or not."""
    commit = repository[kept].peel(pygit2.Commit)
    same = (str(commit.tree.id), commit.message) == (tree, message)
    return same and set(parents) <= {kept, *(str(oid) for oid in commit.parent_ids)}
