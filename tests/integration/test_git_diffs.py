"""Diffs of worktrees and commits."""

import random
from pathlib import Path

import pytest
from rametd.domain.errors import RefNotFoundError
from rametd.git import FileChange, Git
from rametd.git.diff import MAX_FILE, DiffOptions

from tests.support import repositories
from tests.support.repositories import Sample, fingerprint


@pytest.fixture
def sample(tmp_path: Path, environment: dict[str, str]) -> Sample:
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.write("long.txt", "".join(f"line {number}\n" for number in range(50)))
    sample.commit("long")
    return sample


def change(
    path: str, status: str, additions: int = 0, deletions: int = 0, *, old: str | None = None, **flags: bool
) -> FileChange:
    known = {"binary": False, "submodule": False, "too_large": False} | flags
    return FileChange(path, old, status, additions, deletions, known["binary"], known["submodule"], known["too_large"])


async def test_a_diff_holds_committed_uncommitted_and_untracked_changes(git: Git, sample: Sample) -> None:
    base = sample.head
    sample.write("committed", "1\n2\n")
    sample.commit()
    sample.write("src/app.py", "print('two')\nprint('four')\n")
    sample.write("dir/untracked", "1\n")
    sample.write("ignored.log")
    sample.git("rm", "-q", "README.md")
    (sample.path / "long.txt").rename(sample.path / "longer.txt")
    sample.write("picture", b"\x00" * 100)
    (sample.path / "link").symlink_to("dir")
    before = fingerprint(sample)

    found = await git.diffs.of_worktree(sample.path, base)

    assert found.files == (
        change("README.md", "deleted", 0, 1),
        change("committed", "added", 2),
        change("dir/untracked", "added", 1),
        change("link", "added", 1),
        change("longer.txt", "renamed", old="long.txt"),
        change("picture", "added", binary=True),
        change("src/app.py", "modified", 1, 1),
    )
    assert not found.truncated
    assert found.patch is not None
    assert b"+print('four')\n" in found.patch
    assert b"rename from long.txt\nrename to longer.txt\n" in found.patch
    assert b"\x00" not in found.patch
    assert await git.diffs.changed_files(sample.path, base) == (
        "README.md",
        "committed",
        "dir/untracked",
        "link",
        "long.txt",
        "longer.txt",
        "picture",
        "src/app.py",
    )
    assert fingerprint(sample) == before


async def test_nothing_changed_is_an_empty_diff(git: Git, sample: Sample) -> None:
    found = await git.diffs.of_worktree(sample.path, sample.head)

    assert (found.files, found.patch, found.truncated) == ((), b"", False)


async def test_a_patch_can_be_applied(git: Git, sample: Sample, tmp_path: Path) -> None:
    base = sample.head
    sample.write("src/app.py", "no newline at the end")
    sample.write('ü "odd"\tname', "1\n")
    sample.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (sample.path / "long.txt").rename(sample.path / "longer.txt")

    found = await git.diffs.of_worktree(sample.path, base)

    sample.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"), base)
    sample.git("apply", "--index", "-", at=tmp_path / "other", stdin=found.patch)
    assert sample.git("write-tree", at=tmp_path / "other") == await git.diffs.tree(sample.path)


async def test_a_patch_with_what_is_binary_can_be_applied_where_none_of_it_is(
    git: Git, sample: Sample, tmp_path: Path
) -> None:
    noise = random.Random(0)  # noqa: S311  no secret
    sample.write("changed.bin", noise.randbytes(70_000))
    sample.write("moved.bin", noise.randbytes(5_000))
    sample.write("gone.bin", b"\0\xff")
    base = sample.commit()
    sample.git("clone", "-q", "--no-local", str(sample.path), str(tmp_path / "elsewhere"))
    sample.write("changed.bin", noise.randbytes(50_000))
    (sample.path / "moved.bin").rename(sample.path / "dir.bin")
    (sample.path / "gone.bin").unlink()
    sample.write("[odd] *.bin", bytes(range(256)) * 10)
    sample.write("src/app.py", "no newline at the end")

    whole = await git.diffs.of_worktree(sample.path, base, options=DiffOptions(binary=True))
    part = await git.diffs.of_worktree(sample.path, base, options=DiffOptions(binary=True, paths=("[odd] *.bin",)))

    assert (whole.truncated, part.truncated) == (False, False)
    sample.git("apply", "--index", "-", at=tmp_path / "elsewhere", stdin=whole.patch)
    assert sample.git("write-tree", at=tmp_path / "elsewhere") == await git.diffs.tree(sample.path)
    assert part.patch is not None
    assert part.patch in (whole.patch or b"")
    assert (await git.diffs.of_worktree(sample.path, base)).patch != whole.patch, "only on request"


