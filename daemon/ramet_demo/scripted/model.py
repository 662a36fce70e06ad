"""A scripted stand-in for APIs of models on loopback: real agents run against it with no account.

    python -m ramet_demo.scripted.model [--port N] [--port-file FILE] [--script FILE]

The first line printed is ``listening on 127.0.0.1:PORT``. Point Claude Code at it with
``ANTHROPIC_BASE_URL`` and any ``ANTHROPIC_API_KEY``; it also speaks chat completions, Responses and
Gemini's generateContent (`dialects`). Each reply is the next step of the script in the prompt (see
`script` and `conversation`), else of the first route of ``--script FILE`` whose ``when`` the prompt
contains, else "ok". A step is one reply and may hold

    text, thinking           what the model says and thinks
    tool, input              a tool call; ``$CWD`` in the input is the agent's working directory. Agents other than Claude Code get
                             Bash, Write and mcp__SERVER__TOOL under the names that they offer
    tools                    several calls at once: [{"tool", "input"}, …]
    usage                    token counts, e.g. {"input_tokens": 50000}
    sleep                    seconds before the reply
    over                     seconds that a streamed reply takes
    error, times, words      an HTTP status (429, 529, 500, 401…) given `times` times (1) before the step itself, with these words
    hang                     true: the content, if any, is streamed, then nothing more until the client hangs up

``GET /requests`` returns the last requests: time, model, session, kind, messages, the head of every
text, last user text, all texts since the last answer, status.
"""

import argparse
import asyncio
import hashlib
import json
import re
import signal
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from ramet_demo.scripted import messages
from ramet_demo.scripted.conversation import next_step, texts
from ramet_demo.scripted.dialects import DIALECTS, Dialect, translate
from ramet_demo.scripted.http import Reply, Request, serve
from ramet_demo.scripted.script import Route, Step, fill

KEPT_REQUESTS = 1000
KEPT_ERRORS = 10_000
HEAD = 200  # characters of a prompt in the log, where it is shown in short
NEWS = 2000  # of each text
CWD_LINE = re.compile(
    r"^ *-? *(?:Primary working directory|Working directory|I'm currently working in the directory): (.+)$|<cwd>(.+)</cwd>",
    re.MULTILINE,
)


def read_routes(path: Path) -> list[Route]:
    """Read the routes of a JSON file ``[{"when": …, "steps": […]}, …]``. Raise ``ValueError`` or
    ``KeyError`` for other contents."""
    return [Route(entry["when"].lower(), entry["steps"]) for entry in json.loads(path.read_text())]


def working_directory(body: dict[str, Any]) -> str:
    """Return the agent's working directory as a message of the conversation names it, else as the
    system prompt does."""
    system = body.get("system", "")
    spoken = [system] if isinstance(system, str) else [block.get("text", "") for block in system]
    for message in body["messages"]:
        if message["role"] != "assistant":
            spoken += texts(message)
    found = next((found for text in reversed(spoken) if (found := CWD_LINE.search(text))), None)
    return (found[1] or found[2]).strip() if found else "."


def _spell_message(message: dict[str, Any]) -> tuple[messages.Events, messages.Events]:
    events = list(messages.events(message))
    return iter(events[:-2]), iter(events[-2:])


MESSAGES = Dialect(re.compile("/v1/messages"), lambda body: body, lambda message: message, _spell_message)


