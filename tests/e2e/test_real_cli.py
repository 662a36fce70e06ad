"""Ramet with the real Claude Code CLI: agents, keepers, worktrees and permissions are real, only
the model is scripted."""

import json
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import attention_pb2, common_pb2, event_pb2, session_pb2, worktree_pb2

from tests.support.agents import bash, script, write_here
from tests.support.archiving import remove
from tests.support.daemon import (
    IDLE,
    PAUSED,
    WAITING,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    git,
    make_sandbox,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.real_cli

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
PLAN = common_pb2.PERMISSION_MODE_PLAN
PERMISSION = attention_pb2.ATTENTION_KIND_PERMISSION
Step = dict[str, Any]


@pytest.fixture(scope="module")
def sandbox(model: int) -> Iterator[Sandbox]:
    with make_sandbox(model_port=model, real_cli=True) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_process(sandbox) as running:
        yield running


@pytest.fixture(scope="module")
def repository(sandbox: Sandbox) -> Path:
    return sandbox.repository()


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    """Yield stubs; end the sessions after each test, as each has a Claude Code in memory."""
    async with connected(daemon.sandbox) as connection:
        yield connection
        listed = await connection.sessions.ListSessions(
            session_pb2.ListSessionsRequest(), metadata=connection.metadata, timeout=20
        )
        for session in listed.sessions:
            if session.agent_alive:
                await connection.sessions.StopSession(
                    session_pb2.StopSessionRequest(session=session.id), metadata=connection.metadata, timeout=20
                )


def payloads(events: list[event_pb2.Event], kind: str) -> list[event_pb2.Event]:
    return [event for event in events if event.WhichOneof("payload") == kind]


async def results(client: Client, name: str) -> list[str]:
    """Return the tools' results, and refusals, that a session's model got."""
    return [
        result.text
        for event in payloads(await client.log(name), "user_message")
        for result in event.user_message.results
    ]


def requests(model: int) -> list[dict[str, Any]]:
    """Return the requests to the model."""
    with urllib.request.urlopen(f"http://127.0.0.1:{model}/requests") as reply:
        found: list[dict[str, Any]] = json.load(reply)
    return found


def approve(sandbox: Sandbox, name: str, *options: str) -> None:
    done = sandbox.ctl("approve", name, *options)
    assert done.code == 0, done.stderr


@pytest.mark.smoke
async def test_a_turn_edits_asks_and_ends_and_its_diff_shows_both(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    prompt = script(write_here("new.txt", "hello\n"), bash("sh -c 'cat new.txt new.txt > twice.txt'"), {"text": "done"})
    await client.create(repository, prompt, name="edits", mode=EDITS)
    waiting = await client.reach("edits", WAITING)
    assert waiting.state_reason == "wants to run: sh -c 'cat new.txt new.txt > twice.txt'"

    approve(sandbox, "edits")
    session = await client.reach("edits", IDLE)

    diff = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="edits"), metadata=client.metadata)
    assert [(file.path, file.additions) for file in diff.files] == [("new.txt", 1), ("twice.txt", 2)]
    assert session.turns == 1
    assert session.cost_usd > 0


