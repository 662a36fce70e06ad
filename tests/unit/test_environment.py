import base64
import json
import os
import stat
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ramet.environment import (
    FAMILIES,
    IDENTITY,
    NAME,
    NEVER,
    Kind,
    allowed,
    carried,
    decode,
    encode,
    family_of,
    for_daemon,
    group_of,
    matches,
)
from ramet.v1 import session_pb2
from rametctl.connection.environment import CallerEnvironment
from rametd.domain.errors import BadEnvironmentError, RuntimeDirectoryError
from rametd.environment import EnvironmentFiles, Variables, build

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


def test_the_sessions_variable_wins_over_the_daemons_and_ours_over_both() -> None:
    daemon = {"PATH": "/bare", "HOME": "/h", "SECRET": "s", "RAMET_TOKEN": "outer"}
    session = Variables({"PATH": "/full", "LANG": "C.UTF-8", "CLAUDECODE": "1"})
    expected = {"PATH": "/full", "HOME": "/h", "LANG": "C.UTF-8", "RAMET_TOKEN": "inner"}
    assert build(daemon, session, fixed={"RAMET_TOKEN": "inner"}) == expected


def test_of_an_account_that_a_session_has_the_daemon_adds_nothing() -> None:
    daemon = {"AWS_PROFILE": "old", "AWS_SESSION_TOKEN": "old", "https_proxy": "p", "HTTP_PROXY": "p", "PATH": "/bare"}
    assert build(daemon, Variables({"AWS_PROFILE": "new"})) == {
        "AWS_PROFILE": "new", "https_proxy": "p", "HTTP_PROXY": "p", "PATH": "/bare",
    }  # fmt: skip


PINNED = ("PATH", "LANG", "TZ", "NVM_DIR", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "DISABLE_TELEMETRY")
FRESH = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"),
    *("OPENAI_API_KEY", "CODEX_HOME", "GEMINI_API_KEY", "FACTORY_API_KEY"),
    *("AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "SSH_AUTH_SOCK", "GPG_TTY", "GH_TOKEN"),
    *("GIT_AUTHOR_NAME", "GIT_COMMITTER_EMAIL", "EMAIL", "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND", "GIT_ASKPASS"),
    *("VSCODE_GIT_IPC_HANDLE", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "DISPLAY"),
)
DROPPED = (
    *("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX", "GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"),
    *("GIT_QUARANTINE_PATH", "GIT_REFLOG_ACTION", "GIT_PUSH_OPTION_COUNT", "GIT_CONFIG_COUNT", "RAMET_TOKEN"),
    *("TMUX", "TMUX_PANE", "PWD", "DIRENV_DIFF", "__MISE_DIFF", "CLAUDE_PROJECT_DIR"),
)
NOT_LISTED = ("DATABASE_URL", "VIRTUAL_ENV", "CI", "NPM_TOKEN")
CALLS = ("new", "send", "send without it", "set", "unset")


def value_after(name: str, call: str, *, pass_env: tuple[str, ...] = ()) -> str | None:
    """Return the value of a variable after ``call``, in a session that was created with its value
    "old"."""
    session = Variables(carried({name: "old"}, pass_env))
    match call:
        case "send":
            session = session.refreshed(carried({name: "new"}, pass_env))
        case "send without it":
            session = session.refreshed(carried({"HOME": "/elsewhere"}, pass_env))
        case "set":
            session = session.changed({name: "set"}, {}, ()).refreshed(carried({name: "new"}, pass_env))
        case "unset":
            session = session.changed({}, {}, (name,)).refreshed(carried({name: "new"}, pass_env))
    return build({}, session, (*pass_env, "GH_*")).get(name)


@pytest.mark.parametrize("name", PINNED)
@pytest.mark.parametrize(("call", "value"), list(zip(CALLS, ["old", "old", "old", "set", None], strict=True)))
def test_a_pinned_variable_keeps_its_value_unless_it_is_set(name: str, call: str, value: str | None) -> None:
    assert value_after(name, call) == value


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize(("call", "value"), list(zip(CALLS, ["old", "new", "old", "set", None], strict=True)))
def test_a_fresh_variable_follows_the_calls_that_have_it(name: str, call: str, value: str | None) -> None:
    assert value_after(name, call) == value


