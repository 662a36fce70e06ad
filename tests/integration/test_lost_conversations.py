"""Transcripts that another program deletes: the copy is restored, or a new conversation begins with
a summary and the new prompt."""

import shutil
from pathlib import Path

import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, connected, daemon_here, make_sandbox
from tests.support.eventually import eventually
from tests.support.family import payloads

pytestmark = pytest.mark.full

TURNS = {"turns": True}
WAYS = ("send", "restore", "fork", "rewind")


async def said(client: Client, name: str) -> list[str]:
    events = payloads(await client.log(name), "turn_ended")
    return [event.turn_ended.text for event in events]


async def read_by_agent(client: Client, name: str) -> list[str]:
    """Return the prompts that the agent has shown."""
    events = payloads(await client.log(name), "user_message")
    return [event.user_message.text for event in events if event.user_message.prompt_id]


async def with_two_turns(client: Client, repository: Path, name: str) -> session_pb2.Session:
    """Create a session whose agent is stopped after two turns."""
    await client.create(repository, f"first task {script({'text': 'one'})}", name=name)
    await client.reach(name, IDLE)
    await client.send(name, f"second task {script({'text': 'two'})}")
    await ended(client, name, 2)
    stop = session_pb2.StopSessionRequest(session=name)
    return (await client.sessions.StopSession(stop, metadata=client.metadata)).session


async def ended(client: Client, name: str, turns: int) -> None:
    async def look() -> bool:
        session = await client.get(name)
        assert (session.state, session.turns) == (IDLE, turns), session.state_reason
        return True

    await eventually(look)


async def copied(sandbox: Sandbox, session: session_pb2.Session) -> None:
    """Wait until the copy equals the transcript."""

    async def look() -> bool:
        own = [*(sandbox.root / "state/conversations" / session.id).glob("projects/*/*.jsonl")]
        names = {file.name for file in own}
        there = [file for file in (sandbox.root / "claude").glob("projects/*/*.jsonl") if file.name in names]
        return bool(own) and [file.read_bytes() for file in own] == [file.read_bytes() for file in there]

    await eventually(look)


async def go_on(client: Client, name: str, way: str, prompt: str) -> tuple[str, list[str]]:
    """Continue a session's conversation in one of several ways; return the continuing session, and
    the warnings."""
    metadata = client.metadata
    if way == "fork":
        request = session_pb2.ForkSessionRequest(session=name, prompt=prompt, name=f"{name}-fork")
        forked = await client.sessions.ForkSession(request, metadata=metadata)
        return forked.session.name, list(forked.warnings)
    warnings: list[str] = []
    if way == "restore":
        await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=name), metadata=metadata)
        restored = await client.sessions.RestoreSession(
            session_pb2.RestoreSessionRequest(session=name), metadata=metadata
        )
        warnings += restored.warnings
    if way == "rewind":
        rewind = worktree_pb2.RewindSessionRequest(session=name, checkpoint="2")
        warnings += (await client.worktrees.RewindSession(rewind, metadata=metadata)).warnings
    sent = await client.send(name, prompt)
    return name, [*warnings, *sent.warnings]


@pytest.mark.parametrize("way", WAYS)
async def test_a_deleted_transcript_is_put_back(shared: Client, running: DaemonProcess, way: str) -> None:
    sandbox, name = running.sandbox, f"back-{way}"
    session = await with_two_turns(shared, sandbox.root / "repo", name)
    await copied(sandbox, session)
    shutil.rmtree(sandbox.root / "claude" / "projects")

    goes_on, warnings = await go_on(shared, name, way, script(TURNS))

    await shared.reach(goes_on, IDLE)
    # After a cut at a turn's last message, the scripted agent does not know that the turn has
    # ended.
    turns = 1 if way == "rewind" else 3
    await eventually(lambda: _last(shared, goes_on, f"turn {turns}"))
    assert warnings == []
    assert "summary" not in (await read_by_agent(shared, goes_on))[-1]


