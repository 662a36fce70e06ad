"""Inspect an agent's program: whether it is installed, its release, whether it starts, and whether
a person is logged in."""

import asyncio
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, Any

from rametd.agents.presets import Preset
from rametd.agents.values import reason_of
from rametd.platform import groups

VERSION_S = 20.0
START_S = 60.0
LOOK_S = 0.2
TAIL = 4096
ENDS = "it ends instead of answering"
LINE_LIMIT = 1 << 24
CANNOT_RUN = frozenset({-1, 126, 127})
"""Exit codes of a program whose interpreter is missing, such as Node.js, and -1 of `run`."""
LOGIN_NEEDED = -32000
"""The protocol's error code for a session without a login."""
_NUMBER = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True)
class Inspection:
    installed: bool
    path: str = ""
    version: str = ""  # its number, or ""
    logged_in: bool | None = None  # None: unknown
    problem: str = ""  # why it cannot be used


async def inspect(preset: Preset, environment: Mapping[str, str], *, start: bool) -> Inspection:
    """Find a program, and with ``start`` run it until it has opened an empty conversation."""
    path = shutil.which(preset.command[0], path=environment.get("PATH"))
    if path is None:
        return Inspection(installed=False, problem=f"there is no {preset.command[0]} on the PATH")
    env = {**environment, **preset.env, **preset.untrusted_env}
    code, out = await run(path, "--version", env=env)
    if code in CANNOT_RUN:
        return Inspection(installed=True, path=path, problem=f"it cannot be run: {last_line(out)}")
    found = Inspection(installed=True, path=path, version=version_in(out) if code == 0 else "")
    if older(found.version, preset.minimum_version):
        found = replace(found, problem=f"{found.version} is older than {preset.minimum_version}, which Ramet needs")
    return await _started(preset, path, env, found) if start else found


def older(version: str, minimum: str) -> bool:
    """Return whether a release is older than another; False if either has no number."""
    numbers = [
        [int(part) for part in match[0].split(".")] for text in (version, minimum) if (match := _NUMBER.search(text))
    ]
    return len(numbers) == 2 and numbers[0] < numbers[1]


async def run(*argv: str, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a short command; return its exit code and output, or -1 and why it could not run."""
    try:
        async with _process(*argv, env=env, cwd=None) as process:
            # Give it an empty input: an adapter that ignores its arguments waits for the end of its
            # input.
            out, errors = await asyncio.wait_for(groups.communicate(process), VERSION_S)
            return process.returncode or 0, (out or errors).decode("utf-8", "replace")
    except TimeoutError:  # also an OSError
        return -1, f"it did not end within {VERSION_S:.0f} seconds"
    except groups.OutputError as error:
        return -1, f"it {error}"
    except OSError as error:
        return -1, error.strerror or str(error)


def version_in(output: str) -> str:
    """Return the release in what a program prints for `--version`; "" without one."""
    found = _NUMBER.search(output)
    return found[0] if found else ""


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


async def _started(preset: Preset, path: str, env: Mapping[str, str], found: Inspection) -> Inspection:
    with tempfile.TemporaryFile() as errors:
        started = await _opened(preset, path, env, found, errors)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - TAIL))
        words = last_line(errors.read().decode("utf-8", "replace"))
    return (
        replace(started, problem=f"{started.problem}: {words[:200]}") if started.problem == ENDS and words else started
    )


async def _opened(
    preset: Preset, path: str, env: Mapping[str, str], found: Inspection, errors: IO[bytes]
) -> Inspection:
    try:
        with tempfile.TemporaryDirectory(prefix="ramet-check-") as directory:
            async with (
                asyncio.timeout(START_S),
                _process(path, *preset.command[1:], env=env, cwd=directory, stderr=errors) as process,
            ):
                client = {"name": "ramet", "version": "1"}
                hello = {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": client}
                said = await _ask(process, "initialize", hello)
                if (spoken := said.get("result", {}).get("protocolVersion")) != 1:
                    return replace(found, problem=f"it speaks version {spoken} of the protocol, and Ramet speaks 1")
                version = said["result"].get("agentInfo", {}).get("version") or found.version
                found = replace(found, version=str(version))
                opened = await _ask(process, "session/new", {"cwd": directory, "mcpServers": []})
    except TimeoutError:
        return replace(found, problem=f"it did not answer within {START_S:.0f} seconds")
    except EOFError:
        return replace(found, problem=ENDS)
    except (OSError, ValueError, RecursionError) as error:
        return replace(found, problem=f"it does not start: {error}")
    refusal = opened.get("error")
    if refusal is None:
        return replace(found, logged_in=True)
    if refusal.get("code") == LOGIN_NEEDED:
        return replace(found, logged_in=any(name in env for name in preset.keys))
    return replace(found, problem=f"it opens no session: {reason_of(refusal)[:200]}")


@asynccontextmanager
async def _process(
    *argv: str, env: Mapping[str, str], cwd: str | None, stderr: IO[bytes] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process for the block, and end it with its descendants. ``stderr`` is a pipe unless a
    file is given."""
    process = await groups.start(
        *argv,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if stderr is None else stderr,
        limit=LINE_LIMIT,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        groups.hang_up(process)
        await process.wait()


async def _ask(process: asyncio.subprocess.Process, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request and wait for its answer; refuse requests of the agent meanwhile."""
    assert process.stdin is not None
    assert process.stdout is not None

    async def write(message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await process.stdin.drain()

    await write({"id": method, "method": method, "params": params})
    while True:
        reading = asyncio.ensure_future(process.stdout.readline())
        # `process.wait` also waits for its output, which surviving children may hold open.
        while not (await asyncio.wait({reading}, timeout=LOOK_S))[0] and process.returncode is None:
            pass
        if not reading.done() or not (line := await reading):
            reading.cancel()
            raise EOFError
        message = json.loads(line) if line.startswith(b"{") else {}
        if message.get("id") == method and "method" not in message:
            return dict(message)
        if "method" in message and "id" in message:
            await write({"id": message["id"], "error": {"code": -32601, "message": "not now"}})
