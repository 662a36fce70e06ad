"""The scripted agent's state: settings, token counts, background tasks; and the frames that report
them."""

import os
import time
from typing import Any, NamedTuple

from ramet_demo.scripted.children import Child, Children
from ramet_demo.scripted.flags import DEFAULT_MODEL, VERSION, Flags
from ramet_demo.scripted.script import Step
from ramet_demo.scripted.transcript import Transcript
from ramet_demo.scripted.wire import Frame, Wire, new_id

USAGE = {"input_tokens": 1000, "output_tokens": 50, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
PRICES = {
    "input_tokens": 4e-6,
    "output_tokens": 20e-6,
    "cache_creation_input_tokens": 5e-6,
    "cache_read_input_tokens": 0.4e-6,
}
TOOLS = ("Task", "AskUserQuestion", "Bash", "Edit", "ExitPlanMode", "Read", "TaskStop", "Write")
_USAGE_NAMES = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
}
_ALIKE = {
    "webSearchRequests": 0,
    "contextWindow": 1_000_000,
    "maxOutputTokens": 128_000,
    "thinkingTokens": 0,
    "cacheCreationEphemeral5mInputTokens": 0,
    "cacheCreationEphemeral1hInputTokens": 0,
    "canonicalModel": DEFAULT_MODEL,
    "provider": "firstParty",
    "costBasis": "list",
}


class Prompt(NamedTuple):
    """Cause of a turn: a user's message, the notice of a finished task, or a turn to resume."""

    uuid: str | None
    message: Frame
    steps: list[Step]
    origin: Frame | None = None
    resumed_at: int | None = None  # the steps that are done already


class Task(NamedTuple):
    """A background task: a child, or merely a time (`time.monotonic`) at which it ends."""

    id: str
    run_id: str
    tool_use_id: str
    description: str
    then: list[Step]  # the turn after it
    child: Child | None
    ends: float

    @property
    def over(self) -> bool:
        return self.child.status is not None if self.child else time.monotonic() >= self.ends


class Ledger:
    """Tokens and dollars by model; `since` starts anew at each result, `total` at each process,
    from the resumed session's."""

    def __init__(self, saved: Frame) -> None:
        self.dollars: float = saved["total_cost_usd"]
        self.total: dict[str, Frame] = {model: dict(entry) for model, entry in saved["modelUsage"].items()}
        self.since: dict[str, Frame] = {}
        self.turn = dict.fromkeys(USAGE, 0)

    def add(self, model: str, usage: dict[str, int]) -> None:
        dollars = sum(PRICES[name] * usage[name] for name in PRICES)
        self.dollars += dollars
        for name in USAGE:
            self.turn[name] += usage[name]
        for book in (self.total, self.since):
            entry = book.setdefault(model, {**dict.fromkeys(_USAGE_NAMES.values(), 0), "costUSD": 0.0})
            for name, title in _USAGE_NAMES.items():
                entry[title] += usage[name]
            entry["costUSD"] += dollars

    def close(self) -> Frame:
        """The ledger's part of a result frame."""
        result = {
            "total_cost_usd": self.dollars,
            "usage": {
                **self.turn,
                "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
                "service_tier": "standard",
            },
            "modelUsage": {model: _usage_fields(entry) for model, entry in self.total.items()},
            "model_usage_since_last_result": {model: _usage_fields(entry) for model, entry in self.since.items()},
        }
        self.since = {}
        self.turn = dict.fromkeys(USAGE, 0)
        return result


def _usage_fields(entry: Frame) -> Frame:
    return {**entry, **_ALIKE}


class Session:
    def __init__(self, flags: Flags, wire: Wire, transcript: Transcript) -> None:
        self.flags = flags
        self.wire = wire
        self.transcript = transcript
        self.children = Children()
        self.ledger = Ledger(transcript.cost)
        self.model = flags.model
        self.mode = flags.mode
        self.rules = list(flags.allowed)
        self.hooks: dict[str, list[Frame]] = {}
        self.servers: dict[str, Any] = {}  # `mcp.Server` by name
        self.initialized = False
        self.queue: list[Prompt] = []
        self.working = False  # a turn runs
        self.prompt_id = ""  # of that turn, for its hooks
        self.tasks: dict[str, Task] = {}
        self.results = 0
        self.state = "idle"
        self.known = frozenset(transcript.seen)  # uuids of earlier processes
        self.cwd = os.getcwd()  # noqa: PTH109 -- as in `transcript`

    def set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.send_state()

    def send_state(self) -> None:
        self.wire.emit("system", subtype="session_state_changed", state=self.state, sdk_host_only=True)

    def set_mode(self, mode: str) -> None:
        if mode != self.mode:
            self.mode = mode
            self.wire.emit("system", subtype="status", status=None, permissionMode=mode)

    def lifecycle(self, uuid: str | None, state: str) -> None:
        if uuid is not None:
            self.wire.emit("command_lifecycle", command_uuid=uuid, state=state)

    def send_init(self, uuids: list[str]) -> None:
        tools = [*TOOLS, *(name for server in self.servers.values() for name in server.tools)]
        self.wire.emit(
            "system",
            subtype="init",
            cwd=self.cwd,
            original_cwd=self.cwd,
            additional_directories=[],
            tools=[tool for tool in tools if tool not in self.flags.disallowed],
            mcp_servers=[
                {"name": name, "status": server.status, "source": "sdk"} for name, server in self.servers.items()
            ],
            model=self.model,
            permissionMode=self.mode,
            slash_commands=[],
            skills=[],
            agents=[],
            plugins=[],
            apiKeySource="ANTHROPIC_API_KEY",
            claude_code_version=VERSION,
            output_style="default",
            capabilities=["interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1"],
            **({"user_message_uuids": uuids} if uuids else {}),
        )

    def start_task(
        self, description: str, tool_use_id: str, then: list[Step], child: Child | None, seconds: float
    ) -> Task:
        name = new_id()
        task = Task(f"b{name[:8]}", name[9:23], tool_use_id, description, then, child, time.monotonic() + seconds)
        self.tasks[task.id] = task
        self.send_tasks()
        self._send_task(
            task,
            "task_started",
            description=description,
            is_backgrounded=True,
            task_type="local_bash",
            tool_use_id=tool_use_id,
        )
        return task

    def end_task(self, task: Task, status: str) -> None:
        """Report the end of a task; a completed one gets a turn."""
        del self.tasks[task.id]
        code = task.child.status if task.child and task.child.status is not None else 0
        summary = f'Background command "{task.description}" {status} (exit code {code})'
        self._send_task(task, "task_updated", patch={"status": status, "end_time": int(time.time() * 1000)})
        self._send_task(
            task,
            "task_notification",
            status=status,
            summary=summary,
            output_file=os.devnull,
            tool_use_id=task.tool_use_id,
        )
        self.send_tasks()
        if status != "stopped":
            message = {"role": "user", "content": f"<task-notification>{summary}</task-notification>"}
            origin = {"kind": "task-notification", "producer": "session-task", "runId": task.run_id}
            self.queue.append(Prompt(None, message, task.then, origin=origin))

    def _send_task(self, task: Task, subtype: str, **more: Any) -> None:
        self.wire.emit("system", subtype=subtype, task_id=task.id, run_id=task.run_id, **more)

    def send_tasks(self) -> None:
        tasks = [
            {"task_id": task.id, "run_id": task.run_id, "task_type": "local_bash", "description": task.description}
            for task in self.tasks.values()
        ]
        self.wire.emit("system", subtype="background_tasks_changed", tasks=tasks)
