import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rametctl.local import units

TRICKY = '/opt/a b/100%/$HOME/"q"/back\\slash/rametd'


def section(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    start = lines.index(f"[{name}]") + 1
    end = next((index for index in range(start, len(lines)) if lines[index].startswith("[")), len(lines))
    return [line for line in lines[start:end] if line and not line.startswith("#")]


def test_agents_survive_the_service_manager() -> None:
    service = section(units.template(units.SYSTEMD), "Service")
    for line in [
        "Type=notify",
        "NotifyAccess=main",
        "KillMode=process",
        "Delegate=yes",
        "OOMPolicy=continue",
        "Restart=on-failure",
        "RuntimeDirectory=ramet",
        "RuntimeDirectoryMode=0700",
        "RuntimeDirectoryPreserve=yes",
    ]:
        assert line in service
    assert any(line.startswith("WatchdogSec=") for line in service)
    agent = plistlib.loads(units.template(units.LAUNCHD).encode())
    assert agent["AbandonProcessGroup"] is True
    assert agent["RunAtLoad"] is True
    assert agent["KeepAlive"] == {"SuccessfulExit": False}


def test_the_service_unit_has_the_program_and_the_directory_variables() -> None:
    environ = {"RAMET_HOME": "/r", "PATH": "/a:/b", "ANTHROPIC_API_KEY": "secret", "XDG_STATE_HOME": ""}
    text = units.systemd(Path("/opt/bin/rametd"), environ)
    assert 'ExecStart="/opt/bin/rametd"' in section(text, "Service")
    assert [line for line in section(text, "Service") if line.startswith("Environment=")] == [
        'Environment="RAMET_HOME=/r"',
        'Environment="PATH=/a:/b"',
    ]
    assert "@" not in "".join(section(text, "Service"))
    assert "secret" not in text


def test_every_path_is_quoted_for_systemd() -> None:
    text = units.systemd(Path(TRICKY), {"RAMET_HOME": "/50%/$x y"})
    assert 'ExecStart="/opt/a b/100%%/$HOME/\\"q\\"/back\\\\slash/rametd"' in text
    assert 'Environment="RAMET_HOME=/50%%/$x y"' in text


def test_the_launch_agent_is_a_plist_with_any_path_in_it() -> None:
    agent = plistlib.loads(units.launchd(Path("/a & b/<rametd>"), {"PATH": "/x"}, Path("/logs")))
    assert agent["Label"] == units.LABEL
    assert agent["ProgramArguments"] == ["/a & b/<rametd>"]
    assert agent["StandardErrorPath"] == agent["StandardOutPath"] == "/logs/launchd.log"
    assert agent["EnvironmentVariables"] == {"PATH": "/x"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["rametd", "with space", "100% $HOME"])
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    program.symlink_to(sys.executable)
    unit = tmp_path / units.SYSTEMD
    unit.write_text(units.systemd(program, {"PATH": "/usr/bin:/bin", "RAMET_HOME": str(tmp_path / "a b%")}))
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = ["systemd-analyze", "--user", "verify", str(unit)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
