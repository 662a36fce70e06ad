"""Turns that people made in Claude Code's own interface, read from the transcript. Every call
blocks.

Each line of a transcript names the program's entry point, "sdk-py" for the daemon's processes. All
other lines ("cli", and "sdk-cli" of ``claude -p``) are of turns that the daemon did not see. This
module converts them to lines of stream-json, so that the daemon reads, stores and charges them like
other turns. After each turn the program writes a ``cost-state`` line with the conversation's total;
the cost of a turn is the difference between two totals.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from rametd.agents.base import Outside, OutsideTurn
from rametd.agents.values import Message, count, number, parse, rows, table, text

LONGEST = 64 << 20
"""Maximum number of bytes of a line that is read as a message."""
ENTRYPOINT = "cli"
OURS = "sdk-py"
OUR_LINE = b'"entrypoint":"sdk-py"'
"""Mark of the daemon's lines, which are the most and need no parsing. In the text of a message the
quotes would be escaped."""
COUNTED = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "costUSD")
INTERRUPTED = "[Request interrupted by user"
NO_PROMPT = ("<command-name>", "<command-message>", "<local-command-", "<bash-", INTERRUPTED)
"""Prefixes of texts that the interface writes in the person's name and that start no turn."""


@dataclass
class _Turn:
    prompt_id: str
    prompt: str
    begin: float
    end: float
    lines: list[Message] = field(default_factory=list)
    words: str = ""  # the last words
    model: str = ""
    mode: str = ""
    cwd: str = ""
    version: str = ""
    aborted: bool = False
    costs: dict[str, Message] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Position in a transcript: ``offset`` bytes of the file ``inode``, with the time ``newest``
    and the total of costs there."""

    inode: int = 0
    offset: int = 0
    newest: float = 0.0
    total: Mapping[str, Message] = field(default_factory=dict)


def read(
    transcript: Path, conversation_id: str, after: float, results: int, known: Place | None = None
) -> tuple[Outside, Place]:
    """Return the turns after a time, and the position up to which the file was read. The numbers of
    their results continue from ``results``.

    ``known``: the position of the previous read. Transcripts only grow, so the read continues
    there, unless the turns of the previous read were not stored, or the file was replaced or
    truncated.
    """
    turns: list[_Turn] = []
    paying: _Turn | None = None  # the next total belongs to this turn
    try:
        with transcript.open("rb") as file:
            found = os.fstat(file.fileno())
            if known is None or (known.inode, known.newest) != (found.st_ino, after) or known.offset > found.st_size:
                known = Place(found.st_ino, newest=after)
            newest, before, offset = after, dict(known.total), known.offset
            for line, end in _lines(file, known.offset):
                offset = end
                if OUR_LINE in line:
                    paying = None
                    continue
                message = parse(line) or {}
                if text(message, "type") == "cost-state":
                    total = {model: use for model, use in table(message, "modelUsage").items() if isinstance(use, dict)}
                    if paying is not None:
                        _charge(paying, before, total)
                    before = total
                    continue
                when, entry = _time(message), text(message, "entrypoint")
                if when <= after or not entry or entry == OURS or message.get("isSidechain") is True:
                    continue
                newest = max(newest, when)
                _add(turns, message, when)
                paying = turns[-1] if turns else None
    except FileNotFoundError:
        return Outside((), after), Place()
    outside = Outside(
        tuple(
            OutsideTurn(each.prompt_id, each.prompt, tuple(_written(each, conversation_id, results + index)))
            for index, each in enumerate(turns)
        ),
        newest,
    )
    return outside, Place(known.inode, offset, newest, before)


def _lines(file: BinaryIO, offset: int) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines from an offset on with their ends: the program may be writing the
    last one. Of a line that is too long to be a message, yield the beginning."""
    file.seek(offset)
    while line := file.readline(LONGEST):
        offset += len(line)
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST)
            offset += len(rest)
        if not rest:
            return
        yield line, offset


def users(home: Path, conversation_id: str) -> list[tuple[int, str]]:
    """Return pids and start times from the program's register of its processes, which includes
    killed ones."""
    found = []
    for file in (home / "sessions").glob("*.json"):
        try:
            data = file.read_bytes()
        except OSError:
            continue
        entry = (parse(data) or {}) if conversation_id.encode() in data else {}
        if text(entry, "sessionId") == conversation_id and (pid := count(entry, "pid")):
            found.append((pid, str(entry.get("procStart", ""))))
    return found


def _add(turns: list[_Turn], message: Message, when: float) -> None:
    kind = text(message, "type")
    if kind == "user" and (prompt := _prompt(message)):
        turns.append(_Turn(text(message, "uuid"), prompt, when, when))
    if not turns or kind not in {"user", "assistant"} or message.get("isMeta") is True:
        return
    turn = turns[-1]
    turn.end = when
    if kind == "user":
        turn.mode = text(message, "permissionMode") or turn.mode
        turn.aborted = turn.aborted or _words(message).startswith(INTERRUPTED)
        if _words(message).startswith(NO_PROMPT):
            return
    else:
        turn.model = text(table(message, "message"), "model") or turn.model
        turn.words = _words(message) or turn.words
    turn.cwd, turn.version = text(message, "cwd") or turn.cwd, text(message, "version") or turn.version
    turn.lines.append(message)


def _prompt(message: Message) -> str:
    """Return the person's prompt, "" for a tool's answer or a command of the interface."""
    if message.get("isMeta") is True:
        return ""
    words = _words(message)
    return "" if words.startswith(NO_PROMPT) else words


def _words(message: Message) -> str:
    content = table(message, "message").get("content")
    if isinstance(content, str):
        return content
    return "\n".join(
        text(block, "text")
        for block in rows(table(message, "message"), "content")
        if isinstance(block, dict) and text(block, "type") == "text"
    )


def _charge(turn: _Turn, before: dict[str, Message], total: dict[str, Message]) -> None:
    """Charge the growth of the totals to a turn."""
    for model, use in total.items():
        known, has = before.get(model, {}), turn.costs.setdefault(model, {})
        for key in COUNTED:
            has[key] = number(has, key) + max(0.0, number(use, key) - number(known, key))


def _written(turn: _Turn, conversation_id: str, index: int) -> Iterator[bytes]:
    """Return the turn as lines of stream-json."""
    yield _line({"type": "system", "subtype": "init", "cwd": turn.cwd, "model": turn.model, "permissionMode": turn.mode,
                 "claude_code_version": turn.version, "session_id": conversation_id})  # fmt: skip
    for message in turn.lines:
        fields: Message = {key: message[key] for key in ("type", "uuid", "message", "timestamp") if key in message}
        if "toolUseResult" in message:
            fields["tool_use_result"] = message["toolUseResult"]
        replay = {"isReplay": True} if text(message, "uuid") == turn.prompt_id else {}
        yield _line({**fields, **replay, "session_id": conversation_id, "parent_tool_use_id": None})
    yield _line({
        "type": "result", "subtype": "error_during_execution" if turn.aborted else "success", "is_error": False,
        "terminal_reason": "aborted_streaming" if turn.aborted else "completed", "result": turn.words,
        "result_index": index, "duration_ms": int((turn.end - turn.begin) * 1000), "session_id": conversation_id,
        "model_usage_since_last_result": turn.costs,
    })  # fmt: skip


def _line(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _time(message: Message) -> float:
    try:
        return datetime.fromisoformat(text(message, "timestamp")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
