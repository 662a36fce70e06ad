"""Deletion of trees with any content."""

from pathlib import Path

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
