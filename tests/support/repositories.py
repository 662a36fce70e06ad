"""Real repositories for tests: each builder creates one below a directory of the test."""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel

CONFIG = """[user]
    name = Ada
    email = ada@example.org
[init]
    defaultBranch = main
"""


def git_environment(home: Path) -> dict[str, str]:
    """Return an environment in which git sees only the configuration in ``home``; point libgit2
    there too."""
    home.mkdir(parents=True, exist_ok=True)
    config = home / ".gitconfig"
    if not config.exists():
        config.write_text(CONFIG)
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM):
        pygit2.settings.search_path[level] = str(home)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_GLOBAL": str(config), "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass(frozen=True)
class Sample:
    """A repository on disk. ``path`` is the working directory of a person in it."""

    path: Path
    environment: Mapping[str, str]

    def git(self, *arguments: str, at: Path | None = None, stdin: bytes | None = None) -> str:
        """Run git as the user would; return its output without the last line end."""
        done = self.run(*arguments, at=at, stdin=stdin)
        if done.returncode != 0:
            raise AssertionError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return os.fsdecode(done.stdout).rstrip("\n")

    def run(
        self, *arguments: str, at: Path | None = None, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git, which may fail."""
        return subprocess.run(
            ["git", *arguments],
            cwd=at or self.path,
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
        )

    def write(self, name: str, content: str | bytes = "text\n", at: Path | None = None) -> Path:
        """Write a file below the worktree, with its directories."""
        file = (at or self.path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def commit(self, message: str = "change", at: Path | None = None) -> str:
        """Commit everything; return the commit's id."""
        self.git("add", "-A", at=at)
        self.git("commit", "-q", "--allow-empty", "-m", message, at=at)
        return self.git("rev-parse", "HEAD", at=at)

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")


def unborn(path: Path, environment: Mapping[str, str], *options: str) -> Sample:
    """Run only `git init`."""
    path.mkdir(parents=True)
    sample = Sample(path, environment)
    sample.git("init", "-q", "--template=", *options)
    return sample


def _imported(sample: Sample, *commits: Mapping[str, str]) -> Sample:
    """Add commits on main, each given by its files, and check the last out, by three processes for
    any number."""
    stream = []
    for number, files in enumerate(commits, 1):
        stream.append(
            f"commit refs/heads/main\ncommitter Ada <ada@example.org> {1700000000 + number} +0000\ndata 2\n#{number}\n"
        )
        stream += [f"M 644 inline {name}\ndata {len(content)}\n{content}\n" for name, content in files.items()]
    sample.git("fast-import", "--quiet", stdin="".join(stream).encode())
    sample.git("reset", "-q", "--hard")
    return sample


def plain(path: Path, environment: Mapping[str, str], *options: str) -> Sample:
    """Two commits on main, a few files, `*.log` and `.env` ignored."""
    return _imported(
        unborn(path, environment, *options),
        {"README.md": "# Sample\n", "src/app.py": "print('one')\n"},
        {".gitignore": "*.log\n.env\n", "src/app.py": "print('two')\nprint('three')\n"},
    )


def large(path: Path, environment: Mapping[str, str], files: int = 1000) -> Sample:
    """One commit of ``files`` small files, fifty to a directory."""

    def name(number: int) -> str:
        return f"d{number // 2500:02}/d{number // 50 % 50:02}/file{number:05}.txt"

    content = {
        name(number): f"{number}\n{hashlib.sha256(str(number).encode()).hexdigest()}\n" for number in range(files)
    }
    return _imported(unborn(path, environment), content)


def empty_first_commit(path: Path, environment: Mapping[str, str]) -> Sample:
    """One commit without a file."""
    sample = unborn(path, environment)
    sample.git("commit", "-q", "--allow-empty", "-m", "empty")
    return sample


def detached(path: Path, environment: Mapping[str, str]) -> Sample:
    """`plain` with a detached HEAD at its first commit."""
    sample = plain(path, environment)
    sample.git("checkout", "-q", "--detach", "HEAD~1")
    return sample


def with_remote(path: Path, environment: Mapping[str, str]) -> Sample:
    """A clone of a bare repository, with `origin/main`, `origin/topic` and the tag v1."""
    source = plain(path.with_name(f"{path.name}-source"), environment)
    source.git("branch", "topic", "HEAD~1")
    source.git("tag", "-a", "v1", "-m", "one", "HEAD~1")
    origin = path.with_name(f"{path.name}-origin.git")
    source.git("clone", "-q", "--bare", str(source.path), str(origin))
    source.git("clone", "-q", str(origin), str(path))
    return Sample(path, environment)


def bare_with_worktrees(path: Path, environment: Mapping[str, str]) -> Sample:
    """A directory with the repository in `.bare`, a `.git` file that points there, and the linked
    worktree `main`, which is ``path``."""
    source = plain(path.parent / "bare-source", environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    source.git("clone", "-q", "--bare", str(source.path), str(path.parent / ".bare"))
    (path.parent / ".git").write_text("gitdir: ./.bare\n")
    source.git("worktree", "add", "-q", str(path), "main", at=path.parent)
    return Sample(path, environment)


def with_submodule(path: Path, environment: Mapping[str, str]) -> Sample:
    """`plain` with the submodule `lib`, which has the submodule `deep`; both populated, their
    sources deleted."""
    deep = plain(path.with_name("deep-source"), environment)
    lib = plain(path.with_name("lib-source"), environment)
    lib.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(deep.path), "deep")
    lib.commit("deep")
    sample = plain(path, environment)
    sample.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib.path), "lib")
    sample.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--recursive")
    sample.commit("lib")
    for source in (deep, lib):
        source.path.rename(source.path.with_name(f"{source.path.name}-moved"))
    return sample


def sparse(path: Path, environment: Mapping[str, str]) -> Sample:
    """`plain` with `src` and `docs`, of which only `src` is checked out."""
    sample = plain(path, environment)
    sample.write("docs/guide.md")
    sample.commit("docs")
    sample.git("sparse-checkout", "set", "src")
    return sample


def fingerprint(sample: Sample) -> dict[str, object]:
    """Return everything that Ramet must not change: index and HEAD byte for byte, refs except
    Ramet's, stash, config, all files."""
    places = sample.git("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir").splitlines()
    git_dir, common = (Path(place) for place in places)
    files = {
        str(file.relative_to(sample.path)): str(file.readlink()) if file.is_symlink() else file.read_bytes()
        for file in sorted(sample.path.rglob("*"))
        if (file.is_symlink() or file.is_file()) and ".git" not in file.relative_to(sample.path).parts[:1]
    }
    refs = [line for line in sample.git("for-each-ref").splitlines() if "refs/ramet/" not in line]
    stash = common / "logs" / "refs" / "stash"
    return {
        "index": (git_dir / "index").read_bytes() if (git_dir / "index").exists() else None,
        "HEAD": (git_dir / "HEAD").read_bytes(),
        "config": (common / "config").read_bytes(),
        "refs": refs,
        "stash": stash.read_bytes() if stash.exists() else None,
        "files": files,
    }
