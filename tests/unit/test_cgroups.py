from pathlib import Path

import pytest
from rametd.platform.cgroups import Cgroups, enter, find

SERVICE = "user.slice/user-7.slice/user@7.service/app.slice/rametd.service"


def tree(base: Path, group: str) -> tuple[Path, Path]:
    """Write a /proc/self/cgroup and a mounted hierarchy with only that group."""
    membership = base / "cgroup"
    membership.write_text(f"12:cpuset:/elsewhere\n0::/{group}\n")
    root = base / "fs" / group
    root.mkdir(parents=True)
    (root / "cgroup.procs").write_text("")
    return membership, base / "fs"


def test_the_delegated_group_of_the_service_is_used(tmp_path: Path) -> None:
    membership, mount = tree(tmp_path, SERVICE)
    groups = find(membership=membership, mount=mount)
    assert groups is not None
    group = groups.agent_cgroup("fix-1")
    assert group == mount / SERVICE / "agent-fix-1"
    assert group is not None
    assert group.is_dir()
    assert groups.agent_cgroup("fix-1") == group


@pytest.mark.parametrize(
    "group", ["", "user.slice/user-7.slice/session-3.scope", f"{SERVICE}/agent-x", "a/rametd.service.d"]
)
def test_a_cgroup_that_was_not_delegated_is_not_changed(tmp_path: Path, group: str) -> None:
    membership, mount = tree(tmp_path, group)
    assert find(membership=membership, mount=mount) is None


def test_there_is_none_without_the_unified_hierarchy_or_off_linux(tmp_path: Path) -> None:
    (tmp_path / "v1").write_text(f"4:memory:/{SERVICE}\n")
    assert find(membership=tmp_path / "v1", mount=tmp_path) is None
    assert find(membership=tmp_path / "missing", mount=tmp_path) is None
    membership, mount = tree(tmp_path, SERVICE)
    (mount / SERVICE / "cgroup.procs").unlink()
    assert find(membership=membership, mount=mount) is None


def test_a_group_is_removed_once_it_is_empty_and_only_then(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path)
    group = groups.agent_cgroup("a")
    assert group is not None
    (group / "busy").mkdir()
    assert not groups.remove("a")
    (group / "busy").rmdir()
    assert groups.remove("a")
    assert not group.exists()
    assert groups.remove("a")


def test_a_cgroup_that_cannot_be_created_is_not_needed(tmp_path: Path) -> None:
    assert Cgroups(tmp_path / "withdrawn").agent_cgroup("a") is None


def test_a_process_enters_by_its_pid(tmp_path: Path) -> None:
    enter(tmp_path, 4711)
    assert (tmp_path / "cgroup.procs").read_text() == "4711\n"