async def _last(client: Client, name: str, words: str) -> bool:
    assert (await said(client, name))[-1:] == [words]
    return True


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_copy_a_new_conversation_gets_a_summary_and_the_new_prompt(
    shared: Client, running: DaemonProcess, way: str
) -> None:
    sandbox, name = running.sandbox, f"gone-{way}"
    session = await with_two_turns(shared, sandbox.root / "repo", name)
    await copied(sandbox, session)
    shutil.rmtree(sandbox.root / "claude" / "projects")
    shutil.rmtree(sandbox.root / "state/conversations" / session.id)
    findings = sandbox.ctl("doctor", "--json").json["findings"]
    assert [each["code"] for each in findings if each["subject"] == name] == ["conversation-missing"]

    goes_on, warnings = await go_on(shared, name, way, f"third task {script(TURNS)}")

    await eventually(lambda: _last(shared, goes_on, "turn 1"))
    assert any("transcript" in words and "summary" in words for words in warnings)
    prompt = (await read_by_agent(shared, goes_on))[-1]
    assert prompt.index("Asked: first task") < prompt.index("You: one") < prompt.index("third task")
    assert ("You: two" in prompt) == (way != "rewind")
    queued = [event.prompt_queued.prompt for event in payloads(await shared.log(goes_on), "prompt_queued")]
    assert {each.source for each in queued} == {"owner"}
    await shared.send(goes_on, script(TURNS))
    await eventually(lambda: _last(shared, goes_on, "turn 2"))
    assert "summary" not in (await read_by_agent(shared, goes_on))[-1]


async def test_another_configuration_directory_gets_the_conversation_too() -> None:
    with make_sandbox() as sandbox:
        config = sandbox.directories.config_file.read_text()
        async with daemon_here(sandbox), connected(sandbox) as client:
            session = await with_two_turns(client, sandbox.repository(), "moves")
            await copied(sandbox, session)
        moved = f'[agents.claude]\nconfig_dir = "{sandbox.root / "other"}"\n'
        sandbox.configure(config.replace("[agents.claude]\n", moved))
        async with daemon_here(sandbox), connected(sandbox) as client:
            await client.send("moves", script(TURNS))
            await eventually(lambda: _last(client, "moves", "turn 3"))
            assert list((sandbox.root / "other").glob("projects/*/*.jsonl"))


async def test_a_program_that_denies_its_transcript_leads_to_a_new_conversation(
    shared: Client, running: DaemonProcess
) -> None:
    """The check before a start may pass and the program still not find it."""
    sandbox = running.sandbox
    session = await with_two_turns(shared, sandbox.root / "repo", "denied")
    await copied(sandbox, session)
    wrapper = sandbox.root / "bin" / "claude"
    words = wrapper.read_text()
    # It deletes the transcript before its own lookup, once.
    once = f'[ -e {sandbox.root}/once ] || {{ touch {sandbox.root}/once; rm -rf "$CLAUDE_CONFIG_DIR/projects"; }}'
    deleting = f'case "$*" in *--resume*) {once} ;; esac\nexec'
    wrapper.write_text(words.replace("exec", deleting))

    await shared.send("denied", f"third task {script(TURNS)}")

    await eventually(lambda: _last(shared, "denied", "turn 1"))
    assert (await shared.get("denied")).turns == 3
    assert "third task" in (await read_by_agent(shared, "denied"))[-1]
    wrapper.write_text(words)


async def test_a_rewind_to_before_a_compaction_begins_a_new_conversation(
    shared: Client, running: DaemonProcess
) -> None:
    """After a compaction the program reads none of the earlier messages."""
    sandbox = running.sandbox
    session = await with_two_turns(shared, sandbox.root / "repo", "compacted")
    await copied(sandbox, session)
    [own] = (sandbox.root / "state/conversations" / session.id).glob("projects/*/*.jsonl")
    [transcript] = (sandbox.root / "claude").glob(f"projects/*/{own.name}")
    read = transcript.read_text().splitlines(keepends=True)
    second = next(at for at, each in enumerate(read) if "second task" in each)
    for file in (transcript, own):  # else the copy gives the earlier messages back
        file.write_text("".join(read[second:]))

    await go_on(shared, "compacted", "rewind", f"third task {script(TURNS)}")

    await eventually(lambda: _last(shared, "compacted", "turn 1"))
    prompt = (await read_by_agent(shared, "compacted"))[-1]
    assert prompt.index("Asked: first task") < prompt.index("You: one") < prompt.index("third task")
    assert "You: two" not in prompt
    await shared.send("compacted", script(TURNS))
    await eventually(lambda: _last(shared, "compacted", "turn 2"))


async def test_the_copy_goes_with_the_session(shared: Client, running: DaemonProcess) -> None:
    sandbox = running.sandbox
    session = await with_two_turns(shared, sandbox.root / "repo", "leaves")
    await copied(sandbox, session)
    remove = session_pb2.DeleteSessionRequest(session="leaves", force=True)
    await shared.sessions.DeleteSession(remove, metadata=shared.metadata)
    copies = sandbox.root / "state/conversations" / session.id
    assert copies.is_dir()  # as long as the trash keeps the session
    assert sandbox.ctl("trash", "empty", "--yes").code == 0
    assert not copies.exists()
