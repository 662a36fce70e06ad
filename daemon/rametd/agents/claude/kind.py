"""Claude Code as a kind of agent.

`Claude.prepare` imports the SDK in a thread: the import takes half a second, and a starting daemon
does not need the SDK.
"""

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rametd import loading
from rametd.agents.base import (
    Capabilities,
    Channel,
    ChannelIO,
    Frame,
    Launch,
    NativeStart,
    Outside,
    Start,
    in_base64,
    media_type,
)
from rametd.agents.claude import outside, transcripts
from rametd.agents.claude.frames import UNKNOWN_CONVERSATION, read_frame
from rametd.config import ClaudeSettings, Config
from rametd.domain.errors import AgentUnavailableError
from rametd.domain.models import OWNER, Agent, Mode, Prompt, Session
from rametd.platform import groups

VERSION_S = 20.0
KEYS = ("ANTHROPIC_", "AWS_", "CLAUDE_CODE_OAUTH_TOKEN", "GOOGLE_")
"""Prefixes of the environment variables that carry credentials for the model."""
PLACES = 1000
CONVERSATION_IN_USE = re.compile(r"Session ID .* is already in use", re.IGNORECASE)


def load() -> None:
    with loading.quickly():
        import_module("rametd.agents.claude.channel")


class Claude:
    """Claude Code, by default the program bundled with the pinned SDK."""

    name = "claude"
    capabilities = Capabilities(
        effort=True,
        ask_again=True,
        edit=True,
        reason=True,
        brief=True,
        fork=True,
        rewind=True,
        steer=True,
        cost=True,
        tokens=True,
        images=True,
        attach=True,
        warm=True,
        compact=True,
    )
    modes = frozenset(Mode)
    reads_settings = False
    rereads = False

    def __init__(self, settings: ClaudeSettings | None = None) -> None:
        self._settings = settings or ClaudeSettings()
        self._checked: tuple[tuple[int, int], str] | None = None
        self._prepared: asyncio.Task[object] | None = None
        self._places: dict[str, outside.Place] = {}  # by conversation, the position up to which its transcript was read

    @property
    def path(self) -> Path:
        return self._settings.path or _bundled()

    @property
    def variables(self) -> Mapping[str, str]:
        folder = self._settings.config_dir
        return {"CLAUDE_CONFIG_DIR": str(folder)} if folder is not None else {}

    def defaults(self, config: Config) -> tuple[str, str]:
        return config.agents.claude.model, config.agents.claude.effort

    def own_places(self, environment: Mapping[str, str], home: Path) -> list[Path]:
        temporary = Path(environment.get("CLAUDE_CODE_TMPDIR") or "/tmp") / f"claude-{os.getuid()}"  # noqa: S108 - the program's own default
        config = self._settings.config_dir or Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        return [each.resolve() for each in (temporary, config / "plans", config / "projects")]

    async def check(self, environment: Mapping[str, str] | None = None) -> str:
        """See `AgentKind.check`; runs the program only if its file has changed."""
        try:
            status = await asyncio.to_thread(self.path.stat)
        except OSError:
            return await _version_of(self.path)  # raises what is wrong
        identity = (status.st_ctime_ns, status.st_ino)  # ctime: a change of the mode counts too
        if self._checked is None or self._checked[0] != identity:
            self._checked = (identity, await _version_of(self.path))
        return self._checked[1]

    async def prepare(self) -> None:
        # One thread for all callers: reattaching to a hundred agents would fill the pool with
        # waiters for the import lock.
        if self._prepared is None or (self._prepared.done() and self._prepared.exception() is not None):
            self._prepared = asyncio.create_task(asyncio.to_thread(load))
        await asyncio.shield(self._prepared)

    def launch(self, session: Session, start: Start) -> Launch:
        from rametd.agents.claude import command

        return command.launch(self.path, session, start)

    def native(self, session: Session, start: NativeStart) -> Launch:
        from rametd.agents.claude import command

        return command.native(self.path, session, start)

    def outside(self, conversation_id: str, home: Path, after: float, results: int) -> Outside:
        found = transcripts.find(home, conversation_id)
        if found is None:
            return Outside((), after)
        turns, place = outside.read(found, conversation_id, after, results, self._places.pop(conversation_id, None))
        self._places[conversation_id] = place
        while len(self._places) > PLACES:
            self._places.pop(next(iter(self._places)), None)
        return turns

    def users(self, conversation_id: str, home: Path) -> list[tuple[int, str]]:
        return outside.users(home, conversation_id)

    def read(self, agent: Agent, start: int, end: int, line: bytes) -> Frame:
        return read_frame(agent.session_id, agent.generation, start, end, line)

    def reader(self, agent: Agent) -> Callable[[int, int, bytes], Frame]:
        return partial(self.read, agent)

    def outgoing(self, agent: Agent, line: bytes) -> bytes:
        return line

    def prompt_line(self, prompt: Prompt, images: Sequence[bytes]) -> bytes:
        text = {"type": "text", "text": prompt.text}
        blocks = [
            {"type": "image", "source": {"type": "base64", "media_type": media_type(each), "data": in_base64(each)}}
            for each in images
        ]
        message: dict[str, Any] = {
            "type": "user",
            "uuid": prompt.id,
            "session_id": "default",
            "parent_tool_use_id": None,
            "message": {"role": "user", "content": [*blocks, text] if images else prompt.text},
        }
        if prompt.source != OWNER:
            message["client_composed"] = True  # disables slash commands and @files in a text that no person wrote
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

    def channel(self, agent: Agent, io: ChannelIO) -> Channel:
        from rametd.agents.claude.channel import ClaudeChannel

        return ClaudeChannel(agent, io)

    def exit_reason(self, stderr_tail: str) -> str:
        lines = [line.strip() for line in stderr_tail.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""

    def conversation_missing(self, stderr_tail: str) -> bool:
        return UNKNOWN_CONVERSATION.search(stderr_tail) is not None

    def login_command(self, environment: Mapping[str, str]) -> str:
        words = ["claude" if shutil.which("claude", path=environment.get("PATH")) else str(self.path), "/login"]
        if configured := environment.get("CLAUDE_CONFIG_DIR"):
            words = ["env", f"CLAUDE_CONFIG_DIR={configured}", *words]
        return shlex.join(words)

    def credentials(self, environment: Mapping[str, str]) -> str:
        file = self.conversation_home(environment) / ".credentials.json"
        try:
            status = file.stat()
            seen = f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
        except OSError:
            seen = ""
        keys = sorted((name, value) for name, value in environment.items() if name.startswith(KEYS))
        return hashlib.sha256(repr((seen, keys)).encode("utf-8", "surrogateescape")).hexdigest()

    def task_output(self, session: Session, task_id: str, environment: Mapping[str, str]) -> str:
        return transcripts.task_output(session.worktree, session.conversation_id, task_id, environment)

    def conversation_home(self, environment: Mapping[str, str]) -> Path:
        return transcripts.configuration_directory(environment)

    def has_conversation(self, conversation_id: str, root: Path) -> bool:
        return transcripts.find(root, conversation_id) is not None

    def copy_conversation(self, conversation_id: str, source: Path, target: Path, *, overwrite: bool) -> bool:
        return transcripts.copy(conversation_id, source, target, overwrite=overwrite)

    def conversation_exists(self, stderr_tail: str) -> bool:
        return CONVERSATION_IN_USE.search(stderr_tail) is not None


def _bundled() -> Path:
    """Return the program bundled with the pinned SDK, without importing it. Raise
    `AgentUnavailableError` if the SDK is not installed."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise AgentUnavailableError("claude-agent-sdk is not installed", hint='pip install "ramet[daemon]" brings it')
    return Path(spec.origin).parent / "_bundled" / "claude"


async def _version_of(path: Path) -> str:
    """Return the output of ``path --version``. Raise `AgentUnavailableError`, which names the
    setting, if it cannot run."""
    hint = "set agents.claude.path in config.toml to a working claude, or install Ramet again to get its own"
    if not await asyncio.to_thread(path.is_file):
        raise AgentUnavailableError(f"there is no Claude Code at {path}", hint=hint)
    if not await asyncio.to_thread(os.access, path, os.X_OK):
        raise AgentUnavailableError(f"{path} may not be executed", hint=hint)
    try:
        process = await groups.start(
            str(path),
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(VERSION_S):
                stdout, stderr = await groups.communicate(process)
        except TimeoutError:
            raise AgentUnavailableError(
                f"{path} --version did not answer within {VERSION_S:.0f} seconds", hint=hint
            ) from None
        except groups.OutputError as error:
            raise AgentUnavailableError(f"{path} --version {error}", hint=hint) from None
        finally:
            await groups.end(process)
    except OSError as error:
        raise AgentUnavailableError(f"{path} cannot be run: {error.strerror}", hint=hint) from error
    if process.returncode != 0:
        words = stderr.decode("utf-8", "replace").strip().splitlines() or [f"it ended with {process.returncode}"]
        raise AgentUnavailableError(f"{path} does not work: {words[-1]}", hint=hint)
    return stdout.decode("utf-8", "replace").strip()
