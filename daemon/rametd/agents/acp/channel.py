"""The protocol with one running agent: open its session, set mode and model, answer its
requests."""

import asyncio
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from rametd.agents.acp import v1
from rametd.agents.base import ChannelIO, Opening, ToolUse
from rametd.agents.presets import Preset
from rametd.agents.values import reason_of, rows, table, text
from rametd.domain.errors import AgentRefusedError
from rametd.domain.models import Agent, Mode, Session

SETTING_S = 30.0
EDITS = frozenset({"Edit", "Write"})
ENDED = "ended:"
"""Prefix of the key of a task that checks a call's changes. The key of any other task is the id of
the control request that it answers."""


class AcpChannel:
    def __init__(self, preset: Preset, agent: Agent, io: ChannelIO) -> None:
        self._preset = preset
        self._io = io
        self._state = v1.State.load_from(agent.initialize_reply)
        self._begun = bool(agent.initialize_reply)
        self._in_turn = agent.activity == "running"
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}  # to our requests
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by control request, or `ENDED` and a call
        self._settings = 0
        self._reader = v1.Reader(agent.session_id, agent.generation, agent.initialize_reply)

    async def open(self) -> None:
        opening = await self._io.opening()
        if not self._begun:
            capabilities: dict[str, Any] = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
            client = {"name": "ramet", "version": "1"}
            hello = {"protocolVersion": v1.VERSION, "clientCapabilities": capabilities, "clientInfo": client}
            self._take(await self._request(v1.INITIALIZE, "initialize", hello))
        if not self._state.session:
            await self._open_session(opening)
        if not self._in_turn:  # during a turn the mode is set already
            await self._set_mode(opening.session.mode)
            if opening.session.model:
                await self.set_model(opening.session.model)

    async def _open_session(self, opening: Opening) -> None:
        """Open the session. Use the key in the environment only if the agent refuses to work
        without one: a key must not replace a person's own login."""
        if self._preset.keys and not self._state.login and await self._opened(v1.PROBE, opening):
            return
        known = opening.variables | self._preset.env.keys()
        method = next((method for name, method in self._preset.keys.items() if name in known), "")
        if self._state.login == "needed" and method:
            self._take(await self._request(v1.LOGIN, "authenticate", {"methodId": method}))
        if not await self._opened(v1.SESSION, opening):
            await self._opened(v1.SESSION, opening)  # in the other way

    async def _opened(self, request: str, opening: Opening) -> bool:
        """Open the session. Return False if another request may succeed."""
        before = self._state
        how, parameters = self._opening(opening)
        answer = await self._request(f"{request}:{how}:{parameters.get('sessionId', '')}", f"session/{how}", parameters)
        if "error" in answer and self._reader.state != before:
            self._state = self._reader.state
            return False
        self._take(answer)
        return True

    async def _request(self, identity: str, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, which is written once, also after a crash."""
        answer = self._expect(identity)
        await self._io.enqueue(identity, v1.request(identity, method, **parameters))
        return await answer

    def _opening(self, opening: Opening) -> tuple[str, dict[str, Any]]:
        """Return the method that opens the session, without `session/`, and its parameters."""
        session, tools = opening.session, opening.tools
        environment = [{"name": name, "value": value} for name, value in tools.environment.items()]
        server = {"name": "ramet", "command": tools.command[0], "args": list(tools.command[1:]), "env": environment}
        parameters: dict[str, Any] = {
            "cwd": str(session.worktree),
            "mcpServers": [server] if self._preset.capabilities.mcp else [],
        }
        if session.conversation_begun and (self._state.load or self._state.resume):
            # Loading shows whether the agent took the last prompt, at the cost of the whole
            # history.
            load = self._state.load and (opening.doubtful or not self._state.resume)
            return "load" if load else "resume", {**parameters, "sessionId": session.conversation_id}
        return "new", parameters

    def _expect(self, identity: str) -> "asyncio.Future[dict[str, Any]]":
        """Return the answer to a request of ours, which may have arrived before this call."""
        return self._answers.setdefault(identity, asyncio.get_running_loop().create_future())

    def _take(self, answer: Mapping[str, Any]) -> None:
        if error := table(answer, "error"):
            raise AgentRefusedError(f"{self._preset.name}: {reason_of(error)}", hint=self._preset.login)
        self._state = self._reader.state

    def feed(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            identity = message.get("id")
            self._reader.read(0, 0, v1.line(**message))
            if isinstance(identity, str) and not (future := self._expect(identity)).done():
                future.set_result(message)
            return
        if message["method"] == v1.CALL_ENDED:
            call = table(message["params"], "toolCall")
            self._run(f"{ENDED}{text(call, 'toolCallId')}", self._audit(call))
            return
        control_id = v1.key_of(message.get("id"))
        if message["method"] == "session/request_permission":
            self._run(control_id, self._permit(control_id, table(message, "params")))
        else:
            missing = {"code": v1.METHOD_MISSING, "message": f"Method not found: {message['method']}"}
            self._run(control_id, self._io.answer(control_id, v1.response(control_id, error=missing)))

    def _run(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task of its own, unless a task with this key runs."""
        if key in self._tasks:
            work.close()
            return
        task = self._tasks[key] = asyncio.create_task(work, name=f"acp-{key}")
        task.add_done_callback(lambda done: self._done(key, done))

    def _done(self, key: str, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._io.failed(error)

    async def _permit(self, control_id: str, parameters: dict[str, Any]) -> None:
        """Judge the call by ownership and rules, then by the session's mode, then by a person."""
        call = table(parameters, "toolCall")
        allow = await self._judge(call)
        if allow is None:
            await self._io.ask(control_id, v1.question_of(call))
            allow = (await self._io.decide(control_id)).allow
        outcome = v1.choice(rows(parameters, "options"), allow=allow)
        await self._io.answer(control_id, v1.response(control_id, result={"outcome": outcome}))

    async def _uses(self, call: dict[str, Any]) -> tuple[Session, list[ToolUse]]:
        session = (await self._io.opening()).session
        identity = text(call, "toolCallId")
        return session, [ToolUse(tool, given, str(session.worktree), identity) for tool, given in v1.uses_of(call)]

    async def _audit(self, call: dict[str, Any]) -> None:
        """Check the changes of a call. The result of a call cannot contain a message in this
        protocol: send the agent a prompt."""
        _, uses = await self._uses(call)
        for use in uses:
            if words := await self._io.judge_result(use):
                await self._io.prompt(words)

    async def _judge(self, call: dict[str, Any]) -> bool | None:
        """Return whether a call is allowed; None if a person decides."""
        session, uses = await self._uses(call)
        verdicts = {(await self._io.guard(use)).effect for use in uses}
        if "deny" in verdicts:
            return False
        if verdicts == {"allow"} or uses[0].tool.startswith("mcp__ramet__"):  # for these, the session's limits decide
            return True
        if "ask" in verdicts:
            return None
        if session.mode == Mode.BYPASS:
            return True
        if session.mode == Mode.DONT_ASK:
            return False
        inside = await asyncio.to_thread(_inside, v1.paths_of(call), session.worktree)
        return True if session.mode == Mode.ACCEPT_EDITS and uses[0].tool in EDITS and inside else None

    async def interrupt(self) -> None:
        await self._io.interrupting()
        # Use the outbox: the line must follow a prompt that is committed and not yet written.
        cancel = v1.line(method="session/cancel", params={"sessionId": self._state.session})
        await self._io.enqueue(f"cancel:{uuid.uuid4()}", cancel)
        for control_id, task in list(self._tasks.items()):
            if control_id.startswith(ENDED):
                continue
            task.cancel()
            await self._io.answer(control_id, v1.response(control_id, result={"outcome": v1.CANCELLED}))

    async def set_mode(self, mode: Mode) -> None:
        await self._set_mode(mode)

    async def _set_mode(self, mode: Mode) -> None:
        for word in self._preset.modes.get(mode, "").split():
            option, given, value = word.partition("=")
            if value in {"default", "off"} and option not in self._state.options.values():
                continue
            if given:
                await self._set("session/set_config_option", configId=option, value=value)
            elif option in self._state.modes:
                await self._set("session/set_mode", modeId=option)
            elif (identity := self._state.options.get("mode")) is not None:
                await self._set("session/set_config_option", configId=identity, value=option)
            else:
                raise AgentRefusedError(
                    f"{self._preset.name} has no mode {option!r}",
                    hint=f"set agents.{self._preset.name}.modes to what it has: {', '.join(self._state.modes) or 'none'}",
                )

    async def set_model(self, model: str) -> None:
        identity = self._state.options.get(self._preset.model_option)
        if identity is None:
            raise AgentRefusedError(
                f"{self._preset.name} offers no choice of model", hint="set it in the agent's own settings"
            )
        if model:
            await self._set("session/set_config_option", configId=identity, value=model)

    async def _set(self, method: str, **parameters: Any) -> None:
        self._settings += 1
        identity = f"{v1.SETTING}{self._settings}:{id(self)}"
        answer = self._expect(identity)
        await self._io.write(v1.request(identity, method, sessionId=self._state.session, **parameters))
        answered = await asyncio.wait_for(answer, SETTING_S)
        if error := table(answered, "error"):
            words = reason_of(error)
            raise AgentRefusedError(
                f"{self._preset.name} rejected {parameters}: {words}",
                hint="the setting is stored, and takes effect at the next start of its program",
            )

    async def set_variables(self, variables: Mapping[str, str]) -> None:
        """Do nothing: the protocol cannot change the environment of a process."""

    async def cost(self) -> float | None:
        return None

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for future in self._answers.values():
            future.cancel()


def _inside(paths: Sequence[str], worktree: Path) -> bool:
    top = worktree.resolve()
    return bool(paths) and all((top / path).resolve().is_relative_to(top) for path in paths)
