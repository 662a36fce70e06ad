"""From a plan to landed work with the real Claude Code CLI; only the model is scripted."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import attention_pb2, event_pb2, session_pb2

from tests.support.agents import bash, model_process, script, write_here
from tests.support.daemon import IDLE, Client, DaemonProcess, Ran, Sandbox, connected, git
from tests.support.eventually import eventually
from tests.support.landing import subjects

pytestmark = pytest.mark.real_cli

RED_WITHIN_S = 2.0
SHARED = "shared.txt"
LINES = [f"{number} is a line of its own\n" for number in range(20)]
UNTITLED = "web/page.txt has no title"
"""Output of one thread's failing check, at which the scripted model fixes it."""
MEND = "{ echo TITLE; cat web/page.txt; } > new && mv new web/page.txt && git commit -qam titled"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[int]:
    """Run a scripted model that fixes a failed check; yield its port."""
    routes = tmp_path / "routes.json"
    routes.write_text(json.dumps([{"when": UNTITLED, "steps": [bash(MEND), {"text": "mended"}]}]))
    with model_process("--script", str(routes)) as port:
        yield port


@pytest.fixture
def sandbox(daemon: DaemonProcess) -> Sandbox:
    return daemon.sandbox


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with connected(sandbox) as connection:
        yield connection


