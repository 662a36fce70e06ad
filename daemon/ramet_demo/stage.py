"""Where the demonstration takes place: private directories, a scripted model, and the certainty that nothing of it is left.

Every process of it carries this stage's RAMET_HOME in its environment, keepers excepted, which have none: their directories name them.
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
KEPT_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "TZ", "SSL_CERT_FILE")


class BrokenPromiseError(Exception):
    """Something that the demonstration claims did not happen."""


class Stage:
    """Directories below ``root``, the environment that leads only to them, and the processes that run in it."""

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
        kept = {name: self._outer[name] for name in KEPT_VARIABLES if name in self._outer}
        return kept | {
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
        """Make the directories and the sample repository, and start the model."""
        for name in ("bin", "home", "config", "claude", "run", "tmp", "state"):
            (self.root / name).mkdir(mode=0o700)
        # Agents say `python`, whoever looks around says `rametctl`: what runs this is there for sure.
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
                start_new_session=True,  # Ctrl-C is ours to handle, in order
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
        """What of this stage is alive: client, daemon, model, keepers, agents and all that they have started."""
        found = set(processes.tagged({"RAMET_HOME": str(self.state)}))
        for record in self.state.glob("agents/*/run.json"):
            run = json.loads(record.read_text())
            for role in ("keeper", "agent"):
                process = processes.find(run[f"{role}_pid"])
                if process is not None and process.start == run[f"{role}_start"] and not process.zombie:
                    found.add(process)
        return sorted(found, key=lambda process: process.pid)

    def kill_everything(self) -> None:
        """End what is left, by force. A keeper that starts in this moment is not on record yet, so the silence must last."""
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
        """A file to be read by a shell, for a look at what was kept."""
        path = self.root / "environment.sh"
        path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.environ.items()))
        return path


@contextmanager
def stage(environ: Mapping[str, str], *, keep: bool) -> Iterator[Stage]:
    """A stage that is built, and torn down however it ends; ``keep`` leaves the directory. The path is short: sockets are below it."""
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
