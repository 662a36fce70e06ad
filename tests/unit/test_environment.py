import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet.environment import allowed
from rametd.domain.errors import BadEnvironmentError, RuntimeDirectoryError
from rametd.environment import EnvironmentFiles, build

OUTER = [
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_PID",
    "RAMET_SESSION",
    "RAMET_TOKEN",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
]
WANTED = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "SSH_AUTH_SOCK",
    "https_proxy",
    "HTTPS_PROXY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "IS_SANDBOX",
    "AWS_PROFILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "AZURE_CLIENT_ID",
    "VERTEX_REGION_CLAUDE_4",
    "XDG_CONFIG_HOME",
]


def test_what_an_agent_needs_is_allowed_and_an_outer_session_is_not() -> None:
    assert allowed([*WANTED, *OUTER, "GH_TOKEN", "DATABASE_URL", "VIRTUAL_ENV"]) == frozenset(WANTED)


def test_pass_env_adds_names_and_patterns() -> None:
    assert allowed(["GH_TOKEN", "NPM_A", "NPM_B", "X"], ["GH_TOKEN", "NPM_*"]) == {"GH_TOKEN", "NPM_A", "NPM_B"}


def test_no_variable_that_points_git_at_another_repository_is_ever_passed() -> None:
    names = subprocess.run(
        ["git", "rev-parse", "--local-env-vars"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "GIT_DIR" in names
    assert allowed(names, ["*"]) == frozenset()


def test_the_callers_variable_wins_over_the_daemons_and_ours_over_both() -> None:
    daemon = {"PATH": "/bare", "HOME": "/h", "SECRET": "s", "RAMET_TOKEN": "outer"}
    caller = {"PATH": "/full", "LANG": "C.UTF-8", "CLAUDECODE": "1"}
    expected = {"PATH": "/full", "HOME": "/h", "LANG": "C.UTF-8", "RAMET_TOKEN": "inner"}
    assert build(daemon, caller, fixed={"RAMET_TOKEN": "inner"}) == expected


names = st.one_of(st.sampled_from([*OUTER, *WANTED, "GIT_DIR", "=", "", "A=B", "CLAUDE_CODE_X"]), st.text(max_size=8))
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
environments = st.dictionaries(names, values, max_size=12)


@given(environments, environments, st.lists(st.sampled_from(["*", "CLAUDE*", "RAMET_*", "GH_TOKEN", "?"])))
def test_whatever_comes_in_nothing_forbidden_comes_out(
    daemon: dict[str, str], caller: dict[str, str], pass_env: list[str]
) -> None:
    built = build(daemon, caller, pass_env, {"RAMET_SESSION": "me"})
    assert built.pop("RAMET_SESSION") == "me"
    assert not set(built) & {*OUTER, "GIT_DIR"}
    assert set(built) == allowed({*daemon, *caller}, pass_env)
    assert all(built[name] == caller.get(name, daemon.get(name)) for name in built)


@given(environments, environments)
def test_building_from_what_was_built_changes_nothing(daemon: dict[str, str], caller: dict[str, str]) -> None:
    once = build(daemon, caller)
    assert build(once, {}) == build(daemon, once) == once


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_value_that_no_process_can_have_is_refused_by_name_and_not_shown(value: str) -> None:
    with pytest.raises(BadEnvironmentError, match="ANTHROPIC_API_KEY") as caught:
        build({}, {"ANTHROPIC_API_KEY": value})
    assert value not in str(caught.value)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), st.binary(max_size=20)))
def test_every_environment_is_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, raw: dict[str, bytes]
) -> None:
    environment = {name: value.replace(b"\0", b"").decode("utf-8", "surrogateescape") for name, value in raw.items()}
    files = EnvironmentFiles(tmp_path_factory.getbasetemp() / "secrets")
    files.write("round-trip", environment)
    assert files.read("round-trip") == environment


def test_the_file_is_0600_in_a_0700_directory_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    before = os.umask(0)
    try:
        files.write("a", {"TOKEN": "1"})
        files.write("a", {"TOKEN": "2"})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    entries = list((tmp_path / "secrets").iterdir())
    assert [stat.S_IMODE(entry.stat().st_mode) for entry in entries] == [0o600]
    assert files.read("a") == {"TOKEN": "2"}


def test_what_is_deleted_or_was_never_written_is_none(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    assert files.read("a") is None
    files.write("a", {})
    assert files.read("a") == {}
    files.delete("a")
    files.delete("a")
    assert files.read("a") is None
    assert list((tmp_path / "secrets").iterdir()) == []


def test_a_refused_environment_leaves_the_one_before(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    files.write("a", {"A": "1"})
    with pytest.raises(BadEnvironmentError):
        files.write("a", {"A=": "2"})
    assert files.read("a") == {"A": "1"}


@pytest.mark.parametrize("session", ["", "..", "a/b", "../x", "-a", "A", "a" * 49])
def test_only_ids_name_files(tmp_path: Path, session: str) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    with pytest.raises(ValueError, match="not a session id"):
        files.write(session, {})


def test_a_directory_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o755)
    (tmp_path / "secrets").chmod(0o755)
    with pytest.raises(RuntimeDirectoryError, match="open to others"):
        EnvironmentFiles(tmp_path / "secrets").write("a", {"A": "1"})