@pytest.fixture
def repository(sandbox: Sandbox, untouched: Callable[[Path], None]) -> Path:
    """Create a repository whose owner has changes on another branch."""
    path = sandbox.repository()
    (path / SHARED).write_text("".join(LINES))
    (path / "api").mkdir()
    (path / "api" / "routes.txt").write_text("the old routes\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "second")
    git(path, "checkout", "-qb", "mine")
    (path / SHARED).write_text("changed by its owner\n")
    untouched(path)
    return path


def plan(log: Path) -> str:
    """Return three threads. The first owns a folder; all may write unowned paths; each has its own
    check, which logs."""
    threads = {
        "api": (
            "grep -q new api/routes.txt",
            [write_here("api/routes.txt", "the new routes\n"), {"text": "the routes are new"}],
        ),
        "web": (
            f"test ! -e web/page.txt || grep -q TITLE web/page.txt || {{ echo {UNTITLED}; exit 3; }}",
            [
                write_here("api/routes.txt", "what web would like\n"),
                write_here("web/page.txt", "a page\n"),
                bash(f"sed -i 's/^7 is.*/7 as web likes it/' {SHARED}"),
                {"text": "a page is there"},
            ],
        ),
        "docs": (
            "test -e docs/guide.txt",
            [
                bash("echo as docs would like it > api/routes.txt"),
                bash("git checkout -q -- api/routes.txt"),
                write_here("docs/guide.txt", "a guide\n"),
                bash(f"sed -i 's/^7 is.*/7 as docs likes it/' {SHARED}"),
                {"text": "a guide is there"},
            ],
        ),
    }
    text = '[plan]\nname = "shop"\nbase = "main"\nmode = "bypassPermissions"\n'
    for place, (name, (check, steps)) in enumerate(threads.items(), 1):
        text += (
            f'[[threads]]\nid = "{name}"\ngoal = "The part of {name}"\nmerge_order = {place}\n'
            f"owns = {json.dumps(['api/'] if name == 'api' else [])}\n"
            f"check = {json.dumps([f'echo {name} >> {log}', check])}\nprompt = {json.dumps(script(*steps))}\n"
        )
    return text


async def typed(sandbox: Sandbox, repository: Path, *words: str) -> Ran:
    return await asyncio.to_thread(sandbox.ctl, *words, cwd=repository)


def payloads(events: list[event_pb2.Event], kind: str) -> list[event_pb2.Event]:
    return [event for event in events if event.WhichOneof("payload") == kind]


async def tool_results(client: Client, name: str) -> list[str]:
    """Return the tools' results, and refusals, that a session's model got."""
    said = payloads(await client.log(name), "user_message")
    return [result.text for event in said for result in event.user_message.results]


async def commit(client: Client, name: str, *commands: str) -> None:
    """Make an agent commit its changes, in a separate turn."""
    await client.send(name, script(bash(" && ".join([*commands, "git add -A", f"git commit -qm '{name} is done'"]))))

    async def over() -> bool:
        found = await client.sessions.GetSession(session_pb2.GetSessionRequest(session=name), metadata=client.metadata)
        assert (found.session.state, len(found.pending_prompts)) == (IDLE, 0), found
        return not git(Path(found.session.worktree), "status", "--porcelain")

    await eventually(over)


def reds(answer: Ran) -> list[tuple[str, str, list[str]]]:
    assert answer.code == 0, answer.stderr
    return [
        (pair["session_name"], pair["other_name"], [file["path"] for file in pair["files"]])
        for pair in answer.json
        if pair["red"]
    ]


async def test_three_threads_of_a_plan_keep_their_paths_hear_of_conflicts_and_land(
    client: Client, sandbox: Sandbox, repository: Path, model: int
) -> None:
    log = sandbox.root / "checks"
    (sandbox.root / "shop.toml").write_text(plan(log))
    for verb in ("check", "apply"):
        ran = await typed(sandbox, repository, "plan", verb, str(sandbox.root / "shop.toml"))
        assert ran.code == 0, ran
    sessions = {name: await client.reach(name, IDLE, within=60) for name in ("api", "web", "docs")}

    # One tried to write to another's path: the refusal names the owner.
    refused = await tool_results(client, "web")
    assert "api/routes.txt belongs to the session 'api'" in refused[0]
    events = await client.log("web")
    assert [(each.path_refused.owner_id, each.path_refused.changed) for each in payloads(events, "path_refused")] == [
        (sessions["api"].id, False)
    ]
    # One did so by a command: the warning came at once, so that it undid the change in the same
    # turn.
    events = await client.log("docs")
    caught = payloads(events, "path_refused")
    assert [(list(each.path_refused.paths), each.path_refused.changed) for each in caught] == [
        (["api/routes.txt"], True)
    ]
    assert caught[0].seq < payloads(events, "turn_ended")[0].seq
    asked = "\n".join(text for request in requests(model) for text in request["news"])
    assert "api/routes.txt belongs to the session 'api'" in asked
    assert git(Path(sessions["docs"].worktree), "diff", "--name-only", "HEAD") == SHARED
    inbox = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    assert attention_pb2.ATTENTION_KIND_OWNERSHIP not in {request.kind for request in inbox.requests}

    # Two have edited the same lines, and committed nothing.
    red = await eventually(lambda: turned_red(client, "web", "docs"))
    assert red is not None
    written = max((Path(sessions[name].worktree) / SHARED).stat().st_mtime for name in ("web", "docs"))
    late = red.time.ToNanoseconds() / 1e9 - written
    print(f"red after {late:.2f} s")
    assert late < RED_WITHIN_S
    for name in ("web", "docs"):
        assert [
            (set(pair[:2]), pair[2]) for pair in reds(await typed(sandbox, repository, "conflicts", name, "--json"))
        ] == [({"web", "docs"}, [SHARED])]

    # All commit; one takes over the other's line.
    await commit(client, "api")
    await commit(client, "web")
    await commit(client, "docs", f"sed -i 's/^7 as docs.*/7 as web likes it/' {SHARED}")
    assert reds(await typed(sandbox, repository, "conflicts", "--json")) == []

    landed = await typed(sandbox, repository, "land", "api", "web", "docs", "--json")

    assert landed.code == 0, landed
    assert {each["session_name"]: (each["state"], each["returns"]) for each in landed.json} == {
        "api": ("landed", 0),
        "web": ("landed", 1),
        "docs": ("landed", 0),
    }
    assert subjects(repository)[:3] == [f"Merge branch 'ramet/{name}' into main" for name in ("web", "docs", "api")]
    assert git(repository, "show", "main:api/routes.txt") == "the new routes"
    assert git(repository, "show", "main:web/page.txt") == "TITLE\na page"
    assert git(repository, "show", "main:docs/guide.txt") == "a guide"
    assert git(repository, "show", f"main:{SHARED}").splitlines()[7] == "7 as web likes it"
    checks = log.read_text().split()
    assert (checks.count("api"), checks.count("docs")) == (1, 1)
    assert checks.index("api") < checks.index("docs")
    assert checks[-1] == "web"
    prompts = payloads(await client.log("web"), "prompt_queued")
    assert UNTITLED in prompts[-1].prompt_queued.prompt.text

    status = await typed(sandbox, repository, "plan", "status", "--json")
    assert [each["landed_reason"] != "" for each in status.json["threads"]] == [True] * 3, status.json
    cleaned = await typed(sandbox, repository, "plan", "cleanup", "--json")
    assert cleaned.code == 0, cleaned
    assert [step["removed"] for step in cleaned.json["steps"]] == [True] * 3
    assert git(repository, "branch", "--list", "ramet/*") == ""


async def turned_red(client: Client, *names: str) -> event_pb2.Event | None:
    """Return the first event about a conflict of two sessions."""
    for event in payloads(await client.log(), "conflict_changed"):
        pair = event.conflict_changed.conflict
        if pair.red and {pair.session_name, pair.other_name} == set(names):
            return event
    return None


def requests(model: int) -> list[dict[str, Any]]:
    """Return the requests to the model."""
    with urllib.request.urlopen(f"http://127.0.0.1:{model}/requests") as reply:
        found: list[dict[str, Any]] = json.load(reply)
    return found