@pytest.mark.parametrize("name", NOT_LISTED)
@pytest.mark.parametrize(("call", "value"), list(zip(CALLS, [None, None, None, "set", None], strict=True)))
def test_a_variable_on_no_list_comes_by_name_only(name: str, call: str, value: str | None) -> None:
    assert value_after(name, call) == value


@pytest.mark.parametrize(("name", "kind"), [("DATABASE_URL", "old"), ("GH_TOKEN", "new")])
def test_pass_env_pins_what_is_of_no_family(name: str, kind: str) -> None:
    assert value_after(name, "send", pass_env=(name,)) == kind


@pytest.mark.parametrize("name", DROPPED)
def test_a_variable_of_one_process_never_comes(name: str) -> None:
    assert value_after(name, "new", pass_env=("*",)) is None
    with pytest.raises(BadEnvironmentError, match=name):
        Variables().changed({name: "x"}, {}, ())


@pytest.mark.parametrize(
    ("has", "brings", "then"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, {"ANTHROPIC_MODEL": "m"}, {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "m"}),
        ({"ANTHROPIC_API_KEY": "k"}, {"CLAUDE_CODE_OAUTH_TOKEN": "t"}, {"CLAUDE_CODE_OAUTH_TOKEN": "t"}),
        ({"AWS_SESSION_TOKEN": "t"}, {"AWS_REGION": "r"}, {"AWS_SESSION_TOKEN": "t", "AWS_REGION": "r"}),
        ({"AWS_SESSION_TOKEN": "t", "AWS_REGION": "r"}, {"AWS_PROFILE": "p"}, {"AWS_PROFILE": "p", "AWS_REGION": "r"}),
        ({"GITHUB_TOKEN": "t", "GH_HOST": "h"}, {"GH_TOKEN": "u"}, {"GH_TOKEN": "u", "GH_HOST": "h"}),
        ({"GIT_AUTHOR_NAME": "n"}, {"EMAIL": "e"}, {"GIT_AUTHOR_NAME": "n", "EMAIL": "e"}),
        ({"https_proxy": "p"}, {"NO_PROXY": "x"}, {"NO_PROXY": "x"}),
    ],
)
def test_a_setting_in_every_shell_takes_no_account_away(
    has: dict[str, str], brings: dict[str, str], then: dict[str, str]
) -> None:
    assert Variables(has).refreshed(brings).called == then
    assert Variables(brings).over(has) == then


def test_each_account_is_replaced_completely() -> None:
    session = Variables({"AWS_ACCESS_KEY_ID": "1", "AWS_SESSION_TOKEN": "1", "SSH_AUTH_SOCK": "/1"})
    assert session.refreshed({"AWS_ACCESS_KEY_ID": "2"}).called == {"AWS_ACCESS_KEY_ID": "2", "SSH_AUTH_SOCK": "/1"}


def test_a_variable_taken_from_the_caller_follows_it_again_and_one_on_no_list_is_set() -> None:
    session = Variables({"AWS_PROFILE": "a"}).changed({"AWS_PROFILE": "mine"}, {"DATABASE_URL": "db"}, ("LANG",))
    assert session.kinds() == {"AWS_PROFILE": Kind.SET, "DATABASE_URL": Kind.SET, "LANG": Kind.UNSET}
    session = session.changed({}, {"AWS_PROFILE": "b", "LANG": "C"}, ()).refreshed({"AWS_PROFILE": "c", "LANG": "D"})
    assert build({}, session) == {"AWS_PROFILE": "c", "DATABASE_URL": "db", "LANG": "C"}
    assert session.kinds() == {"AWS_PROFILE": Kind.FRESH, "DATABASE_URL": Kind.SET, "LANG": Kind.PINNED}


@pytest.mark.parametrize(
    ("call", "restarts"),
    [
        ({}, False),
        ({"AWS_PROFILE": "a"}, False),
        ({"PATH": "/new"}, False),
        ({"GPG_TTY": "/dev/pts/9"}, False),
        ({"DISPLAY": ":9"}, False),
        ({"AWS_PROFILE": "b"}, True),
        ({"AWS_PROFILE": "a", "AWS_REGION": "x"}, True),
        ({"SSH_AUTH_SOCK": "/new"}, True),
    ],
)
def test_an_idle_agent_gets_a_new_process_for_what_it_could_not_do_without(
    call: dict[str, str], restarts: bool
) -> None:
    session, daemon = Variables({"AWS_PROFILE": "a", "PATH": "/old"}), {"https_proxy": "p"}
    assert (session.refreshed(call).deciding(daemon) != session.deciding(daemon)) is restarts


