"""A turn of the scripted agent: the frames around it, and the steps in it.

Keys of a step, in the order in which they take effect:

    sleep               seconds to wait first
    usage               token counts of the reply, e.g. {"input_tokens": 50000}
    thinking, text      what the agent thinks and says
    tool, input         a tool call: Bash, Write, Edit, Read, AskUserQuestion, ExitPlanMode, mcp__SERVER__TOOL; Bash takes `run_in_background`
    tools               several calls at once: [{"tool", "input"}, …]
    ask                 a question, or the `questions` of AskUserQuestion
    plan                the text of a plan, for ExitPlanMode (refused outside plan mode)
    mcp                 {"server", "tool", "arguments"}
    elicit              an MCP server's question: {"mcp_server_name", "message", "requested_schema"}; says the answer
    background          seconds until a background task ends; its turn runs the steps `then`
    spawn               a shell command that outlives the agent, as a development server does
    events              that many text frames "N UNIX-TIME padding", `per_second`, padded to `bytes`
    flood               that many bytes in frames of `line` bytes (65536), as fast as possible
    noise, unknown      a raw line; a frame of an unknown type
    rate_limit, retry   a rate_limit_event, an api_retry
    fail, unless        ends the turn with this error, unless the file `unless` is there; `error`: its kind, as "server_error"
    turns               true: says the number of turns of this conversation
    hang                true: waits for an interrupt
    stderr, die         a message; an exit code, or "SIGKILL"

All in one class, since each frame depends on those before it in the same turn.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from ramet_demo.scripted import gate, tools
from ramet_demo.scripted.script import Step, fill
from ramet_demo.scripted.session import USAGE, Prompt, Session
from ramet_demo.scripted.wire import Frame, Interrupted, Terminated, changed, new_id, timestamp

HANDSHAKE = 30.0  # seconds that a turn waits for MCP servers, as the real CLI's MCP_TIMEOUT
CALLS = frozenset({"tool", "tools", "ask", "plan", "mcp"})


class Failed(Exception):  # noqa: N818 -- the outcome of a turn
    """The turn ends with an error: the API's message, and its kind."""


