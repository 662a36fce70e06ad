"""Installing the daemon as a service of the person's own manager: systemd (Linux) or launchd
(macOS).

Nothing here prints or exits: each function returns a `Report`. Commands run through an injected
runner.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ramet.paths import PathsError, directories, make_private_directory, user_home

from rametctl.local import units


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended; ``output`` is what it printed on both streams."""

    code: int
    output: str


Runner = Callable[[Sequence[str]], Ran]


@dataclass(slots=True)
class Report:
    """Lines for the person, in order; ``ok`` is False where something is left to do by hand."""

    lines: list[str] = field(default_factory=list)
    ok: bool = True


class ServiceError(Exception):
    """The service cannot be installed at all; ``hint`` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def run(command: Sequence[str]) -> Ran:
    """Run a command. A missing program is exit status 127."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    except FileNotFoundError:
        return Ran(127, f"{command[0]} is not installed")
    except subprocess.TimeoutExpired:
        return Ran(124, f"{command[0]} did not answer within a minute")
    return Ran(done.returncode, done.stdout.decode(errors="replace").strip())


def find_rametd(python: Path, path: str) -> Path:
    """Find the daemon's program: next to the running interpreter (unresolved, for virtual
    environments), else on ``path``.

    Raises ServiceError.
    """
    beside = python.parent / "rametd"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("rametd", path=path)
    if found is None:
        raise ServiceError("rametd is not installed", hint="pip install 'ramet[daemon]'")
    return Path(found).absolute()


@dataclass(frozen=True, slots=True)
class Service:
    """The service of one person on this machine."""

    rametd: Path
    environ: Mapping[str, str]
    run: Runner = run
    platform: str = sys.platform
    uid: int = field(default_factory=os.getuid)

    @property
    def unit(self) -> Path:
        """Path of the unit file."""
        if self.platform == "darwin":
            return user_home(self.environ, uid=self.uid) / "Library" / "LaunchAgents" / units.LAUNCHD
        return directories(self.environ, uid=self.uid).config_home / "systemd" / "user" / units.SYSTEMD

    def install(self, *, dry_run: bool = False) -> Report:
        """Write the unit; start it now and at every login. Raises ServiceError where it cannot be
        written."""
        report = Report()
        content = self._content()
        if dry_run:
            report.lines += [f"would write {self.unit}:", content.decode().rstrip()]
            report.lines += [f"would run: {_shown(command)}" for command in self._starting()]
            return report
        try:
            if self.unit.is_file() and self.unit.read_bytes() == content:
                report.lines.append(f"unchanged: {self.unit}")
            else:
                _replace(self.unit, content)
                report.lines.append(f"written: {self.unit}")
            if self.platform == "darwin":
                make_private_directory(self._logs().parent)
                make_private_directory(self._logs())
        except OSError as error:
            raise ServiceError(
                f"{error.filename} cannot be written: {error.strerror}", hint="see its permissions"
            ) from error
        except PathsError as error:
            raise ServiceError(error.message, hint=error.hint) from error
        if self.platform == "darwin":
            self.run(self._bootout())  # launchd reads no loaded unit again; this fails if none is loaded
        if self._run_all(self._starting(), report):
            report.lines.append("rametd runs as a service and starts at every login")
            report.lines += self._linger_hint()
        return report

    def uninstall(self) -> Report:
        """Stop the service and remove its unit. Agents keep running; the next daemon reattaches
        them."""
        report = Report()
        if not self.unit.exists():
            report.lines.append(f"not installed: there is no {self.unit}")
            return report
        if self.platform == "darwin":
            stopped = self.run(self._bootout())
        else:
            stopped = self.run(["systemctl", "--user", "disable", "--now", units.SYSTEMD])
        try:
            self.unit.unlink()
        except OSError as error:
            raise ServiceError(
                f"{self.unit} cannot be removed: {error.strerror}", hint="see its permissions"
            ) from error
        report.lines.append(f"removed: {self.unit}")
        if stopped.code != 0:
            report.ok = False
            report.lines.append(f"the service could not be stopped: {_last_line(stopped.output)}")
            report.lines.append("if a daemon still runs: rametctl daemon stop")
        elif self.platform != "darwin":
            self._run_all([["systemctl", "--user", "daemon-reload"]], report)
        return report

    def status(self) -> Report:
        """Report whether the unit is installed and current, and its state in the service
        manager."""
        report = Report()
        if not self.unit.is_file():
            return Report(
                [f"not installed: there is no {self.unit}", "install it with: rametctl service install"], ok=False
            )
        report.lines.append(f"installed: {self.unit}")
        if self.unit.read_bytes() != self._content():
            report.ok = False
            report.lines.append(
                "it differs from what this version would write; renew it with: rametctl service install"
            )
        if self.platform == "darwin":
            answer = self.run(["launchctl", "print", f"gui/{self.uid}/{units.LABEL}"])
            states = [line.strip() for line in answer.output.splitlines() if line.strip().startswith("state = ")]
            state = (
                states[0].removeprefix("state = ")
                if answer.code == 0 and states
                else f"not loaded: {_last_line(answer.output)}"
            )
            report.ok = report.ok and state == "running"
        else:
            answer = self.run(["systemctl", "--user", "is-active", units.SYSTEMD])
            state = _last_line(answer.output) or f"unknown (systemctl ended with {answer.code})"
            report.ok = report.ok and answer.code == 0
        report.lines.append(f"state: {state}")
        return report

    def _content(self) -> bytes:
        if self.platform == "darwin":
            return units.launchd(self.rametd, self.environ, self._logs())
        return units.systemd(self.rametd, self.environ).encode()

    def _logs(self) -> Path:
        return directories(self.environ, uid=self.uid, platform=self.platform).logs

    def _starting(self) -> list[list[str]]:
        if self.platform == "darwin":
            return [["launchctl", "bootstrap", f"gui/{self.uid}", str(self.unit)]]
        return [
            ["systemctl", "--user", "daemon-reload"],
            ["systemctl", "--user", "enable", "--now", units.SYSTEMD],
        ]

    def _bootout(self) -> list[str]:
        return ["launchctl", "bootout", f"gui/{self.uid}/{units.LABEL}"]

    def _run_all(self, commands: Sequence[Sequence[str]], report: Report) -> bool:
        """Run the commands in order; at the first failure report the cause and the remaining
        commands."""
        for position, command in enumerate(commands):
            ran = self.run(command)
            if ran.code != 0:
                report.ok = False
                report.lines.append(f"{_shown(command)}: {_last_line(ran.output) or f'ended with {ran.code}'}")
                left = " && ".join(_shown(later) for later in commands[position:])
                report.lines.append(f"once the cause is gone, or in a full login session, run: {left}")
                return False
        return True

    def _linger_hint(self) -> list[str]:
        """Return how to enable lingering unless it is on: without it, systemd ends a person's
        services and their agents at logout."""
        if self.platform == "darwin":
            return []
        answer = self.run(["loginctl", "show-user", str(self.uid), "--property=Linger", "--value"])
        if answer.code == 0 and answer.output == "yes":
            return []
        return ["to keep agents at work after you log out, run: loginctl enable-linger"]


def _replace(path: Path, content: bytes) -> None:
    """Write in one step: a manager that reads it meanwhile sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:  # it exists only if the write failed
        temporary.unlink(missing_ok=True)


def _shown(command: Sequence[str]) -> str:
    return " ".join(command)


def _last_line(output: str) -> str:
    lines = output.splitlines()
    return lines[-1].strip() if lines else ""
