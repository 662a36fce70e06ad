"""Plans with a real daemon: checked, and applied completely or not at all."""

from pathlib import Path

import grpc
import pytest
from ramet.v1 import plan_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    QUEUED,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    command_of,
    git,
    reason_of,
)
from tests.support.eventually import eventually
from tests.support.family import write
from tests.support.plans import (
    PARALLEL_SESSIONS,
    actions,
    apply,
    check,
    clean_up,
    of,
    plans,
    prompted,
    refused,
    sessions,
    status,
)


def system_prompts(sandbox: Sandbox) -> dict[str, str]:
    """Return the text that Ramet added to each running agent's system prompt, by worktree."""
    found = {}
    for agent in sandbox.agents():
        argv = command_of(agent)
        if "--append-system-prompt" in argv:
            found[agent.cwd()] = argv[argv.index("--append-system-prompt") + 1]
    return found


async def test_the_plan_of_parallel_sessions_runs_from_check_to_cleanup(client: Client, repository: Path) -> None:
    before = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")
    assert (await check(client, repository, PARALLEL_SESSIONS)).ok

    applied = await apply(client, repository, PARALLEL_SESSIONS)
    assert actions(applied) == [("create", "1"), ("create", "2")]
    await client.reach(of(repository, "extract-auth"), IDLE)

    stands = await status(client, repository)
    assert [(each.thread.id, each.place, each.landed) for each in stands.threads] == [("1", 1, False), ("2", 2, False)]
    assert git(repository, "branch", "--list", "extract-auth")
    converged = await client.plans.ConvergePlan(
        plan_pb2.ConvergePlanRequest(path=str(repository), dry_run=True), metadata=client.metadata
    )
    assert [(step.action, step.base) for step in converged.steps] == [("skipped", "main"), ("skipped", "main")]
    assert converged.failed == 0
    cleaned = await clean_up(client, repository)
    assert [step.removed for step in cleaned.steps] == [False, False]
    assert all("has not landed" in step.reason for step in cleaned.steps)
    assert (git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")) == before


async def test_threads_start_in_order_with_their_place_in_no_file(
    client: Client, running: DaemonProcess, repository: Path
) -> None:
    work = script(write("dir0/new.txt", "x\n"), {"hang": True})
    plan = f"""
        [plan]
        name = "release"
        goal = "Get it out"
        mode = "acceptEdits"
        [[threads]]
        id = "api"
        goal = "The interface"
        {prompted(work)}
        owns = ["dir0/"]
        [[threads]]
        id = "docs"
        goal = "The words"
        owns = ["dir1/"]
        forbids = ["dir2/"]
        after = ["api"]
        budget = 3
    """
    applied = await apply(client, repository, plan)
    api, docs = applied.sessions
    assert docs.after == [api.id]
    assert (api.plan_id, api.thread, docs.thread) == (applied.plan_id, "api", "docs")

    await eventually((Path(api.worktree) / "dir0" / "new.txt").exists)
    assert (await client.get(of(repository, "docs"))).state == QUEUED
    prompts = system_prompts(running.sandbox)[api.worktree]
    for words in ("'release'", "Get it out", "The interface", "`dir0/`", "'docs' owns `dir1/`", "The words"):
        assert words in prompts
    assert "send_message" in prompts
    assert git(Path(api.worktree), "status", "--porcelain") == "?? dir0/new.txt"

    await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session=of(repository, "api")))
    await client.send(of(repository, "api"), script({"text": "done"}))
    await client.reach(of(repository, "docs"), IDLE)
    assert f"git merge {api.branch}" in system_prompts(running.sandbox)[docs.worktree]


async def test_paths_of_a_session_without_a_plan_are_in_its_prompt(
    client: Client, running: DaemonProcess, repository: Path
) -> None:
    alone = await client.create(repository, script({"hang": True}), name="alone", owns=["dir0/"], forbids=["dir1/"])
    plain = await client.create(repository, script({"hang": True}), name="plain")
    await client.reach(of(repository, "alone"), WORKING)
    await client.reach(of(repository, "plain"), WORKING)

    prompts = system_prompts(running.sandbox)
    assert "`dir0/`" in prompts[alone.worktree]
    assert "must not write to these paths: `dir1/`" in prompts[alone.worktree]
    assert plain.worktree not in prompts


