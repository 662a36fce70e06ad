"""Budgets: costs count once, cause a warning, and stop the session at the limit; a raised limit
continues it."""

from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import event_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, PAUSED, Client, DaemonProcess, Sandbox, connected, daemon_process
from tests.support.eventually import eventually
from tests.support.family import EDITS, payloads, root, write


async def give(client: Client, name: str, dollars: float | None) -> session_pb2.Session:
    """Change a session's budget; None removes it."""
    request = session_pb2.UpdateSessionRequest(
        session_id=name, session=session_pb2.Session(budget_usd=dollars), update_mask=FieldMask(paths=["budget_usd"])
    )
    return (await client.sessions.UpdateSession(request, metadata=client.metadata)).session


def writes(count: int) -> str:
    """Return a script of that many calls, each in a separate reply."""
    return script(*(write(f"f{number}.txt", "x\n") for number in range(count)), {"text": "done"})


async def one_reply(client: Client, path: Path) -> float:
    """Return the cost of one reply, from a session with one."""
    await client.create(path, script({"text": "one"}), name="one-reply")
    return (await client.reach("one-reply", IDLE)).cost_usd


async def test_a_session_stops_within_a_call_of_its_budget_and_resumes_once_raised(
    client: Client, repository: Path
) -> None:
    cost = await one_reply(client, repository)
    made = await client.create(repository, writes(9), name="spends", mode=EDITS, budget_usd=cost * 4)
    session = await client.reach("spends", PAUSED)

    spent, limit = f"${session.cost_usd:.2f}", f"${cost * 4:.2f}"
    assert cost * 4 <= session.cost_usd * 1.000001 <= cost * 5.000001
    assert session.state_reason == (
        f"{spent} of {limit} spent for this session: `rametctl set spends --budget USD` continues it"
    )
    done = [number for number in range(9) if (Path(session.worktree) / f"f{number}.txt").exists()]
    assert done == [0, 1, 2], "the call that the last paid reply requested does not run"
    warnings = [event.warning.message for event in payloads(await client.log("spends"), "warning")]
    assert warnings == [f"{spent} of {limit} spent for this session"]

    await give(client, "spends", cost * 100)
    session = await client.reach("spends", IDLE)
    turns = [event.turn_ended for event in payloads(await client.log("spends"), "turn_ended")]
    assert session.conversation_id == made.conversation_id
    assert len(turns) == 2


async def test_a_warning_comes_once_at_four_fifths_and_a_new_budget_warns_anew(
    client: Client, repository: Path
) -> None:
    cost = await one_reply(client, repository)
    await client.create(repository, script({"text": "1"}), name="careful", budget_usd=cost * 2.4)

    async def warnings() -> int:
        return len(payloads(await client.log("careful"), "warning"))

    async def again() -> None:
        before = (await client.get("careful")).turns
        await client.send("careful", script({"text": "again"}))
        await eventually(lambda: _turns(client, "careful", before + 1))

    await client.reach("careful", IDLE)
    assert await warnings() == 0
    await again()
    assert await warnings() == 1
    await give(client, "careful", cost * 3.6)
    await again()
    assert await warnings() == 2


async def _turns(client: Client, name: str, turns: int) -> bool:
    session = await client.get(name)
    return session.turns == turns and session.state == IDLE


async def test_a_session_without_money_does_not_start_and_says_so(client: Client, repository: Path) -> None:
    cost = await one_reply(client, repository)
    await client.create(repository, script({"text": "all of it"}), name="broke", budget_usd=cost / 2)
    session = await client.reach("broke", PAUSED)
    assert "spent for this session" in session.state_reason
    await client.send("broke", "more")
    assert (await client.get("broke")).state == PAUSED, "the prompt stays queued"
    assert session.turns == 1

    await give(client, "broke", None)
    await eventually(lambda: _turns(client, "broke", 2))


@pytest.mark.full
async def test_what_children_spend_counts_against_the_budget_of_their_parent(
    sandbox: Sandbox, daemon: DaemonProcess, client: Client, repository: Path
) -> None:
    cost = await one_reply(client, repository)
    lead = await root(client, sandbox, repository, "lead", mode=EDITS, budget_usd=cost * 5)
    await lead.spawn(writes(2), name="first")
    await client.reach("first", IDLE)
    await lead.spawn(writes(9), name="second")
    second = await client.reach("second", PAUSED)
    assert "spent for lead and its descendants: `rametctl set lead --budget USD` continues it" in second.state_reason

    first = await client.get("first")
    assert cost * 5 <= (first.cost_usd + second.cost_usd) * 1.000001 <= cost * 6.000001
    await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session="first", force=True), metadata=client.metadata
    )
    daemon.restart()
    assert (await client.get("second")).state == PAUSED, "removing a child refunds nothing"
    await give(client, "lead", cost * 100)
    await client.reach("second", IDLE)


@pytest.mark.full
async def test_configured_limits_apply_to_sessions_without_their_own(sandbox: Sandbox) -> None:
    path = sandbox.repository()
    config = sandbox.directories.config_file.read_text()

    def limit(daemon: DaemonProcess, key: str, dollars: float) -> None:
        sandbox.configure(f"{config}\n[budget]\n{key} = {dollars}\n")
        daemon.restart()

    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            cost = await one_reply(client, path)
            for key, words in (
                ("session", "spent for this session: `rametctl set by-session --budget USD` continues it"),
                ("tree", "spent for its family: raise it: `rametctl config set budget.tree USD`"),
            ):
                limit(daemon, key, cost * 4)
                await client.create(path, writes(9), name=f"by-{key}", mode=EDITS)
                assert words in (await client.reach(f"by-{key}", PAUSED)).state_reason
                await client.create(path, "another family", name=f"not-by-{key}")
                await client.reach(f"not-by-{key}", IDLE)
            limit(daemon, "day", cost * 4)
            await client.create(path, "hello", name="by-day")
            words = "spent for today: raise it: `rametctl config set budget.day USD`, or wait for tomorrow"
            assert words in (await client.reach("by-day", PAUSED)).state_reason
            limit(daemon, "day", cost * 1000)
            for key in ("session", "tree", "day"):
                await client.reach(f"by-{key}", IDLE)


@pytest.mark.full
async def test_what_a_resumed_conversation_had_cost_before_is_not_counted_again(
    client: Client, repository: Path
) -> None:
    cost = await one_reply(client, repository)
    await client.create(repository, writes(3), name="resumes", mode=EDITS, budget_usd=cost * 7.5)
    await client.reach("resumes", IDLE)
    await client.sessions.StopSession(session_pb2.StopSessionRequest(session="resumes"), metadata=client.metadata)
    await client.send("resumes", writes(2))
    await eventually(lambda: _turns(client, "resumes", 2))
    starts: list[event_pb2.Event] = payloads(await client.log("resumes"), "agent_started")
    assert [event.agent_started.resumed for event in starts] == [False, True]
