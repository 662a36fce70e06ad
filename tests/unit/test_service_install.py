import plistlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from rametctl.local import units
from rametctl.local.service import Ran, Service, ServiceError, find_rametd, run

NO_BUS = Ran(1, "Failed to connect to bus: No medium found")


class Manager:
    """A runner with given answers, which records its commands. Commands are matched by a word in
    them."""

    def __init__(self, **answers: Ran) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> Ran:
        self.asked.append(" ".join(command))
        return next((ran for word, ran in self.answers.items() if word.replace("_", "-") in command), Ran(0, ""))


def linux(tmp_path: Path, manager: Manager, rametd: str = "/opt/rametd") -> Service:
    environ = {"HOME": str(tmp_path), "PATH": "/bin"}
    return Service(Path(rametd), environ, manager, platform="linux", uid=7)


def darwin(tmp_path: Path, manager: Manager) -> Service:
    return Service(Path("/opt/rametd"), {"HOME": str(tmp_path), "PATH": "/bin"}, manager, platform="darwin", uid=7)


def test_installing_writes_the_unit_and_starts_it_now_and_at_every_login(tmp_path: Path) -> None:
    manager = Manager(show_user=Ran(0, "no"))
    report = linux(tmp_path, manager).install()
    unit = tmp_path / ".config/systemd/user/rametd.service"
    assert report.ok
    assert 'ExecStart="/opt/rametd"' in unit.read_text()
    assert manager.asked[:2] == ["systemctl --user daemon-reload", "systemctl --user enable --now rametd.service"]
    assert "loginctl enable-linger" in report.lines[-1]
    assert list(unit.parent.iterdir()) == [unit]


def test_the_configuration_directory_of_the_person_is_respected(tmp_path: Path) -> None:
    environ = {"HOME": "/nowhere", "XDG_CONFIG_HOME": str(tmp_path / "cfg")}
    assert (
        Service(Path("/r"), environ, Manager(), platform="linux").unit == tmp_path / "cfg/systemd/user/rametd.service"
    )


def test_the_hint_about_linger_is_left_out_if_it_is_on(tmp_path: Path) -> None:
    report = linux(tmp_path, Manager(show_user=Ran(0, "yes"))).install()
    assert not any("enable-linger" in line for line in report.lines)


def test_installing_again_changes_nothing_and_a_new_path_is_written(tmp_path: Path) -> None:
    linux(tmp_path, Manager()).install()
    assert "unchanged" in linux(tmp_path, Manager()).install().lines[0]
    assert "written" in linux(tmp_path, Manager(), "/opt/new/rametd").install().lines[0]


def test_without_a_user_manager_the_unit_is_written_with_a_hint(tmp_path: Path) -> None:
    manager = Manager(daemon_reload=NO_BUS)
    report = linux(tmp_path, manager).install()
    assert not report.ok
    assert (tmp_path / ".config/systemd/user/rametd.service").is_file()
    assert manager.asked == ["systemctl --user daemon-reload"]
    assert "Failed to connect to bus" in report.lines[1]
    assert report.lines[2].endswith(
        "run: systemctl --user daemon-reload && systemctl --user enable --now rametd.service"
    )


def test_a_dry_run_shows_everything_and_does_nothing(tmp_path: Path) -> None:
    for make in (linux, darwin):
        manager = Manager()
        report = make(tmp_path, manager).install(dry_run=True)
        text = "\n".join(report.lines)
        assert "/opt/rametd" in text
        assert "would run: " in text
        assert manager.asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error_with_the_path(tmp_path: Path) -> None:
    (tmp_path / ".config").write_text("in the way")
    with pytest.raises(ServiceError, match=r"\.config"):
        linux(tmp_path, Manager()).install()


def test_uninstalling_stops_the_service_and_removes_the_unit(tmp_path: Path) -> None:
    linux(tmp_path, Manager()).install()
    manager = Manager()
    report = linux(tmp_path, manager).uninstall()
    assert report.ok
    assert manager.asked == ["systemctl --user disable --now rametd.service", "systemctl --user daemon-reload"]
    assert not (tmp_path / ".config/systemd/user/rametd.service").exists()
    assert "not installed" in linux(tmp_path, manager).uninstall().lines[0]


def test_uninstalling_completes_without_a_manager(tmp_path: Path) -> None:
    linux(tmp_path, Manager()).install()
    report = linux(tmp_path, Manager(disable=NO_BUS)).uninstall()
    assert not report.ok
    assert not (tmp_path / ".config/systemd/user/rametd.service").exists()
    assert "Failed to connect to bus" in report.lines[1]


def test_the_status_distinguishes_missing_running_failed_and_outdated(tmp_path: Path) -> None:
    missing = linux(tmp_path, Manager()).status()
    assert (missing.ok, missing.lines[0].startswith("not installed")) == (False, True)
    linux(tmp_path, Manager()).install()
    running = linux(tmp_path, Manager(is_active=Ran(0, "active"))).status()
    assert (running.ok, running.lines[-1]) == (True, "state: active")
    failed = linux(tmp_path, Manager(is_active=Ran(3, "failed"))).status()
    assert (failed.ok, failed.lines[-1]) == (False, "state: failed")
    outdated = linux(tmp_path, Manager(is_active=Ran(0, "active")), "/opt/new/rametd").status()
    assert not outdated.ok
    assert any("differs" in line for line in outdated.lines)


def test_on_macos_it_is_a_launch_agent(tmp_path: Path) -> None:
    manager = Manager(bootout=Ran(3, "No such process"))
    service = darwin(tmp_path, manager)
    report = service.install()
    unit = tmp_path / "Library/LaunchAgents/dev.ramet.rametd.plist"
    assert report.ok
    assert plistlib.loads(unit.read_bytes())["ProgramArguments"] == ["/opt/rametd"]
    assert manager.asked == [f"launchctl bootout gui/7/{units.LABEL}", f"launchctl bootstrap gui/7 {unit}"]
    assert (tmp_path / ".local/state/ramet/logs").is_dir()  # launchd does not create the directory of its log
    running = darwin(tmp_path, Manager(print=Ran(0, "gui/7/x = {\n\tstate = running\n}"))).status()
    assert (running.ok, running.lines[-1]) == (True, "state: running")
    assert not darwin(tmp_path, Manager(print=Ran(113, "Could not find service"))).status().ok
    assert service.uninstall().lines[0].startswith("removed")
    assert not unit.exists()


def test_the_program_beside_the_interpreter_comes_before_the_path(tmp_path: Path) -> None:
    for name in ("venv", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rametd").touch(mode=0o755)
    assert find_rametd(tmp_path / "venv" / "python", str(tmp_path / "other")) == tmp_path / "venv" / "rametd"
    assert find_rametd(tmp_path / "python", str(tmp_path / "other")) == tmp_path / "other" / "rametd"
    with pytest.raises(ServiceError, match="not installed") as caught:
        find_rametd(tmp_path / "python", str(tmp_path))
    assert "pip install" in caught.value.hint


def test_the_real_runner_gives_code_and_output_and_survives_a_missing_program() -> None:
    assert run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Ran(3, "out\nerr")
    assert run(["ramet-no-such-program"]).code == 127
