"""The verbs for families, rules, answers and costs with a real daemon and scripted agents."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import TextContent
from ramet.v1 import session_pb2

from tests.support.agents import script
from tests.support.archiving import archive
from tests.support.daemon import IDLE, WAITING, WORKING, Client, Sandbox
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.family import EDITS, bash, token_of, tool
from tests.support.repositories import plain
from tests.support.running import client, sandbox

__all__ = ["client", "sandbox"]


@pytest.fixture
def repository(sandbox: Sandbox) -> Path:
    return sandbox.root / "repo"


async def test_a_message_starts_a_turn_and_is_listed(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, name="hears")
    sent = sandbox.ctl("msg", "hears", script({"text": "heard"}))
    assert (sent.code, sent.stdout) == (0, "hears: sent; it starts a turn\n")
    await client.reach("hears", IDLE)
    assert (await client.get("hears")).turns == 1

    session = await client.create(repository, name="says", parent="hears")
    said = sandbox.ctl("msg", "parent", "all is well", RAMET_TOKEN=token_of(sandbox, session.id))
    assert said.code == 0, said.stderr
    own = sandbox.ctl("messages", "--json", RAMET_TOKEN=token_of(sandbox, session.id)).json
    assert [(each["from_name"], each["to_name"], each["text"]) for each in own] == [("says", "hears", "all is well")]
    assert "says → hears" in sandbox.ctl("messages", "hears").stdout


@pytest.mark.parametrize("kind", ["", "server_error", "authentication_failed"])
async def test_a_wait_exits_with_the_code_of_the_turn_that_it_waits_for(
    client: Client, sandbox: Sandbox, repository: Path, kind: str
) -> None:
    name = f"two-turns-{kind}"
    await client.create(repository, name=name)
    fails = script({"sleep": 1}, {"fail": "broken", "error": kind})
    verbs = (("send", name, fails, "--wait"), ("wait", name))
    first = asyncio.create_task(asyncio.to_thread(sandbox.ctl, *verbs[0]))
    await client.reach(name, WORKING)
    until_idle = asyncio.create_task(asyncio.to_thread(sandbox.ctl, *verbs[1]))
    second = await asyncio.to_thread(sandbox.ctl, "send", name, script({"text": "mended"}), "--wait")

    assert (second.code, "mended" in second.stdout) == (0, True), second
    assert (await client.get(name)).state == IDLE
    for ran in (await first, await until_idle):
        assert (ran.code, "broken" in ran.stderr, "mended" in ran.stdout) == (1, True, False), ran
    assert sandbox.ctl("wait", name).code == 0  # nothing runs any more
    warnings = [event.warning.message for event in await client.log(name) if event.HasField("warning")]
    assert any("is not repeated" in words for words in warnings) == bool(kind)


async def test_an_interrupted_or_withdrawn_prompt_is_not_done(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="cut-off")
    hanging = asyncio.create_task(asyncio.to_thread(sandbox.ctl, "send", "cut-off", script({"hang": True}), "--wait"))
    await client.reach("cut-off", WORKING)
    more = await client.send("cut-off", script({"text": "never"}))
    assert sandbox.ctl("interrupt", "cut-off").code == 0
    ran = await hanging
    assert (ran.code, ran.stderr.splitlines()[0]) == (
        1,
        "rametctl: the turn of cut-off was interrupted; see: rametctl logs cut-off",
    )

    request = session_pb2.WaitSessionsRequest(
        sessions=["cut-off"], condition=session_pb2.WAIT_CONDITION_TURN, prompt_number=more.prompt.number
    )
    answer = await client.sessions.WaitSessions(request)
    assert (answer.outcome, answer.reason) == (session_pb2.WAIT_OUTCOME_FAILED, "the prompt to cut-off was withdrawn")


async def test_an_approval_for_always_is_a_rule_until_it_is_removed(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    work = script(bash("touch it"), bash("touch it"), {"text": "done"})
    await client.create(repository, work, name="asks")
    await client.reach("asks", WAITING)

    approved = sandbox.ctl("approve", "asks", "--always")
    assert "from now on: allow Bash(touch" in approved.stdout, approved
    await client.reach("asks", IDLE)
    (rule,) = sandbox.ctl("rules", "--json", cwd=repository).json
    assert (rule["effect"], rule["session_id"], rule["matches"]) == ("allow", "", 1)
    assert rule["rule"] in sandbox.ctl("rules", cwd=repository).stdout

    removed = sandbox.ctl("rules", "rm", rule["id"][:6], "--json")
    assert [each["id"] for each in removed.json] == [rule["id"]]
    assert sandbox.ctl("rules", "--json", cwd=repository).json == []


async def test_a_rule_created_by_hand_applies_to_one_session(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="ruled")
    made = sandbox.ctl("rules", "add", "Bash(touch:*)", "--session", "ruled", "--json")
    assert made.code == 0, made.stderr
    await client.send("ruled", script(bash("touch it"), {"text": "done"}))
    session = await client.reach("ruled", IDLE)
    assert (Path(session.worktree) / "it").exists()
    assert "session ruled" in sandbox.ctl("rules", cwd=repository).stdout
    refused = sandbox.ctl("rules", "add", "Bash(", "--deny", "--json", cwd=repository)
    assert (refused.code, refused.json["error"]["reason"]) == (2, "BAD_RULE")
    assert sandbox.ctl("rules", "rm", made.json["id"]).code == 0


async def test_an_elicitation_is_answered_and_declined(client: Client, sandbox: Sandbox, repository: Path) -> None:
    schema = {"type": "object", "required": ["region"], "properties": {"region": {"type": "string"}}}
    asked = {"elicit": {"mcp_server_name": "deploy", "message": "Where to?", "requested_schema": schema}}
    await client.create(repository, script(asked, asked, {"text": "done"}), name="elicits")
    await client.reach("elicits", WAITING)
    assert "Where to?" in sandbox.ctl("inbox").stdout
    empty = sandbox.ctl("approve", "elicits", "--json")
    assert (empty.code, empty.json["error"]["reason"]) == (2, "INVALID_INPUT"), "an approval has no region"
    answered = sandbox.ctl("answer", "elicits", "region=eu", "--json")
    assert answered.json["kind"] == "elicitation"
    again = answered.json["id"]

    async def next_one() -> str:
        waiting = sandbox.ctl("inbox", "--json").json
        return next((each["id"] for each in waiting if each["kind"] == "elicitation" and each["id"] != again), "")

    assert sandbox.ctl("deny", await eventually(next_one)).code == 0
    await client.reach("elicits", IDLE)


async def test_a_review_is_closed_or_sent_back(client: Client, sandbox: Sandbox, repository: Path) -> None:
    await client.create(repository, script({"text": "first try"}), name="reviewed")
    await client.reach("reviewed", IDLE)
    assert "first try" in sandbox.ctl("inbox").stdout

    wordless = sandbox.ctl("deny", "reviewed", "--json")
    assert (wordless.code, wordless.json["error"]["reason"]) == (2, "EMPTY_PROMPT")
    sent_back = sandbox.ctl("deny", "reviewed", "-m", script({"text": "second try"}))
    assert "denied by owner" in sent_back.stdout, sent_back

    async def reviewed_again() -> bool:
        waiting = sandbox.ctl("inbox", "--json").json
        return any(each["reason"] == "second try" for each in waiting)

    await eventually(reviewed_again)
    session = await client.get("reviewed")
    assert (session.state, session.turns) == (IDLE, 2)
    assert sandbox.ctl("approve", "reviewed").code == 0
    assert "reviewed" not in sandbox.ctl("inbox").stdout
    audit = sandbox.ctl("log", "reviewed", "--audit").stdout
    assert "owner" in audit


async def test_a_family_is_shown_stopped_and_paid_for(client: Client, sandbox: Sandbox, repository: Path) -> None:
    steps = [
        tool("spawn_session", prompt=script({"text": "ready"}), name="kid", budget_usd=0.5),
        tool("report_result", text="one kid made"),
        {"text": "done"},
    ]
    await client.create(repository, script(*steps), name="lead", mode=EDITS, budget_usd=5)
    await client.reach("lead", IDLE)
    await client.reach("kid", IDLE)

    tree = sandbox.ctl("ls", "--tree", cwd=repository).stdout
    assert "└ kid" in tree
    shown = sandbox.ctl("show", "lead").stdout
    assert "result      one kid made" in shown
    assert "by its descendants, $4." in shown
    assert "parent      lead" in sandbox.ctl("show", "kid").stdout

    alone = sandbox.ctl("stop", "lead")
    assert "kid of its family keep running" in alone.stderr
    both = sandbox.ctl("stop", "lead", "--descendants", "--json")
    assert [each["name"] for each in both.json["descendants"]] == ["kid"]
    assert not (await client.get("kid")).agent_alive

    costs = sandbox.ctl("cost", "--json").json
    spent = {cost["key"]: cost["cost_usd"] for cost in costs}
    assert spent["kid"] > 0
    assert list(spent.values()) == sorted(spent.values(), reverse=True)
    (repo,) = sandbox.ctl("cost", "--by", "repo", "--json").json
    assert (repo["key"], repo["cost_usd"]) == ("repo", pytest.approx(sum(spent.values())))
    for grouping in ("day", "model"):
        assert "total" in sandbox.ctl("cost", "--by", grouping).stdout
    assert sandbox.ctl("set", "lead", "--budget", "none", "--json").json["budget_usd"] is None


async def test_several_are_created_at_once_and_one_waits_for_another(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = sandbox.ctl("new", "--name", "try", "--count", "2", "--json", cwd=repository, stdin=script({"text": "ok"}))
    assert [session["name"] for session in made.json] == ["try-1", "try-2"], made
    again = sandbox.ctl("new", "--name", "try", "--count", "3", "--json", cwd=repository)
    assert (again.code, again.json["error"]["reason"]) == (1, "NAME_TAKEN"), again
    later = sandbox.ctl(
        "new", script({"text": "then"}), "--name", "later", "--after", "try-1", "--wait", cwd=repository
    )
    assert later.code == 0, later
    assert (await client.get("try-1")).turns == 1


@pytest.mark.parametrize(("ls", "inside"), [(("ls", "--all"), False), (("ls",), True)])
async def test_a_watched_list_has_what_a_list_has(
    client: Client, sandbox: Sandbox, repository: Path, ls: tuple[str, ...], inside: bool
) -> None:
    known = {each["name"] for each in sandbox.ctl("ls", "--all", "--json").json}
    if "lost" not in known:
        await client.create(repository, name="lost")
        await client.create(repository, name="filed")
        await archive(client, "filed")
    lost = await client.get("lost")
    tree = Path(lost.worktree)
    tree.rename(tree.with_name("away"))
    more = {"RAMET_TOKEN": token_of(sandbox, lost.id)} if inside else {}
    listed = {each["id"]: each for each in sandbox.ctl(*ls, "--json", cwd=repository, **more).json}
    assert ("filed" in {each["name"] for each in listed.values()}, listed[lost.id]["worktree_gone"]) == (
        not inside,
        True,
    )
    watch = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rametctl", *ls, "--watch", "--json",
        cwd=repository, env=sandbox.environ | more, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert watch.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            shown = [json.loads(await watch.stdout.readline()) for _ in listed]
            assert {each["id"]: each for each in shown} == listed
            tree.with_name("away").rename(tree)  # without an event
            again = json.loads(await watch.stdout.readline())
            assert (again["name"], again["worktree_gone"]) == ("lost", False)
    finally:
        watch.kill()
        await watch.wait()


async def test_an_mcp_client_leads_sessions(client: Client, sandbox: Sandbox, repository: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "rametctl", "mcp"], env=sandbox.environ, cwd=repository
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def use(name: str, /, **arguments: object) -> dict[str, object]:
            result = await session.call_tool(name, arguments)
            (content,) = result.content
            assert isinstance(content, TextContent)
            assert not result.is_error, content.text
            found: dict[str, object] = json.loads(content.text)
            return found

        await use("spawn_session", prompt=script({"text": "made by a client"}), name="remote")
        waited = await use("wait_for_sessions", sessions=["remote"])
        assert waited["done"] is True
        transcript = await use("get_transcript", session="remote")
        assert "made by a client" in str(transcript["text"])
        refused = await session.call_tool("report_result", {"text": "x"})
        assert refused.is_error
    assert (await client.get("remote")).turns == 1


async def test_a_name_of_two_repositories_means_the_one_around_the_caller(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    other = plain(sandbox.root / "other", sandbox.environ, "--initial-branch=main").path
    twins = {
        path: (await client.create(path, script({"text": "done"}), name="twin")).id for path in (repository, other)
    }
    for path in (repository, other):
        await client.reach(twins[path], IDLE)
        assert sandbox.ctl("approve", "twin", "--json", cwd=path).json["session_id"] == twins[path]
    assert sandbox.ctl("approve", "twin", "--json", cwd=sandbox.root).json["error"]["reason"] == "AMBIGUOUS"
    below = other / "below"
    below.mkdir()
    for path, standing in ((repository, repository), (other, below)):
        assert sandbox.ctl("pause", "twin", "--json", cwd=standing).json["id"] == twins[path]
        assert sandbox.ctl("comment", "twin", cwd=standing).code == 0
    refused = sandbox.ctl("pause", "twin", "--json", cwd=sandbox.root)
    assert refused.json["error"]["reason"] == "AMBIGUOUS"
    worktree = Path((await client.get(twins[other])).worktree)
    assert sandbox.ctl("resume", "twin", "--json", cwd=worktree).json["id"] == twins[other]
    for path in (repository, other):
        assert sandbox.ctl("rm", "twin", "--force", cwd=path).code == 0
    for path in (other, repository):  # the second one while its twin is live
        restored = sandbox.ctl("restore", "twin", "--json", cwd=path)
        assert restored.json["id"] == twins[path], restored.stderr