@pytest.mark.smoke
async def test_the_daemon_may_be_killed_while_a_question_is_open_and_while_a_command_runs(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    command = "echo begin >> ran.txt; until [ -e go ]; do sleep 0.05; done; echo end >> ran.txt"
    await client.create(repository, script(bash(command), {"text": "done"}), name="survives")
    session = await client.reach("survives", WAITING)
    agents = {process.pid for process in daemon.sandbox.agents()}
    ran = Path(session.worktree) / "ran.txt"

    daemon.restart()  # the question is open
    await client.reach("survives", WAITING)
    approve(daemon.sandbox, "survives")
    await eventually(ran.exists)
    daemon.kill()  # the command runs
    ran.with_name("go").touch()
    await eventually(lambda: ran.read_text() == "begin\nend\n")
    daemon.start()
    session = await client.reach("survives", IDLE)

    events = await client.log("survives")
    assert session.turns == 1
    assert {process.pid for process in daemon.sandbox.agents()} == agents
    assert ran.read_text() == "begin\nend\n"
    opened = [event.request_opened.request.kind for event in payloads(events, "request_opened")]
    closed = [event.request_closed.request.kind for event in payloads(events, "request_closed")]
    assert (opened.count(PERMISSION), closed.count(PERMISSION)) == (1, 1)
    assert (len(payloads(events, "turn_ended")), len(payloads(events, "agent_started"))) == (1, 1)


async def test_after_a_power_cut_in_a_turn_the_conversation_resumes(
    daemon: DaemonProcess, client: Client, model: int, repository: Path
) -> None:
    prompt = script(write_here("new.txt", "hello\n"), {"text": "and now I think about it", "over": 1.5})
    made = await client.create(repository, prompt, name="resumes", mode=EDITS, model="claude-sonnet-5")
    await eventually((Path(made.worktree) / "new.txt").exists)

    daemon.kill()
    daemon.sandbox.kill_everything()
    daemon.start()
    session = await client.reach("resumes", IDLE)

    events = await client.log("resumes")
    turns = [event.turn_started for event in payloads(events, "turn_started")]
    assert session.conversation_id == made.conversation_id
    assert [event.agent_started.resumed for event in payloads(events, "agent_started")] == [False, True]
    assert {(turn.model, turn.mode) for turn in turns} == {("claude-sonnet-5", "acceptEdits")}
    assert session.turns == 1
    asked = [request for request in requests(model) if request["session_id"] == made.conversation_id]
    assert asked[-1]["messages"] > asked[0]["messages"], "the resumed agent has the earlier messages"


async def test_a_persons_answer_to_a_question_reaches_the_model(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    question = {"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options}
    await client.create(
        repository, script({"tool": "AskUserQuestion", "input": {"questions": [question]}}), name="asks"
    )
    waiting = await client.reach("asks", WAITING)
    assert waiting.state_reason == "asks: Which colour?"

    answered = sandbox.ctl("answer", "asks", "2")
    await client.reach("asks", IDLE)

    assert answered.code == 0, answered.stderr
    assert any("Blue" in text for text in await results(client, "asks"))


async def test_an_approved_plan_is_carried_out_in_the_mode_that_was_named(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    steps = [
        {"tool": "ExitPlanMode", "input": {"plan": "1. Write new.txt"}},
        write_here("new.txt", "hello\n"),
        {"text": "done"},
    ]
    await client.create(repository, script(*steps), name="plans", mode=PLAN)
    waiting = await client.reach("plans", WAITING)
    assert waiting.state_reason == "has a plan and wants it approved"
    assert "  1. Write new.txt\n" in sandbox.ctl("inbox").stdout, "the program leaves out a plan that is in no file"

    refused = sandbox.ctl("approve", "plans", "--mode", "bypassPermissions")
    approve(sandbox, "plans", "--mode", "acceptEdits")
    session = await client.reach("plans", IDLE)

    assert (Path(session.worktree) / "new.txt").read_text() == "hello\n"
    assert session.mode == EDITS, "its next process would plan again"
    assert (refused.code, "allow_bypass" in refused.stderr) == (1, True)


async def test_the_reason_of_a_denial_reaches_the_model(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, script(bash("rm -r dir0"), {"text": "as you say"}), name="denied")
    await client.reach("denied", WAITING)

    denied = sandbox.ctl("deny", "denied", "-m", "dir0 is still needed")
    session = await client.reach("denied", IDLE)

    assert denied.code == 0, denied.stderr
    assert (Path(session.worktree) / "dir0").exists()
    assert any("dir0 is still needed" in text for text in await results(client, "denied"))


async def test_an_interrupt_ends_the_turn_and_the_next_prompt_begins_another(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, script({"text": "a long story", "hang": True}), name="talks")

    async def streams() -> event_pb2.Event:
        began = payloads(await client.log("talks"), "turn_started")
        assert began
        return began[0]

    first: event_pb2.Event = await eventually(streams)
    assert first.turn_started.mode == "default"
    interrupted = sandbox.ctl("interrupt", "talks")
    session = await client.get("talks")
    assert (interrupted.code, session.state, session.state_reason) == (0, IDLE, "interrupted")

    await client.send("talks", script({"text": "a short one"}))
    session = await client.reach("talks", IDLE)

    ends = [event.turn_ended.text for event in payloads(await client.log("talks"), "turn_ended")]
    assert (len(ends), ends[-1]) == (2, "a short one")
    assert session.agent_alive


async def test_without_a_login_the_agents_own_words_reach_the_person(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    nobody = {"ANTHROPIC_API_KEY": "", "CLAUDE_CONFIG_DIR": str(sandbox.root / "nobody")}
    await client.create(repository, "hello", name="nobody", environment=nobody)

    session = await client.reach("nobody", PAUSED)

    assert "login" in session.state_reason
    await remove(client, "nobody", force=True)  # while it is held, no other session of its kind starts


async def test_an_agents_own_worktree_is_refused(client: Client, repository: Path) -> None:
    agent = {
        "tool": "Agent",
        "input": {
            "description": "look around",
            "prompt": script({"text": "looked"}),
            "subagent_type": "general-purpose",
            "isolation": "worktree",
        },
    }
    enter: Step = {"tool": "EnterWorktree", "input": {"name": "mine"}}
    await client.create(repository, script(agent, enter, {"text": "done"}), name="isolates", mode=EDITS)
    before = git(repository, "worktree", "list")
    await client.reach("isolates", IDLE)

    outputs = await results(client, "isolates")
    assert "This session already has a worktree of its own" in outputs[0]
    assert "EnterWorktree" in outputs[1]
    assert git(repository, "worktree", "list") == before


async def test_model_and_mode_changed_in_flight_hold_from_the_next_turn_on(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, script({"text": "at work", "over": 1.5}), name="changes", model="claude-opus-5")
    await client.reach("changes", WORKING)

    async def begun() -> bool:
        return bool(payloads(await client.log("changes"), "turn_started"))

    await eventually(begun)  # an earlier change applies to this turn too
    changed = sandbox.ctl("set", "changes", "--model", "claude-sonnet-5", "--mode", "acceptEdits")
    assert changed.code == 0, changed.stderr
    await client.reach("changes", IDLE)
    await client.send("changes", script({"text": "again"}))
    await client.reach("changes", IDLE)

    turns = [event.turn_started for event in payloads(await client.log("changes"), "turn_started")]
    assert [(turn.model, turn.mode) for turn in turns] == [
        ("claude-opus-5", "default"),
        ("claude-sonnet-5", "acceptEdits"),
    ]


async def test_an_idle_agent_goes_to_sleep_and_the_next_prompt_wakes_its_conversation(model: int) -> None:
    config = '[agents]\nsleep_after = "1s"\n'
    with make_sandbox(model_port=model, real_cli=True, config=config) as sandbox, daemon_process(sandbox):
        async with connected(sandbox) as client:
            made = await client.create(sandbox.repository(), script({"text": "one"}), name="sleeps")

            async def asleep() -> session_pb2.Session:
                session = await client.get("sleeps")
                assert (session.state, session.turns, session.agent_alive) == (IDLE, 1, False)
                return session

            session: session_pb2.Session = await eventually(asleep)
            assert sandbox.agents() == []
            await client.send("sleeps", script({"text": "two"}))
            session = await client.reach("sleeps", IDLE)

            started = payloads(await client.log("sleeps"), "agent_started")
            assert session.turns == 2
            assert session.conversation_id == made.conversation_id
            assert [event.agent_started.resumed for event in started] == [False, True]


async def test_a_rewind_cuts_the_conversation_at_the_end_of_its_turn(
    client: Client, sandbox: Sandbox, repository: Path, model: int
) -> None:
    await client.create(
        repository, script(write_here("one.txt", "1\n"), {"text": "the first answer"}), name="back", mode=EDITS
    )
    await client.reach("back", IDLE)
    second = script(write_here("two.txt", "2\n"), {"text": "the second answer"})
    await client.send("back", second)

    async def turns(count: int) -> session_pb2.Session:
        session = await client.get("back")
        assert (session.turns, session.state) == (count, IDLE)
        return session

    before = await eventually(lambda: turns(2))
    done = sandbox.ctl("rewind", "back", "2")
    assert done.code == 0, done.stderr
    await client.send("back", script({"text": "the third answer"}))
    after = await eventually(lambda: turns(3))

    assert after.conversation_id != before.conversation_id
    assert (Path(after.worktree) / "one.txt").exists()
    assert not (Path(after.worktree) / "two.txt").exists()
    [file] = (sandbox.root / "claude").rglob(f"{after.conversation_id}.jsonl")
    said = file.read_text()
    assert "the first answer" in said
    assert "the third answer" in said
    assert "the second answer" not in said


async def test_a_plan_that_was_written_into_its_file_is_in_the_inbox_word_for_word(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    """Check that an ExitPlanMode without input asks with the plan from the file that the program
    named to the model."""
    await client.create(repository, script({"text": "what is the file called?"}), name="written", mode=PLAN)
    session = await client.reach("written", IDLE)
    (transcript,) = (sandbox.root / "claude" / "projects").rglob(f"{session.conversation_id}.jsonl")
    file = re.findall(r'"planFilePath":"([^"]+)"', transcript.read_text())[0]

    plan = "# The plan\n1. look\n2. write new.txt\n"
    steps: list[Step] = [
        {"tool": "Write", "input": {"file_path": file, "content": plan}},
        {"tool": "ExitPlanMode", "input": {}},
        {"text": "as you say"},
    ]
    await client.send("written", script(*steps))
    await client.reach("written", WAITING)

    (request,) = [each for each in sandbox.ctl("inbox", "--json").json if each["session_id"] == session.id]
    assert (request["kind"], request["input"]["plan"]) == ("plan", plan)
    assert "  2. write new.txt\n" in sandbox.ctl("inbox").stdout
    assert sandbox.ctl("deny", "written", "-m", "look first").code == 0
    await client.reach("written", IDLE)


async def test_a_write_to_anothers_path_is_refused_and_by_a_command_caught_in_the_turn(
    client: Client, sandbox: Sandbox, repository: Path, model: int
) -> None:
    await client.create(repository, name="api-owner", owns=["api/"])
    commands = ("mkdir -p api; echo x > api/b.txt", "echo x > api/c.txt; false")
    steps = (write_here("api/a.txt", "x"), *(bash(f"sh -c '{command}'") for command in commands))
    await client.create(repository, script(*steps, {"text": "seen"}), name="web-owner", owns=["web/"], mode=EDITS)
    for command in commands:

        async def asks(command: str = command) -> bool:
            return command in (await client.get("web-owner")).state_reason

        assert await eventually(asks)
        approve(sandbox, "web-owner")
    await client.reach("web-owner", IDLE)

    refused, *_ = await results(client, "web-owner")
    assert "api/a.txt belongs to the session 'api-owner'" in refused
    asked = "\n".join(text for request in requests(model) for text in request["news"])
    for caught in ("api/b.txt", "api/c.txt"):
        assert f"{caught} belongs to the session 'api-owner'" in asked
    found = [event.path_refused for event in payloads(await client.log("web-owner"), "path_refused")]
    assert [(list(each.paths), each.changed) for each in found[:3]] == [
        (["api/a.txt"], False),
        (["api/b.txt"], True),
        (["api/c.txt"], True),
    ]


async def test_a_swept_transcript_is_put_back_and_a_lost_one_summarized(
    client: Client, sandbox: Sandbox, repository: Path, model: int
) -> None:
    session = await client.create(repository, f"the first task {script({'text': 'one'})}", name="swept")
    copy = sandbox.root / "state" / "conversations" / session.id

    async def turn(number: int) -> None:
        async def look() -> bool:
            now = await client.get("swept")
            assert (now.state, now.turns) == (IDLE, number), now.state_reason
            return any(copy.glob("projects/*/*.jsonl"))

        await eventually(look)
        stop = session_pb2.StopSessionRequest(session="swept")
        await client.sessions.StopSession(stop, metadata=client.metadata)
        for found in (sandbox.root / "claude").glob("projects/*/*.jsonl"):
            found.unlink()

    await turn(1)
    await client.send("swept", "the second task")
    await turn(2)
    asked = json.dumps(requests(model)[-1])
    assert "the first task" in asked
    assert "summary of it" not in asked
    for found in copy.glob("projects/*/*.jsonl"):
        found.unlink()
    sent = await client.send("swept", "the third task")
    assert "summary" in sent.warnings[0]

    async def summarized() -> bool:
        now = await client.get("swept")
        assert (now.state, now.turns) == (IDLE, 3), now.state_reason
        asked = json.dumps(requests(model)[-1])
        return "summary of it" in asked and "the first task" in asked and "the third task" in asked

    await eventually(summarized)


async def test_a_conversation_that_is_too_long_names_what_helps_and_each_helps(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, script({"text": "one"}), name="long")
    await client.reach("long", IDLE)
    await eventually(lambda: client.checkpoints("long"))
    too_long = {"error": 400, "times": 99, "words": "prompt is too long: 250000 tokens > 200000 maximum"}
    ran = sandbox.ctl("send", "long", script(too_long), "--wait")
    assert ran.code == 1
    failed = await client.get("long")
    words = failed.state_reason.split("; ")
    assert [word.partition("` ")[0] for word in words] == [
        "Prompt is too long",
        "`rametctl send long /compact",
        "`rametctl rewind long 2",
        "`rametctl fork long --at 2",
    ]
    approve(sandbox, "long")
    await client.reach("long", IDLE)
    prompts = [event.prompt_queued.prompt.text for event in payloads(await client.log("long"), "prompt_queued")]
    assert prompts[-1] == "/compact"

    assert sandbox.ctl("send", "long", script(too_long), "--wait").code == 1
    assert sandbox.ctl("rewind", "long", "2").code == 0
    assert (await client.get("long")).state == IDLE
    # The program has compacted the conversation, so that it gets a summary after the rewind.
    assert sandbox.ctl("send", "long", script({"text": "goes on"}), "--wait").code == 0
