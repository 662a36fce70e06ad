"""Caps on the sessions that a session starts, against any attempt of an agent; children never get
more than their parent has."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import common_pb2, session_pb2
from rametd.config import Caps

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, DaemonProcess, Sandbox, connected, daemon_process, make_sandbox
from tests.support.family import EDITS, Member, payloads, refusal, root, sessions, token_of, tool, tool_results
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]

CAPS = """
[caps]
depth = 2
children = 3
tree = 6
"""


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    """Yield a daemon for tests that do not change it; its sandbox has a repository ``repo``."""
    with make_sandbox(config=CAPS) as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.fixture
def path(sandbox: Sandbox) -> Path:
    return sandbox.root / "repo"


def test_the_caps_are_modest_unless_the_person_changes_them() -> None:
    assert Caps() == Caps(depth=3, children=8, tree=50, spawns_per_minute=20)


async def test_a_refused_spawn_names_the_cap_and_an_alternative(client: Client, sandbox: Sandbox, path: Path) -> None:
    steps = [tool("spawn_session", prompt="idle about", name=f"broad-{number}") for number in range(6)]
    await client.create(path, script(*steps, {"text": "done"}), name="broad")
    await client.reach("broad", IDLE)

    answers = await tool_results(client, "broad")
    children = [name for name, session in (await sessions(client)).items() if name.startswith("broad-")]
    assert sorted(children) == ["broad-0", "broad-1", "broad-2"]
    assert [("caps.children" in words, "send_message" in words) for words in answers] == [(False, False)] * 3 + [
        (True, True)
    ] * 3
    messages = [event.user_message for event in payloads(await client.log("broad"), "user_message")]
    assert [result.is_error for message in messages for result in message.results] == [False] * 3 + [True] * 3


async def test_an_agent_that_nests_without_end_is_stopped_by_the_depth(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    prompt = "stop here"
    for depth in range(4, 0, -1):
        prompt = script(tool("spawn_session", prompt=prompt, name=f"deep-{depth}"), {"text": "done"})
    await client.create(path, prompt, name="deep-0")
    await client.reach("deep-0", IDLE)
    await client.reach("deep-1", IDLE)
    await client.reach("deep-2", IDLE)

    known = await sessions(client)
    assert sorted(name for name in known if name.startswith("deep-")) == ["deep-0", "deep-1", "deep-2"]
    assert known["deep-2"].parent_id == known["deep-1"].id
    (words,) = await tool_results(client, "deep-2")
    assert "2 deep (caps.depth)" in words
    assert "do this part yourself" in words


async def test_the_size_of_a_tree_counts_those_that_were_removed(client: Client, sandbox: Sandbox, path: Path) -> None:
    lead = await root(client, sandbox, path, "large")
    for number in range(6):
        child = await lead.spawn(name=f"large-{number}")
        request = session_pb2.DeleteSessionRequest(session=child.id, force=True)
        await client.sessions.DeleteSession(request, metadata=client.metadata)

    assert await refusal(lead.spawn()) == (
        "CAP_REACHED",
        "your family has spawned 6 sessions, the maximum (caps.tree)",
    )


async def test_spawns_in_a_minute_are_capped(path: Path) -> None:
    with make_sandbox(config="[caps]\nspawns_per_minute = 2\n") as sandbox, daemon_process(sandbox):
        async with connected(sandbox) as client:
            lead = await root(client, sandbox, sandbox.repository(), "fast")
            child = await lead.spawn()
            grandchild = await Member(client, sandbox, child.id).spawn()
            assert grandchild.parent_id == child.id
            reason, words = await refusal(lead.spawn())
            assert (reason, "caps.spawns_per_minute" in words) == ("CAP_REACHED", True)


async def test_the_same_spawn_asked_twice_makes_one_child(client: Client, sandbox: Sandbox, path: Path) -> None:
    lead = await root(client, sandbox, path, "repeats")
    identity = str(uuid.uuid4())
    first = await lead.spawn("hello", request_id=identity)
    second = await lead.spawn("hello", request_id=identity)
    assert first == second
    assert len([each for each in (await sessions(client)).values() if each.parent_id == lead.id]) == 1


@pytest.mark.parametrize(
    ("mode", "wanted", "reason"),
    [
        (common_pb2.PERMISSION_MODE_DEFAULT, "acceptEdits", "MODE_TOO_LOOSE"),
        (common_pb2.PERMISSION_MODE_ACCEPT_EDITS, "bypassPermissions", "MODE_TOO_LOOSE"),
        (common_pb2.PERMISSION_MODE_PLAN, "dontAsk", "MODE_TOO_LOOSE"),
        (common_pb2.PERMISSION_MODE_DEFAULT, "nonsense", "INVALID_INPUT"),
    ],
)
async def test_a_child_gets_no_looser_mode(
    client: Client, sandbox: Sandbox, path: Path, mode: Any, wanted: str, reason: str
) -> None:
    lead = await root(client, sandbox, path, f"strict-{uuid.uuid4().hex[:6]}", mode=mode)
    assert (await refusal(lead.spawn(mode=wanted)))[0] == reason


async def test_a_child_has_its_parents_mode_and_model_unless_it_is_given_a_stricter_one(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "gives", mode=EDITS, model="haiku")
    same, stricter = await lead.spawn(mode="accept_edits"), await lead.spawn(mode="default", model="opus")
    assert (same.mode, same.model) == (EDITS, "haiku")
    assert (stricter.mode, stricter.model) == (common_pb2.PERMISSION_MODE_DEFAULT, "opus")


async def test_a_childs_budget_is_what_its_parent_has_left_or_the_parents_own(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "rich", budget_usd=1.0)
    reason, words = await refusal(lead.spawn(budget_usd=1.5))
    assert (reason, words) == ("BUDGET_TOO_HIGH", "$1.50 is more than the $1.00 that are left of your budget")
    limited = await lead.spawn(budget_usd=0.5)
    assert (await refusal(Member(client, sandbox, limited.id).spawn(budget_usd=0.75)))[0] == "BUDGET_TOO_HIGH"
    free = await lead.spawn()
    assert not free.HasField("budget_usd")
    assert (await refusal(Member(client, sandbox, free.id).spawn(budget_usd=1.5)))[0] == "BUDGET_TOO_HIGH"


async def test_a_child_owns_only_what_its_parent_owns_and_is_forbidden_what_it_is(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    lead = await root(client, sandbox, path, "owner-of-src", owns=["src/**"], forbids=["secrets/**"])
    for pattern in ("docs/**", "src/../docs/**", "**", "src", "/etc/**"):
        assert (await refusal(lead.spawn(owns=[pattern])))[0] == "PATHS_NOT_OWNED", pattern
    part, whole = await lead.spawn(owns=["src/parser/**"]), await lead.spawn()
    known = {each.id: each for each in (await sessions(client)).values()}
    assert (list(known[part.id].owns), list(known[part.id].forbids)) == (["src/parser/**"], ["secrets/**"])
    assert list(known[whole.id].owns) == ["src/**"]


async def test_a_session_on_the_command_line_makes_children_within_its_caps_only(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    asks = await client.create(
        path, script({"tool": "Bash", "input": {"command": "true", "description": "x"}}), name="asks"
    )
    lead = await client.create(path, name="types")
    token = token_of(sandbox, lead.id)

    def ctl(*arguments: str) -> tuple[int, str]:
        done = sandbox.ctl(*arguments, cwd=path, RAMET_TOKEN=token, RAMET_SESSION=lead.id)
        return done.code, done.stderr

    for arguments in (("approve", asks.id), ("set", "types", "--budget", "1000"), ("rm", "asks")):
        code, words = ctl(*arguments)
        assert (code, "a session may not call" in words, len(words.splitlines())) == (1, True, 1), words
    code, words = ctl("new", "--mode", "bypassPermissions", "x")
    assert (code, "bypassPermissions is looser than your own mode, default" in words) == (1, True), words
    code, words = ctl("new", "--name", "typed", "hello")
    assert code == 0, words
    assert (await client.get("typed")).parent_id == lead.id

    denied = payloads(await client.log("types"), "call_denied")
    assert [event.call_denied.method.rpartition("/")[2] for event in denied] == [
        "ResolveRequest",
        "UpdateSession",
        "DeleteSession",
        "CreateSession",
    ]
    assert {event.principal for event in denied} == {f"session:{lead.id}"}


async def test_tokens_that_are_forged_or_of_a_removed_session_open_nothing(
    client: Client, sandbox: Sandbox, path: Path
) -> None:
    gone = await client.create(path, name="gone")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=gone.id), metadata=client.metadata)
    for token in (token_of(sandbox, gone.id), f"{gone.id}.{'0' * 40}", "nonsense"):
        done = sandbox.ctl("ls", cwd=path, RAMET_TOKEN=token)
        assert (done.code, "RAMET_TOKEN" in done.stderr) == (1, True), done.stderr
