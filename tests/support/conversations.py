"""A conversation with every kind of entry, as events of the real CLI and of the scripted agent, and
as drawn lines.

``python -m tests.support.conversations`` records the events of both agents anew and draws them,
after an upgrade of the SDK or a change of what the daemon stores. Places, ids, times and prices are
replaced, so that two recordings differ only where the agents do.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.json_format import MessageToDict, ParseDict
from ramet.v1 import attention_pb2, event_pb2, session_pb2
from rametctl.console.lines import Look, safe, wrapped
from rametctl.nouns.transcripts import drawn
from rametctl.render.transcript import Conversation

from tests.support.agents import script, scripted_model
from tests.support.daemon import IDLE, WAITING, Client, Sandbox, connected, daemon_process, make_sandbox
from tests.support.eventually import eventually

GOLDEN = Path(__file__).parent / "golden" / "conversations"
AGENTS = ("real", "scripted")
WIDTHS = (80, 120)
TREE = "/tree"
CONTENT = "".join(f"line {number} = {number}\n" for number in range(1, 60))
QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
}
MARKDOWN = """\
**Done.** `config.py` says 43 in line 42, see [the manual](http://manual.example).

| file | change |
|---|---|
| `config.py` | one line |

```python
print("hello")
```

1. look at it
2. land it"""
STEPS = (
    {
        "thinking": "A file is to be changed. I look at it first.",
        "text": "I look at the file first.",
        "tool": "Read",
        "input": {"file_path": "$CWD/config.py"},
    },
    {
        "tool": "Edit",
        "input": {
            "file_path": "$CWD/config.py",
            "old_string": "line 42 = 42\n",
            "new_string": "line 42 = 43\nline 42a = 0\n",
        },
    },
    {"tool": "Write", "input": {"file_path": "$CWD/docs/new.md", "content": "# New\n\nwords\n"}},
    {
        "tool": "Bash",
        "input": {
            "command": "i=0; while [ $i -lt 9 ]; do i=$((i+1)); echo step $i; done; exit 3",
            "description": "Count",
        },
    },
    {"tool": "Bash", "input": {"command": "rm -r docs", "description": "Tidy up"}},
    {"tool": "AskUserQuestion", "input": {"questions": [QUESTION]}},
    {"tool": "mcp__ramet__report_result", "input": {"text": "config.py is changed"}},
    {"text": MARKDOWN},
)


async def converse(client: Client, sandbox: Sandbox) -> list[event_pb2.Event]:
    """Hold the conversation: two edits and a command are approved, one is denied, a question is
    answered, a turn is interrupted."""
    name = "talk"
    repository = sandbox.repository()
    session = await client.create(repository, name=name)
    tree = Path(session.worktree)
    await eventually(tree.exists)
    (tree / "config.py").write_text(CONTENT)
    await client.send(name, script(*STEPS))
    for tool, answer in (
        ("Edit", ("approve",)),
        ("Write", ("approve",)),
        ("Bash", ("approve",)),
        ("Bash", ("deny", "-m", "the docs stay")),
        ("AskUserQuestion", ("answer", "2")),
    ):
        asked = await eventually(lambda tool=tool: _asked(client, tool), within=60)  # type: ignore[misc]
        done = await asyncio.to_thread(sandbox.ctl, answer[0], asked.id, *answer[1:])
        assert done.code == 0, done.stderr
        await eventually(lambda asked=asked: _closed(client, asked.id))  # type: ignore[misc]
    await client.reach(name, IDLE, within=60)
    await eventually(lambda: _checkpoints(client, name, 1))
    await client.send(name, script({"text": "A long story", "tool": "Bash", "input": {"command": "sh -c 'sleep 600'"}}))
    await eventually(lambda: _asked(client, "Bash"), within=60)
    await client.reach(name, WAITING)
    assert (await asyncio.to_thread(sandbox.ctl, "interrupt", name)).code == 0
    await client.reach(name, IDLE, within=60)
    await eventually(lambda: _checkpoints(client, name, 2))
    return normalised(await client.log(name), await client.get(name))


async def _asked(client: Client, tool: str) -> attention_pb2.AttentionRequest:
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    found = [each for each in listed.requests if each.tool == tool]
    assert found, [each.tool for each in listed.requests]
    return found[0]


async def _closed(client: Client, request_id: str) -> bool:
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    return request_id not in {each.id for each in listed.requests}


async def _checkpoints(client: Client, name: str, turns: int) -> bool:
    made = [each for each in await client.log(name) if each.HasField("checkpoint_made")]
    turn = [each for each in made if each.checkpoint_made.checkpoint.turn]
    return len(turn) >= turns


def normalised(events: Sequence[event_pb2.Event], session: session_pb2.Session) -> list[event_pb2.Event]:
    """Return events with the parts that two recordings have in common and that the renderer
    reads."""
    shown = [each for each in events if each.WhichOneof("payload") not in {"partial", "control_line", "agent_notice"}]
    text = json.dumps([MessageToDict(each, preserving_proto_field_name=True) for each in shown])
    text = text.replace(session.worktree, TREE)
    for pattern in (
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        r"\btoolu_\w+",
        r'"id": "(\w{20,})"',
    ):
        for number, found in enumerate(dict.fromkeys(re.findall(pattern, text)), 1):
            text = text.replace(found, f"id{number:06d}{len(pattern)}")
    text = re.sub(r'"\d{4}-\d\d-\d\dT[^"]*Z"', '"2026-01-01T12:00:00Z"', text)
    text = re.sub(r'("duration": )"[^"]*"', r'\1"3s"', text)
    text = re.sub(r'("cost_usd": )[0-9.e-]+', r"\g<1>0.02", text)
    return [ParseDict(each, event_pb2.Event(), ignore_unknown_fields=True) for each in json.loads(text)]


def draw(events: Sequence[event_pb2.Event], width: int | None, *, folded: bool = True) -> str:
    """Return the conversation as `logs` shows it, without styles."""
    conversation = Conversation(worktree=TREE, names={})
    for event in events:
        conversation.add(event)
    lines = drawn(conversation, conversation.entries, Look(width, folded))
    shown = [piece for each in map(safe, lines) for piece in (wrapped(each, width) if width else [each])]
    return "".join(f"{each.text.rstrip()}\n" for each in shown)


def stored(agent: str) -> list[event_pb2.Event]:
    text = (GOLDEN / f"{agent}.jsonl").read_text()
    return [ParseDict(json.loads(line), event_pb2.Event(), ignore_unknown_fields=True) for line in text.splitlines()]


async def record(agent: str) -> list[event_pb2.Event]:
    """Hold the conversation in a separate daemon."""
    async with scripted_model() as port:
        with make_sandbox(model_port=port, real_cli=agent == "real") as sandbox, daemon_process(sandbox):
            async with connected(sandbox) as client:
                return await converse(client, sandbox)


def write(agent: str) -> None:
    GOLDEN.mkdir(exist_ok=True)
    events = asyncio.run(record(agent))
    rows = (json.dumps(MessageToDict(each, preserving_proto_field_name=True), ensure_ascii=False) for each in events)
    (GOLDEN / f"{agent}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    picture(agent)


def picture(agent: str) -> None:
    """Draw the recorded events anew."""
    for width in WIDTHS:
        (GOLDEN / f"{agent}-{width}.txt").write_text(draw(stored(agent), width))


if __name__ == "__main__":
    for each_agent in AGENTS:
        write(each_agent)
