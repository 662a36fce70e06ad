"""Version 1 of the Agent Client Protocol: the meaning of an agent's lines, and the lines for the
agent.

The protocol sends the words of a message and the fields of a tool call in pieces, which a reader
joins. No piece outlives a turn, so a reader that starts at the end of the last turn has the same
pieces as one that has read everything. Values that outlive a turn (the session's id, the agent's
modes and options) are a `State`, which is stored with each process (`Initialized`).
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ramet.v1 import event_pb2

from rametd.agents import edits
from rametd.agents.base import (
    Activity,
    Answered,
    CallFailed,
    ControlAsked,
    ControlCancelled,
    ControlSettled,
    ConversationMissing,
    ConversationOpened,
    Doing,
    Fact,
    Frame,
    HistoryRead,
    Initialized,
    Question,
    StartRefused,
    Trouble,
    TurnShown,
    in_base64,
    media_type,
)
from rametd.agents.values import Message, parse, reason_of, rows, table, text
from rametd.domain.calls import describe_call
from rametd.domain.models import LedgerEntry, RequestKind, Tokens

VERSION = 1
INITIALIZE, PROBE, LOGIN, SESSION = "initialize", "probe", "login", "session"
"""Ids of our requests at a start; a prompt's request has the prompt's own id, a setting's begins
with `SETTING`.

If the agent refuses the session of `PROBE` because it needs a login, `LOGIN` and `SESSION` follow.
"""
SETTING = "set:"
CALL_ENDED = "call_ended"
"""Method of a control message that the reader creates from a call's last update, with all fields of
the call."""
LOGIN_NEEDED, METHOD_MISSING = -32000, -32601
NO_SESSION = b'"sessionId":"\\u0000"'
"""Placeholder in a stored prompt for the session's id, which the agent chooses."""
TEXT_LIMIT = 64 * 1024
NOISE_LIMIT = 4096
LARGEST_INDEX = (1 << 32) - 1
TOOLS = {
    "execute": "Bash",
    "edit": "Edit",
    "delete": "Edit",
    "move": "Edit",
    "read": "Read",
    "search": "Grep",
    "fetch": "WebFetch",
    "switch_mode": "ExitPlanMode",
}
"""Claude's names for the protocol's kinds of tool. Rules use these names."""
SETTINGS = frozenset({"config_option_update", "current_mode_update"})
"""Updates of modes and options; some agents send them before the answer that opens the session."""
PATHS = ("file_path", "filePath", "filepath", "path", "absolute_path", "abs_path")
OURS = "ramet"
OUR_NAME = re.compile(rf"(?:mcp[_.:/]{{1,2}})?{OURS}(?:[_.:/-]{{1,2}}| - )([a-z_]+)")


