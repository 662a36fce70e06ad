"""Errors of the model's API: sessions wait and try again; an expired login is one request; the
inbox has sessions that cannot continue."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import attention_pb2, common_pb2, session_pb2
from rametd.services import scheduler
from rametd.services.agents import projection

from tests.support.agents import script
from tests.support.daemon import FAILED, IDLE, PAUSED, QUEUED, Client, Ran, Sandbox, connected, daemon_here
from tests.support.eventually import eventually

pytestmark = pytest.mark.full

NOT_LOGGED_IN = {"fail": "Not logged in · Please run /login", "error": "authentication_failed"}
KINDS = attention_pb2.AttentionKind


@pytest.fixture
async def client(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(scheduler, "LOGIN_LOOK_S", 0.05)
    async with daemon_here(sandbox), connected(sandbox) as connection:
        yield connection


async def ctl(sandbox: Sandbox, *arguments: str, **more: Any) -> Ran:
    """Run `Sandbox.ctl` with a daemon in this loop."""
    return await asyncio.to_thread(partial(sandbox.ctl, *arguments, **more))


async def inbox(client: Client) -> list[attention_pb2.AttentionRequest]:
    answer = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    return list(answer.requests)


@pytest.mark.parametrize(
    ("error", "words"),
    [("server_error", "API Error: 529 Overloaded"), ("server_error", "Connection refused"), ("rate_limit", "429")],
)
async def test_overload_and_lost_connections_are_tried_again(
    client: Client, repository: Path, monkeypatch: pytest.MonkeyPatch, error: str, words: str
) -> None:
    monkeypatch.setattr(projection, "FIRST_RETRY_S", 1.0)
    prompt = script({"fail": words, "error": error, "unless": "$CWD/mended"}, {"text": "done"})
    await client.create(repository, prompt, name="held")
    await client.create(repository, "hello", name="next", after=["held"])
    held = await client.reach("held", PAUSED)
    assert re.match(rf"retries by itself at [\d:]{{8}} \(try 2\): {words}", held.state_reason)
    assert (await client.get("next")).state == QUEUED
    assert await inbox(client) == []

    (Path(held.worktree) / "mended").touch()

    await client.reach("held", IDLE)
    await client.reach("next", IDLE)


async def test_the_rest_between_tries_grows_to_a_limit(
    client: Client, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[tuple[float, float]] = []

    def at_once(low: float, high: float) -> float:
        rests.append((low, high))
        return 0.0

    monkeypatch.setattr(random, "uniform", at_once)
    prompt = script({"fail": "overloaded", "error": "server_error", "unless": "$CWD/mended"}, {"text": "done"})
    await client.create(repository, prompt, name="again")

    async def tried_often() -> bool:
        return len(rests) >= 4

    await eventually(tried_often)  # tries have no limit
    assert (1 - projection.JITTER, 1 + projection.JITTER) in rests
    session = await client.get("again")
    assert session.state != FAILED
    (Path(session.worktree) / "mended").touch()
    await client.reach("again", IDLE)
    expected = [projection.rest_after(tries) for tries in range(1, 9)]
    assert expected == [30, 60, 120, 240, 480, 900, 900, 900]


async def test_an_expired_login_is_one_request_after_which_all_continue(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    prompt = script({**NOT_LOGGED_IN, "unless": str(sandbox.root / "in")}, {"text": "done"})
    for name in ("one", "two"):
        await client.create(repository, prompt, name=name)
    for name in ("one", "two"):
        held = await client.reach(name, PAUSED)
        assert held.state_reason.startswith(
            "claude is not logged in; continues by itself after the login: Not logged in"
        )

    async def asked() -> attention_pb2.AttentionRequest:
        (request,) = await inbox(client)
        return request

    request = await eventually(asked)
    assert request.kind == KINDS.ATTENTION_KIND_LOGIN
    assert json.loads(request.input_json)["command"].endswith("/login")
    await client.create(repository, prompt, name="later")

    async def waits() -> bool:
        later = await client.get("later")
        return (later.state, later.state_reason) == (QUEUED, "waits until claude is logged in")

    await eventually(waits)

    (sandbox.root / "in").touch()
    (sandbox.root / "claude").mkdir(exist_ok=True)
    (sandbox.root / "claude" / ".credentials.json").write_text("{}")

    for name in ("one", "two", "later"):
        await client.reach(name, IDLE)

    async def no_request() -> bool:
        return KINDS.ATTENTION_KIND_LOGIN not in {each.kind for each in await inbox(client)}

    await eventually(no_request)


async def test_an_expired_login_holds_no_session_that_has_its_own_key(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, script({**NOT_LOGGED_IN, "unless": str(sandbox.root / "in")}), name="lapsed")
    await client.reach("lapsed", PAUSED)

    await client.create(repository, "hello", name="own", environment={"ANTHROPIC_API_KEY": "mine"})

    await client.reach("own", IDLE)
    assert (await client.get("lapsed")).state == PAUSED
    assert [each.kind for each in await inbox(client)].count(KINDS.ATTENTION_KIND_LOGIN) == 1


async def test_a_session_continues_with_the_key_of_a_call(client: Client, sandbox: Sandbox, repository: Path) -> None:
    for name in ("one", "two"):
        prompt = script({**NOT_LOGGED_IN, "unless": str(sandbox.root / f"in-{name}")}, {"text": "done"})
        await client.create(repository, prompt, name=name)
    for name in ("one", "two"):
        await client.reach(name, PAUSED)
    (sandbox.root / "in-one").touch()

    await ctl(sandbox, "send", "one", "go on", ANTHROPIC_API_KEY="renewed")

    await client.reach("one", IDLE)
    assert (await client.get("two")).state == PAUSED
    assert [each.session_name for each in await inbox(client) if each.kind == KINDS.ATTENTION_KIND_LOGIN] == ["two"]


async def test_a_resume_of_one_tries_the_login_for_all(client: Client, sandbox: Sandbox, repository: Path) -> None:
    prompt = script({**NOT_LOGGED_IN, "unless": str(sandbox.root / "in")}, {"text": "done"})
    for name in ("one", "two"):
        await client.create(repository, prompt, name=name)
    for name in ("one", "two"):
        await client.reach(name, PAUSED)
    (sandbox.root / "in").touch()

    await client.sessions.ResumeSession(session_pb2.ResumeSessionRequest(session="two"), metadata=client.metadata)

    for name in ("one", "two"):
        await client.reach(name, IDLE)


async def test_the_inbox_has_what_is_stuck_with_its_command_and_an_approval_resumes_it(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, script({"fail": "bad request"}), name="broken")
    await client.reach("broken", FAILED)
    await client.create(
        repository, script({"usage": {"input_tokens": 500_000}, "text": "x"}), name="dear", budget_usd=1
    )
    await client.reach("dear", PAUSED)

    requests = {each.session_name: each for each in await inbox(client)}

    assert {each.kind for each in requests.values()} == {KINDS.ATTENTION_KIND_TROUBLE}
    assert requests["broken"].reason == "failed: bad request"
    assert json.loads(requests["broken"].input_json) == {"command": "rametctl resume broken"}
    assert json.loads(requests["dear"].input_json) == {"command": "rametctl set dear --budget USD"}
    shown = (await ctl(sandbox, "inbox")).stdout
    assert "→ rametctl resume broken" in shown
    assert (await ctl(sandbox, "approve", "broken")).code == 0
    await client.reach("broken", IDLE, FAILED)  # the prompt is quoted, and so the script runs again
    assert {each.session_name for each in await inbox(client)} == {"broken", "dear"}
    assert (await ctl(sandbox, "set", "dear", "--budget", "none")).code == 0
    await client.reach("dear", IDLE)
    assert "dear" not in {
        each.session_name for each in await inbox(client) if each.kind == KINDS.ATTENTION_KIND_TROUBLE
    }


@pytest.mark.parametrize("way", ["archive", "land", "rm"])
async def test_reviews_of_what_was_put_away_are_closed(
    client: Client, sandbox: Sandbox, repository: Path, way: str
) -> None:
    step = {
        "tool": "Bash",
        "input": {
            "command": "git commit -q --allow-empty -m x; echo x > x; git add x; git commit -qm x",
            "description": "x",
        },
    }
    await client.create(
        repository, script(step, {"text": "done"}), name="ends", mode=common_pb2.PERMISSION_MODE_ACCEPT_EDITS
    )
    await client.reach("ends", IDLE, session_pb2.SESSION_STATE_WAITING)
    if (await client.get("ends")).state != IDLE:
        assert (await ctl(sandbox, "approve", "ends")).code == 0
        await client.reach("ends", IDLE)
    assert [each.kind for each in await inbox(client)] == [KINDS.ATTENTION_KIND_REVIEW]

    words = {"rm": ("rm", "ends", "--force"), "land": ("land", "ends")}.get(way, (way, "ends"))
    done = await ctl(sandbox, *words, cwd=repository)
    assert done.code == 0, done.stderr

    async def empty() -> bool:
        assert await inbox(client) == []
        return True

    await eventually(empty)
