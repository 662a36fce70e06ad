"""Random edits of a tree, and its contents: from disk, without the files that git ignores, and from
a commit.

    python -I -S trees.py SEED FILE

runs in a scripted agent's worktree: it edits, and then writes the tree's contents to a file. It
uses only the standard library.
"""

# ruff: noqa: S311 - chance must be the same in every run

import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

State = dict[str, str]
"""Path → mode as git has it, and the SHA-256 of the content; a symbolic link's content is its
target."""

NAMES = ("a.txt", "b.bin", "dash-", "-dash", "with space", "übergrün", "new/deep/c.txt", "new/d.txt", "dir0/file0.txt", "dir1/file1.txt", "keep.log",
         "noise.log", "build/out.o", "build/.keep", "a.txt.d/e", "new", "x" * 120, "*.txt", 'quo"te', "tab\there", "line\nend", ".hidden/f")  # fmt: skip
IGNORES = (
    "*.log\n",
    "build/\n",
    "build/*\n!build/.keep\n",
    "/new\n",
    "*.log\n!keep.log\n",
    "*\n!.gitignore\n",
    "",
    "# nothing\n",
)

NEST = "nest-"
"""Prefix of names of nested repositories: their files are in no tree around them, and compared
separately (`read_inside`)."""


def git(tree: Path, *arguments: str, stdin: bytes | None = None, check: bool = True) -> bytes:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Agent"), ("EMAIL", "agent@example.org"))
        },
    }
    command = ["git", "-C", str(tree), *arguments]
    return subprocess.run(command, env=environment, input=stdin, capture_output=True, check=check).stdout


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def read_tree(tree: Path, paths: Iterator[str] | None = None) -> State:
    """Return the files on disk, except ignored ones; or those at ``paths``."""
    if paths is None:
        listed = git(tree, "--no-optional-locks", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        paths = (os.fsdecode(path) for path in listed.split(b"\0") if path)
    found: State = {}
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            file = tree / path
            mode = file.lstat().st_mode
            if path.startswith(NEST) or _beyond_a_link(tree, path):
                continue
            if stat.S_ISLNK(mode):
                found[path] = entry("120000", os.fsencode(os.readlink(file)))  # noqa: PTH115 - bytes as they are
            elif stat.S_ISREG(mode):
                found[path] = entry("100755" if mode & 0o100 else "100644", file.read_bytes())
    return found


def _beyond_a_link(tree: Path, path: str) -> bool:
    return any((tree / parent).is_symlink() for parent in list(Path(path).parents)[:-1])


def read_commit(repository: Path, commit: str) -> State:
    """Return the same of a commit."""
    entries = [
        (fields.split(b" "), os.fsdecode(path))
        for fields, _, path in (
            each.partition(b"\t") for each in git(repository, "ls-tree", "-r", "-z", commit).split(b"\0") if each
        )
        if not fields.startswith(b"160000 ") and not path.startswith(NEST.encode())
    ]
    wanted = b"".join(fields[2] + b"\n" for fields, _ in entries)
    output, at = git(repository, "cat-file", "--batch", stdin=wanted), 0
    found: State = {}
    for fields, path in entries:
        head, _, _ = output[at : at + 200].partition(b"\n")
        size, at = int(head.split(b" ")[2]), at + len(head) + 1
        found[path] = entry(fields[0].decode(), output[at : at + size])
        at += size + 1
    return found


def ignored(tree: Path) -> set[str]:
    listed = git(tree, "--no-optional-locks", "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


def read_inside(tree: Path) -> State:
    """Return the files on disk in nested repositories of a tree, without their git directories."""
    found: State = {}
    for pointer in sorted(tree.rglob(".git")):
        inner = pointer.parent
        if inner != tree and pointer.is_dir():
            paths = (file for file in sorted(inner.rglob("*")) if ".git" not in file.relative_to(inner).parts)
            found |= {
                str(file.relative_to(tree)): entry("100644", file.read_bytes())
                for file in paths
                if file.is_file() and not file.is_symlink()
            }
    return found


def entry(mode: str, content: bytes) -> str:
    return f"{mode} {hashlib.sha256(content).hexdigest()} {content[:20]!r}"


# ── editing ───────────────────────────────────────────────────────────────────────────────────────


class Edits:
    """Make a few random edits: of files by every kind of change, and of the branch by commits and
    resets."""

    def __init__(self, tree: Path, seed: int) -> None:
        self._tree = tree
        self._chance = random.Random(seed)

    def make(self) -> None:
        for _ in range(self._chance.randint(1, 6)):
            with suppress(OSError):  # not every edit fits every file
                self._chance.choice(self._kinds())()
        self._look_for_what_is_gone()

    def _kinds(self) -> list[Callable[[], object]]:
        files = [
            self._write,
            self._write,
            self._same_size,
            self._binary,
            self._append,
            self._delete,
            self._rename,
            self._mode,
        ]
        rare = [self._empty, self._link, self._remove_folder, self._swap_kind, self._ignore, self._mark, self._announce]
        branch = [
            self._commit,
            self._commit,
            self._commit_some,
            self._amend,
            self._reset,
            self._stage,
            self._untrack,
            self._switch,
        ]
        return [*files, *files, *rare, *branch]

    def _any(self) -> Path:
        """Return an existing file, or a possible name."""
        there = [
            path
            for path in sorted(self._tree.rglob("*"))
            if ".git" not in path.parts and (path.is_symlink() or path.is_file())
        ]
        if there and self._chance.random() < 0.6:
            return self._chance.choice(there)
        return self._tree / self._chance.choice(NAMES)

    def _text(self) -> str:
        return "".join(f"{self._chance.random()}\n" for _ in range(self._chance.randint(1, 30)))

    def _write(self) -> None:
        file = self._any()
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            file.unlink()
        file.write_text(self._text())

    def _same_size(self) -> None:
        """Make a "racily clean" change: other bytes of the same number in the same instant."""
        file = self._any()
        file.write_text(f"{self._chance.randint(1000, 9999)}\n")
        if self._chance.random() < 0.5:
            git(self._tree, "add", "-A", check=False)
        file.write_text(f"{self._chance.randint(1000, 9999)}\n")

    def _binary(self) -> None:
        self._any().write_bytes(self._chance.randbytes(self._chance.choice((1, 300, 70_000))))

    def _append(self) -> None:
        with self._any().open("a") as file:
            file.write(self._text())

    def _empty(self) -> None:
        self._any().write_bytes(b"")

    def _delete(self) -> None:
        self._any().unlink()

    def _rename(self) -> None:
        target = self._tree / self._chance.choice(NAMES)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._any().rename(target)

    def _mode(self) -> None:
        file = self._any()
        if not file.is_symlink():
            file.chmod(file.stat().st_mode ^ 0o111)

    def _link(self) -> None:
        file = self._any()
        file.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(self._chance.choice(("a.txt", "nowhere", "dir0", "../outside", "new/deep")))

    def _remove_folder(self) -> None:
        folders = [path for path in sorted(self._tree.iterdir()) if path.is_dir() and not path.is_symlink()]
        if folders:
            shutil.rmtree(self._chance.choice(folders))

    def _swap_kind(self) -> None:
        """Replace a directory by a file, or the other way round."""
        place = self._tree / self._chance.choice(("new", "dir1", "a.txt", "build"))
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
            place.write_text(self._text())
        else:
            place.unlink(missing_ok=True)
            place.mkdir()
            (place / "inner").write_text(self._text())

    def _ignore(self) -> None:
        folder = self._tree / self._chance.choice((".", "new", "dir0"))
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text(self._chance.choice(IGNORES))

    def _mark(self) -> None:
        """Change a file with skip-worktree or assume-unchanged, or remove that flag."""
        tracked = [os.fsdecode(path) for path in git(self._tree, "ls-files", "-z").split(b"\0") if path]
        path = self._chance.choice(tracked or ["a.txt"])
        marks = ("--assume-unchanged", "--skip-worktree", "--no-assume-unchanged", "--no-skip-worktree")
        self._git("update-index", self._chance.choice(marks), "--", path)
        file = self._tree / path
        if file.is_file() and not file.is_symlink():
            file.write_text(self._text())

    def _look_for_what_is_gone(self) -> None:
        """Remove the flags of missing files: git cannot distinguish a deleted one from one that a
        sparse checkout leaves out."""
        marked = (line for line in git(self._tree, "ls-files", "-v", "-z").split(b"\0") if line)
        for path in [os.fsdecode(line[2:]) for line in marked if line[:1] == b"S" or line[:1].islower()]:
            if not os.path.lexists(self._tree / path):
                for mark in ("--no-assume-unchanged", "--no-skip-worktree"):
                    self._git("update-index", mark, "--", path)

    def _announce(self) -> None:
        file = self._tree / self._chance.choice(NAMES)
        file.write_text(self._text())
        self._git("--literal-pathspecs", "add", "--intent-to-add", "--force", "--", str(file.relative_to(self._tree)))

    def _git(self, *arguments: str) -> None:
        git(self._tree, *arguments, check=False)

    def _commit(self) -> None:
        self._git("add", "-A")
        self._git("commit", "-qm", "all")

    def _commit_some(self) -> None:
        self._git("commit", "-qam", "tracked")

    def _amend(self) -> None:
        if git(self._tree, "rev-list", "--count", "HEAD").strip() > b"2":
            self._git("commit", "-q", "--amend", "--allow-empty", "-am", "amended")

    def _reset(self) -> None:
        self._git("reset", "-q", self._chance.choice(("--hard", "--mixed", "--soft")), "HEAD~1")

    def _stage(self) -> None:
        self._git("add", "-A")

    def _untrack(self) -> None:
        self._git("rm", "-q", "-r", "--cached", "--ignore-unmatch", "dir0", "a.txt")

    def _switch(self) -> None:
        """Detach HEAD, or switch back to the branch."""
        name = f"ramet/{self._tree.name}"
        if self._chance.random() < 0.3:
            self._git("checkout", "-q", "--detach")
        else:
            branches = git(
                self._tree, "for-each-ref", "--format=%(refname:short)", "--points-at=HEAD", "refs/heads/ramet/"
            )
            name = (branches.decode().split() or [name])[0]
            self._git("checkout", "-q", name)


def main() -> None:
    tree = Path.cwd()
    Edits(tree, int(sys.argv[1])).make()
    target = Path(sys.argv[2])
    part = target.with_suffix(".part")
    part.write_text(json.dumps(read_tree(tree)))
    part.rename(target)


if __name__ == "__main__":
    main()
