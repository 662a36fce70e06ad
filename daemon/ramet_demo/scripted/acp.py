"""A scripted agent of the Agent Client Protocol, version 1, on stdin and stdout; it needs no model.

    python -I -S .../ramet_demo/scripted/acp.py [QUIRK …]

A prompt's ``DO:[…]`` scripts its turn: ``{"text": …}``, ``{"thinking": …}``, ``{"tool":
"Write"|"Bash", "input": {…}}``, ``{"die": code}``, ``{"hang": true}`` (until the turn is
cancelled); to other prompts it answers "ok". In its mode "ask" it asks before a tool call, in
"free" it does not. Conversations are in ``$HOME/.scripted-acp``.

Quirks of real agents: ``no-tool-call`` (the permission request is the first message about a call),
``no-raw-input``, ``no-content`` (of a completed call), ``late-input`` (the first update has no
input), ``string-ids``, ``end-turn-at-cancel``, ``waits-for-permission`` (a cancelled turn ends once
the permission is answered), ``forgets-mode`` (after a resume), ``load-only``, ``no-resume``
(announced, but missing), ``no-set-mode`` (likewise), ``login`` (no account is logged in), ``key``
(it takes a key from ``OPENAI_API_KEY`` once the client asks it to), ``noise``.
"""

import itertools
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, isolated
    sys.path.insert(0, __file__.rsplit("/", 3)[0])

from ramet_demo.scripted.script import steps_in

Message = dict[str, Any]
MODES = {"availableModes": [{"id": "ask", "name": "Ask"}, {"id": "free", "name": "Free"}], "currentModeId": "free"}


class Cancelled(Exception):  # noqa: N818 - no error
    """The client has cancelled the turn."""


