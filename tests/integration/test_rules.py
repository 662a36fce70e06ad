"""Permission rules with a real daemon: created by answers or by hand, they decide calls before they
run."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import attention_pb2, common_pb2, repo_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, WAITING, Client, DaemonProcess, Sandbox, connected, daemon_process, make_sandbox
from tests.support.family import EDITS, approve, bash, refusal, requests, tool_results, write
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]

ALLOW, ASK, DENY = attention_pb2.RULE_EFFECT_ALLOW, attention_pb2.RULE_EFFECT_ASK, attention_pb2.RULE_EFFECT_DENY
SESSION, ALWAYS = attention_pb2.APPROVAL_SCOPE_SESSION, attention_pb2.APPROVAL_SCOPE_ALWAYS
BYPASS = common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox(config="[permissions]\nallow_bypass = true\n") as sandbox, daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
async def path(client: Client, sandbox: Sandbox) -> Path:
    """Create a repository for each test, as rules apply to a repository."""
    made = sandbox.repository(f"repo-{uuid.uuid4().hex[:6]}")
    await client.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(made)), metadata=client.metadata)
    return made


async def rule(client: Client, path: Path, effect: Any, text: str, **fields: Any) -> attention_pb2.PermissionRule:
    request = attention_pb2.CreateRuleRequest(repo=str(path), effect=effect, rule=text, **fields)
    return (await client.attention.CreateRule(request, metadata=client.metadata)).rule


async def rules(client: Client, path: Path) -> list[attention_pb2.PermissionRule]:
    request = attention_pb2.ListRulesRequest(repo=str(path))
    return list((await client.attention.ListRules(request, metadata=client.metadata)).rules)


async def test_a_rule_for_a_session_holds_in_its_repository(client: Client, path: Path) -> None:
    session = await client.create(path, name=f"s-{path.name}")
    request = attention_pb2.CreateRuleRequest(session=session.name, effect=ASK, rule="Bash(make)")
    made = (await client.attention.CreateRule(request, metadata=client.metadata)).rule
    assert (made.session_id, made.repo) == (session.id, session.repo)


async def test_an_approval_for_the_session_is_not_asked_for_again_in_it(client: Client, path: Path) -> None:
    prompt = script(*(bash("git status") for _ in range(3)), {"text": "done"})
    await client.create(path, prompt, name=f"s-{path.name}")
    await client.reach(f"s-{path.name}", WAITING)
    answered = await approve(client, f"s-{path.name}", scope=SESSION)
    session = await client.reach(f"s-{path.name}", IDLE)

    assert len(await requests(client, session.id, closed=True)) == 1
    (rule,) = await rules(client, path)
    assert (rule.id, rule.session_id, rule.effect) == (answered.rule.id, session.id, ALLOW)
    assert (rule.source, rule.request_id) == ("owner", answered.request.id)
    assert rule.matches == 2
    assert rule.HasField("match_time")

    await client.create(path, script(bash("git status")), name=f"o-{path.name}")
    await client.reach(f"o-{path.name}", WAITING)


async def test_approve_always_holds_for_the_repository_and_after_a_restart(
    running: DaemonProcess, client: Client, path: Path
) -> None:
    await client.create(path, script(bash("git status")), name=f"a-{path.name}")
    await client.reach(f"a-{path.name}", WAITING)
    answered = await approve(client, f"a-{path.name}", scope=ALWAYS)
    assert answered.rule.session_id == ""
    await client.reach(f"a-{path.name}", IDLE)
    running.restart()

    async with connected(running.sandbox) as later:
        await later.create(path, script(bash("git status")), name=f"b-{path.name}")
        await later.reach(f"b-{path.name}", IDLE)
        elsewhere = running.sandbox.repository(f"not-{path.name}")
        await later.create(elsewhere, script(bash("git status")), name=f"c-{path.name}")
        await later.reach(f"c-{path.name}", WAITING)
        (rule,) = await rules(later, path)
        assert rule.matches == 1
        request = attention_pb2.DeleteRuleRequest(rule_id=rule.id)
        await later.attention.DeleteRule(request, metadata=later.metadata)
        assert await rules(later, path) == []
        await later.create(path, script(bash("git status")), name=f"d-{path.name}")
        await later.reach(f"d-{path.name}", WAITING)


async def test_a_rule_that_denies_goes_before_a_mode_that_allows_everything(client: Client, path: Path) -> None:
    await rule(client, path, DENY, "Bash(rm:*)")
    prompt = script(bash("rm -r dir0"), bash("true && rm -r dir0"), bash("touch made"), {"text": "done"})
    await client.create(path, prompt, name=f"bypass-{path.name}", mode=BYPASS)
    session = await client.reach(f"bypass-{path.name}", IDLE)
    assert (Path(session.worktree) / "dir0").exists()
    assert (Path(session.worktree) / "made").exists()
    assert all("Bash(rm:*)" in words for words in (await tool_results(client, session.id))[:2])


async def test_a_rule_that_asks_asks_whatever_the_mode(client: Client, path: Path) -> None:
    await rule(client, path, ASK, "Edit(secrets/**)")
    prompt = script(write("free.txt", "x"), write("secrets/key", "x"), {"text": "done"})
    await client.create(path, prompt, name=f"ask-{path.name}", mode=EDITS)
    waiting = await client.reach(f"ask-{path.name}", WAITING)
    assert (Path(waiting.worktree) / "free.txt").exists()
    assert not (Path(waiting.worktree) / "secrets").exists()
    await approve(client, f"ask-{path.name}")
    await client.reach(f"ask-{path.name}", IDLE)
    assert (Path(waiting.worktree) / "secrets" / "key").exists()


async def test_a_rule_for_one_session_is_gone_with_it(client: Client, path: Path) -> None:
    await client.create(path, name=f"only-{path.name}")
    made = await rule(client, path, ALLOW, "Bash(ls:*)", session=f"only-{path.name}")
    assert [each.id for each in await rules(client, path)] == [made.id]
    request = session_pb2.DeleteSessionRequest(session=f"only-{path.name}", force=True)
    await client.sessions.DeleteSession(request, metadata=client.metadata)
    assert await rules(client, path) == []


@pytest.mark.parametrize(
    "text", ["*", "Bash", "Bash(*)", "Bash(:*)", "Write(/**)", "Edit(../**)", "", "Bash(", "mcp__*"]
)
async def test_a_rule_that_would_allow_everything_or_means_nothing_is_refused(
    client: Client, path: Path, text: str
) -> None:
    await client.create(path, name=f"bad-{path.name}")
    assert (await refusal(rule(client, path, ALLOW, text)))[0] == "BAD_RULE"
    assert await rules(client, path) == []


async def test_an_answer_that_can_make_no_rule_answers_nothing(client: Client, path: Path) -> None:
    prompt = script({"plan": "1. rest"}, {"text": "done"})
    await client.create(path, prompt, name=f"plan-{path.name}", mode=common_pb2.PERMISSION_MODE_PLAN)
    await client.reach(f"plan-{path.name}", WAITING)
    assert await refusal(approve(client, f"plan-{path.name}", scope=ALWAYS)) == (
        "INVALID_INPUT",
        "a plan is answered once",
    )
    assert len(await requests(client, f"plan-{path.name}")) == 1, "the question is still open"
    await approve(client, f"plan-{path.name}")
    await client.reach(f"plan-{path.name}", IDLE)


async def test_many_calls_at_once_are_each_counted(client: Client, path: Path) -> None:
    await client.create(path, name=f"first-{path.name}")
    await rule(client, path, ALLOW, "Bash(git status:*)")
    prompt = script(*(bash("git status") for _ in range(5)), {"text": "done"})
    names = [f"m{number}-{path.name}" for number in range(3)]
    await asyncio.gather(*(client.create(path, prompt, name=name) for name in names))
    for name in names:
        await client.reach(name, IDLE)
    (stored,) = await rules(client, path)
    assert stored.matches == 15
