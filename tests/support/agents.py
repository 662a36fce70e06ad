"""Agents in tests: the scripted one, the real one against the scripted model, and a minimal host
for either."""

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import claude_agent_sdk
import ramet_demo.scripted

Frame = dict[str, Any]
AGENT = Path(ramet_demo.scripted.__file__).with_name("agent.py")
CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
SCRIPTED = (sys.executable, "-I", "-S", str(AGENT))


def write_wrapper(directory: Path) -> Path:
    """Write an executable named ``claude`` into a directory that runs the scripted agent; its path
    serves as `agents.claude.path`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "claude"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(SCRIPTED)} "$@"\n')
    path.chmod(0o755)
    return path


def script(*steps: Frame) -> str:
    """Return a prompt with these steps."""
    return f"please DO:{json.dumps(steps)}"


def private_environment(home: Path, model_port: int = 0, **more: str) -> dict[str, str]:
    """An environment in which an agent, scripted or real, touches nothing outside ``home`` and asks
    only the scripted model."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "CLAUDE_CONFIG_DIR": str(home / "configuration"),
        "CLAUDE_CODE_TMPDIR": str(home),
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model_port}",
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        **more,
    }


def write_here(name: str, text: str) -> Frame:
    """A step: write a file in the session's worktree, by the absolute path that real agents
    want."""
    return {"tool": "Write", "input": {"file_path": f"$CWD/{name}", "content": text}}


def bash(command: str) -> Frame:
    return {"tool": "Bash", "input": {"command": command, "description": "x"}}


@contextlib.contextmanager
def model_process(*arguments: str) -> Iterator[int]:
    """`scripted_model` for a fixture that outlives an event loop."""
    command = [sys.executable, "-m", "ramet_demo.scripted.model", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


@contextlib.asynccontextmanager
async def scripted_model(*arguments: str) -> AsyncIterator[int]:
    """Run the scripted model as a process; yield its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ramet_demo.scripted.model", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        yield int(line.decode().strip().rpartition(":")[2])
    finally:
        process.terminate()
        await process.wait()


class Host:
    """The host's end of stream-json: unchanged frames, and requests answered by `answers`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.frames: list[Frame] = []
        self.noise: list[bytes] = []
        self.answers: Callable[[Frame], Frame | None] = consent
        self._news = asyncio.Event()
        self._count = 0
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                frame: Frame = json.loads(line)
            except ValueError:
                self.noise.append(line)
                continue
            self.frames.append(frame)
            if frame["type"] == "control_request" and (answer := self.answers(frame["request"])) is not None:
                await self.answer(frame, answer)
            self._news.set()
        self._news.set()

    async def send(self, frame: Frame) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await self.process.stdin.drain()

    async def answer(self, request: Frame, response: Frame) -> None:
        body = {"subtype": "success", "request_id": request["request_id"], "response": response}
        await self.send({"type": "control_response", "response": body})

    async def prompt(self, text: str, name: str | None = None) -> str:
        """Send a user message; return its uuid."""
        name = name or str(uuid.uuid4())
        message = {"role": "user", "content": text}
        await self.send(
            {"type": "user", "uuid": name, "message": message, "parent_tool_use_id": None, "session_id": ""}
        )
        return name

    async def control(self, subtype: str, **more: Any) -> Frame:
        """Send a control request; return the envelope of its answer."""
        self._count += 1
        name = f"req_{self._count}"
        await self.send({"type": "control_request", "request_id": name, "request": {"subtype": subtype, **more}})
        frame = await self.frame(lambda f: f["type"] == "control_response" and f["response"]["request_id"] == name)
        envelope: Frame = frame["response"]
        return envelope

    async def frame(self, wanted: Callable[[Frame], bool], *, since: int = 0, within: float = 30) -> Frame:
        """Wait for the first frame from number ``since`` on for which ``wanted`` is true."""
        async with asyncio.timeout(within):
            while True:
                for frame in self.frames[since:]:
                    if wanted(frame):
                        return frame
                since = max(since, len(self.frames))
                assert not self._reader.done(), f"the agent's output ended with {self.frames[-3:]}"
                self._news.clear()
                await self._news.wait()

    async def result(self, index: int = 0) -> Frame:
        return await self.frame(lambda f: f["type"] == "result" and f["result_index"] == index)

    async def request(self, subtype: str, *, since: int = 0) -> Frame:
        return await self.frame(
            lambda f: f["type"] == "control_request" and f["request"]["subtype"] == subtype, since=since
        )

    async def idle(self, *, since: int = 0) -> None:
        await self.frame(lambda f: f.get("subtype") == "session_state_changed" and f["state"] == "idle", since=since)

    def kinds(self, since: int = 0) -> list[str]:
        """Return the types of all frames, for system frames their subtypes, and states."""
        return [kind_of(frame) for frame in self.frames[since:]]

    async def end(self) -> int:
        """Close stdin; return the exit code once all output is read."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()

    async def ended(self) -> int:
        await self._reader
        return await self.process.wait()

    async def errors(self) -> str:
        """Return all of stderr, after the end."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


def consent(request: Frame) -> Frame | None:
    """Answer requests: allow every tool, return nothing from hooks, and serve one MCP tool,
    `greet`."""
    if request["subtype"] == "can_use_tool":
        return {"behavior": "allow", "updatedInput": request["input"]}
    if request["subtype"] != "mcp_message":
        return {}
    message = request["message"]
    results: dict[str, Frame] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "greet", "description": "Greets", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }
    return {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": results.get(message["method"], {})}}


def kind_of(frame: Frame) -> str:
    kind: str = frame.get("subtype") or frame["type"] if frame["type"] == "system" else frame["type"]
    if frame["type"] == "control_request":
        kind = frame["request"]["subtype"]
        return f"{kind}:{frame['request']['input']['hook_event_name']}" if kind == "hook_callback" else kind
    return f"{kind}:{frame['state']}" if "state" in frame else kind


FLAGS = ("--replay-user-messages", "--permission-prompt-tool", "stdio", "--setting-sources=")


@contextlib.asynccontextmanager
async def running(
    home: Path, *flags: str, program: Sequence[str] = SCRIPTED, environment: dict[str, str] | None = None
) -> AsyncIterator[Host]:
    """Run an agent in ``home/repo`` (the scripted one by default); kill its processes at the
    end."""
    (home / "repo").mkdir(exist_ok=True)
    common = ("--output-format", "stream-json", "--verbose", *FLAGS, *flags, "--input-format", "stream-json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *program,
        *common,
        cwd=home / "repo",
        env=environment or private_environment(home),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        limit=1 << 26,
    )
    host = Host(process)
    try:
        yield host
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await host.ended()
