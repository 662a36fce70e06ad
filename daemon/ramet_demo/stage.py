"""The demonstration's sandbox: private directories, a scripted model, and a teardown that leaves
nothing.

Every process in it has the stage's RAMET_HOME in its environment. Keepers have no environment;
their directories name them.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from rametd.platform import processes
from rametd.platform.processes import Process

from ramet_demo import sample

MODEL_DEADLINE_S = 10.0
END_DEADLINE_S = 15.0
SETTINGS = {"permissions": {"allow": ["Bash(python -m unittest:*)"]}}
INHERITED_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "TZ", "SSL_CERT_FILE")


class BrokenPromiseError(Exception):
    """Raised when a claim of the demonstration does not hold."""


class Stage:
    """Directories below ``root``, an environment that points only to them, and the processes with
    this environment."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root = root
        self.repository = root / "greet"
        self._outer = environ
        self._model: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def environ(self) -> dict[str, str]:
        inherited = {name: self._outer[name] for name in INHERITED_VARIABLES if name in self._outer}
        return inherited | {
            "PATH": f"{self.root / 'bin'}:{self._outer.get('PATH') or os.defpath}",
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.root / "tmp"),
            "PAGER": "cat",
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "RAMET_HOME": str(self.state),
            "RAMET_RUNTIME_DIR": str(self.root / "run"),
            "CLAUDE_CONFIG_DIR": str(self.root / "claude"),
            "CLAUDE_CODE_TMPDIR": str(self.root / "tmp"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._port}",
            "ANTHROPIC_API_KEY": "scripted",
            "NO_PROXY": "127.0.0.1",
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": "Ramet demo" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "demo@example.org" for who in ("AUTHOR", "COMMITTER")},
        }

    def build(self) -> None:
        """Create the directories and the sample repository, and start the model."""
        for name in ("bin", "home", "config", "claude", "run", "tmp", "state"):
            (self.root / name).mkdir(mode=0o700)
        # Agents run `python`, and a person who looks around runs `rametctl`: provide both.
        for name, arguments in (("python", ""), ("rametctl", " -P -m rametctl")):
            program = self.root / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
            program.chmod(0o755)
        (self.root / "claude" / "settings.json").write_text(json.dumps(SETTINGS))
        sample.make(self.repository, self.environ)
        self._start_model()

    def _start_model(self) -> None:
        script = self.root / "script.json"
        script.write_bytes(resources.files("ramet_demo").joinpath("script.json").read_bytes())
        port_file = self.root / "port"
        with (self.root / "model.log").open("wb") as log:
            self._model = subprocess.Popen(
                [sys.executable, "-P", "-m", "ramet_demo.scripted.model", "--script", script, "--port-file", port_file],
                cwd=self.root,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # only this process handles Ctrl-C, and ends the model in order
            )
        end = time.monotonic() + MODEL_DEADLINE_S
        while not port_file.exists():
            if self._model.poll() is not None or time.monotonic() > end:
                raise BrokenPromiseError(f"the scripted model did not start: {(self.root / 'model.log').read_text()}")
            time.sleep(0.02)
        self._port = int(port_file.read_text())

    def end_model(self) -> None:
        if self._model is not None:
            self._model.terminate()
            self._model.wait(END_DEADLINE_S)

    def processes(self) -> list[Process]:
        """List the stage's living processes: client, daemon, model, keepers, agents and their
        descendants."""
        found = set(processes.tagged({"RAMET_HOME": str(self.state)}))
        for record in self.state.glob("agents/*/run.json"):
            run = json.loads(record.read_text())
            for role in ("keeper", "agent"):
                process = processes.find(run[f"{role}_pid"])
                if process is not None and process.start == run[f"{role}_start"] and not process.zombie:
                    found.add(process)
        return sorted(found, key=lambda process: process.pid)

    def kill_everything(self) -> None:
        """Kill the processes that are left. A keeper that starts now is not recorded yet, so look
        until none has appeared for a while."""
        end, quiet = time.monotonic() + END_DEADLINE_S, 0
        while quiet < 3:
            left = self.processes()
            quiet = 0 if left else quiet + 1
            for process in left:
                processes.send_signal(process.pid, process.start, 9)
            if self._model is not None:
                self._model.poll()
            if time.monotonic() > end:
                raise BrokenPromiseError(f"processes do not end: {', '.join(str(process.pid) for process in left)}")
            time.sleep(0.05)

    def save_environment(self) -> Path:
        """Write a shell script that sets the environment, for a look at the kept directory; return
        its path."""
        path = self.root / "environment.sh"
        path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.environ.items()))
        return path


@contextmanager
def stage(environ: Mapping[str, str], *, keep: bool) -> Iterator[Stage]:
    """Create a stage, and tear it down at the end; ``keep`` leaves the directory. Its path is
    short, as sockets are below it."""
    root = Path(tempfile.mkdtemp(prefix="ramet-demo-", dir="/tmp")).resolve()
    made = Stage(root, environ)
    try:
        made.build()
        yield made
    finally:
        try:
            made.kill_everything()
        finally:
            if not keep:
                shutil.rmtree(root)