@dataclass(frozen=True, slots=True)
class State:
    """Facts about one process, valid as long as it lives."""

    session: str = ""  # id of its session; "" before there is one
    login: str = ""  # "needed" after a refused probe, "done" after `authenticate`
    version: str = ""
    load: bool = False
    resume: bool = False
    modes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)  # category → id of the configuration option

    def dump(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def load_from(cls, stored: bytes) -> "State":
        known = json.loads(stored) if stored else {}
        return cls(**{**known, "modes": tuple(known.get("modes", ()))})


@dataclass
class _Call:
    """A tool call, as far as the agent has described it."""

    id: str
    fields: Message
    shown: bool = False

    def merge(self, update: Message) -> None:
        self.fields.update({name: value for name, value in update.items() if value not in (None, {}, [], "")})


class Reader:
    """Reads the lines of one process in order."""

    def __init__(self, session_id: str, generation: int, stored: bytes) -> None:
        self._session_id, self._generation = session_id, generation
        self.state = State.load_from(stored)
        self._blocks: list[tuple[str, str]] = []  # of the message that the agent writes: "text" or "thinking", words
        self._words = ""  # of the agent's last message of the turn
        self._calls: dict[str, _Call] = {}
        self._asked: dict[str, str] = {}  # id of a permission request → of its tool call
        self._cost: float | None = None
        self._tokens = Tokens()  # of the turn's model calls, from an agent that reports each of them
        self._history = False  # the last line was a piece of the person's last message in a history
        self._last_user = ""

    def read(self, start: int, end: int, line: bytes) -> Frame:
        """Map one line, newline included; never raises for any content."""
        event = event_pb2.Event(session_id=self._session_id, generation=self._generation, offset=start)
        try:
            message = parse(line)
            if message is not None:
                return self._read(message, Frame(start, end, line, event, (), None))
        except RecursionError:
            pass
        event.agent_noise.text = line[:NOISE_LIMIT].decode("utf-8", "replace").rstrip("\n")
        return Frame(start, end, line, event, (), None)

    def _read(self, message: Message, frame: Frame) -> Frame:
        method, event = text(message, "method"), frame.event
        if not method:
            return self._answered(message, frame)
        event.agent_notice.type = method
        parameters = table(message, "params")
        if "id" in message:
            if method == "session/request_permission":
                return self._asks(message, parameters, frame)
            return frame._replace(facts=(ControlAsked(key_of(message["id"]), method, None),), control=message)
        if method == "$/cancel_request":
            return frame._replace(facts=(ControlCancelled(key_of(parameters.get("requestId"))),))
        if method == "session/update":
            return self._updated(table(parameters, "update"), frame)
        return frame

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def _answered(self, message: Message, frame: Frame) -> Frame:
        frame.event.agent_notice.type = "response"
        identity, result, error = message.get("id"), table(message, "result"), table(message, "error")
        facts: tuple[Fact, ...] = ()
        if identity == INITIALIZE:
            if error or result.get("protocolVersion") != VERSION:
                spoken = reason_of(error) or f"it speaks version {result.get('protocolVersion')} of the protocol"
                return frame._replace(facts=(StartRefused(spoken, login=False),), control=message)
            able = table(result, "agentCapabilities")
            self.state = replace(
                self.state,
                version=text(table(result, "agentInfo"), "version"),
                load=able.get("loadSession") is True,
                resume=isinstance(table(able, "sessionCapabilities").get("resume"), dict),
            )
            facts = (Initialized(self.state.dump()),)
        elif isinstance(identity, str) and identity.startswith((f"{PROBE}:", f"{SESSION}:")):
            facts = self._opened(identity, result, error)
        elif identity == LOGIN:
            facts = self._logged_in(error)
        elif isinstance(identity, str) and not identity.startswith(SETTING):
            return self._turn_ended(identity, result, error, frame)
        return frame._replace(facts=facts, control=message)

    def _opened(self, identity: str, result: Message, error: Message) -> tuple[Fact, ...]:
        request, how, known = identity.split(":", 2)
        self._blocks.clear()
        self._calls.clear()
        self._asked.clear()
        if error:
            words = reason_of(error) or "it opened no session"
            if error.get("code") == LOGIN_NEEDED:
                return self._login("needed") if request == PROBE else (StartRefused(words, login=True),)
            if error.get("code") == METHOD_MISSING and how == "resume" and self.state.load:
                self.state = replace(self.state, resume=False)  # qwen 0.15 announces a method that it does not have
                return (Initialized(self.state.dump()),)
            return (StartRefused(words, login=False),) if how == "new" else (ConversationMissing(),)
        self.state = replace(self.state, session=text(result, "sessionId") or known)
        self._settings(result)
        facts: tuple[Fact, ...] = (Initialized(self.state.dump()), ConversationOpened(self.state.session))
        return (*facts, HistoryRead(self._last_user)) if how == "load" else facts

    def _logged_in(self, error: Message) -> tuple[Fact, ...]:
        return (StartRefused(reason_of(error), login=True),) if error else self._login("done")

    def _login(self, login: str) -> tuple[Fact, ...]:
        self.state = replace(self.state, login=login)
        return (Initialized(self.state.dump()),)

    def _settings(self, result: Message) -> None:
        modes = tuple(
            text(mode, "id") for mode in rows(table(result, "modes"), "availableModes") if isinstance(mode, dict)
        )
        options = {
            text(option, "category") or text(option, "id"): text(option, "id")
            for option in rows(result, "configOptions")
            if isinstance(option, dict)
        }
        self.state = replace(self.state, modes=modes or self.state.modes, options=options or self.state.options)

    def _turn_ended(self, prompt_id: str, result: Message, error: Message, frame: Frame) -> Frame:
        before = self._flush(frame)
        stop = text(result, "stopReason")
        failed = bool(error) or stop == "refusal"
        words = reason_of(error) if error else self._words or (f"the agent stopped: {stop}" if failed else "")
        tokens = _tokens(table(result, "usage") or table(table(table(result, "_meta"), "quota"), "token_count"))
        tokens = tokens if tokens != Tokens() else self._tokens
        index = min(frame.start, LARGEST_INDEX)  # unique in the process, without a count that a restart would lose
        entry = LedgerEntry("", 0, index, "", None, tokens, 0.0)
        ended = frame.event.turn_ended
        ended.subtype, ended.is_error, ended.text, ended.result_index = stop or "error", failed, words, index
        if tokens != Tokens():
            ended.tokens.input, ended.tokens.output = tokens.input, tokens.output
            ended.tokens.cache_read, ended.tokens.cache_write = tokens.cache_read, tokens.cache_write
        facts: list[Fact] = [ControlSettled(each) for each in self._asked]
        facts.append(TurnShown(prompt_id))
        if error.get("code") == LOGIN_NEEDED:
            facts.append(CallFailed(Trouble.LOGIN))
        facts.append(
            Answered(
                index,
                failed,
                stop == "cancelled",
                words,
                self._cost or 0.0,
                (entry,),
                cumulative=self._cost is not None,
            )
        )
        facts.append(Activity("idle"))
        self._words, self._cost, self._tokens = "", None, Tokens()
        self._calls.clear()
        self._asked.clear()
        return frame._replace(facts=tuple(facts), before=before)

    # ── updates ───────────────────────────────────────────────────────────────────────────────────

    def _updated(self, update: Message, frame: Frame) -> Frame:
        kind = text(update, "sessionUpdate")
        event = frame.event
        event.agent_notice.subtype = kind
        words = _words(update.get("content"))
        if not self.state.session and kind not in SETTINGS:  # the history of the session that is being loaded
            if kind == "user_message_chunk":
                self._last_user = self._last_user + words if self._history else words
            self._history = kind == "user_message_chunk"
            return frame
        match kind:
            case "usage_update":
                cost = table(update, "cost").get("amount")
                if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
                    self._cost = float(cost)
                return frame
            case _ if kind in SETTINGS:
                self._settings(update)
                return frame._replace(facts=(Initialized(self.state.dump()),))
            case "agent_message_chunk" | "agent_thought_chunk":
                self._tokens += _tokens(table(table(update, "_meta"), "usage"))
                thinks = kind == "agent_thought_chunk"
                if not words:
                    return frame
                self._add("thinking" if thinks else "text", words)
                event.partial.text, event.partial.thinking = ("", words) if thinks else (words, "")
                return frame._replace(facts=(TurnShown(),))
            case "tool_call" | "tool_call_update":
                return self._called(update, frame)
            case "plan":
                return frame._replace(facts=(TurnShown(),), before=self._flush(frame))
        return frame

    def _add(self, kind: str, words: str) -> None:
        if self._blocks and self._blocks[-1][0] == kind:
            words = self._blocks.pop()[1] + words
        self._blocks.append((kind, words))

    def _message(self, frame: Frame) -> event_pb2.Event:
        """Return the agent's message up to now as an event, and begin a new message."""
        event = event_pb2.Event(session_id=self._session_id, generation=self._generation, offset=frame.start)
        event.assistant_message.SetInParent()
        for kind, words in self._blocks:
            if kind == "text":
                event.assistant_message.blocks.add(text=words)
                self._words = words
            else:
                event.assistant_message.blocks.add(thinking=words)
        self._blocks.clear()
        return event

    def _flush(self, frame: Frame) -> tuple[event_pb2.Event, ...]:
        return (self._message(frame),) if self._blocks else ()

    def _show(self, call: _Call, frame: Frame) -> event_pb2.Event:
        """Return the agent's message as an event, with the call at its end."""
        call.shown = True
        event = self._message(frame)
        tool, given = tool_of(call.fields)
        shown = event.assistant_message.blocks.add().tool_call
        shown.tool_use_id, shown.tool, shown.input_json = call.id, tool, json.dumps(given, ensure_ascii=False)
        return event

    def _known(self, update: Message) -> _Call:
        identity = text(update, "toolCallId")
        call = self._calls.setdefault(identity, _Call(identity, {}))
        call.merge(update)
        return call

    def _called(self, update: Message, frame: Frame) -> Frame:
        call = self._known(update)
        status = text(call.fields, "status")
        over = status in {"completed", "failed"}
        facts: list[Fact] = [TurnShown()]
        before: tuple[event_pb2.Event, ...] = ()
        if not call.shown and (over or status == "in_progress" or call.fields.get("rawInput")):
            before = (self._show(call, frame),)
            facts.append(Doing(describe_call(*tool_of(call.fields))))
        if not over:
            return frame._replace(facts=tuple(facts), before=before)
        given = frame.event.user_message
        result = "\n".join(_contents(call.fields)) or _output(call.fields.get("rawOutput"))
        given.results.add(
            tool_use_id=call.id,
            text=result[:TEXT_LIMIT],
            is_error=status == "failed",
            truncated=len(result) > TEXT_LIMIT,
            edit=next((edits.changed(*each) for each in _diffs(call.fields)), None),
        )
        facts += [ControlSettled(each) for each, of in self._asked.items() if of == call.id]
        self._asked = {each: of for each, of in self._asked.items() if of != call.id}
        ended = {"method": CALL_ENDED, "params": {"toolCall": call.fields}}
        return frame._replace(facts=tuple(facts), before=before, control=ended)

    def _asks(self, message: Message, parameters: Message, frame: Frame) -> Frame:
        """Read a permission request. Complete it with the known fields of its call, so that the
        stored request is complete without this reader."""
        call = self._known(table(parameters, "toolCall"))
        before = () if call.shown else (self._show(call, frame),)
        control_id = key_of(message.get("id"))
        self._asked[control_id] = call.id
        whole = {**message, "params": {**parameters, "toolCall": call.fields}}
        line = json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        asked = ControlAsked(control_id, "session/request_permission", None, frame=line)
        return frame._replace(facts=(TurnShown(), asked), control=whole, before=before)


# ── tool calls ────────────────────────────────────────────────────────────────────────────────────


def tool_of(call: Message) -> tuple[str, Message]:
    """Translate a call to Claude's names: the tool, and its input with the fields that rules and
    the guard read."""
    kind, given = text(call, "kind"), dict(table(call, "rawInput"))
    tool = TOOLS.get(kind, "")
    if not tool and (
        ours := our_tool(call)
    ):  # a call of a kind that the protocol names is not ours, whatever its title
        return ours, given
    if tool == "Bash":
        command = given.get("command", given.get("cmd"))
        if isinstance(command, list):
            command = shlex.join(str(each) for each in command)
        return tool, {**given, "command": command if isinstance(command, str) and command else text(call, "title")}
    if tool in {"Edit", "Read"}:
        found = paths_of(call)
        diffs = list(_diffs(call))
        named: Message = {"file_path": found[0]} if found else {}
        if tool == "Edit" and len(diffs) == 1:
            _, old, new = diffs[0]
            if old is None:
                return "Write", {**named, "content": new}
            return tool, {**named, "old_string": old, "new_string": new}
        return tool, {**given, **named}
    if tool == "ExitPlanMode":
        return tool, {**given, "plan": text(given, "plan") or "\n".join(_contents(call))}
    name = text(given, "tool") or text(call, "title") or kind or "tool"
    return tool or name, given


def paths_of(call: Message) -> list[str]:
    """Return every path that a call names."""
    given = table(call, "rawInput")
    listed = [path for path, _, _ in _diffs(call)]
    listed += [text(place, "path") for place in rows(call, "locations") if isinstance(place, dict)]
    listed += [text(given, name) for name in PATHS]
    return list(dict.fromkeys(path for path in listed if path))


def our_tool(call: Message) -> str:
    """``mcp__ramet__NAME`` for a call of Ramet's own tools, else "".

    Such a call is allowed without asking. So its title must be exactly an agent's name for the
    tool, and its input must be valid for the tool: the model may choose words in titles of other
    calls, and always does in their inputs.
    """
    from ramet.mcp import tools

    given = table(call, "rawInput")
    for words in (text(call, "title"), text(table(call, "_meta"), "toolName")):
        named = OUR_NAME.fullmatch(words.split("(")[0].strip())
        tool = tools().get(named[1]) if named else None
        if tool is None:
            continue
        wrapped = given.get("server") == OURS and given.get("tool") == tool.name
        if wrapped or given.keys() <= tool.schema["properties"].keys():
            return f"mcp__{OURS}__{tool.name}"
    return ""


def uses_of(call: Message) -> list[tuple[str, Message]]:
    """Return the tool uses of a call for the guard: one for each path that it writes."""
    tool, given = tool_of(call)
    found = paths_of(call)
    if tool in {"Edit", "Write"} and len(found) > 1:
        return [("Edit", {"file_path": path}) for path in found]
    return [(tool, given)]


def question_of(call: Message) -> Question:
    tool, given = tool_of(call)
    return Question(
        kind=RequestKind.PLAN if tool == "ExitPlanMode" else RequestKind.PERMISSION,
        tool=tool,
        tool_use_id=text(call, "toolCallId"),
        input=json.dumps(given, ensure_ascii=False),
        reason=text(call, "title"),
        suggestions="[]",
    )


def choice(options: Sequence[Any], *, allow: bool) -> Message:
    """Return the outcome that answers a permission request: the option that decides only this call,
    if there is one."""
    kinds = ("allow_once", "allow_always") if allow else ("reject_once", "reject_always")
    for kind in kinds:
        for option in options:
            if isinstance(option, dict) and text(option, "kind") == kind:
                return {"outcome": "selected", "optionId": option.get("optionId")}
    return CANCELLED


CANCELLED: Message = {"outcome": "cancelled"}


def _words(content: object) -> str:
    if isinstance(content, dict) and content.get("type") == "text":
        return text(content, "text")
    return ""


def _contents(call: Message) -> Iterator[str]:
    for block in rows(call, "content"):
        if isinstance(block, dict) and (words := _words(block.get("content"))):
            yield words


def _diffs(call: Message) -> Iterator[tuple[str, str | None, str]]:
    for block in rows(call, "content"):
        if isinstance(block, dict) and block.get("type") == "diff" and text(block, "path"):
            old = block.get("oldText")
            yield text(block, "path"), old if isinstance(old, str) else None, text(block, "newText")


def _output(output: object) -> str:
    if isinstance(output, dict):
        return text(output, "output") or text(output, "formatted_output") or json.dumps(output, ensure_ascii=False)
    return output if isinstance(output, str) else ""


def _tokens(usage: Message) -> Tokens:
    """Read a count of tokens, with the field names of different agents; 0 for a missing one."""

    def whole(source: Message, *names: str) -> int:
        return next((value for name in names if isinstance(value := source.get(name), int) and 0 < value < 1 << 53), 0)

    return Tokens(
        whole(usage, "inputTokens", "input_tokens"),
        whole(usage, "outputTokens", "output_tokens"),
        whole(usage, "cachedReadTokens", "cached_read_tokens"),
        whole(usage, "cachedWriteTokens", "cached_write_tokens"),
    )


# ── lines for the agent ───────────────────────────────────────────────────────────────────────────


def key_of(identity: object) -> str:
    """Convert the id of an agent's request to a key that depends on its JSON type: 1 and "1"
    differ."""
    return json.dumps(identity)


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def request(identity: str, method: str, **parameters: Any) -> bytes:
    return line(id=identity, method=method, params=parameters)


def response(control_id: str, **outcome: Any) -> bytes:
    return line(id=json.loads(control_id), **outcome)


def prompt(identity: str, words: str, images: Sequence[bytes] = ()) -> bytes:
    """Return a prompt for a session whose id is not known yet; `complete` adds the id."""
    head = json.dumps({"jsonrpc": "2.0", "id": identity, "method": "session/prompt"})[:-1].encode()
    blocks = [{"type": "image", "data": in_base64(each), "mimeType": media_type(each)} for each in images]
    body = json.dumps([*blocks, {"type": "text", "text": words}], ensure_ascii=False).encode("utf-8", "replace")
    return head + b', "params": {' + NO_SESSION + b', "prompt": ' + body + b"}}\n"


def complete(stored: bytes, session: str) -> bytes:
    """Add the id of the agent's session to a stored prompt."""
    return stored.replace(NO_SESSION, b'"sessionId":' + json.dumps(session).encode(), 1)