def test_what_a_call_brings_that_the_daemon_has_too_changes_nothing() -> None:
    daemon = {"AWS_PROFILE": "a", "SSH_AUTH_SOCK": "/s"}
    assert Variables().deciding(daemon) == Variables().refreshed(daemon).deciding(daemon)


HOOK = {"GIT_INDEX_FILE": ".git/index", "GIT_PREFIX": "", "GIT_AUTHOR_DATE": "@1577836800 +0000"}


@pytest.mark.parametrize("mark", HOOK)
def test_the_identity_of_one_commit_is_not_the_persons(mark: str) -> None:
    """In hooks, git sets the author of the commit under way."""
    environ = {"GIT_AUTHOR_NAME": "Eve", "GIT_COMMITTER_EMAIL": "eve@x", "EMAIL": "me@x", mark: HOOK[mark]}
    inside = mark != "GIT_PREFIX"  # which an alias has too
    assert carried(environ) == ({} if inside else {name: environ[name] for name in IDENTITY if name in environ}) | {
        "EMAIL": "me@x"
    }


def test_a_real_hook_brings_no_identity_and_no_date(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True, env=environ)
    hook = tmp_path / "r" / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nenv -0 > {tmp_path}/env\n")
    hook.chmod(0o700)
    identity = ("-c", "user.name=Owner", "-c", "user.email=owner@x", "commit", "-q", "--allow-empty", "-m", "x")
    commit = ("git", "-C", str(tmp_path / "r"), *identity, "--author=Eve <eve@x>", "--date=2020-01-01T00:00:00")
    subprocess.run(commit, check=True, env=environ)
    inside = decode((tmp_path / "env").read_bytes())
    assert inside["GIT_AUTHOR_NAME"] == "Eve"
    assert not [name for name in carried(inside, ["GIT_*"]) if "AUTHOR" in name or "DATE" in name or "INDEX" in name]


names = st.one_of(st.sampled_from([*OUTER, *WANTED, "GIT_DIR", "=", "", "A=B", "CLAUDE_CODE_X"]), st.text(max_size=8))
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
environments = st.dictionaries(names, values, max_size=12)


@given(environments, environments, st.lists(st.sampled_from(["*", "CLAUDE*", "RAMET_*", "GH_TOKEN", "?"])))
def test_whatever_comes_in_nothing_forbidden_comes_out(
    daemon: dict[str, str], caller: dict[str, str], pass_env: list[str]
) -> None:
    built = build(daemon, Variables(caller), pass_env, {"RAMET_SESSION": "me"})
    assert built.pop("RAMET_SESSION") == "me"
    assert not set(built) & {*OUTER, "GIT_DIR"}
    groups = {group_of(name) for name in caller} - {None}
    daemons = {name for name in daemon if name in caller or group_of(name) not in groups}
    assert set(built) == allowed({*daemons, *caller}, pass_env)
    assert all(built[name] == caller.get(name, daemon.get(name)) for name in built)


@given(environments, environments)
def test_building_from_what_was_built_changes_nothing(daemon: dict[str, str], caller: dict[str, str]) -> None:
    once = build(daemon, Variables(caller))
    assert build(once, Variables()) == build({}, Variables(once)) == once


@given(environments)
def test_what_a_call_carries_arrives(caller: dict[str, str]) -> None:
    environment = {name: value for name, value in caller.items() if NAME.fullmatch(name)}
    assert decode(encode(environment)) == environment


def test_a_daemon_started_by_the_way_has_no_account_of_anybody() -> None:
    of_accounts = {"ANTHROPIC_AUTH_TOKEN", "AWS_PROFILE", "GH_TOKEN", "GIT_AUTHOR_NAME", "CLAUDE_CODE_OAUTH_TOKEN"}
    others = {"PATH", "GIT_CONFIG_GLOBAL", "SSH_AUTH_SOCK", "https_proxy", "RAMET_HOME", "CLAUDE_CONFIG_DIR", "X"}
    assert set(for_daemon(dict.fromkeys(of_accounts | others, ""))) == others


