"""Simulate a person in the agent's own program: an idle process, and the program's lines in the
transcript."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ramet.v1 import session_pb2

from tests.support.daemon import Client, Sandbox

MODEL = "claude-opus-5-5"


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process of the person; kill it at the end."""
    with subprocess.Popen(["sleep", "1000"]) as sleeping:
        try:
            yield sleeping
        finally:
            sleeping.kill()


async def attach(client: Client, session: str, pid: int, **fields: Any) -> session_pb2.AttachNativeResponse:
    request = session_pb2.AttachNativeRequest(session=session, pid=pid, terminal="pts/7", **fields)
    return await client.sessions.AttachNative(request, metadata=client.metadata)


def transcript_of(sandbox: Sandbox, conversation_id: str) -> Path:
    (found,) = (sandbox.root / "claude").glob(f"projects/*/{conversation_id}.jsonl")
    return found


def make_turn(sandbox: Sandbox, conversation_id: str, prompt: str, answer: str, *, cost: float, interrupted: bool = False) -> None:  # fmt: skip
    """Append the lines of Claude Code's interface for a turn, and the total cost after it."""
    shared = {"entrypoint": "cli", "sessionId": conversation_id, "isSidechain": False, "cwd": "/", "version": "2.1.332"}

    def line(kind: str, content: object, **more: object) -> dict[str, object]:
        message = {"role": kind, "content": content, **({"id": "m", "model": MODEL} if kind == "assistant" else {})}
        now = datetime.now(UTC).isoformat()
        return {**shared, "type": kind, "uuid": str(uuid.uuid4()), "timestamp": now, "message": message, **more}

    lines: list[dict[str, object]] = [
        line("user", "<command-name>/model</command-name>"),
        line("user", prompt, permissionMode="default"),
        {**shared, "type": "attachment", "uuid": str(uuid.uuid4()), "timestamp": datetime.now(UTC).isoformat()},
        line("assistant", [{"type": "text", "text": answer}]),
    ]
    if interrupted:
        lines.append(line("user", [{"type": "text", "text": "[Request interrupted by user]"}]))
    file = transcript_of(sandbox, conversation_id)
    known = [json.loads(each) for each in file.read_text().splitlines() if '"cost-state"' in each]
    before = known[-1]["modelUsage"].get(MODEL, {}) if known else {}
    total = before.get("costUSD", 0.0) + cost
    rest = {"cacheReadInputTokens": 0, "cacheCreationInputTokens": 0, "webSearchRequests": 0, **before}
    use = {**rest, "inputTokens": before.get("inputTokens", 0) + 7, "outputTokens": 1, "costUSD": total}
    lines.append(
        {"type": "cost-state", "sessionId": conversation_id, "totalCostUSD": total, "modelUsage": {MODEL: use}}
    )
    with file.open("a") as opened:
        opened.writelines(json.dumps(each, separators=(",", ":")) + "\n" for each in lines)


def register(sandbox: Sandbox, conversation_id: str, pid: int) -> None:
    """Record this process as the conversation's in Claude Code's own register of processes."""
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    directory = sandbox.root / "claude" / "sessions"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{pid}.json").write_text(json.dumps({"pid": pid, "procStart": start, "sessionId": conversation_id}))
