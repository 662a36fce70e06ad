"""Every call of the contract as every kind of caller, from the descriptors: a new call without a
role fails."""

from collections.abc import Iterator
from typing import Any

import pytest
from ramet.v1 import event_pb2, session_pb2
from rametd.api.roles import allowed
from rametd.api.terminal import MOST_LIVING

from tests.support.daemon import Client, DaemonProcess, Sandbox, daemon_process, make_sandbox
from tests.support.family import Member, payloads, refusal, root
from tests.support.rpc import RPCS, reasons
from tests.support.running import client, repo_of, sandbox, token_for

__all__ = ["client", "sandbox"]

OWNER = "the owner alone"
LOOK = "any session, to look"
CALLER = "any session, for itself"
FAMILY = "a session of the named one's family"
ITSELF = "the named session itself"
ABOVE = "an ancestor of the named session"

ROLES = {
    **dict.fromkeys(
        ["ResolveRequest", "ListRules", "CreateRule", "DeleteRule", "Shutdown", "GetConfig", "GetStatistics", "GetCosts", "ListAgents", "LandSessions", "ListLandings", "WaitLandings", "RemoveLanding",
         "RetryLanding", "CreatePullRequest", "LinkPullRequest", "ListPullRequests", "FixPullRequest", "CleanUpPullRequests", "ApplyPlan", "ConvergePlan", "CleanUpPlan", "RegisterRepo",
         "UpdateRepo", "RemoveRepo", "UpdateSession", "WithdrawPrompts", "InterruptSession", "ResumeSession", "PauseSession", "DeleteSession", "ForkSession", "ArchiveSession", "RestoreSession", "SetUpSession",
         "GetShell", "WatchChanges", "GetFile", "ListCheckpoints", "CreateCheckpoint", "RewindSession", "AddComment", "ListComments", "ResolveComment", "SendComments", "SyncSession", "GetPool",
         "FillPool", "DrainPool", "ListTrash", "RestoreTrash", "EmptyTrash", "CollectGarbage", "Diagnose", "ReportFocus", "TestNotifications", "AttachNative"],
        OWNER,
    ),
    **dict.fromkeys(
        ["GetInfo", "GetRepo", "GetTrust", "ListRepos", "GetSession", "ListSessions", "WaitSessions", "ListRequests", "GetRequest", "ListCommands", "GetCommand", "WatchOutput", "ListPorts", "GetDiff",
         "ListConflicts", "WatchConflicts", "CheckPlan", "GetPlan", "ListPlans"],
        LOOK,
    ),
    **dict.fromkeys(["CreateSession", "SpawnSession", "ListFamily", "ReadMessages", "ReportResult", "RequestPath", "HandOverPath"], CALLER),
    **dict.fromkeys(["ListEvents", "WatchEvents", "GetMember", "GetMemberDiff", "GetTranscript", "SendMessage", "SendPrompt", "WaitForMembers"], FAMILY),
    **dict.fromkeys(["StartCommand", "StopCommand"], ITSELF),
    **dict.fromkeys(["StopSession", "StopMember"], ABOVE),
}  # fmt: skip
DENIED = {
    OWNER: {"lead", "child", "stranger"},
    LOOK: set[str](),
    CALLER: set[str](),
    FAMILY: {"stranger"},
    ITSELF: {"child", "stranger"},
    ABOVE: {"child", "stranger"},
}
"""Callers that may not name the session ``lead``."""


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox() as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.mark.full
async def test_every_call_is_served_to_those_who_may_and_to_no_one_else(
    running: DaemonProcess, client: Client, sandbox: Sandbox
) -> None:
    assert set(ROLES) == set(RPCS)
    assert {name for name, role in ROLES.items() if role == OWNER} == {
        name for name, rpc in RPCS.items() if not allowed(rpc.path, "session:any")
    }
    lead = await root(client, sandbox, repo_of(running), "lead")
    ids = {"lead": lead.id, "child": (await lead.spawn(name="child")).id}
    for name in ("stranger", "removed"):
        ids[name] = (await client.create(repo_of(running), name=name)).id
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=ids["removed"]))
    start = RPCS["StartCommand"]
    command: Any = await start.call(client.channel, start.request(session=lead.id, argv=["sleep", "600"]))
    tokens = {name: token_for(running, identity) for name, identity in ids.items()}
    tokens |= {"command": token_for(running, "command"), "forged": f"{lead.id}.{'0' * 40}", "empty": ""}
    values: dict[str, Any] = {
        "session": lead.id,
        "sessions": [lead.id],
        "command": command.command.id,
        "snapshot": True,
        "text": "x",
        "prompt": "x",
        "argv": ["true"],
    }

    verdicts: dict[tuple[str, str], str] = {}
    for name, rpc in RPCS.items():
        fields = {each: values[each] for each in rpc.method.input_type.fields_by_name if each in values}
        for who, token in tokens.items():
            # Left empty: calls that would create a child, or end their own caller.
            given = (
                fields if ROLES[name] not in {CALLER, OWNER} and not (who == "lead" and ROLES[name] == ABOVE) else {}
            )
            verdicts[name, who] = await rpc.refusal(client.channel, rpc.request(**given), (("ramet-token", token),))
        if name != "Shutdown":  # has its own test
            given = {key: value for key, value in fields.items() if key == "snapshot" or ROLES[name] in {LOOK, FAMILY}}
            verdicts[name, "owner"] = await rpc.refusal(client.channel, rpc.request(**given))

    for (name, who), reason in verdicts.items():
        if who in {"forged", "empty", "removed"}:
            assert (name, who, reason) == (name, who, "UNAUTHENTICATED")
        elif who == "command":
            assert (name, reason == "PERMISSION_DENIED") == (name, not allowed(RPCS[name].path, "command")), reason
        elif not (who == "lead" and ROLES[name] == ABOVE):
            assert (name, who, reason == "PERMISSION_DENIED") == (name, who, who in DENIED[ROLES[name]]), reason
        assert reason in {"", *reasons()} - {"INTERNAL"}, f"{name} as {who}: {reason}"