def test_no_fresh_variable_is_never_passed_and_none_is_out_of_reach() -> None:
    for family in FAMILIES:
        plain = [pattern.replace("*", "X") for pattern in family.patterns]
        assert [family_of(name) for name in plain] == [family] * len(plain)
        assert not [name for name in plain if matches(name, NEVER)]


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_value_that_no_process_can_have_is_refused_by_name_and_not_shown(value: str) -> None:
    with pytest.raises(BadEnvironmentError, match="ANTHROPIC_API_KEY") as caught:
        build({}, Variables({"ANTHROPIC_API_KEY": value}))
    assert value not in str(caught.value)


records = st.dictionaries(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")),
)


@given(records, records, st.sets(st.sampled_from(["A", "B_1", "_"])))
def test_every_environment_is_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, called: dict[str, str], given_: dict[str, str], removed: set[str]
) -> None:
    variables = Variables(called, given_ | dict.fromkeys(removed))
    files = EnvironmentFiles(tmp_path_factory.getbasetemp() / "secrets")
    files.write("round-trip", variables)
    assert files.read("round-trip") == variables


def test_an_unchanged_environment_is_not_written_again(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    files.write("a", Variables({"AWS_PROFILE": "a"}))
    before = (tmp_path / "secrets" / "a.env").stat().st_ino
    files.change("a", lambda variables: variables.refreshed({"AWS_PROFILE": "a", "PATH": "/new"}))
    assert (tmp_path / "secrets" / "a.env").stat().st_ino == before
    files.change("a", lambda variables: variables.refreshed({"AWS_PROFILE": "b"}))
    assert files.read("a").called == {"AWS_PROFILE": "b"}


def test_the_file_is_0600_in_a_0700_directory_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    before = os.umask(0)
    try:
        files.write("a", Variables({"TOKEN": "1"}))
        files.write("a", Variables({"TOKEN": "2"}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    entries = list((tmp_path / "secrets").iterdir())
    assert [stat.S_IMODE(entry.stat().st_mode) for entry in entries] == [0o600]
    assert files.read("a") == Variables({"TOKEN": "2"})


def test_what_is_deleted_or_was_never_written_is_empty(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    assert files.read("a") == Variables()
    files.write("a", Variables({"A": "1"}))
    files.delete("a")
    files.delete("a")
    assert files.read("a") == Variables()
    assert list((tmp_path / "secrets").iterdir()) == []


def test_a_refused_environment_leaves_the_one_before(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    files.write("a", Variables({"A": "1"}))
    with pytest.raises(BadEnvironmentError):
        files.write("a", Variables({"A=": "2"}))
    assert files.read("a") == Variables({"A": "1"})


@pytest.mark.parametrize("session", ["", "..", "a/b", "../x", "-a", "A", "a" * 49])
def test_only_ids_name_files(tmp_path: Path, session: str) -> None:
    files = EnvironmentFiles(tmp_path / "secrets")
    with pytest.raises(ValueError, match="not a session id"):
        files.write(session, Variables())


def test_a_directory_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o755)
    (tmp_path / "secrets").chmod(0o755)
    with pytest.raises(RuntimeDirectoryError, match="open to others"):
        EnvironmentFiles(tmp_path / "secrets").write("a", Variables({"A": "1"}))


@pytest.mark.parametrize(
    ("place", "diff", "loaded"),
    [
        ("a", None, True),
        ("a/deep", None, True),
        ("b", None, False),
        ("ab", None, False),
        ("b", "not a diff", True),
        ("b", "", True),
    ],
)
def test_what_direnv_loaded_for_a_project_reaches_no_other(
    tmp_path: Path, place: str, diff: str | None, loaded: bool
) -> None:
    changed = {"p": {"PATH": "/bin", "NVM_DIR": "gone"}, "n": {"PATH": "/a/bin:/bin", "AWS_PROFILE": "a"}}
    packed = base64.urlsafe_b64encode(zlib.compress(json.dumps(changed).encode())).decode()
    environ = {"PATH": "/a/bin:/bin", "AWS_PROFILE": "a", "HOME": "/h", "DIRENV_DIR": f"-{tmp_path}/a"}
    environ["DIRENV_DIFF"] = packed if diff is None else diff
    caller = CallerEnvironment(environ, tmp_path / "none", lasting=False)
    ((_, sent),) = caller.metadata(session_pb2.CreateSessionRequest(path=str(tmp_path / place)))
    before = {"PATH": "/bin", "NVM_DIR": "gone", "HOME": "/h"}
    assert decode(sent) == ({"PATH": "/a/bin:/bin", "AWS_PROFILE": "a", "HOME": "/h"} if loaded else before)
