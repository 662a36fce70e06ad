import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet.paths import (
    SOCKET_PATH_LIMIT,
    PathsError,
    check_socket_path,
    directories,
    make_private_directory,
    open_private_directory,
    user_home,
)


def no_home(uid: int) -> None:
    return None


def nothing_there(path: str) -> bool:
    return False


def test_the_defaults_are_those_of_the_xdg_specification() -> None:
    found = directories({"HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/7"}, uid=7)
    assert found.home == Path("/home/a/.local/state/ramet")
    assert found.runtime == Path("/run/user/7/ramet")
    assert found.config_file == Path("/home/a/.config/ramet/config.toml")
    assert found.socket == Path("/run/user/7/ramet/rametd.sock")
    assert found.lock.parent == found.runtime
    assert {found.logs.parent, found.secrets.parent} == {found.home}


def test_ramet_variables_win_over_xdg_ones_and_those_over_home() -> None:
    environ = {
        "HOME": "/h",
        "XDG_STATE_HOME": "/s",
        "XDG_CONFIG_HOME": "/c",
        "XDG_RUNTIME_DIR": "/r",
        "RAMET_HOME": "/rh",
        "RAMET_RUNTIME_DIR": "/rr",
    }
    found = directories(environ)
    assert (found.home, found.runtime, found.config_home) == (Path("/rh"), Path("/rr"), Path("/c"))
    assert directories({**environ, "RAMET_HOME": ""}).home == Path("/s/ramet")


def test_without_home_the_password_database_answers() -> None:
    assert directories({}, lookup=lambda uid: "/var/lib/me").home == Path("/var/lib/me/.local/state/ramet")
    assert user_home({"HOME": "relative"}, lookup=lambda uid: "/var/lib/me") == Path("/var/lib/me")


def test_without_any_home_the_error_says_what_to_set() -> None:
    with pytest.raises(PathsError, match="no home directory") as caught:
        directories({}, lookup=no_home)
    assert "RAMET_HOME" in caught.value.hint


def test_no_home_is_needed_where_everything_is_named() -> None:
    environ = {"RAMET_HOME": "/a", "XDG_CONFIG_HOME": "/b", "XDG_RUNTIME_DIR": "/c"}
    assert directories(environ, lookup=no_home).home == Path("/a")


def test_a_relative_ramet_variable_is_refused_and_a_relative_xdg_one_is_ignored() -> None:
    with pytest.raises(PathsError, match="RAMET_HOME is 'state'"):
        directories({"HOME": "/h", "RAMET_HOME": "state"})
    assert directories({"HOME": "/h", "XDG_STATE_HOME": "state"}).home == Path("/h/.local/state/ramet")


def test_a_client_without_xdg_runtime_dir_finds_the_service_managers_daemon() -> None:
    found = directories({"HOME": "/h"}, uid=7, platform="linux", is_directory=lambda path: path == "/run/user/7")
    assert found.runtime == Path("/run/user/7/ramet")


def test_without_any_runtime_directory_it_is_below_tmp() -> None:
    linux = directories({"HOME": "/h", "TMPDIR": "/t"}, uid=7, platform="linux", is_directory=nothing_there)
    darwin = directories({"HOME": "/h", "TMPDIR": "/t"}, uid=7, platform="darwin")
    bare = directories({"HOME": "/h"}, uid=7, platform="darwin")
    assert [linux.runtime, darwin.runtime, bare.runtime] == [
        Path("/tmp/ramet-7"),
        Path("/t/ramet-7"),
        Path("/tmp/ramet-7"),
    ]


VARIABLES = [
    "HOME",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "RAMET_HOME",
    "RAMET_RUNTIME_DIR",
    "TMPDIR",
]


@given(st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(["", "x", "/", "/a", "/a/../b", "~", "/ü ä"])))
def test_every_environment_gives_absolute_paths_or_an_error_with_a_hint(environ: dict[str, str]) -> None:
    try:
        found = directories(environ, lookup=no_home)
    except PathsError as error:
        hint = error.hint
    else:
        hint = "none needed"
        assert all(path.is_absolute() for path in (found.home, found.runtime, found.config_file))
    assert hint


def test_a_private_directory_is_created_0700_with_its_parents(tmp_path: Path) -> None:
    os.close(open_private_directory(tmp_path / "a" / "b"))
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_state_directory_is_0700_with_its_parents_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert make_private_directory(tmp_path / "a" / "b" / "c") == ""
    finally:
        os.umask(before)
    made = (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c")
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o710, 0o1777])
def test_an_open_state_directory_of_ours_is_closed_and_that_is_said(tmp_path: Path, mode: int) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "ours").touch()
    (tmp_path / "home").chmod(mode)
    assert f"was open to others (mode {mode:04o})" in make_private_directory(tmp_path / "home")
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    assert make_private_directory(tmp_path / "home") == ""


def test_a_linked_state_directory_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "home").symlink_to("target")
    with pytest.raises(PathsError, match="is a symbolic link") as caught:
        make_private_directory(tmp_path / "home")
    assert "RAMET_HOME" in caught.value.hint
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o755


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("foreign", ["", "entry"])
def test_a_state_directory_with_something_of_another_user_is_refused(tmp_path: Path, foreign: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "entry").touch()
    home.chmod(0o777)
    os.chown(home / foreign, 65534, 65534)
    with pytest.raises(PathsError, match="belongs to user 65534"):
        make_private_directory(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o777


def test_a_socket_path_may_be_exactly_as_long_as_the_system_takes() -> None:
    check_socket_path(Path("/" + "x" * (SOCKET_PATH_LIMIT - 1)))
    for path in (
        "/" + "x" * SOCKET_PATH_LIMIT,
        "/" + "ü" * (SOCKET_PATH_LIMIT // 2 + 1),
    ):  # bytes count, not characters
        with pytest.raises(PathsError, match="bytes") as caught:
            check_socket_path(Path(path))
        assert "RAMET_RUNTIME_DIR" in caught.value.hint
