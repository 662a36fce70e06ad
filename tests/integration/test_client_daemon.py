"""Verbs about the daemon, its log and its configuration, with a fake daemon."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import daemon_pb2, event_pb2

from tests.support.client import World
from tests.support.client import world as make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def lines(text: str) -> list[str]:
    return text.splitlines()


def log_world(world: World, count: int) -> None:
    session = world.state.session("fix")
    for number in range(count):
        world.state.event(session, warning=event_pb2.Warning(message=f"w{number}"), frame=f'{{"n":{number}}}'.encode())


def test_log_has_a_line_for_each_event(world: World) -> None:
    log_world(world, 450)
    shown = lines(world.run("log", "fix").out)
    assert len(shown) == 450
    assert shown[0] == "2023-11-14 22:13:21  warning            warning: w0"
    assert len(lines(world.run("log", "fix", "-n", "3").out)) == 3
    assert lines(world.run("log", "fix", "-n", "300").out) == shown[-300:]


def test_log_spares_people_the_agents_protocol(world: World) -> None:
    log_world(world, 3)
    session = world.state.sessions["00000001-aaaa"]
    for _ in range(250):
        world.state.event(session, control_line=event_pb2.ControlLine(type="control_request"), frame=b"{}")
        world.state.event(session, agent_notice=event_pb2.AgentNotice(type="system"), frame=b"{}")
    assert [text.split()[-1] for text in lines(world.run("log", "fix").out)] == ["w0", "w1", "w2"]
    assert [text.split()[-1] for text in lines(world.run("log", "fix", "-n", "2").out)] == ["w1", "w2"]
    assert len(json.loads(world.run("log", "fix", "--json").out)) == 503
    assert len(lines(world.run("log", "fix", "--raw").out)) == 503


def test_log_raw_is_what_the_agent_wrote(world: World) -> None:
    log_world(world, 2)
    world.state.event(world.state.sessions["00000001-aaaa"], warning=event_pb2.Warning(message="no frame"))
    assert world.run("log", "fix", "--raw").out == '{"n":0}\n{"n":1}\n'


def test_log_json_is_one_array_of_events(world: World) -> None:
    log_world(world, 2)
    shown = json.loads(world.run("log", "fix", "--json", "--audit").out)
    assert [(event["payload"], event["warning"]["message"]) for event in shown] == [
        ("warning", "w0"),
        ("warning", "w1"),
    ]
    assert world.state.called("ListEvents")[0].audit


def test_daemon_status_has_the_documented_fields(world: World) -> None:
    world.state.session("fix")
    shown = json.loads(world.run("daemon", "status", "--json").out)
    assert {"pid", "version", "instance_id", "socket", "state_dir", "serving", "sessions", "agents_alive"} <= set(shown)
    assert (shown["serving"], shown["sessions"], shown["agents_alive"]) == (True, 1, 1)
    assert "1 (1 idle)" in world.run("daemon", "status").out


def test_config_show_has_the_origin_of_each_value(world: World) -> None:
    world.state.settings.append(
        daemon_pb2.Setting(key="max_working", value_json="8", origin="default", description="how many")
    )
    assert lines(world.run("config", "show").out)[1].split() == ["max_working", "8", "default", "how", "many"]
    assert json.loads(world.run("config", "show", "--json").out)["settings"][0]["value"] == 8
    world.state.settings.append(
        daemon_pb2.Setting(
            key="pool.size", value_json="1", unit="worktrees", origin="owner file", description="of each"
        )
    )
    assert world.run("config", "show", "pool").out == "pool.size = 1 worktree  (owner file)\n  of each\n"
    assert [each["key"] for each in json.loads(world.run("config", "show", "max", "--json").out)["settings"]] == [
        "max_working"
    ]
    unknown = world.run("config", "show", "nope")
    assert (unknown.code, "there is no setting nope" in unknown.err) == (2, True)


def test_config_check_finds_a_broken_file_without_a_daemon(world: World) -> None:
    file = world.home / "config" / "ramet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("max_working = \n")
    result = world.run("config", "check")
    assert result.code == 1
    assert result.err == f"rametctl: {file}:1: not TOML: Invalid value (at line 1, column 15)\n"
    file.write_text("max_working = 3\n")
    assert world.run("config", "check").out == f"{file}: ok\n"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_wroking", "3", "max_wroking: there is no such setting; did you mean max_working?"),
        ("notify.quiet", "abc", "notify.quiet: expected hours such as \"22:00-07:30\", found 'abc'"),
    ],
)
def test_a_refused_setting_is_named_without_a_line_and_changes_nothing(
    world: World, key: str, value: str, said: str
) -> None:
    file = world.home / "config" / "ramet" / "config.toml"
    result = world.run("config", "set", key, value)
    assert (result.code, result.err) == (1, f"rametctl: nothing was changed: {said}\n")
    assert list(file.parent.iterdir()) == []


def test_a_setting_is_written_through_a_link_to_the_file(world: World) -> None:
    """A file in a directory of dotfiles is linked into ~/.config; a write must not replace the link
    by a file."""
    file = world.home / "config" / "ramet" / "config.toml"
    file.parent.mkdir(parents=True)
    kept = world.home / "dotfiles.toml"
    kept.write_text("# mine\n")
    file.symlink_to(kept)
    assert world.run("config", "set", "max_working", "3").code == 0
    assert (file.is_symlink(), kept.read_text()) == (True, "max_working = 3\n# mine\n")


def test_a_link_into_a_missing_directory_is_an_error_in_one_line(world: World) -> None:
    file = world.home / "config" / "ramet" / "config.toml"
    file.parent.mkdir(parents=True)
    target = world.home / "missing" / "dotfiles.toml"
    file.symlink_to(target)
    result = world.run("config", "set", "max_working", "3")
    said = f"rametctl: nothing was changed: {target} cannot be written: No such file or directory\n"
    assert (result.code, result.err) == (1, said)


@pytest.mark.parametrize("inside", [{"RAMET_TOKEN": "t0k3n", "RAMET_SESSION": "s"}, {"RAMET_SESSION": "s"}])
@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "set", "permissions.allow_bypass", "true"),
        ("config", "edit"),
        ("service", "install"),
        ("service", "uninstall"),
    ],
)
def test_a_session_changes_no_files_of_the_person(
    world: World, arguments: tuple[str, ...], inside: dict[str, str]
) -> None:
    """The daemon refuses a session's calls; these verbs write files without a call."""
    mark = world.home / "edited"
    before = sorted(world.home.rglob("*"))
    result = world.run(*arguments, env={**inside, "VISUAL": f"touch {mark} #"})
    assert (result.code, result.err.startswith("rametctl: a session may not ")) == (1, True)
    assert sorted(world.home.rglob("*")) == before


