"""Requests of agents: they wait without a time limit, and the first answer counts, also over
restarts of the daemon."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from ramet.v1 import attention_pb2, common_pb2, session_pb2

from tests.crash.scene import Gates
from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    PAUSED,
    WAITING,
    Client,
    DaemonProcess,
    Sandbox,
    connected,
    daemon_process,
    reason_of,
)
from tests.support.eventually import eventually
from tests.support.family import answer, approve, bash, payloads, refusal, requests, said, tool_results

PLAN = common_pb2.PERMISSION_MODE_PLAN
FORM = {"mcp_server_name": "forms", "message": "Which port?", "requested_schema": {"type": "object"}}

APPROVE = {"approve": attention_pb2.Approval()}
ANSWERS: dict[int, dict[str, Any]] = {
    attention_pb2.ATTENTION_KIND_PERMISSION: APPROVE,
    attention_pb2.ATTENTION_KIND_QUESTION: {"reply": attention_pb2.Reply(answers=["yes"])},
    attention_pb2.ATTENTION_KIND_ELICITATION: {"approve": attention_pb2.Approval(updated_input_json='{"port": 1}')},
    attention_pb2.ATTENTION_KIND_PLAN: APPROVE,
}


async def the_request(client: Client, name: str, kind: int) -> attention_pb2.AttentionRequest:
    async def look() -> attention_pb2.AttentionRequest:
        found = await requests(client, name)
        assert [request.kind for request in found] == [kind]
        return found[0]

    return await eventually(look)


def data_of(error: grpc.aio.AioRpcError) -> dict[str, str]:
    details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    info = ErrorInfo()
    assert isinstance(details, bytes)
    assert Status.FromString(details).details[0].Unpack(info)
    return dict(info.metadata)


async def test_each_kind_of_request_survives_a_kill_and_the_first_answer_counts(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    steps = [bash("touch permitted"), {"ask": "Really?"}, {"elicit": FORM}, {"plan": "1. rest"}, {"text": "done"}]
    await client.create(repository, script(*steps), name="asks", mode=PLAN)
    for kind, decision in ANSWERS.items():
        asked = await the_request(client, "asks", kind)
        assert kind != attention_pb2.ATTENTION_KIND_PLAN or json.loads(asked.input_json) == {"plan": "1. rest"}
        assert (await client.get("asks")).state == WAITING
        daemon.restart()
        again = await the_request(client, "asks", kind)
        assert again == asked

        async with connected(daemon.sandbox) as left, connected(daemon.sandbox) as right:
            outcomes = await asyncio.gather(
                *(answer(each, asked.id, **decision) for each in (left, right)), return_exceptions=True
            )
        (won,) = [each for each in outcomes if isinstance(each, attention_pb2.ResolveRequestResponse)]
        (lost,) = [each for each in outcomes if isinstance(each, grpc.aio.AioRpcError)]
        assert (won.request.state, won.request.answered_by) == (attention_pb2.ATTENTION_STATE_ANSWERED, "owner")
        assert reason_of(lost) == "REQUEST_CLOSED"
        assert re.match("owner has (approved|answered) it already, at ", str(lost.details()))
        assert data_of(lost)["by"] == "owner"
        assert abs(float(data_of(lost)["time"]) - won.request.answer_time.ToNanoseconds() / 1e9) < 0.01
    session = await client.reach("asks", IDLE)

    assert (Path(session.worktree) / "permitted").exists()
    assert any('"Really?"="yes"' in words for words in await tool_results(client, "asks"))
    (elicited,) = [words for words in await said(client, "asks") if words.startswith("elicited ")]
    assert json.loads(elicited.removeprefix("elicited ")) == {"action": "accept", "content": {"port": 1}}
    assert session.mode == common_pb2.PERMISSION_MODE_DEFAULT, "the plan was approved"
    closed = payloads(await client.log("asks"), "request_closed")
    answers = [event for event in closed if event.request_closed.request.kind in ANSWERS]
    assert [event.principal for event in answers] == ["owner"] * 4


async def test_what_the_person_declines_is_declined(client: Client, repository: Path) -> None:
    await client.create(repository, script({"elicit": FORM}, bash("touch no"), {"text": "done"}), name="declines")
    for kind in (attention_pb2.ATTENTION_KIND_ELICITATION, attention_pb2.ATTENTION_KIND_PERMISSION):
        asked = await the_request(client, "declines", kind)
        await answer(client, asked.id, deny=attention_pb2.Denial(message="not today"))
    session = await client.reach("declines", IDLE)
    assert 'elicited {"action": "decline"}' in await said(client, "declines")
    assert any("not today" in words for words in await tool_results(client, "declines"))
    assert not (Path(session.worktree) / "no").exists()


async def test_a_question_that_was_open_at_a_power_cut_is_asked_again_under_its_old_id(
    daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    await client.create(repository, script({"ask": "Really?"}, {"text": "done"}), name="asks")
    asked = await the_request(client, "asks", attention_pb2.ATTENTION_KIND_QUESTION)
    daemon.sandbox.kill_everything()
    assert daemon.process is not None
    daemon.process.wait()
    daemon.start()

    async def resumed() -> bool:
        return len(payloads(await client.log("asks"), "agent_started")) == 2

    await eventually(resumed)
    await client.reach("asks", WAITING)
    assert [request.id for request in await requests(client, "asks")] == [asked.id]
    await answer(client, asked.id, reply=attention_pb2.Reply(answers=["no"]))
    await client.reach("asks", IDLE)
    opened = [event.request_opened.request for event in payloads(await client.log("asks"), "request_opened")]
    assert [each.id for each in opened if each.kind != attention_pb2.ATTENTION_KIND_REVIEW] == [asked.id]
    assert any('"Really?"="no"' in words for words in await tool_results(client, "asks"))


async def test_an_answer_given_while_no_agent_lives_counts_when_the_agent_asks_again(
    sandbox: Sandbox,
) -> None:
    gates, path = Gates(sandbox), sandbox.repository()
    prompt = script(bash("echo ran >> ran.txt"), {"text": "done"})
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            await client.create(path, prompt, name="asks", environment={"GATE": "asks"})
            asked = await the_request(client, "asks", attention_pb2.ATTENTION_KIND_PERMISSION)
            gates.close("asks.hold")
            sandbox.kill_everything()
            assert daemon.process is not None
            daemon.process.wait()
            daemon.start()
            await eventually(lambda: gates.tries("asks") == 2)
            await approve(client, asked.id)
            gates.open("asks.hold")
            session = await client.reach("asks", IDLE)
            assert (Path(session.worktree) / "ran.txt").read_text() == "ran\n"
            assert len(await requests(client, "asks", closed=True)) == 1

            await client.send("asks", prompt)
            again = await the_request(client, "asks", attention_pb2.ATTENTION_KIND_PERMISSION)
            assert again.id != asked.id, "an approval of one call does not apply to a later one like it"


async def test_a_question_is_gone_once_its_agent_was_stopped_and_took_that_for_a_no(
    client: Client, repository: Path
) -> None:
    await client.create(repository, script(bash("true"), {"text": "done"}), name="asks")
    asked = await the_request(client, "asks", attention_pb2.ATTENTION_KIND_PERMISSION)
    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="asks"), metadata=client.metadata)
    stopped = await client.get("asks")
    assert (stopped.state, stopped.attention) == (PAUSED, 0)
    assert (await refusal(approve(client, asked.id)))[0] == "REQUEST_CLOSED"
    await client.send("asks", script(bash("true"), {"text": "done"}))
    again = await the_request(client, "asks", attention_pb2.ATTENTION_KIND_PERMISSION)
    assert again.id != asked.id


async def test_an_answer_to_what_is_no_longer_asked_is_refused(client: Client, repository: Path) -> None:
    await client.create(repository, script(bash("true"), {"text": "done"}), name="asks")
    asked = await the_request(client, "asks", attention_pb2.ATTENTION_KIND_PERMISSION)
    moded = attention_pb2.Approval(mode=common_pb2.PERMISSION_MODE_ACCEPT_EDITS)
    assert (await refusal(answer(client, asked.id, approve=moded)))[0] == "INVALID_INPUT", "a mode is for plans"
    await client.sessions.InterruptSession(
        session_pb2.InterruptSessionRequest(session="asks"), metadata=client.metadata
    )
    assert await refusal(approve(client, asked.id)) == ("REQUEST_CLOSED", "the agent no longer asks")
    await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session="asks", force=True), metadata=client.metadata
    )
    assert (await refusal(approve(client, asked.id)))[0] == "REQUEST_NOT_FOUND"
