"""Deletion of trees with any content."""

import errno
import os
from pathlib import Path

import pytest
from rametd.domain.errors import GitFailedError
from rametd.git.removal import delete_tree

from tests.support.deep import dig


def test_a_tree_deeper_than_a_path_can_be_named_is_deleted(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "beside").mkdir(parents=True)
    (tree / "beside/file").write_text("x\n")
    dig(tree, 1100, "deep")

    delete_tree(tree)

    assert list(tmp_path.iterdir()) == []


def test_closed_directories_are_deleted_and_nothing_that_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("x\n")
    tree = tmp_path / "tree"
    (tree / "closed/below").mkdir(parents=True)
    (tree / "closed/link").symlink_to(tmp_path / "other")
    (tree / "closed/below").chmod(0)
    (tree / "closed").chmod(0)

    delete_tree(tree)

    assert [path.name for path in tmp_path.rglob("*")] == ["other", "file"]


def test_of_a_link_only_the_link_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")

    delete_tree(tmp_path / "link")

    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_cannot_be_deleted_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tree/first/file", "tree/second/closed/file"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    unlink, kept = os.unlink, (tmp_path / "tree/second/closed/file").stat().st_ino

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino == kept:  # as a file with the flag "immutable"
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        with pytest.raises(GitFailedError) as failed:
            delete_tree(tmp_path / "tree")

    (left,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert failed.value.message == f"{left} cannot be deleted: Operation not permitted"
