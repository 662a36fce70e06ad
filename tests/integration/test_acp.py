"""Sessions of agents that speak the Agent Client Protocol: turns, questions, cancel, settings, and
kills of each process."""

import os
import shlex
import signal
import sys
from pathlib import Path

import grpc
import pytest
from ramet.v1 import attention_pb2, common_pb2, event_pb2, session_pb2

from tests.support.acp import AGENT, use_acp
from tests.support.agents import script
from tests.support.daemon import FAILED, IDLE, PAUSED, WORKING, Client, DaemonProcess, Sandbox, connected, reason_of
from tests.support.eventually import eventually
from tests.support.family import approve, requests

BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS
EDITS = common_pb2.PERMISSION_MODE_ACCEPT_EDITS
DEFAULT = common_pb2.PERMISSION_MODE_DEFAULT
QUIRKS = {
    "plain": "",
    "gemini": "no-tool-call no-raw-input load-only waits-for-permission noise",
    "droid": "no-content string-ids end-turn-at-cancel",
    "codex": "late-input forgets-mode",
    "qwen": "no-resume",
    "modeless": "no-set-mode",
    "stranger": "login",
}
ABLE = [name for name in QUIRKS if name not in {"modeless", "stranger"}]
WRITE = {"tool": "Write", "input": {"file_path": "made.txt", "content": "hello\n"}}


@pytest.fixture
def acp(sandbox: Sandbox) -> DaemonProcess:
    """Yield a daemon that is not started, with agents that have the quirks of real ones."""
    use_acp(sandbox, **{f"x{name}": quirks for name, quirks in QUIRKS.items()})
    return DaemonProcess(sandbox)


def kinds(events: list[event_pb2.Event]) -> list[str]:
    return [event.WhichOneof("payload") or "" for event in events]


async def asked(client: Client, name: str, after: str = "") -> attention_pb2.AttentionRequest:
    async def look() -> attention_pb2.AttentionRequest:
        found = [each for each in await requests(client, name) if each.kind == attention_pb2.ATTENTION_KIND_PERMISSION]
        assert len(found) == 1
        assert found[0].id != after
        return found[0]

    return await eventually(look)


async def settled(client: Client, name: str, turns: int) -> session_pb2.Session:
    async def look() -> session_pb2.Session:
        session = await client.get(name)
        assert (session.state, session.turns) == (IDLE, turns), session
        return session

    return await eventually(look)


def prompts_of(sandbox: Sandbox) -> list[str]:
    """Return the agents' notes of every prompt that they received."""
    folder = sandbox.root / "home" / ".scripted-acp"
    return [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines() if '"prompt"' in line]


def agent_pid(sandbox: Sandbox) -> int:
    (process,) = [
        each for each in sandbox.processes() if any(part.endswith("scripted/acp.py") for part in each.cmdline()[:5])
    ]
    return int(process.pid)


async def test_turns_questions_and_cancels_are_the_same_with_every_quirk(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        for name in ABLE:
            prompt = script({"thinking": "hm, well"}, {"text": "I write it."}, WRITE, {"text": "Done with it."})
            session = await client.create(repository, prompt, agent=f"x{name}", mode=DEFAULT)
            request = await asked(client, session.id)
            assert (request.tool, request.edit.path, request.edit.additions) == ("Write", "made.txt", 1), name
            await approve(client, request.id)
            done = await settled(client, session.id, 1)
            assert Path(session.worktree, "made.txt").read_text() == "hello\n"
            assert (done.tokens.input, done.tokens.output) == (10, 5)
            log = await client.log(session.id)
            said = [block.text for event in log for block in event.assistant_message.blocks if block.text]
            assert said == ["I write it.", "Done with it."]
            calls = [
                block.tool_call
                for event in log
                for block in event.assistant_message.blocks
                if block.HasField("tool_call")
            ]
            assert [(call.tool, call.tool_use_id) for call in calls] == [("Write", request.tool_use_id)]
            results = [result for event in log for result in event.user_message.results]
            assert [(result.tool_use_id, result.is_error) for result in results] == [(request.tool_use_id, False)]
            assert (
                kinds(log).count("turn_started")
                == kinds(log).count("turn_ended")
                == kinds(log).count("prompt_received")
                == 1
            )

            await client.send(session.id, script({"tool": "Bash", "input": {"command": "sleep 60"}}))
            await asked(client, session.id)
            await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session=session.id))
            cancelled = await settled(client, session.id, 2)
            assert cancelled.state_reason == "interrupted"
            assert await requests(client, session.id) == []
        assert len(prompts_of(sandbox)) == 2 * len(ABLE)


