"""The contract of the scripted agent: the shapes of frames, recorded from the real CLI.

``python -m tests.support.contract`` records `GOLDEN` anew, after an upgrade of the SDK.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.agents import (
    CLAUDE,
    SCRIPTED,
    Frame,
    Host,
    kind_of,
    private_environment,
    running,
    script,
    scripted_model,
)

GOLDEN = Path(__file__).parent / "golden" / "frames.json"
Shapes = dict[
    str, dict[str, list[str]]
]  # by kind: the paths that all frames have (`always`), and that some have (`sometimes`)

HOOKS = {
    event: [{"matcher": None, "hookCallbackIds": [f"hook_{number}"], "timeout": 86400, "onFailure": "block"}]
    for number, event in enumerate(("PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop"))
}
OPAQUE = frozenset(
    {
        "tool_input",
        "tool_response",
        "tool_use_result",
        "params",
        "server_tool_use",
        "cache_creation",
        "account",
        "patch",
    }
)
BY_MODEL = frozenset({"modelUsage", "model_usage_since_last_result"})


async def converse(home: Path, program: Sequence[str], port: int) -> list[Frame]:
    """Hold the same conversation with either agent; return its frames."""
    write = {"tool": "Write", "input": {"file_path": "$CWD/a.txt", "content": "x"}}
    fails = {"tool": "Bash", "input": {"command": "cat a.txt; exit 3", "description": "Fail"}}
    calls = {"tool": "mcp__host__greet", "input": {}}
    question = {
        "question": "Which?",
        "header": "H",
        "multiSelect": False,
        "options": [{"label": x, "description": x} for x in "ab"],
    }
    asks = {"tool": "AskUserQuestion", "input": {"questions": [question]}}
    # It ends in the background, only after the turn that began it.
    gate = home / "repo" / "gate"
    gate.parent.mkdir()
    os.mkfifo(gate)
    later = {
        "tool": "Bash",
        "input": {"command": "head -n 1 gate", "description": "Later", "run_in_background": True},
    }
    hangs = {"tool": "Bash", "input": {"command": "tail -f /dev/null", "description": "Hang"}}
    configuration = '{"mcpServers": {"host": {"type": "sdk", "name": "host"}}}'
    environment = private_environment(home, port)
    flags = ("--mcp-config", configuration, "--allowedTools", "Bash(head:*)")
    async with running(home, *flags, program=program, environment=environment) as host:
        await host.control("initialize", hooks=HOOKS)
        await host.prompt(script({"text": "hi", **write}, fails, calls, asks, {"text": "end"}))
        await _turn(host, 0)
        await host.control("novel")
        await host.control("initialize", hooks=HOOKS)
        await host.control("set_permission_mode", mode="acceptEdits")
        await host.prompt(script(later, {"text": "first"}))
        await _turn(host, 1)
        gate.write_text("open\n")
        await host.result(2)
        since = len(host.frames)
        await host.prompt(script(hangs))
        asked = await host.request("can_use_tool", since=since)
        await host.frame(lambda f: f.get("state") == "running", since=host.frames.index(asked))
        await host.control("interrupt")
        await _turn(host, 3)
        await host.end()
    return host.frames


async def _turn(host: Host, index: int) -> None:
    await host.idle(since=host.frames.index(await host.result(index)))


def _paths(value: Any, prefix: str = "") -> Iterator[str]:
    for key, inner in value.items():
        yield f"{prefix}{key}"
        if key in BY_MODEL:
            for usage in inner.values():
                yield from _paths(usage, f"{prefix}{key}.*.")
        elif isinstance(inner, dict) and key not in OPAQUE and not (key == "input" and "tool_name" in value):
            yield from _paths(inner, f"{prefix}{key}.")


def _kind(frame: Frame) -> str:
    if frame["type"] == "control_response":
        known = sorted({"commands", "still_queued", "mode"} & (frame["response"].get("response") or {}).keys())
        return f"control_response:{known[0] if known else frame['response']['subtype']}"
    if frame["type"] == "user":
        return "user:replay" if "isReplay" in frame else f"user:{frame['message']['content'][0]['type']}"
    if frame["type"] == "assistant":
        return f"assistant:{frame['message']['content'][0]['type']}"
    if frame["type"] == "result":
        return f"result:{frame['subtype']}"
    if frame["type"] == "control_request" and frame["request"]["subtype"] == "mcp_message":
        return f"mcp:{frame['request']['message']['method']}"
    return kind_of(frame)


def kinds(frames: list[Frame]) -> list[str]:
    """Return the kinds of a conversation's frames, in order."""
    return [_kind(frame) for frame in frames]


def shapes(frames: list[Frame]) -> Shapes:
    always: dict[str, set[str]] = {}
    ever: dict[str, set[str]] = {}
    for frame in frames:
        kind, paths = _kind(frame), set(_paths(frame))
        always[kind] = always.get(kind, paths) & paths
        ever[kind] = ever.get(kind, set()) | paths
    return {
        kind: {"always": sorted(always[kind]), "sometimes": sorted(ever[kind] - always[kind])} for kind in sorted(ever)
    }


async def converse_with_both() -> tuple[list[Frame], list[Frame]]:
    """Return the frames of the real CLI and of the scripted agent."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as real, tempfile.TemporaryDirectory() as scripted:
        async with scripted_model() as port:
            return await converse(Path(real), [str(CLAUDE)], port), await converse(Path(scripted), SCRIPTED, port)


async def record() -> None:
    real, scripted = await converse_with_both()
    GOLDEN.write_text(json.dumps(shapes(real), indent=1) + "\n")
    for one in (real, scripted):
        print(" ".join(kinds(one)), end="\n\n")
    theirs = shapes(scripted)
    for kind, shape in shapes(real).items():
        if kind in theirs:
            mine = {*theirs[kind]["always"], *theirs[kind]["sometimes"]}
            print(
                kind,
                "LACKS",
                sorted({*shape["always"]} - mine),
                "INVENTS",
                sorted(mine - {*shape["always"], *shape["sometimes"]}),
            )
        else:
            print(kind, "MISSING")
    print("INVENTED", theirs.keys() - shapes(real).keys())


if __name__ == "__main__":
    asyncio.run(record())