async def test_a_session_that_names_none_reads_its_own_events_or_watches_its_family(
    running: DaemonProcess, client: Client, sandbox: Sandbox
) -> None:
    reader = await root(client, sandbox, repo_of(running), "reader")
    child = (await reader.spawn(name="archived-child")).id
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=child, force=True))
    metadata = (("ramet-token", token_for(running, reader.id)),)
    listed = await client.events.ListEvents(event_pb2.ListEventsRequest(), metadata=metadata)
    assert {event.session_id for event in listed.events} == {reader.id}
    watched = client.events.WatchEvents(event_pb2.WatchEventsRequest(snapshot=True), metadata=metadata)
    async for item in watched:
        assert {session.id for session in item.snapshot.sessions} == {reader.id, child}
        break
    watched.cancel()


@pytest.mark.full
async def test_what_a_session_does_in_a_loop_has_limits(
    running: DaemonProcess, client: Client, sandbox: Sandbox
) -> None:
    looping = await root(client, sandbox, repo_of(running), "looping")
    metadata = (("ramet-token", token_for(running, looping.id)),)
    for _ in range(20):
        await looping.report("done")
    assert (await refusal(looping.report("done")))[0] == "TOO_MANY_MESSAGES"

    for name in ("DeleteSession", "DeleteSession", "DeleteSession", "ArchiveSession"):
        request = RPCS[name].request(session=looping.id)
        assert await RPCS[name].refusal(client.channel, request, metadata) == "PERMISSION_DENIED"
    denied = [event.call_denied.method for event in payloads(await client.log("looping"), "call_denied")]
    assert sorted(each.rpartition("/")[2] for each in denied) == ["ArchiveSession", "DeleteSession", "ReportResult"]

    start = RPCS["StartCommand"]
    for _ in range(MOST_LIVING):
        await start.call(client.channel, start.request(session=looping.id, argv=["sleep", "600"]), metadata)
    one_more = start.request(session=looping.id, argv=["true"])
    assert await start.refusal(client.channel, one_more, metadata) == "CAP_REACHED"
    assert not await start.refusal(client.channel, one_more)  # the person may


async def test_a_member_reads_what_its_family_does(running: DaemonProcess, client: Client, sandbox: Sandbox) -> None:
    lead = await root(client, sandbox, repo_of(running), "read-lead")
    child = Member(client, sandbox, (await lead.spawn(name="read-child")).id)
    for reader, read in ((lead, child), (child, lead)):
        metadata = (("ramet-token", token_for(running, reader.id)),)
        listed = await client.events.ListEvents(event_pb2.ListEventsRequest(session=read.id), metadata=metadata)
        assert {event.session_id for event in listed.events} == {read.id}