class Turn:
    def __init__(self, session: Session, prompt: Prompt) -> None:
        self._session = session
        self._wire = session.wire
        self._prompt = prompt
        self._uuids = [prompt.uuid] if prompt.uuid else []
        self._resumed: Frame = {} if prompt.resumed_at is None else {"resume_reason": "interrupted_turn"}
        self._marked = False  # the first assistant frame names the prompt
        self._began = time.monotonic()
        self._replies = 0
        self._last = ""
        self._message_id = self._uuid = ""
        self._line = b""  # the last frame of the model
        self._usage = USAGE
        self._denials: list[Frame] = []
        self._calling = False
        self._done = prompt.resumed_at or 0

    def run(self) -> None:
        session, prompt = self._session, self._prompt
        session.working = True
        session.prompt_id = new_id()
        session.set_state("running")
        session.lifecycle(prompt.uuid, "started")
        if prompt.resumed_at is not None:
            self._wire.wait(
                lambda: session.initialized or self._wire.eof
            )  # before the turn, or its hooks would miss it
        steps = prompt.steps
        try:
            if prompt.uuid and prompt.resumed_at is None:
                session.transcript.prompt(prompt.uuid, prompt.message)
            if refusal := self._hook("UserPromptSubmit", prompt=prompt.message["content"]):
                steps = [{"text": refusal}]
            limit = time.monotonic() + HANDSHAKE
            self._wire.wait(lambda: not self._greeting() or time.monotonic() > limit, limit)
            session.send_init(self._uuids)
            if prompt.uuid and session.flags.replay:
                self._user(prompt.message, uuid=prompt.uuid, isReplay=True)
            self._run(steps)
        except Interrupted:
            self._abort()
        except Failed as failed:
            self._reply(
                [{"type": "text", "text": failed.args[0]}], **({"error": failed.args[1]} if failed.args[1] else {})
            )
            fields = {"subtype": "success", "is_error": True, "stop_reason": "stop_sequence", "result": failed.args[0]}
            self._end("api_error", **fields, api_error_status=429)
            session.lifecycle(prompt.uuid, "completed")
        finally:
            session.working = False

    def _run(self, steps: list[Step]) -> None:
        for step in steps[self._done :]:
            self._step(fill(step, self._session.cwd))
            self._progress()
        if not steps or CALLS & steps[-1].keys():
            self._say("done")
        active = False
        while reason := self._hook(
            "Stop", stop_hook_active=active, last_assistant_message=self._last, background_tasks=[], session_crons=[]
        ):
            active = True
            self._say(f"Going on: {reason}")
        self._end(
            "completed",
            subtype="success",
            is_error=False,
            stop_reason="end_turn",
            result=self._last,
            api_error_status=None,
        )
        self._session.lifecycle(self._prompt.uuid, "completed")

    def _greeting(self) -> bool:
        return not self._wire.eof and any(server.status == "pending" for server in self._session.servers.values())

    def _progress(self) -> None:
        self._done += 1
        self._session.transcript.progress(self._done, ended=False)

    def _hook(self, event: str, **fields: Any) -> str:
        """Return the reason why a hook of the turn blocks; "" if none does."""
        returned = gate.hook(self._session, event, **fields)
        return next(
            (one.get("reason") or "Blocked by a hook" for one in returned if one.get("decision") == "block"), ""
        )

    def _abort(self) -> None:
        notice = "[Request interrupted by user for tool use]" if self._calling else "[Request interrupted by user]"
        self._user({"role": "user", "content": [{"type": "text", "text": notice}]})
        reason = "aborted_tools" if self._calling else "aborted_streaming"
        stop = "tool_use" if self._calling else None
        words = f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop or 'null'}"
        self._end(reason, subtype="error_during_execution", is_error=True, stop_reason=stop, errors=[words])
        self._session.lifecycle(self._prompt.uuid, "cancelled")

    def _end(self, reason: str, **outcome: Any) -> None:
        session = self._session
        session.transcript.progress(len(self._prompt.steps), ended=True)
        elapsed = int((time.monotonic() - self._began) * 1000)
        named = {"user_message_uuid": self._uuids[0], "user_message_uuids": self._uuids} if self._uuids else {}
        self._wire.emit(
            "result",
            **outcome,
            duration_ms=elapsed,
            duration_api_ms=elapsed,
            num_turns=max(1, self._replies),
            terminal_reason=reason,
            permission_denials=self._denials,
            queued_turn_count=len(session.queue),
            result_index=session.results,
            **session.ledger.close(),
            **named,
            **({"origin": self._prompt.origin} if self._prompt.origin else {}),
            **self._resumed,
        )
        session.results += 1

    def _step(self, step: Step) -> None:
        if "sleep" in step:
            self._wire.sleep(step["sleep"])
        self._usage = {**USAGE, **step.get("usage", {})}
        blocks: list[Frame] = []
        if "thinking" in step:
            blocks.append({"type": "thinking", "thinking": step["thinking"], "signature": "c2NyaXB0ZWQ="})
        if "text" in step:
            blocks.append({"type": "text", "text": step["text"]})
        if "turns" in step:
            blocks.append({"type": "text", "text": f"turn {self._session.transcript.turns + 1}"})
        if "spawn" in step:
            child = self._session.children.start(step["spawn"], tracked=False)
            blocks.append({"type": "text", "text": f"spawned {child.pid}"})
        calls = [
            {"type": "tool_use", "id": f"toolu_{new_id()[:23]}", "name": name, "input": given}
            for name, given in tools.calls(step)
        ]
        if "text" in step and "over" in step and self._session.flags.partial:
            self._stream(step["text"], step["over"])
        if blocks or calls:
            self._reply(blocks + calls)
        if calls:
            self._call(calls)
        if "elicit" in step:
            self._elicit(step["elicit"])
        if "background" in step:
            self._background(step)
        self._oddities(step)

    def _elicit(self, asked: Frame) -> None:
        self._session.set_state("requires_action")
        request = self._wire.request(subtype="elicitation", **asked)
        self._wire.await_answers([request])
        self._session.set_state("running")
        self._say(f"elicited {json.dumps((request.answer or {}).get('response'))}")

    def _oddities(self, step: Step) -> None:
        """Faults of an agent, and events around it."""
        wire = self._wire
        if "events" in step:
            self._events(step["events"], step.get("per_second", 0), step.get("bytes", 0))
        for left in range(step.get("flood", 0), 0, -step.get("line", 65536)):
            self._reply([{"type": "text", "text": "x" * min(left, step.get("line", 65536))}])
        if "noise" in step:
            wire.write(step["noise"].encode() + b"\n")
        if "unknown" in step:
            wire.emit(
                **{
                    "kind": "an_unheard_of_kind",
                    **{{"type": "kind"}.get(key, key): value for key, value in step["unknown"].items()},
                }
            )
        if "rate_limit" in step:
            wire.emit(
                "rate_limit_event",
                rate_limit_info={"status": "allowed", "rateLimitType": "five_hour", **step["rate_limit"]},
            )
        if "retry" in step:
            retry = {"attempt": 1, "max_retries": 10, "retry_delay_ms": 500, "error_status": 529, "error": "overloaded"}
            wire.emit("system", subtype="api_retry", **{**retry, **step["retry"]})
        if "fail" in step and not os.path.exists(step.get("unless", "")):  # noqa: PTH110
            raise Failed(step["fail"], step.get("error", ""))
        if "hang" in step:
            wire.wait(lambda: False)
        if "stderr" in step:
            sys.stderr.write(step["stderr"] + "\n")
            sys.stderr.flush()
        if step.get("die") == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if "die" in step:
            os._exit(step["die"])

    def _events(self, count: int, per_second: float, size: int) -> None:
        start = time.monotonic()
        for number in range(1, count + 1):
            if per_second:
                due = start + number / per_second
                if not self._wire.rests(due):
                    self._wire.wait(lambda due=due: time.monotonic() >= due, due)  # type: ignore[misc]
            text = f"{number} {time.time():.6f} ".ljust(size, "x")
            if number < 3:  # the first may name the prompt
                self._reply([{"type": "text", "text": text}], paid=number == 1)
            else:
                self._repeat(text)

    def _repeat(self, text: str) -> None:
        """Send the last frame again with this text and new ids, without encoding it: a hundred
        agents that encode each frame would use most of a processor, while real agents wait for
        their model."""
        identity, uuid = f"msg_{new_id()}", new_id()
        changes = ((self._last, text), (self._message_id, identity), (self._uuid, uuid))
        self._last, self._message_id, self._uuid = text, identity, uuid
        self._line = changed(self._line, changes)
        self._wire.write(self._line)
        self._session.transcript.repeat(changes, uuid)
        self._replies += 1

    def _background(self, step: Step) -> None:
        tool_use_id = f"toolu_{new_id()[:23]}"
        self._session.start_task(
            "background", tool_use_id, step.get("then", [{"text": "followup"}]), None, step["background"]
        )

    def _stream(self, text: str, seconds: float) -> None:
        """Send a text word by word, as the model writes it, before the message that repeats it."""
        words = text.split(" ")
        for number, word in enumerate(words):
            piece = word if number == 0 else f" {word}"
            delta = {"type": "text_delta", "text": piece}
            self._piece({"type": "content_block_delta", "index": 0, "delta": delta})
            self._wire.sleep(seconds / len(words))
        self._piece({"type": "message_delta", "delta": {}, "usage": {"output_tokens": len(words)}})

    def _piece(self, event: Frame) -> None:
        self._wire.emit("stream_event", event=event, parent_tool_use_id=None)

    def _say(self, text: str) -> None:
        self._usage = USAGE
        self._reply([{"type": "text", "text": text}])

    def _reply(self, blocks: list[Frame], *, paid: bool = True, **more: Any) -> None:
        """Send one message of the model: a frame for each of its blocks."""
        session = self._session
        self._replies += 1
        if paid:
            session.ledger.add(session.model, self._usage)
        self._message_id = f"msg_{new_id()}"
        shared: Frame = {
            "context_management": None,
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "model": session.model,
            "stop_reason": None,
        }
        for block in blocks:
            message = {
                **shared,
                "stop_sequence": None,
                "content": [block],
                "usage": {**self._usage, "output_tokens": 1},
            }
            named = (
                {}
                if self._marked or not self._uuids
                else {"user_message_uuid": self._uuids[0], "user_message_uuids": self._uuids}
            )
            self._marked = True
            self._uuid = self._wire.emit(
                "assistant",
                message=message,
                parent_tool_use_id=None,
                timestamp=timestamp(),
                request_id="req_scripted",
                **named,
                **self._resumed,
                **more,
            )
            self._line = self._wire.emitted
            session.transcript.message("assistant", message, self._uuid)
            if block["type"] == "text":
                self._last = block["text"]

    def _call(self, calls: list[Frame]) -> None:
        self._calling = True
        for call in calls:
            outcome = tools.use(self._session, call["name"], call["input"], call["id"])
            if outcome.denied:
                self._denials.append(
                    {"tool_name": call["name"], "tool_use_id": call["id"], "tool_input": call["input"]}
                )
            block = {"type": "tool_result", "tool_use_id": call["id"], "content": outcome.content}
            if outcome.is_error is not None:
                block["is_error"] = outcome.is_error
            message = {"role": "user", "content": [block]}
            meta = {"tool_result_meta": [{"id": call["id"], **outcome.meta}]} if outcome.meta else {}
            self._user(message, tool_use_result=outcome.result, **meta)
            if isinstance(outcome.stop, Terminated):
                self._progress()  # the result is sent: a resumed turn continues after this step
            if outcome.stop is not None:
                raise outcome.stop
        self._calling = False

    def _user(self, message: Frame, **more: Any) -> None:
        frame = {
            "type": "user",
            "message": message,
            "parent_tool_use_id": None,
            "session_id": self._wire.session_id,
            "timestamp": timestamp(),
        }
        self._wire.send({**frame, "uuid": new_id(), **more})
        if "isReplay" not in more:
            self._session.transcript.message("user", message)