class Agent:
    def __init__(self, quirks: set[str]) -> None:
        self._quirks = quirks
        self._ids = itertools.count()
        self._buffer = b""
        self._eof = False
        self._waiting: list[Message] = []  # requests that came while a turn ran
        self._answers: dict[object, Message] = {}
        self._cancelled = False
        self._session = ""
        self._cwd = "."
        self._mode = "free"
        self._store = Path(os.environ["HOME"], ".scripted-acp")

    # ── lines ─────────────────────────────────────────────────────────────────────────────────────

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def update(self, update_kind: str, **fields: Any) -> None:
        update = {"sessionUpdate": update_kind, **fields}
        self.send(method="session/update", params={"sessionId": self._session, "update": update})

    def hear(self, patience: float | None) -> bool:
        """Read the messages of the next ``patience`` seconds; return False at the end of stdin."""
        if not select.select([0], [], [], patience)[0]:
            return True
        data = os.read(0, 1 << 16)
        if not data:
            self._eof = True
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._sort(json.loads(line))
        return True

    def _sort(self, message: Message) -> None:
        if "method" not in message:
            self._answers[message["id"]] = message
        elif message["method"] == "session/cancel":
            self._cancelled = True
        elif message["method"] == "session/prompt":
            self._waiting.append(message)
        else:
            self._serve(message)

    def run(self) -> int:
        while True:
            while self._waiting:
                self._prompt(self._waiting.pop(0))
            if not self.hear(None):
                return 0

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    def _serve(self, message: Message) -> None:
        method, parameters, identity = message["method"], message.get("params", {}), message.get("id")
        result: Message = {}
        if f"no-{method.partition('/')[2].replace('_', '-')}" in self._quirks:
            method = "missing"
        if method == "initialize":
            if "noise" in self._quirks:
                sys.stdout.write("starting up\n[1]\n")
                self.send(method="_vendor/hello", params={})
                self.send(id="drain", method="vendor/drain", params={})
            able: Message = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
            if "load-only" in self._quirks:
                able["sessionCapabilities"] = {}
            info = {"name": "scripted", "version": "1.0"}
            result = {"protocolVersion": 1, "agentCapabilities": able, "agentInfo": info, "authMethods": []}
        elif method == "authenticate" and "key" in self._quirks:
            if parameters["methodId"] != "api-key" or not os.environ.get("OPENAI_API_KEY"):
                self.send(id=identity, error={"code": -32000, "message": "no such key"})
                return
            self._quirks.remove("key")
        elif method.startswith("session/") and "key" in self._quirks:
            self.send(id=identity, error={"code": -32000, "message": "Authentication required"})
            return
        elif method == "session/new":
            if "login" in self._quirks:
                self.send(id=identity, error={"code": -32000, "message": "Authentication required"})
                return
            self._session, self._cwd = f"ses_{os.urandom(6).hex()}", parameters["cwd"]
            result = {"sessionId": self._session, "modes": {**MODES, "currentModeId": self._mode}}
            self._note({"cwd": self._cwd})
        elif method in {"session/load", "session/resume"}:
            path = self._store / f"{parameters['sessionId']}.jsonl"
            if not path.exists() or (method == "session/resume" and "load-only" in self._quirks):
                self.send(id=identity, error={"code": -32002, "message": "no such session"})
                return
            self._session, self._cwd = parameters["sessionId"], parameters["cwd"]
            for entry in map(json.loads, path.read_text().splitlines()):
                if "mode" in entry and "forgets-mode" not in self._quirks:
                    self._mode = entry["mode"]
                if "prompt" in entry and method == "session/load":
                    self.update("user_message_chunk", content={"type": "text", "text": entry["prompt"]})
                    self.update("agent_message_chunk", content={"type": "text", "text": "(as I said)"})
            result = {"modes": {**MODES, "currentModeId": self._mode}}
        elif method == "session/set_mode":
            self._mode = parameters["modeId"]
            self._note({"mode": self._mode})
        else:
            self.send(id=identity, error={"code": -32601, "message": f"Method not found: {message['method']}"})
            return
        self.send(id=identity, result=result)

    def _note(self, entry: Message) -> None:
        self._store.mkdir(exist_ok=True)
        with (self._store / f"{self._session}.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────

    def _prompt(self, message: Message) -> None:
        text = "\n".join(block["text"] for block in message["params"]["prompt"])
        self._note({"prompt": text, "pid": os.getpid(), "mode": self._mode})
        self._cancelled = False
        stop = "end_turn"
        steps = steps_in(text)
        try:
            for step in [{"text": "ok"}] if steps is None else steps:
                self._step(step)
        except Cancelled:
            stop = "end_turn" if "end-turn-at-cancel" in self._quirks else "cancelled"
        self.update("usage_update", used=100, size=1000, cost={"amount": 0.25 * self._turns(), "currency": "USD"})
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        self.send(id=message["id"], result={"stopReason": stop, "usage": usage})

    def _turns(self) -> int:
        return (self._store / f"{self._session}.jsonl").read_text().count('"prompt"')

    def _step(self, step: Message) -> None:
        for kind, name in (("agent_thought_chunk", "thinking"), ("agent_message_chunk", "text")):
            if name in step:
                half = len(step[name]) // 2
                for words in (step[name][:half], step[name][half:]):
                    self.update(kind, content={"type": "text", "text": words})
        if "die" in step:
            os._exit(step["die"])
        while "hang" in step:
            if self._cancelled:
                raise Cancelled
            if not self.hear(None):
                sys.exit(0)
        if "tool" in step:
            self._tool(step["tool"], step["input"])

    def _tool(self, tool: str, given: Message) -> None:
        identity = f"call_{os.urandom(4).hex()}"
        path = str(Path(self._cwd) / given.get("file_path", ""))
        call: Message = {"toolCallId": identity, "title": tool, "kind": "execute" if tool == "Bash" else "edit"}
        details: Message = {"rawInput": given}
        if tool == "Write":
            details = {
                "rawInput": {"filePath": path, "content": given["content"]},
                "content": [{"type": "diff", "path": path, "oldText": None, "newText": given["content"]}],
                "locations": [{"path": path}],
            }
        if "no-raw-input" in self._quirks:
            details.pop("rawInput")
            call["title"] = given.get("command", tool)
        if "no-tool-call" not in self._quirks:
            late = "late-input" in self._quirks
            self.update("tool_call", **call, status="pending", **({"rawInput": {}} if late else details))
            if late:
                self.update("tool_call_update", toolCallId=identity, **details)
        asked = {**call, **details} if "no-tool-call" in self._quirks else {"toolCallId": identity}
        if self._mode == "ask" and not self._allowed(asked):
            self.update("tool_call_update", toolCallId=identity, status="failed")
            return
        self.update("tool_call_update", toolCallId=identity, status="in_progress")
        output = self._bash(given["command"]) if tool == "Bash" else self._write(path, given["content"])
        result: Message = {} if "no-content" in self._quirks else {"content": [_text_block(output)]}
        self.update("tool_call_update", toolCallId=identity, status="completed", **result)

    def _allowed(self, call: Message) -> bool:
        identity: object = next(self._ids)
        if "string-ids" in self._quirks:
            identity = str(identity)
        options = [
            {"optionId": "yes-always", "name": "Always", "kind": "allow_always"},
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        parameters = {"sessionId": self._session, "toolCall": call, "options": options}
        self.send(id=identity, method="session/request_permission", params=parameters)
        while identity not in self._answers:
            if self._cancelled and "waits-for-permission" not in self._quirks:
                raise Cancelled
            if not self.hear(None):
                sys.exit(0)
        outcome = self._answers.pop(identity)["result"]["outcome"]
        if self._cancelled or outcome["outcome"] == "cancelled":
            raise Cancelled
        return bool(outcome["optionId"] == "yes")

    def _write(self, path: str, content: str) -> str:
        Path(path).write_text(content)
        return "written"

    def _bash(self, command: str) -> str:
        process = subprocess.Popen(command, shell=True, cwd=self._cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S602
        while process.poll() is None:
            if self._eof:
                time.sleep(0.02)
            else:
                self.hear(0.02)
            if self._cancelled:
                process.kill()
                process.communicate()
                raise Cancelled
        return process.communicate()[0].decode()


def _text_block(words: str) -> Message:
    return {"type": "content", "content": {"type": "text", "text": words}}


if __name__ == "__main__":
    if "--version" in sys.argv:
        sys.stdout.write("scripted-acp 1.0\n")
    else:
        sys.exit(Agent(set(sys.argv[1:])).run())