async def test_prompts_wait_for_the_end_of_a_turn_and_follow_in_order(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        gate = sandbox.root / "gate"
        gate.touch()
        wait = {"tool": "Bash", "input": {"command": f"while [ -e {gate} ]; do sleep 0.02; done"}}
        session = await client.create(repository, script(wait), agent="xplain", mode=BYPASS)
        await client.reach(session.id, WORKING)
        await client.send(session.id, "second")
        await client.send(session.id, "third")
        gate.unlink()
        await settled(client, session.id, 3)
        assert [('"second"' in line, '"third"' in line) for line in prompts_of(sandbox)] == [
            (False, False),
            (True, False),
            (False, True),
        ]


async def test_an_agent_is_looked_for_on_the_callers_path_and_refused_if_missing(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    text = sandbox.directories.config_file.read_text()
    sandbox.configure(text.replace(f'command = ["{sys.executable}", "-I", "-S"', 'command = ["my-agent"', 1))
    programs = sandbox.root / "programs"
    programs.mkdir()
    program = programs / "my-agent"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", str(AGENT)])} "$@"\n')
    program.chmod(0o755)
    acp.start()
    async with connected(sandbox) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.create(repository, "hello", agent="xplain", mode=DEFAULT)
        assert reason_of(caught.value) == "AGENT_UNAVAILABLE"
        environment = {"PATH": f"{programs}:{sandbox.environ['PATH']}"}
        session = await client.create(repository, "hello", agent="xplain", mode=DEFAULT, environment=environment)
        await settled(client, session.id, 1)


async def test_rules_and_modes_decide_before_a_person_and_paths_outside_are_refused(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    outside = sandbox.root / "outside.txt"
    async with connected(sandbox) as client:
        steps = script(WRITE, {"tool": "Write", "input": {"file_path": str(outside), "content": "x"}})
        session = await client.create(repository, steps, agent="xplain", mode=EDITS)
        await settled(client, session.id, 1)
        assert Path(session.worktree, "made.txt").exists()
        assert not outside.exists()
        assert "path_refused" in kinds(await client.log(session.id))


async def test_what_a_call_changes_of_others_follows_as_a_prompt(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        await client.create(repository, "hello", name="api", agent="xplain", mode=DEFAULT, owns=["api/"])
        steps = [
            {"tool": "Bash", "input": {"command": f"mkdir -p {path}; echo new > {path}/a"}} for path in ("api", "web")
        ]
        session = await client.create(repository, script(*steps), agent="xplain", mode=DEFAULT, owns=["web/"])
        first = await asked(client, session.id)
        await approve(client, first.id)
        await approve(client, (await asked(client, session.id, after=first.id)).id)
        await settled(client, session.id, 2)
        (said,) = [line for line in prompts_of(sandbox) if "Undo these changes" in line]
        assert "api/a belongs to the session 'api'" in said
        assert "web/a" not in said


async def test_an_agent_that_refuses_its_mode_says_so(acp: DaemonProcess, sandbox: Sandbox, repository: Path) -> None:
    sandbox.configure(sandbox.directories.config_file.read_text() + "[agents]\nmax_resumes = 0\n")
    acp.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, "hello", agent="xmodeless", mode=DEFAULT)
        failed = await client.reach(session.id, FAILED)
        assert "Method not found: session/set_mode" in failed.state_reason
        assert prompts_of(sandbox) == []


async def test_an_agent_that_wants_a_login_holds_its_session(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, "hello", agent="xstranger", mode=DEFAULT)
        held = await client.reach(session.id, PAUSED, FAILED)
        assert held.state == PAUSED
        assert "not logged in" in held.state_reason


@pytest.mark.parametrize("key", ["OPENAI_API_KEY", "CODEX_API_KEY", ""])
async def test_an_agent_that_needs_authenticate_logs_in_by_a_key_in_the_environment(
    sandbox: Sandbox, repository: Path, key: str
) -> None:
    use_acp(sandbox, env=f'{key} = "k"' if key else "", codex="key")
    daemon = DaemonProcess(sandbox)
    daemon.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, "hello", agent="codex", mode=DEFAULT)
        if key != "OPENAI_API_KEY":
            held = await client.reach(session.id, PAUSED, FAILED)
            assert held.state == PAUSED
            assert "not logged in" in held.state_reason
            return
        await settled(client, session.id, 1)
        os.kill(agent_pid(sandbox), signal.SIGKILL)
        await client.send(session.id, "again, in a process that has to be asked anew")
        await settled(client, session.id, 2)
        assert len(prompts_of(sandbox)) == 2


async def test_a_login_survives_a_kill_after_each_of_its_lines(sandbox: Sandbox, repository: Path) -> None:
    use_acp(sandbox, env='OPENAI_API_KEY = "k"', codex="key")
    daemon = DaemonProcess(sandbox)
    daemon.start(RAMET_FAILPOINT="control.written")
    async with connected(sandbox) as client:
        session = await client.create(repository, "hello", agent="codex", mode=DEFAULT)
    for _ in ("initialize", "session/new, refused", "authenticate", "session/new"):
        assert daemon.process is not None
        assert daemon.process.wait(timeout=30) == -9
        daemon.start(wait=False, RAMET_FAILPOINT="control.written")
    daemon.wait_serving()
    async with connected(sandbox) as client:
        await settled(client, session.id, 1)  # a second `authenticate` would be refused
        assert len(prompts_of(sandbox)) == 1


async def test_the_first_prompt_of_a_conversation_carries_the_briefing_and_no_other(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, "first", agent="xplain", mode=DEFAULT, owns=["src/"])
        await settled(client, session.id, 1)
        os.kill(agent_pid(sandbox), signal.SIGKILL)
        await client.send(session.id, "second")
        await settled(client, session.id, 2)
        first, second = prompts_of(sandbox)
        assert "You own these paths, and write to no others: `src/`" in first
        assert first.index("End of the instructions") < first.index('first"')
        assert "own these paths" not in second
        (shown, _) = [
            event.prompt_queued.prompt.text for event in await client.log(session.id) if event.HasField("prompt_queued")
        ]
        assert shown == "first"


async def test_a_persons_reason_follows_a_refusal_and_a_changed_input_is_refused(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, script(WRITE), agent="xplain", mode=DEFAULT)
        request = await asked(client, session.id)
        changed = attention_pb2.Approval(updated_input_json='{"file_path": "other.txt", "content": ""}')
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.attention.ResolveRequest(
                attention_pb2.ResolveRequestRequest(
                    request=request.id, resolution=attention_pb2.Resolution(approve=changed)
                )
            )
        assert reason_of(caught.value) == "AGENT_UNABLE"
        denial = attention_pb2.Denial(message="use another file")
        await client.attention.ResolveRequest(
            attention_pb2.ResolveRequestRequest(request=request.id, resolution=attention_pb2.Resolution(deny=denial))
        )
        await settled(client, session.id, 2)
        assert not Path(session.worktree, "made.txt").exists()
        assert "I refused your call of Write: use another file" in prompts_of(sandbox)[1]


@pytest.mark.parametrize("name", ["xplain", "xgemini", "xcodex", "xqwen"])
async def test_a_question_outlives_the_daemon_and_a_dead_agent_resumes_its_conversation(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path, name: str
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, script({"text": "First words."}, WRITE), agent=name, mode=DEFAULT)
        await asked(client, session.id)
    acp.kill()
    acp.start()
    async with connected(sandbox) as client:
        await approve(client, (await asked(client, session.id)).id)
        await settled(client, session.id, 1)
        said = [
            block.text
            for event in await client.log(session.id)
            for block in event.assistant_message.blocks
            if block.text
        ]
        assert said == ["First words."]

        await client.send(session.id, script({"tool": "Bash", "input": {"command": "true"}}))
        first = await asked(client, session.id)
        os.kill(agent_pid(sandbox), signal.SIGKILL)
        # The continuation asks for the same again, in a process with the previous one's mode and
        # conversation.
        again = await asked(client, session.id, after=first.id)
        await approve(client, again.id)
        done = await settled(client, session.id, 2)
        assert done.conversation_id == (await client.get(session.id)).conversation_id
        assert len({line.split('"pid"')[1] for line in prompts_of(sandbox)}) == 2


async def test_after_a_reboot_a_pending_question_is_asked_anew_and_answered_once(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path
) -> None:
    acp.start()
    async with connected(sandbox) as client:
        session = await client.create(repository, script(WRITE), agent="xplain", mode=DEFAULT)
        first = await asked(client, session.id)
    sandbox.kill_everything()
    assert acp.process is not None
    acp.process.wait()
    acp.start()
    async with connected(sandbox) as client:
        again = await asked(client, session.id, after=first.id)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await approve(client, first.id)
        assert reason_of(caught.value) == "REQUEST_CLOSED"
        assert not Path(session.worktree, "made.txt").exists()
        await approve(client, again.id)
        await settled(client, session.id, 1)
        assert Path(session.worktree, "made.txt").read_text() == "hello\n"
        assert len(prompts_of(sandbox)) == 2, "the prompt and its continuation"


@pytest.mark.parametrize(
    "point",
    [
        "prompt.committed",
        "prompt.written",
        "control.committed",
        "control.written",
        "answer.committed",
        "answer.written",
    ],
)
async def test_a_daemon_killed_around_a_write_writes_it_once(
    acp: DaemonProcess, sandbox: Sandbox, repository: Path, point: str
) -> None:
    acp.start(RAMET_FAILPOINT="" if point.startswith("answer") else point)
    async with connected(sandbox) as client:
        session = await client.create(repository, script(WRITE), agent="xdroid", mode=DEFAULT)
        if point.startswith("answer"):
            await asked(client, session.id)
            acp.kill()
            acp.start(RAMET_FAILPOINT=point)
    if point.startswith("answer"):
        async with connected(sandbox) as client:
            await approve(client, (await asked(client, session.id)).id)
    assert acp.process is not None
    assert acp.process.wait(timeout=30) == -9
    acp.start()
    async with connected(sandbox) as client:
        if not point.startswith("answer"):
            await approve(client, (await asked(client, session.id)).id)
        await settled(client, session.id, 1)
        assert Path(session.worktree, "made.txt").read_text() == "hello\n"
        assert len(prompts_of(sandbox)) == 1
