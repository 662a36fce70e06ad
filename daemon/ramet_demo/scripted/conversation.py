"""Position of a conversation in its script, derived only from the messages of one request.

The model keeps no conversations: each request carries all of it, so the model may be restarted at
any moment, and parallel sub-agents (conversations of their own) need no special handling. The
messages are replayed as a queue of steps: a prompt with a script replaces the queue, every reply
takes one step off. Three kinds of text are no new prompts:

* text beside tool results was typed while the turn ran, and one turn answers both: a script in it
  follows the running one, whose closing words (they would end the turn) join the first words of the
  new one;
* text without a script (reminders, "Continue from where you left off.", a finished background task)
changes nothing;
* the notice of an interrupt drops the remaining steps.
"""

from collections.abc import Iterable
from typing import Any

from ramet_demo.scripted.script import Route, Step, steps_in

INTERRUPTED = "[Request interrupted by user"
CONTENT = frozenset({"text", "thinking", "tool", "tools", "hang"})


def texts(message: dict[str, Any]) -> list[str]:
    """Return the plain texts of a message of the Messages API, without tool results."""
    content = message["content"]
    return [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]


def fold(steps: Iterable[Step]) -> list[Step]:
    """Merge every step without content into the next one; a last one gets the text "done"."""
    folded: list[Step] = []
    pending: Step = {}
    for step in steps:
        pending = {**pending, **step}
        if CONTENT & pending.keys():
            folded.append(pending)
            pending = {}
    return [*folded, {**pending, "text": "done"}] if pending else folded


def _join(running: list[Step], injected: list[Step]) -> list[Step]:
    if not (running and injected) or {"tool", "tools", "hang"} & running[-1].keys():
        return [*running, *injected]
    last, first = running[-1], injected[0]
    words = [step["text"] for step in (last, first) if "text" in step]
    return [*running[:-1], {**last, **first, "text": "\n".join(words)}, *injected[1:]]


def next_step(messages: list[dict[str, Any]], routes: Iterable[Route] = ()) -> Step:
    """Return the step that answers this conversation: the script's next, "done" after its last,
    "ok" without a script."""
    queue: list[Step] = []
    scripted = False
    for message in messages:
        if message["role"] == "assistant":
            del queue[:1]
            continue
        running = any(block["type"] == "tool_result" for block in message["content"] if isinstance(block, dict))
        for text in texts(message):
            if text.startswith(INTERRUPTED):
                queue, scripted, running = [], False, False
            elif (steps := steps_in(text, routes)) is not None:
                queue = _join(queue, fold(steps)) if running else fold(steps)
                scripted = True
    if queue:
        return queue[0]
    return {"text": "done" if scripted else "ok"}