async def test_a_plan_with_one_fault_makes_nothing(client: Client, running: DaemonProcess, repository: Path) -> None:
    git(repository, "branch", "taken")
    plan = '[[threads]]\nid = "a"\ngoal = "x"\n[[threads]]\nid = "b"\nbranch = "taken"\n'

    error = await refused(client, repository, plan)

    assert reason_of(error) == "BAD_PLAN"
    assert "line 6: threads[1].branch: branch taken is taken: it exists" in str(error.details())
    assert not await sessions(client, repository)
    assert not await plans(client, repository)
    assert git(repository, "branch", "--format=%(refname:short)").split() == ["main", "taken"]
    assert len(git(repository, "worktree", "list").splitlines()) == 1


async def test_what_only_the_making_finds_leaves_nothing_either(client: Client, repository: Path) -> None:
    # A ref with that name as a directory is no branch, so the check does not find it.
    blocker = repository / ".git" / "refs" / "heads" / "blocked" / "x.lock"
    blocker.parent.mkdir(parents=True)
    blocker.write_text("")
    plan = '[[threads]]\nid = "a"\n[[threads]]\nid = "b"\nbranch = "blocked"\n'

    error = await refused(client, repository, plan)

    assert reason_of(error) in {"GIT_FAILED", "GIT_BUSY", "BRANCH_TAKEN"}
    assert not await sessions(client, repository)
    assert git(repository, "branch", "--format=%(refname:short)").split() == ["main"]
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.own_changes("task.md", "index", "what the index says")
async def test_the_world_is_checked_too(client: Client, repository: Path) -> None:
    (repository / "task.md").write_text("do it\n")
    git(repository, "add", "task.md")
    await client.create(repository, name="there", owns=["dir0/"])
    plan = """\
[plan]
base = "nowhere"
model = "-x"
[[threads]]
id = "a"
name = "there"
owns = ["dir0/file0.txt"]
[[threads]]
id = "b"
base = "main"
model = "haiku"
prompt_file = "task.md"
owns = ["dir1/", "dir0/"]
[[threads]]
id = "c"
prompt_file = "gone.md"
"""
    found = await check(client, repository, plan)

    assert not found.ok
    wrong = {(each.code, each.line) for each in found.problems if each.severity == "error"}
    assert wrong == {
        ("no-base", 2),
        ("bad-model", 3),
        ("name-taken", 6),
        ("overlap-session", 7),
        ("overlap", 13),
        ("overlap-session", 13),
        ("prompt-file", 16),
    }
    assert {each.code for each in found.problems if each.severity == "warning"} == {"no-owns", "no-prompt"}
    overlap = next(each for each in found.problems if each.code == "overlap")
    assert list(overlap.examples) == ["dir0/file0.txt"]
    assert [thread.prompt for thread in found.threads if thread.id == "b"] == ["do it\n"]


async def test_the_same_call_is_one_application(client: Client, repository: Path) -> None:
    plan = 'threads = [{id="a"}, {id="b"}]'
    first = await apply(client, repository, plan, request_id="once")
    again = await apply(client, repository, plan, request_id="once")
    assert first == again
    assert len(await sessions(client, repository)) == 2


async def test_threads_of_one_plan_may_talk(client: Client, running: DaemonProcess, repository: Path) -> None:
    say = {"tool": "mcp__ramet__send_message", "input": {"session": "b", "text": "mind the gap"}}
    plan = f"""
        [[threads]]
        id = "a"
        {prompted(script(say, {"text": "said"}))}
        [[threads]]
        id = "b"
        goal = "listen"
    """
    await apply(client, repository, plan)

    async def heard() -> bool:
        queued = [
            event.prompt_queued.prompt
            for event in await client.log(of(repository, "b"))
            if event.HasField("prompt_queued")
        ]
        return [prompt.text for prompt in queued if prompt.source.startswith("session:")] == ["mind the gap"]

    await eventually(heard)


async def test_plans_are_found_by_name_file_and_id_and_others_are_not(client: Client, repository: Path) -> None:
    one = await apply(client, repository, '[plan]\nname = "one"\n[[threads]]\nid = "a"\n')
    await apply(client, repository, '[[threads]]\nid = "b"\n', file=str(repository / "two.toml"))

    async def found(name: str) -> str:
        request = plan_pb2.GetPlanRequest(plan=name, path=str(repository))
        return (await client.plans.GetPlan(request, metadata=client.metadata)).plan.name

    assert [await found(name) for name in ("one", one.plan_id, str(repository / "two.toml"))] == ["one", "one", "two"]
    for name, reason in (("three", "PLAN_NOT_FOUND"), ("", "AMBIGUOUS")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await found(name)
        assert reason_of(caught.value) == reason
