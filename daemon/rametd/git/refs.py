"""Ramet's refs: read, list and delete them, and measure the space that only they use."""

from rametd.git.context import GitContext
from rametd.git.repository import RepositoryInfo, last_of


async def refs_below(git: GitContext, repo: RepositoryInfo, *folders: str) -> dict[str, str]:
    """Return the refs below folders of ``refs/`` with their objects. Faster than an inventory if
    there are many other refs."""
    output = await git.process.read(repo.common_dir, "for-each-ref", "--format=%(objectname) %(refname)", *folders)
    lines = (line.partition(" ") for line in output.decode(errors="surrogateescape").splitlines())
    return {ref: commit for commit, _, ref in lines}


async def drop(git: GitContext, repo: RepositoryInfo, ref: str, name: str | None = None) -> None:
    """Delete one of Ramet's refs. With ``name``, only while it points to that object; without, a
    missing ref is no error."""
    await git.process.write(repo.common_dir, "update-ref", "-d", ref, *([name] if name else []))


async def drop_all(git: GitContext, repo: RepositoryInfo, *folders: str) -> None:
    """Delete all refs below some folders, in one transaction."""
    output = await git.process.read(repo.common_dir, "for-each-ref", "--format=delete %(refname)%00", *folders)
    commands = output.replace(b"\0\n", b"\0\0")  # `update-ref -z`: each delete has an old value, here any
    if commands:
        await git.process.write(repo.common_dir, "update-ref", "--stdin", "-z", stdin=commands)


async def size_of(git: GitContext, repo: RepositoryInfo, name: str, branch: str = "") -> int:
    """Return the bytes on disk that only an object and a branch use; 0 if git cannot tell, because
    a part is lost."""
    known = ("--not", f"--exclude={branch}", "--branches", "--remotes", "--tags", "--")
    done = await git.process.run(repo.common_dir, "rev-list", "--disk-usage", "--objects", name, *known)
    return int(done.stdout) if done.returncode == 0 else 0


def last_target(repo: RepositoryInfo, ref: str) -> str:
    """Return the last object of a ref from its reflog, which git writes only if it is configured to
    for every ref; "" without a reflog. Blocks."""
    return last_of(repo.common_dir / "logs" / ref) or ""


class Refs:
    """Ramet's refs, below ``refs/ramet/``. Every method may raise the errors of `Git`."""

    def __init__(self, git: GitContext) -> None:
        self._git = git
        self.below = git.bind(refs_below)
        self.last_target = git.threaded(last_target)

    async def drop(self, repo: RepositoryInfo, ref: str, commit: str | None = None) -> None:
        """Delete a ref below ``refs/ramet/``, if it exists. With ``commit``, raise GitFailedError
        if it points to another object."""
        assert ref.startswith("refs/ramet/"), ref
        await self._git.make_durable(repo.common_dir)  # another ref may protect its object
        await drop(self._git, repo, ref, commit)

    async def drop_all(self, repo: RepositoryInfo, *folders: str) -> None:
        """Delete all refs below folders of ``refs/ramet/``, in one step."""
        assert all(folder.startswith("refs/ramet/") for folder in folders), folders
        await drop_all(self._git, repo, *folders)