def test_a_setting_without_a_daemon_takes_effect_at_its_start(world: World) -> None:
    world.daemon.stop()
    result = world.run("config", "set", "max_working", "3", terminal=True)
    assert (result.code, "takes effect when the daemon starts" in result.out) == (0, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"max_wroking = 3\n", "1: max_wroking: there is no such setting; did you mean max_working?"),
        (b"\nmax_working = true\n", "2: max_working: expected "),
        (b"budget = 3\n", "1: budget: expected a table, found 3"),
        (b"# caf\xe9\n", " is not UTF-8 text (byte 5); save it as UTF-8"),
    ],
)
def test_config_check_reports_every_kind_of_problem_without_a_daemon(world: World, text: bytes, said: str) -> None:
    world.daemon.stop()
    file = world.home / "config" / "ramet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    result = world.run("config", "check")
    assert (result.code, result.out, len(lines(result.err))) == (1, "", 1)
    assert result.err.removeprefix(f"rametctl: {file}").removeprefix(":").startswith(said)
    assert json.loads(world.run("config", "check", "--json").out)["error"]["reason"] == "BAD_CONFIG"


def test_config_check_lists_what_is_wrong_in_both_files(world: World) -> None:
    world.daemon.stop()
    (world.cwd / ".git").mkdir()
    (world.cwd / "below").mkdir()
    theirs = world.cwd / ".ramet.toml"
    theirs.write_text("max_working = 1\nsetup = 3\n")
    for args in ([], ["--repo", "below"]):
        result = world.run("config", "check", *args)
        assert result.code == 1
        assert [text.startswith(f"  {theirs}:") for text in lines(result.err)] == [True, True, False]
        assert lines(result.err)[-1].startswith("rametctl: 2 errors in the configuration")


def test_version_has_both_releases(world: World) -> None:
    assert [text.split()[0] for text in lines(world.run("version").out)] == ["rametctl", "rametd"]
    world.daemon.stop()
    assert lines(world.run("version").out)[1] == "no daemon is running"
    assert json.loads(world.run("version", "--json").out)["daemon"] is None


def test_the_service_installs_without_a_daemon(world: World) -> None:
    result = world.run("service", "status")
    assert result.code == 1
    assert "not installed" in result.out
