"""Loose objects after a power loss that left only their names."""

import subprocess
from pathlib import Path

import pytest
from rametd.git.loose import is_there, write_loose
from rametd.git.snapshots.model import point

from tests.support.daemon import git

CONTENT = b"an hour of work\n" * 100


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


@pytest.mark.parametrize("left", [0, 1, 20])
def test_an_object_of_which_a_loss_of_power_left_little_is_written_again(repository: Path, left: int) -> None:
    objects = repository / ".git" / "objects"
    name = write_loose(objects, "blob", CONTENT)
    place = objects / name[:2] / name[2:]
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:left])

    assert write_loose(objects, "blob", CONTENT) == name

    shown = subprocess.run(["git", "cat-file", "blob", name], cwd=repository, capture_output=True, check=True)
    assert shown.stdout == CONTENT
    assert [each.name for each in place.parent.iterdir()] == [place.name]
    assert place.stat().st_mode & 0o777 == 0o444


def test_an_object_is_there_as_long_as_it_has_content_or_a_pack_has_it(repository: Path) -> None:
    objects = repository / ".git" / "objects"
    name = write_loose(objects, "blob", CONTENT)
    place = objects / name[:2] / name[2:]
    assert is_there(objects, name)
    pack = ["git", "pack-objects", "-q", str(objects / "pack" / "pack")]
    subprocess.run(pack, cwd=repository, input=f"{name}\n".encode(), capture_output=True, check=True)
    place.unlink()
    assert is_there(objects, name)
    for each in (objects / "pack").iterdir():
        each.unlink()
    assert not is_there(objects, name)
    write_loose(objects, "blob", CONTENT)
    place.chmod(0o644)
    place.write_bytes(b"")
    assert not is_there(objects, name)


@pytest.mark.parametrize("before", ["nothing", "loose", "packed", "empty directory", "lock of a killed daemon"])
def test_a_ref_is_set_whatever_was_there_before(repository: Path, before: str) -> None:
    ref = "refs/ramet/checkpoints/one/1"
    place = repository / ".git" / ref
    first, second = (write_loose(repository / ".git" / "objects", "blob", data) for data in (b"one", b"two"))
    if before in {"loose", "packed"}:
        point(repository / ".git", ref, first)
    if before == "packed":
        git(repository, "pack-refs", "--all")
        assert not place.exists()
    if before == "empty directory":
        place.mkdir(parents=True)
    if before == "lock of a killed daemon":
        place.parent.mkdir(parents=True)
        place.with_name("1.lock").touch()
    point(repository / ".git", ref, second)
    assert git(repository, "rev-parse", ref) == second
    assert [each.name for each in place.parent.iterdir()] == ["1"]
