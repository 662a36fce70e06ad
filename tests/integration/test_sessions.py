"""The life of sessions, with a real daemon and scripted agents."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import field_mask_pb2
from ramet.v1 import attention_pb2, common_pb2, session_pb2, worktree_pb2
from rametd import app
from rametd.agents.claude.channel import ClaudeChannel
from rametd.domain.models import Session
from rametd.services.agents import conversation
from rametd.services.agents.outgoing import Sender
from rametd.services.ownership.handover import Ownership

from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    PAUSED,
    WAITING,
    WORKING,
    Client,
    DaemonProcess,
    connected,
    daemon_here,
    daemon_process,
    git,
    make_sandbox,
    reason_of,
)
from tests.support.eventually import eventually

EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS


def write(name: str, text: str) -> dict[str, object]:
    return {"tool": "Write", "input": {"file_path": name, "content": text}}


def bash(command: str) -> dict[str, object]:
    return {"tool": "Bash", "input": {"command": command, "description": "x"}}


async def test_a_prompt_becomes_work_in_its_own_worktree(client: Client, repository: Path) -> None:
    made = await client.create(
        repository, script(write("new.txt", "hello\n"), {"text": "done"}), name="first", mode=EDITS
    )
    session = await client.reach("first", IDLE)

    assert (Path(session.worktree) / "new.txt").read_text() == "hello\n"
    assert not (repository / "new.txt").exists()
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert session.branch == "ramet/first"
    assert git(Path(session.worktree), "rev-parse", "--abbrev-ref", "HEAD") == "ramet/first"
    assert session.turns == 1
    assert session.cost_usd > 0
    assert session.tokens.input > 0
    assert made.base_commit == git(repository, "rev-parse", "main")


async def test_the_diff_shows_uncommitted_and_untracked_work(client: Client, repository: Path) -> None:
    await client.create(repository, script(write("new.txt", "a\nb\n"), {"text": "done"}), name="first", mode=EDITS)
    await client.reach("first", IDLE)

    diff = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="first"), metadata=client.metadata)

    assert [(file.path, file.additions) for file in diff.files] == [("new.txt", 2)]
    assert b"+a\n+b\n" in diff.patch


async def test_an_approval_continues_the_waiting_turn(client: Client, repository: Path) -> None:
    await client.create(repository, script(bash("echo ran > ran.txt"), {"text": "done"}), name="asks")
    waiting = await client.reach("asks", WAITING)
    assert waiting.attention == 1

    request = attention_pb2.ResolveRequestRequest(
        request="asks", resolution=attention_pb2.Resolution(approve=attention_pb2.Approval()), request_id="r1"
    )
    answered = await client.attention.ResolveRequest(request, metadata=client.metadata)
    session = await client.reach("asks", IDLE)

    assert answered.request.answered_by == "owner"
    assert (Path(session.worktree) / "ran.txt").read_text() == "ran\n"


async def test_the_first_answer_wins_and_a_later_one_is_refused(client: Client, repository: Path) -> None:
    await client.create(repository, script(bash("true"), {"text": "done"}), name="asks")
    await client.reach("asks", WAITING)
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    identity = listed.requests[0].id
    deny = attention_pb2.Resolution(deny=attention_pb2.Denial(message="no"))
    approve = attention_pb2.Resolution(approve=attention_pb2.Approval())
    await client.attention.ResolveRequest(
        attention_pb2.ResolveRequestRequest(request=identity, resolution=deny), metadata=client.metadata
    )

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.attention.ResolveRequest(
            attention_pb2.ResolveRequestRequest(request=identity, resolution=approve), metadata=client.metadata
        )

    assert reason_of(caught.value) == "REQUEST_CLOSED"
    assert "owner" in str(caught.value.details())


async def test_the_same_request_id_makes_one_session(client: Client, repository: Path) -> None:
    first = await client.create(repository, "hello", name="one", request_id="same")
    second = await client.create(repository, "hello", name="one", request_id="same")

    assert first.id == second.id
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(repository, "something else", name="one", request_id="same")
    assert reason_of(caught.value) == "REQUEST_ID_REUSED"


async def test_an_interrupt_ends_the_turn_and_the_agent_takes_the_next_prompt(client: Client, repository: Path) -> None:
    await client.create(repository, script({"hang": True}), name="hangs")
    await client.reach("hangs", WORKING)

    answer = await client.sessions.InterruptSession(
        session_pb2.InterruptSessionRequest(session="hangs"), metadata=client.metadata
    )
    assert answer.interrupted
    assert answer.session.state == IDLE
    await client.send("hangs", script({"text": "again"}))
    session = await client.reach("hangs", IDLE)

    assert session.turns >= 1


async def test_a_queued_prompt_is_taken_back_once_and_its_agent_never_reads_it(
    client: Client, repository: Path
) -> None:
    async def withdraw(**fields: Any) -> session_pb2.WithdrawPromptsResponse:
        request = session_pb2.WithdrawPromptsRequest(session="edits", **fields)
        return await client.sessions.WithdrawPrompts(request, metadata=client.metadata)

    await client.create(repository, name="edits")
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="edits"))
    sent = [(await client.send("edits", text)).prompt for text in ("first", "second", script({"text": "third"}))]
    assert [each.text for each in (await withdraw()).withdrawn] == [sent[2].text]
    answers = await asyncio.gather(*(withdraw(prompts=[sent[0].id]) for _ in range(3)), return_exceptions=True)
    refused = [each for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert [reason_of(each) for each in refused] == ["WRONG_STATE"] * 2
    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="edits"))
    session = await client.reach("edits", IDLE)
    log = await client.log("edits")
    assert session.turns == 1
    assert [each.prompt_sent.prompt_id for each in log if each.HasField("prompt_sent")] == [sent[1].id]
    withdrawn = [each.prompt_withdrawn.prompt.id for each in log if each.HasField("prompt_withdrawn")]
    assert withdrawn == [sent[2].id, sent[0].id]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await withdraw()
    assert reason_of(caught.value) == "WRONG_STATE"


PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 64


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ([PNG] * 11, "PROMPT_TOO_LARGE"),
        ([PNG + b"0" * 3_750_000], "PROMPT_TOO_LARGE"),
        ([b"%PDF-1.4"], "INVALID_INPUT"),
    ],
    ids=["too many", "too large", "no image"],
)
async def test_images_that_no_model_reads_are_refused(
    client: Client, repository: Path, images: list[bytes], reason: str
) -> None:
    found = [session_pb2.Image(data=each) for each in images]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(repository, "look", name="sees", images=found)
    assert reason_of(caught.value) == reason


async def test_an_image_goes_with_its_prompt_to_the_agent(client: Client, repository: Path) -> None:
    await client.create(repository, script({"text": "seen"}), name="looks", images=[session_pb2.Image(data=PNG)])
    assert (await client.reach("looks", IDLE)).turns == 1
    queued = [each.prompt_queued.prompt.images for each in await client.log("looks") if each.HasField("prompt_queued")]
    assert queued == [1]


async def test_a_session_whose_only_prompt_is_taken_back_is_idle_after_it_resumes(
    client: Client, repository: Path
) -> None:
    await client.create(repository, name="bare")
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session="bare"))
    await client.send("bare", "never mind")
    await client.sessions.WithdrawPrompts(session_pb2.WithdrawPromptsRequest(session="bare"))
    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="bare"))
    assert (await client.reach("bare", IDLE)).turns == 0


@pytest.mark.parametrize("verb", ["interrupt", "pause"])
async def test_a_prompt_sent_into_a_turn_starts_none_after_interrupt_and_survives_pause(
    client: Client, repository: Path, verb: str
) -> None:
    name = f"{verb}-unread"
    await client.create(repository, script({"text": "begun", "hang": True}), name=name)
    await eventually(lambda: says(client, name, "begun"))
    sent = await client.send(name, script({"text": "unread"}))
    asked: Any
    if verb == "interrupt":
        asked = session_pb2.InterruptSessionRequest(session=name)
        answer = await client.sessions.InterruptSession(asked, metadata=client.metadata)
        assert (answer.session.state, [each.text for each in answer.withdrawn]) == (IDLE, [sent.prompt.text])
        await client.send(name, script({"text": "again"}))
    else:
        asked = session_pb2.PauseSessionRequest(session=name)
        assert (await client.sessions.PauseSession(asked, metadata=client.metadata)).session.state == PAUSED
        resumed = session_pb2.ResumeSessionRequest(session=name)
        await client.sessions.ResumeSession(resumed, metadata=client.metadata)
        # The interrupted turn is resumed first, and hangs again.
        await eventually(lambda: says(client, name, "begun", times=2))
        await client.sessions.StopSession(session_pb2.StopSessionRequest(session=name), metadata=client.metadata)
        details = await client.sessions.GetSession(
            session_pb2.GetSessionRequest(session=name), metadata=client.metadata
        )
        assert script({"text": "unread"}) in [each.text for each in details.pending_prompts]
        return
    await eventually(lambda: says(client, name, "again"))
    session = await client.reach(name, IDLE)
    assert session.turns == 2
    assert not await says(client, name, "unread")


async def says(client: Client, name: str, words: str, *, times: int = 1) -> bool:
    """Return whether the agent has said this so many times."""
    blocks = [block.text for event in await client.log(name) for block in event.assistant_message.blocks]
    return blocks.count(words) >= times


async def test_an_interrupt_never_overtakes_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Sender._pending
    slow = False

    async def pending(self: Sender) -> Any:
        found = await original(self)
        if slow:
            await asyncio.sleep(0.3)
        return found

    monkeypatch.setattr(Sender, "_pending", pending)
    with make_sandbox() as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            await client.create(sandbox.repository(), script({"text": "begun", "hang": True}), name="quick")
            await eventually(lambda: says(client, "quick", "begun"))
            slow = True
            sent = await client.send("quick", script({"text": "unread"}))
            answer = await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session="quick"))
            assert [each.text for each in answer.withdrawn] == [sent.prompt.text]
            assert (await client.reach("quick", IDLE)).turns == 1
            assert not await says(client, "quick", "unread")


async def test_a_turn_that_is_stopped_while_it_asks_is_continued(client: Client, repository: Path) -> None:
    await client.create(repository, script(bash("echo ran > ran.txt"), {"text": "done"}), name="asks-again")
    await client.reach("asks-again", WAITING)
    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="asks-again"))
    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="asks-again"))
    session = await client.reach("asks-again", WAITING)
    assert "echo ran > ran.txt" in session.state_reason


async def test_what_follows_a_turn_outlives_its_agent_and_an_archive_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    audited: list[bool] = []

    async def audit(self: Ownership, session: Session) -> None:
        begun.set()
        await goes_on.wait()
        audited.append(session.worktree.is_dir())

    monkeypatch.setattr(Ownership, "after_turn", audit)
    with make_sandbox() as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            await client.create(sandbox.repository(), script({"text": "done"}), name="ends")
            await begun.wait()
            await client.sessions.StopSession(session_pb2.StopSessionRequest(session="ends"))
            archiving = asyncio.ensure_future(
                client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session="ends"))
            )
            await eventually(lambda: client_log_has(client, "agent_exited"))
            goes_on.set()
            await archiving
            assert audited == [True]


async def client_log_has(client: Client, kind: str) -> bool:
    return any(event.WhichOneof("payload") == kind for event in await client.log("ends"))


async def test_stop_ends_the_agent_and_the_next_prompt_resumes_the_conversation(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, script({"text": "one"}), name="stops")
    await client.reach("stops", IDLE)
    stopped = await client.sessions.StopSession(
        session_pb2.StopSessionRequest(session="stops"), metadata=client.metadata
    )
    assert not stopped.session.agent_alive

    await client.send("stops", script({"text": "two"}))

    async def two_turns() -> bool:
        return (await client.get("stops")).turns == 2

    from tests.support.eventually import eventually

    await eventually(two_turns)
    session = await client.reach("stops", IDLE)
    assert session.conversation_id == made.conversation_id


@pytest.mark.full
async def test_stop_in_the_middle_of_a_turn_keeps_it_for_resume(client: Client, repository: Path) -> None:
    await client.create(repository, script({"hang": True}), name="hangs")
    await client.reach("hangs", WORKING)
    stopped = await client.sessions.StopSession(
        session_pb2.StopSessionRequest(session="hangs"), metadata=client.metadata
    )
    assert stopped.session.state == PAUSED

    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="hangs"), metadata=client.metadata)
    await client.reach("hangs", WORKING, IDLE)


async def test_a_killed_daemon_is_replaced_without_anybody_noticing(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    await client.create(repository, script(bash("echo ran > ran.txt"), {"text": "done"}), name="asks")
    before = await client.reach("asks", WAITING)
    agents = {process.pid for process in daemon.sandbox.agents()}

    daemon.restart()

    after = await client.reach("asks", WAITING)
    assert after.id == before.id
    assert {process.pid for process in daemon.sandbox.agents()} == agents
    await client.attention.ResolveRequest(
        attention_pb2.ResolveRequestRequest(
            request="asks", resolution=attention_pb2.Resolution(approve=attention_pb2.Approval())
        ),
        metadata=client.metadata,
    )
    session = await client.reach("asks", IDLE)
    assert session.turns == 1
    assert (Path(session.worktree) / "ran.txt").exists()


async def test_removing_unsaved_work_is_refused_and_forced_it_goes_to_the_trash(
    client: Client, repository: Path
) -> None:
    await client.create(repository, script(write("only.txt", "copy\n"), {"text": "done"}), name="risky", mode=EDITS)
    session = await client.reach("risky", IDLE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="risky"), metadata=client.metadata)
    assert reason_of(caught.value) == "WORK_AT_RISK"
    assert "only.txt" in str(caught.value.details())

    removed = await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session="risky", force=True), metadata=client.metadata
    )

    assert git(repository, "show", f"{removed.trash_ref}:files/only.txt") == "copy"
    assert not Path(session.worktree).exists()
    assert "ramet/risky" not in git(repository, "branch", "--list")
    assert session.worktree not in git(repository, "worktree", "list")


async def test_a_mode_that_the_running_agent_refuses_applies_from_its_next_start() -> None:
    with make_sandbox(config="[permissions]\nallow_bypass = true\n") as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            runs = script(bash("echo ran > ran.txt"), {"text": "done"})
            await client.create(sandbox.repository(), script({"text": "done"}), name="idle", mode=EDITS)
            await client.create(sandbox.root / "repo", script({"text": "x", "hang": True}), name="works", mode=EDITS)
            await client.reach("idle", IDLE)
            await eventually(lambda: says(client, "works", "x"))

            def change(name: str) -> session_pb2.UpdateSessionRequest:
                mask = field_mask_pb2.FieldMask(paths=["mode"])
                return session_pb2.UpdateSessionRequest(
                    session_id=name, session=session_pb2.Session(mode=BYPASS), update_mask=mask
                )

            assert not (await client.sessions.UpdateSession(change("idle"))).warnings
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.sessions.UpdateSession(change("works"))
            assert reason_of(caught.value) == "AGENT_REFUSED"
            assert "bypassPermissions" in (caught.value.details() or "")
            await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session="works"))
            await client.sessions.StopSession(session_pb2.StopSessionRequest(session="works"))
            for name in ("idle", "works"):
                assert (await client.get(name)).mode == BYPASS
                await client.send(name, runs)
                session = await client.reach(name, IDLE)
                assert (Path(session.worktree) / "ran.txt").read_text() == "ran\n"


async def test_a_deaf_agent_gets_a_changed_mode_once_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "ANSWER_S", 0.2)
    with make_sandbox() as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            await client.create(sandbox.repository(), script({"text": "done"}), name="deaf")
            tree = (await client.reach("deaf", IDLE)).worktree
            agents = [process for process in sandbox.processes() if process.cwd() == tree]
            for process in agents:
                process.suspend()
            said = await asyncio.to_thread(sandbox.ctl, "set", "deaf", "--mode", "acceptEdits")
            assert (said.code, said.stdout) == (0, "deaf: mode acceptEdits\n")
            assert "the change is stored, and takes effect when it answers or starts again" in said.stderr
            for process in agents:
                process.resume()
            await client.send("deaf", script(write("new.txt", "new\n"), {"text": "written"}))
            await client.reach("deaf", IDLE)
            assert (Path(tree) / "new.txt").exists()


async def test_an_agent_that_starts_gets_a_changed_mode_before_its_first_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()
    original = ClaudeChannel.open

    async def slow(self: ClaudeChannel) -> None:
        await original(self)
        reached.set()
        await goes_on.wait()

    monkeypatch.setattr(ClaudeChannel, "open", slow)
    with make_sandbox(config="[permissions]\nallow_bypass = true\n") as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            await client.create(
                sandbox.repository(), script(bash("echo ran > ran.txt"), {"text": "done"}), name="starts", mode=BYPASS
            )
            await reached.wait()
            done = await asyncio.to_thread(sandbox.ctl, "config", "set", "permissions.allow_bypass", "false")
            assert done.code == 0, done.stderr
            goes_on.set()
            session = await client.reach("starts", WAITING)
            assert not (Path(session.worktree) / "ran.txt").exists()


def test_a_setting_is_in_effect_when_config_set_returns() -> None:
    with make_sandbox() as sandbox, daemon_process(sandbox):
        repository = sandbox.repository()
        for allowed in (True, False):
            assert sandbox.ctl("config", "set", "permissions.allow_bypass", str(allowed).lower()).code == 0
            made = sandbox.ctl(
                "new", "--name", f"when-{allowed}".lower(), "--mode", "bypassPermissions", cwd=repository
            )
            assert (made.code == 0) == allowed, made.stderr


async def test_a_living_agent_stops_bypassing_when_config_set_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STOP_GRACE_S", 0.2)
    monkeypatch.setattr(conversation, "ANSWER_S", 0.2)
    with make_sandbox(config="[permissions]\nallow_bypass = true\n") as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            await client.create(sandbox.repository(), script({"text": "done"}), name="first", mode=BYPASS)
            await client.reach("first", IDLE)
            await client.create(sandbox.root / "repo", script({"text": "done"}), name="deaf", mode=BYPASS)
            deaf = await client.reach("deaf", IDLE)
            for process in sandbox.processes():
                if process.cwd() == deaf.worktree:
                    process.suspend()  # it answers nothing any more
            done = await asyncio.to_thread(sandbox.ctl, "config", "set", "permissions.allow_bypass", "false")
            assert done.code == 0, done.stderr
            for name in ("first", "deaf"):
                await client.send(name, script(bash("echo ran > ran.txt"), {"text": "done"}))
                session = await client.reach(name, WAITING)
                assert not (Path(session.worktree) / "ran.txt").exists()