class ScriptedModel:
    """Answers requests; its only state is the log and the count of each injected error."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = routes
        self._log: deque[dict[str, Any]] = deque(maxlen=KEPT_REQUESTS)
        self._errors: Counter[str] = Counter()

    async def handle(self, request: Request, reply: Reply) -> None:
        if request.path == "/requests":
            await reply.json(200, list(self._log))
        elif request.path == "/v1/messages/count_tokens":
            await reply.json(200, {"input_tokens": max(1, len(request.body) // 4)})
        elif request.method == "POST":
            for dialect in (MESSAGES, *DIALECTS):
                if found := dialect.pattern.fullmatch(request.path):
                    body = dialect.read(json.loads(request.body)) | found.groupdict()
                    body["stream"] = bool(body.get("stream")) or body.get("how") == "streamGenerateContent"
                    await self._answer(request, reply, dialect, body)
                    return
            await reply.json(404, messages.error(404))
        else:
            await reply.json(404, messages.error(404))

    async def _answer(self, request: Request, reply: Reply, dialect: Dialect, body: dict[str, Any]) -> None:
        entry = self._note(request, body)
        step = next_step(body["messages"], self._routes)
        if not body.get("tools") and {"tool", "tools"} & step.keys():
            step = {"text": "ok"}  # agents ask for titles and summaries in this way, and run no tool there
        headers = {"request-id": f"req_{hashlib.sha256(request.body).hexdigest()[:24]}"}
        await asyncio.sleep(step.get("sleep", 0))
        if "error" in step and self._errs(body, step):
            entry["status"] = step["error"]
            await reply.json(step["error"], messages.error(step["error"], step.get("words", "")), headers)
            return
        whole = messages.message(
            body["model"],
            {**step, **fill({k: step[k] for k in ("input", "tools") if k in step}, working_directory(body))},
        )
        if dialect is not MESSAGES:
            for call in (block for block in whole["content"] if block["type"] == "tool_use"):
                call |= translate(call["name"], call["input"], body.get("tools", ()))
        hangs = step.get("hang", False)
        if hangs and not (whole["content"] and body["stream"]):
            await asyncio.Event().wait()
        entry["status"] = 200
        if not body["stream"]:
            await reply.json(200, dialect.whole(whole), headers)
            return
        content, closing = (list(events) for events in dialect.spell(whole))
        pause = step.get("over", 0) / len([*content, *closing])
        reply.start_events(headers)
        for at, (kind, data) in enumerate([*content, *closing]):
            if hangs and at == len(content):
                await asyncio.Event().wait()
            await reply.event(kind, data)
            await asyncio.sleep(pause)

    def _errs(self, body: dict[str, Any], step: Step) -> bool:
        """Decide whether this try of a step fails. A retry repeats the conversation, which
        therefore identifies the step."""
        key = hashlib.sha256(json.dumps([body["model"], body["messages"]]).encode()).hexdigest()
        if len(self._errors) >= KEPT_ERRORS:
            self._errors.clear()
        self._errors[key] += 1
        times: int = step.get("times", 1)
        return self._errors[key] <= times

    def _note(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Log a request at its arrival; ``status`` stays None while it is being answered."""
        said = [text for message in body["messages"] if message["role"] == "user" for text in texts(message)]
        last = max((at for at, message in enumerate(body["messages"]) if message["role"] == "assistant"), default=-1)
        news = [text for message in body["messages"][last + 1 :] for text in texts(message)]
        entry = {
            "time": time.time(),
            "model": body["model"],
            "session_id": request.headers.get("x-claude-code-session-id"),
            "stream": body["stream"],
            "messages": len(body["messages"]),
            "said": [text[:NEWS] for message in body["messages"] for text in texts(message)],
            "last_user": said[-1][:HEAD] if said else "",
            "news": [text[:NEWS] for text in news],
            "status": None,
        }
        self._log.append(entry)
        return entry


async def run(port: int, port_file: Path | None, routes: list[Route]) -> None:
    """Serve until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = await serve(ScriptedModel(routes).handle, port)
    port = server.sockets[0].getsockname()[1]
    if port_file:
        partial = port_file.with_name(f"{port_file.name}.part")
        partial.write_text(f"{port}\n")
        partial.replace(port_file)
    sys.stdout.write(f"listening on 127.0.0.1:{port}\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ramet_demo.scripted.model", description="A scripted model.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path)
    parser.add_argument("--script", type=Path, help='a JSON file: [{"when": substring, "steps": [...]}, ...]')
    arguments = parser.parse_args()
    asyncio.run(run(arguments.port, arguments.port_file, read_routes(arguments.script) if arguments.script else []))


if __name__ == "__main__":
    main()