async def test_a_binary_patch_names_what_is_too_large_and_holds_the_rest(
    git: Git, sample: Sample, tmp_path: Path
) -> None:
    noise = random.Random(0)  # noqa: S311  no secret
    base = sample.head
    sample.git("clone", "-q", "--no-local", str(sample.path), str(tmp_path / "elsewhere"))
    sample.write("huge [1].bin", noise.randbytes(MAX_FILE + 1))
    sample.write("small.bin", noise.randbytes(1000))
    sample.write("zzz", "last\n")

    found = await git.diffs.of_worktree(sample.path, base, options=DiffOptions(binary=True))

    assert (found.truncated, found.cut) == (True, False)
    rest, separator, named = (found.patch or b"").partition(b"diff --git a/huge [1].bin")
    assert named.endswith(b"Binary files /dev/null and b/huge [1].bin differ\n")
    sample.git("apply", "--index", "-", at=tmp_path / "elsewhere", stdin=rest)
    assert (tmp_path / "elsewhere" / "small.bin").read_bytes() == (sample.path / "small.bin").read_bytes()
    assert (tmp_path / "elsewhere" / "zzz").read_text() == "last\n"
    with pytest.raises(AssertionError, match="patch does not apply"):
        sample.git("apply", "-", at=tmp_path / "elsewhere", stdin=separator + named)


async def test_a_patch_over_the_cap_is_cut_at_a_line(git: Git, sample: Sample) -> None:
    sample.write("big.txt", "".join(f"line {number}\n" for number in range(5000)))
    sample.write("zzz", "last\n")

    found = await git.diffs.of_worktree(sample.path, sample.head, max_patch=1000)

    assert found.truncated
    assert found.patch is not None
    assert 980 < len(found.patch) <= 1000
    assert found.patch.endswith(b"\n")
    assert [file.additions for file in found.files] == [5000, 1]


async def test_a_huge_file_is_neither_shown_nor_counted(git: Git, sample: Sample) -> None:
    sample.write("huge.txt", b"0123456\n" * (MAX_FILE // 8 + 1))

    found = await git.diffs.of_worktree(sample.path, sample.head)

    assert found.files == (change("huge.txt", "added", too_large=True),)
    assert found.truncated
    assert found.patch is not None
    assert found.patch.endswith(b"Binary files /dev/null and b/huge.txt differ\n")


async def test_a_file_that_becomes_a_link_is_a_change_of_type(git: Git, sample: Sample) -> None:
    (sample.path / "README.md").unlink()
    (sample.path / "README.md").symlink_to("long.txt")

    assert [file.status for file in (await git.diffs.of_worktree(sample.path, sample.head)).files] == ["typechange"]


async def test_a_moved_submodule_is_marked(git: Git, tmp_path: Path, environment: dict[str, str]) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    sample.commit("further", at=sample.path / "lib")

    found = await git.diffs.of_worktree(sample.path, sample.head)

    assert found.files == (change("lib", "modified", 1, 1, submodule=True),)
    assert b"+Subproject commit" in (found.patch or b"")


async def test_names_that_are_not_utf8_survive(git: Git, sample: Sample) -> None:
    sample.write("caf\udce9", "1\n")

    found = await git.diffs.of_worktree(sample.path, sample.head)

    assert [file.path for file in found.files] == ["caf\udce9"]
    assert await git.diffs.changed_files(sample.path, sample.head) == ("caf\udce9",)


async def test_two_commits_are_compared_without_a_worktree(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.bare_with_worktrees(tmp_path / "proj" / "main", environment)
    repo = await git.discover(sample.path.parent)

    found = await git.diffs.between(repo, sample.git("rev-parse", "main~1"), "main", patch=False)

    assert found.files == (change(".gitignore", "added", 2), change("src/app.py", "modified", 2, 1))
    assert found.patch is None


@pytest.mark.parametrize("against", ["0" * 39 + "1", "gone", ""])
async def test_a_commit_that_is_not_there_is_named(git: Git, sample: Sample, against: str) -> None:
    with pytest.raises(RefNotFoundError, match="names no commit here"):
        await git.diffs.of_worktree(sample.path, against)
