"""Agents of the Agent Client Protocol as kinds of agents. A preset has the differences between
them."""

import asyncio
import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rametd.agents.acp import v1
from rametd.agents.acp.channel import AcpChannel
from rametd.agents.base import Channel, ChannelIO, Frame, Launch, NativeStart, Outside, Start, require
from rametd.agents.inspection import run, version_in
from rametd.agents.presets import READS_SETTINGS, Preset
from rametd.config import Config
from rametd.domain.errors import AgentUnavailableError, InvalidInputError
from rametd.domain.models import Agent, Prompt, Session

KEYS = re.compile(r"(^|_)(API_)?(KEY|TOKEN)$|_BASE_URL$")
"""Names of variables with the model's credentials."""


class Acp:
    """The kind of agent of a preset. The agent stores its conversations; Ramet neither copies nor
    reads them."""

    rereads = True

    def __init__(self, preset: Preset, environment: Mapping[str, str]) -> None:
        self._preset = preset
        self._environment = environment
        self._versions: dict[tuple[str, int], str] = {}  # by path and time of its last change
        self.name = preset.name
        # OpenCode loads plugins although a variable turns its project configuration off.
        self.reads_settings = not preset.untrusted_env or READS_SETTINGS in preset.faults
        self.capabilities = preset.capabilities
        self.modes = frozenset(preset.modes)

    @property
    def variables(self) -> Mapping[str, str]:
        return self._preset.env

    def defaults(self, config: Config) -> tuple[str, str]:
        return "", ""

    def own_places(self, environment: Mapping[str, str], home: Path) -> list[Path]:
        return []

    def _program(self, environment: Mapping[str, str]) -> str:
        command = self._preset.command
        found = shutil.which(command[0], path=environment.get("PATH")) if command else None
        if found is None:
            hint = f"install it: {self._preset.install}" if self._preset.install else f"set agents.{self.name}.command"
            raise AgentUnavailableError(
                f"{self.name} is not installed: there is no {' '.join(command[:1]) or 'command'} on the PATH", hint=hint
            )
        return found

    async def check(self, environment: Mapping[str, str] | None = None) -> str:
        known = {**self._environment, **(environment or {})}
        path = await asyncio.to_thread(self._program, known)
        key = (path, (await asyncio.to_thread(Path(path).stat)).st_ctime_ns)
        if key not in self._versions:
            code, output = await run(path, "--version", env=known)
            self._versions[key] = (version_in(output) if code == 0 else "") or "unknown"
        return self._versions[key]

    async def prepare(self) -> None:
        """Nothing is loaded for it."""

    def launch(self, session: Session, start: Start) -> Launch:
        known = {**self._environment, **start.environment}
        variables = {**start.environment, **self._preset.env, **({} if start.trusted else self._preset.untrusted_env)}
        variables |= {"GIT_OPTIONAL_LOCKS": "0", "PWD": str(session.worktree)}
        return Launch((self._program(known), *self._preset.command[1:]), variables)

    def native(self, session: Session, start: NativeStart) -> Launch:
        require(self, "attach", hint="look at it with `rametctl watch`, and answer it with `rametctl send`")
        raise InvalidInputError(f"{self.name} has no interface of its own")

    def outside(self, conversation_id: str, home: Path, after: float, results: int) -> Outside:
        return Outside((), after)

    def users(self, conversation_id: str, home: Path) -> list[tuple[int, str]]:
        return []

    def read(self, agent: Agent, start: int, end: int, line: bytes) -> Frame:
        return self.reader(agent)(start, end, line)

    def reader(self, agent: Agent) -> Callable[[int, int, bytes], Frame]:
        return v1.Reader(agent.session_id, agent.generation, agent.initialize_reply).read

    def outgoing(self, agent: Agent, line: bytes) -> bytes:
        return v1.complete(line, v1.State.load_from(agent.initialize_reply).session)

    def prompt_line(self, prompt: Prompt, images: Sequence[bytes]) -> bytes:
        return v1.prompt(prompt.id, prompt.text, images)

    def channel(self, agent: Agent, io: ChannelIO) -> Channel:
        return AcpChannel(self._preset, agent, io)

    def exit_reason(self, stderr_tail: str) -> str:
        lines = [line.strip() for line in stderr_tail.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""

    def conversation_missing(self, stderr_tail: str) -> bool:
        return False

    def conversation_exists(self, stderr_tail: str) -> bool:
        return False

    def login_command(self, environment: Mapping[str, str]) -> str:
        return self._preset.login or f"log in to {self._preset.title}"

    def credentials(self, environment: Mapping[str, str]) -> str:
        keys = sorted(
            (name, value) for name, value in environment.items() if KEYS.search(name) and name != "RAMET_TOKEN"
        )
        return hashlib.sha256(repr((self.name, keys)).encode("utf-8", "surrogateescape")).hexdigest()

    def task_output(self, session: Session, task_id: str, environment: Mapping[str, str]) -> str:
        return ""

    def conversation_home(self, environment: Mapping[str, str]) -> Path:
        return Path(environment.get("HOME") or Path.home())

    def has_conversation(self, conversation_id: str, root: Path) -> bool:
        return True

    def copy_conversation(self, conversation_id: str, source: Path, target: Path, *, overwrite: bool) -> bool:
        return True
