"""The scripted agent's transcript, from which ``--resume`` restores its state.

It is where the real CLI's would be: ``$CLAUDE_CONFIG_DIR/projects/<cwd, munged>/<session
id>.jsonl``, one JSON object a line. Kinds of lines: ``user`` and ``assistant`` as in the real one,
``cost-state`` (written at an orderly exit only, so that SIGKILL loses it here as there), and
``scripted`` (the progress of a prompt's script).
"""

# pathlib would cost each of hundreds of agents a megabyte.
# ruff: noqa: PTH103, PTH109, PTH111, PTH112, PTH113, PTH118, PTH120, PTH123, PTH208

import json
import os
import re
from collections.abc import Iterable
from typing import Any

from ramet_demo.scripted.wire import Frame, changed, new_id, timestamp


def _projects() -> str:
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    return os.path.join(home, "projects")


def find(session_id: str) -> str | None:
    """Return the transcript of a session that began in any directory."""
    for folder in sorted(os.listdir(_projects())) if os.path.isdir(_projects()) else ():
        path = os.path.join(_projects(), folder, f"{session_id}.jsonl")
        if os.path.isfile(path):
            return path
    return None


class Transcript:
    """Appends lines, and has the state that earlier lines record."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.path = find(session_id) or os.path.join(
            _projects(),
            re.sub(r"[^A-Za-z0-9]", "-", os.getcwd())[:200],
            f"{session_id}.jsonl",
        )
        self.turns = 0
        self.seen: set[str] = set()  # uuids of user messages
        self.cost: Frame = {"total_cost_usd": 0.0, "modelUsage": {}}
        self.interrupted: Frame | None = None  # the prompt of a turn that did not end
        self.steps_done = 0  # of that turn
        self._parent: str | None = None
        self._grandparent: str | None = None
        self._line = b""  # the last one
        self._descriptor = -1

    def load(self, source: str | None = None, until: str = "") -> bool:
        """Read the file, or copy that of ``source``, a session to fork; only up to message
        ``until`` if given. Return whether it has that message."""
        path = self.path if source is None else source
        with open(path, encoding="utf-8") as file:
            for text in file:
                line: Frame = json.loads(text)
                self._learn(line)
                if source is not None:
                    self._append({**line, "sessionId": self.session_id})
                if until and line.get("uuid") == until:
                    self.interrupted = None
                    return True
        return not until

    def _learn(self, line: Frame) -> None:
        self._parent = line.get("uuid", self._parent)
        if line["type"] == "user" and line.get("promptSource"):
            self.seen.add(line["uuid"])
            self.interrupted, self.steps_done = {"uuid": line["uuid"], "message": line["message"]}, 0
        elif line["type"] == "scripted":
            self.steps_done = line["stepsDone"]
            if line["ended"]:
                self.turns += 1
                self.interrupted = None
        elif line["type"] == "cost-state":
            self.cost = {"total_cost_usd": line["totalCostUSD"], "modelUsage": line["modelUsage"]}

    def prompt(self, uuid: str, message: Frame) -> None:
        self.seen.add(uuid)
        self._message("user", message, uuid=uuid, promptSource="sdk")

    def message(self, kind: str, message: Frame, uuid: str | None = None) -> None:
        self._message(kind, message, uuid=uuid)

    def repeat(self, changes: Iterable[tuple[str, str]], uuid: str) -> None:
        """Record the last message again with these changes, which make it message ``uuid``; it
        must follow another one."""
        assert self._grandparent is not None
        assert self._parent is not None
        self._line = changed(self._line, (*changes, (self._grandparent, self._parent)))
        self._grandparent, self._parent = self._parent, uuid
        os.write(self._descriptor, self._line)

    def progress(self, steps_done: int, *, ended: bool) -> None:
        self.turns += ended
        self._append({"type": "scripted", "sessionId": self.session_id, "stepsDone": steps_done, "ended": ended})

    def save_cost(self, total: float, usage: Frame) -> None:
        if self._descriptor >= 0:  # a session without a turn has no file, as with the real CLI
            self._append(
                {"type": "cost-state", "sessionId": self.session_id, "totalCostUSD": total, "modelUsage": usage}
            )

    def _message(self, kind: str, message: Frame, **more: Any) -> None:
        uuid = more.pop("uuid", None) or new_id()
        shared = {"sessionId": self.session_id, "cwd": os.getcwd(), "timestamp": timestamp(), "isSidechain": False}
        self._append({"parentUuid": self._parent, "type": kind, "message": message, "uuid": uuid, **shared, **more})
        self._grandparent, self._parent = self._parent, uuid

    def _append(self, line: Frame) -> None:
        if self._descriptor < 0:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._line = json.dumps(line).encode() + b"\n"
        os.write(self._descriptor, self._line)
