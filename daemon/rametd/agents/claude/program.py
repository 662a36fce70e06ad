"""Find and check Claude Code's program, without importing the SDK, which takes half a second."""

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path

from rametd.domain.errors import AgentUnavailableError


def bundled() -> Path:
    """Return the program bundled with the pinned SDK. Raise `AgentUnavailableError` if the SDK is not installed."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise AgentUnavailableError("claude-agent-sdk is not installed", hint='pip install "ramet[daemon]" brings it')
    return Path(spec.origin).parent / "_bundled" / "claude"


async def check(path: Path) -> str:
    """Return the output of ``path --version``. Raise `AgentUnavailableError`, which names the setting, if it cannot run."""
    hint = "set agents.claude.path in config.toml to a working claude, or install Ramet again to get its own"
    if not await asyncio.to_thread(path.is_file):
        raise AgentUnavailableError(f"there is no Claude Code at {path}", hint=hint)
    if not await asyncio.to_thread(os.access, path, os.X_OK):
        raise AgentUnavailableError(f"{path} may not be executed", hint=hint)
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            stdout, stderr = await asyncio.wait_for(process.communicate(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AgentUnavailableError(f"{path} --version did not answer within 20 seconds", hint=hint) from None
    except OSError as error:
        raise AgentUnavailableError(f"{path} cannot be run: {error.strerror}", hint=hint) from error
    if process.returncode != 0:
        words = stderr.decode("utf-8", "replace").strip().splitlines() or [f"it ended with {process.returncode}"]
        raise AgentUnavailableError(f"{path} does not work: {words[-1]}", hint=hint)
    return stdout.decode("utf-8", "replace").strip()
