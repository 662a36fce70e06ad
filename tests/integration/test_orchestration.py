"""The tools for agents: answers, limits, and calls that a kill of the daemon interrupts."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from ramet.mcp import tools
from ramet.v1 import session_pb2
from rametd.api import orchestration
from rametd.services.orchestration import Orchestration

from tests.crash.scene import rows
from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_here,
    daemon_process,
    git,
)
from tests.support.eventually import eventually
from tests.support.family import (
    EDITS,
    Member,
    bash,
    gate,
    refusal,
    root,
    sessions,
    token_of,
    tool,
    tool_results,
    write,
)


def test_the_tools_are_the_contracts_with_a_schema_and_words_for_every_argument() -> None:
    assert set(tools()) == {
        "spawn_session", "list_sessions", "get_session", "get_diff", "get_transcript", "send_message", "read_messages",
        "wait_for_sessions", "stop_session", "report_result", "request_path", "own",
    }  # fmt: skip
    for each in tools().values():
        assert len(each.description) > 60, each.name
        assert each.schema["additionalProperties"] is False
        assert set(each.schema["required"]) <= set(each.schema["properties"])
        assert "request_id" not in each.schema["properties"]
        for name, argument in each.schema["properties"].items():
            assert argument["description"], f"{each.name}.{name}"
            assert argument["type"] in {"string", "boolean", "number", "integer", "array"}


async def test_an_agent_sees_what_its_children_do_and_what_it_is_to_them(client: Client, repository: Path) -> None:
    child = script(write("new.txt", "x" * 100 + "\n"), tool("report_result", text="first"), {"text": "my last words"})
    steps = [
        tool("spawn_session", prompt=child, name="kid"),
        tool("wait_for_sessions"),
        tool("list_sessions"),
        tool("get_session", session="kid"),
        tool("get_session"),
        tool("get_diff", session="kid", stat_only=True),
        tool("get_diff", session="kid"),
        tool("get_diff", session="kid", max_bytes=60),
        tool("get_transcript", session="kid"),
        tool("get_transcript", session="kid", max_bytes=30),
        tool("stop_session", session="kid"),
        tool("read_messages"),
    ]
    lead = await client.create(repository, script(*steps, {"text": "done"}), name="lead", mode=EDITS)
    await client.reach("lead", IDLE)
    answers: list[Any] = [json.loads(text) for text in await tool_results(client, "lead")]

    spawned, waited, listed, kid, me, stat, diff, cut, transcript, tail, stopped, said = answers
    assert (spawned["session"]["relation"], spawned["session"]["mode"]) == ("child", "acceptEdits")
    assert spawned["session"]["parent_id"] == lead.id
    assert (waited["done"], [each["state"] for each in waited["sessions"]]) == (True, ["idle"])
    assert {each["name"]: each["relation"] for each in listed["sessions"]} == {"lead": "self", "kid": "child"}
    assert (kid["session"]["last_words"], kid["session"]["result"]) == ("my last words", "first")
    assert [change["path"] for change in kid["changed_files"]] == ["new.txt"]
    assert (me["session"]["name"], me["session"]["state"]) == ("lead", "working")
    assert ([change["path"] for change in stat["files"]], stat.get("patch", "")) == (["new.txt"], "")
    assert "+" + "x" * 100 in diff["patch"]
    assert (cut["truncated"], len(cut.get("patch", "")) <= 60) == (True, True)
    assert "my last words" in transcript["text"]
    assert "[calls Write" in transcript["text"]
    assert tail == {"truncated": True, "text": "…ords\n[turn ended: success]"}
    assert stopped["session"]["name"] == "kid"
    assert [message["to_name"] for message in said["messages"]] == ["kid"]
    assert not (await client.get("kid")).agent_alive


async def test_a_session_is_shown_with_its_family_and_its_words_to_that_alone(
    sandbox: Sandbox, daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    lead = await root(client, sandbox, repository, "lead")
    stranger = await root(client, sandbox, repository, "stranger")
    child = await lead.spawn(script({"text": "my last words"}), name="child")
    await client.reach("child", IDLE)

    async def shown(name: str, reader: str = "") -> session_pb2.GetSessionResponse:
        token = (("ramet-token", token_of(sandbox, reader)),) if reader else ()
        request = session_pb2.GetSessionRequest(session=name)
        return await client.sessions.GetSession(request, metadata=(*client.metadata, *token))

    assert [(await shown("child", each)).last_words for each in ("", lead.id, child.id, stranger.id)] == [
        "my last words", "my last words", "my last words", ""
    ]  # fmt: skip
    told = await shown("child")
    assert (told.parent_name, told.spent_below_usd, (await shown("lead")).parent_name) == ("lead", 0.0, "")
    assert (await shown("lead")).spent_below_usd == told.session.cost_usd > 0
    assert told.cursor.seq >= told.session.last_seq > 0


async def test_a_report_replaces_the_one_before_and_the_person_makes_none(
    sandbox: Sandbox, daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    lead = await root(client, sandbox, repository, "lead")
    child = Member(client, sandbox, (await lead.spawn(name="child")).id)
    await child.report("first")
    await child.report("second")
    assert (await lead.get("child")).session.result == "second"
    assert (await refusal(Member(client, sandbox).report("mine")))[0] == "INVALID_INPUT"
    grandchild = await child.spawn(name="grandchild")
    sibling = await lead.spawn(name="sibling")
    assert await Member(client, sandbox, grandchild.id).members() == {
        "lead": "ancestor", "child": "parent", "grandchild": "self", "sibling": "other",
    }  # fmt: skip
    assert (await Member(client, sandbox, sibling.id).members())["child"] == "sibling"
    assert (await lead.members())["grandchild"] == "descendant"
    await lead.stop("grandchild")
    assert (await refusal(child.stop("sibling")))[0] == "PERMISSION_DENIED"


async def test_a_child_that_was_stopped_starts_again_with_a_message(
    sandbox: Sandbox, daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    lead = await root(client, sandbox, repository, "lead")
    await lead.spawn(script({"text": "one"}), name="child")
    await client.reach("child", IDLE)
    await lead.stop("child")
    await lead.say("child", "go on")

    async def twice() -> bool:
        session = await client.get("child")
        return (session.turns, session.state) == (2, IDLE)

    await eventually(twice)


async def test_a_wait_times_out_for_each_condition_and_reports_an_internal_error(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise ValueError("text about insides")

    assert orchestration.LONGEST_WAIT_S == 50
    monkeypatch.setattr(orchestration, "LONGEST_WAIT_S", 0.3)
    monkeypatch.setattr(Orchestration, "stop", fails)
    path = sandbox.repository()
    async with daemon_here(sandbox), connected(sandbox) as client:
        lead = await root(client, sandbox, path, "lead")
        await lead.spawn(script({"hang": True}), name="hangs")
        await client.reach("hangs", WORKING)
        for seconds in (0, 1000):
            answer = await lead.wait(timeout_seconds=seconds)
            assert (answer.done, answer.advice) == (False, "not done yet: call again with the cursor")
        await client.create(path, script(tool("stop_session", session="x"), {"text": "done"}), name="faulty")
        await client.reach("faulty", IDLE)
        (words,) = await tool_results(client, "faulty")
        assert words.startswith("internal error ")
        assert "insides" not in words


@pytest.mark.parametrize("point", ["create.intended", "create.files-written", "create.inserted"])
async def test_a_spawn_in_which_the_daemon_is_killed_makes_one_child(sandbox: Sandbox, point: str) -> None:
    path, go = sandbox.repository(), sandbox.root / "go"
    sandbox.configure(f"{sandbox.directories.config_file.read_text()}\n[permissions]\nallow_bypass = true\n")
    prompt = script(gate(go), tool("spawn_session", prompt=script({"text": "x"}), name="kid"), {"text": "done"})
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            lead = await client.create(path, prompt, name="lead", mode=5)
            await client.reach("lead", WORKING)
        daemon.kill()
        daemon.start(RAMET_FAILPOINT=point)
        go.touch()
        assert daemon.process is not None
        assert await asyncio.to_thread(daemon.process.wait, 20) == -9
        daemon.start()
        async with connected(sandbox) as client:
            await client.reach("lead", IDLE)
            await client.reach("kid", IDLE)
            known = await sessions(client)
            assert [name for name, session in known.items() if session.parent_id == lead.id] == ["kid"]
            (answer,) = [text for text in await tool_results(client, "lead") if "kid" in text]
            assert json.loads(answer)["session"]["id"] == known["kid"].id
            assert (await client.get("lead")).turns == (await client.get("kid")).turns == 1
            assert len(git(path, "worktree", "list").splitlines()) == 3, "the first checkout, lead's and kid's"
            assert git(path, "branch", "--format=%(refname:short)").split() == ["main", "ramet/kid", "ramet/lead"]
            assert rows(sandbox, "SELECT kind FROM operations") == []


async def test_a_wait_continues_with_the_next_daemon(sandbox: Sandbox, daemon: DaemonProcess, client: Client) -> None:
    path, go = sandbox.repository(), sandbox.root / "go"
    child = script(bash(f"until [ -e {go} ]; do sleep 0.05; done"), {"text": "x"})
    steps = [tool("spawn_session", prompt="hello", name="idle-kid"), tool("spawn_session", prompt=child, name="kid")]
    await client.create(path, script(*steps, tool("wait_for_sessions"), {"text": "done"}), name="lead")

    async def waits() -> bool:
        events = await client.log("lead")
        return any(
            block.tool_call.tool == "mcp__ramet__wait_for_sessions"
            for event in events
            for block in event.assistant_message.blocks
        )

    await eventually(waits)
    await client.reach("lead", WORKING, IDLE)
    daemon.restart()
    await client.reach("lead", IDLE)  # it waits for the child's question
    waited = json.loads((await tool_results(client, "lead"))[-1])
    assert waited["advice"] == "done; kid waits for the person"
    assert {each["name"]: each["state"] for each in waited["sessions"]}["kid"] == "waiting"
