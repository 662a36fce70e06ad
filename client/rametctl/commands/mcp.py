"""`rametctl mcp`: serve the agent tools to an MCP client, by JSON-RPC messages, one per line. A
call to the daemon answers each.

It has no state: after a restart of the daemon it repeats a running call with the same key.
"""

import asyncio
import json
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import click
from google.protobuf.message import Message
from ramet.mcp import INVALID_PARAMS, Object, ToolRefused, ToolServer

from rametctl.app import App
from rametctl.connection.channel import Connection
from rametctl.errors import ClientError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
CALLS = 32
"""Maximum number of concurrent calls: agents make several, and a wait takes up to a minute."""
DRAIN_S = 5.0
"""Seconds for running calls to finish after the end of the input."""


@click.command("mcp", short_help="Serve the agent tools over MCP on stdio.")
@click.pass_obj
def command(app: App) -> None:
    """Serve MCP on standard input and output until end of input. The tools spawn
    sessions, follow them and send them messages. Inside a session they act as that
    session, elsewhere as you, and create sessions in the current directory's
    repository.

    \b
    Example:
      claude mcp add ramet -- rametctl mcp
    """
    try:
        asyncio.run(serve(app))
    except* BrokenPipeError:
        pass  # the MCP client is gone


class Caller:
    """Makes calls of OrchestrationService in threads, each on its own connection: a broken
    connection affects no other call."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(CALLS, thread_name_prefix="mcp")
        self._own = threading.local()

    async def __call__(self, method: str, request: Message, key: str) -> Message:
        if method == "SpawnSession" and not self._app.environ.get("RAMET_TOKEN"):
            request.path = self._app.cwd  # type: ignore[attr-defined]
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._call, method, request)
        except ClientError as error:
            raise ToolRefused(f"{error.message}; {error.hint}" if error.hint else error.message) from error

    def _call(self, method: str, request: Message) -> Message:
        answer: Message = self._connection().call(lambda daemon: getattr(daemon.orchestration, method), request)
        return answer

    def _connection(self) -> Connection:
        made: Connection | None = getattr(self._own, "connection", None)
        if made is None:
            made = self._own.connection = self._app.connect(autostart=self._app.autostart, lasting=True)
        return made


async def serve(app: App) -> None:
    """Answer messages on standard input until it ends. Running calls then have `DRAIN_S` seconds to
    finish."""
    server = ToolServer(Caller(app))
    # Read in a thread: standard input may be a file, for which no event loop can wait.
    reader = ThreadPoolExecutor(1, thread_name_prefix="mcp-input")
    tasks: dict[str, asyncio.Task[None]] = {}
    loop = asyncio.get_running_loop()
    # If the reader fails, the task group cancels all calls at once.
    async with asyncio.TaskGroup() as group:
        while line := await loop.run_in_executor(reader, sys.stdin.buffer.readline):
            if not line.strip():
                continue
            message, fault = _parsed(line)
            if message.get("method") == "notifications/cancelled":
                cancelled = tasks.get(_key(_parameters(message).get("requestId")))
                if cancelled is not None:
                    cancelled.cancel()
                continue
            key = _key(message.get("id"))
            tasks[key] = group.create_task(_answer(app, server, message, fault))
            tasks[key].add_done_callback(partial(_forget, tasks, key))
        if tasks:
            await asyncio.wait(list(tasks.values()), timeout=DRAIN_S)
        for task in list(tasks.values()):
            task.cancel()


def _forget(tasks: "dict[str, asyncio.Task[None]]", key: str, done: "asyncio.Task[None]") -> None:
    if tasks.get(key) is done:
        del tasks[key]


async def _answer(app: App, server: ToolServer, message: Object, fault: Object | None) -> None:
    if fault is not None:
        answer: Object | None = {"jsonrpc": "2.0", "id": message.get("id"), "error": fault}
    else:
        answer = await server.answer(message, str(uuid.uuid4()))
    if answer is not None:
        app.output.stdout.write(json.dumps(answer) + "\n")
        app.output.stdout.flush()


def _parsed(line: bytes) -> tuple[Object, Object | None]:
    """Parse a line to (message, error). The message is {} if the line is no JSON-RPC request."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, {"code": PARSE_ERROR, "message": f"no JSON: {error}"}
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return {}, {"code": INVALID_REQUEST, "message": "no JSON-RPC request"}
    if not isinstance(message.get("params"), dict | None):
        return message, {"code": INVALID_PARAMS, "message": "params must be an object"}
    return message, None


def _parameters(message: Object) -> Object:
    found = message.get("params")
    return found if isinstance(found, dict) else {}


def _key(request_id: Any) -> str:
    """Convert an id to a key. Ids are numbers or strings, and 1 differs from "1"."""
    return json.dumps(request_id)
