"""Plans, over the socket of a real daemon: checked, applied, changed, looked at, cleaned up."""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import common_pb2, plan_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import (
    IDLE,
    QUEUED,
    WORKING,
    Client,
    DaemonProcess,
    Sandbox,
    command_of,
    connected,
    daemon_process,
    git,
    make_sandbox,
    reason_of,
)
from tests.support.eventually import eventually

README_PLAN = """\
[[threads]]
id = 1
branch = "extract-auth"
goal = "Move auth middleware out of services/api into services/auth"
owns = ["services/auth/", "tests/auth/"]
forbids = ["services/payments/", "platform/models/"]
merge_order = 1

[[threads]]
id = 2
# ...
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[DaemonProcess]:
    """One daemon for all tests here; each has a repository of its own."""
    with make_sandbox(config="max_working = 50") as sandbox, daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
async def client(shared: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(shared.sandbox) as connection:
        yield connection


@pytest.fixture
def repository(shared: DaemonProcess) -> Path:
    return shared.sandbox.repository(f"r{uuid.uuid4().hex[:8]}")


def of(repository: Path, name: str) -> str:
    return f"{repository.name}/{name}"


async def sessions(client: Client, repository: Path) -> Sequence[session_pb2.Session]:
    request = session_pb2.ListSessionsRequest(repo=repository.name)
    try:
        return (await client.sessions.ListSessions(request, metadata=client.metadata)).sessions
    except grpc.aio.AioRpcError as error:
        if reason_of(error) != "REPO_NOT_FOUND":
            raise
        return ()


async def plans(client: Client, repository: Path) -> list[plan_pb2.Plan]:
    found = (await client.plans.ListPlans(plan_pb2.ListPlansRequest(), metadata=client.metadata)).plans
    return [plan for plan in found if plan.repo == repository.name]


async def check(client: Client, repository: Path, text: str) -> plan_pb2.CheckPlanResponse:
    request = plan_pb2.CheckPlanRequest(path=str(repository), text=text, file=str(repository / "plan.toml"))
    return await client.plans.CheckPlan(request, metadata=client.metadata)


async def apply(client: Client, repository: Path, text: str, **fields: Any) -> plan_pb2.ApplyPlanResponse:
    fields.setdefault("request_id", str(uuid.uuid4()))
    fields.setdefault("file", str(repository / "plan.toml"))
    request = plan_pb2.ApplyPlanRequest(path=str(repository), text=text, **fields)
    return await client.plans.ApplyPlan(request, metadata=client.metadata)


async def refused(client: Client, repository: Path, text: str) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await apply(client, repository, text)
    return caught.value


async def status(client: Client, repository: Path) -> plan_pb2.GetPlanResponse:
    return await client.plans.GetPlan(plan_pb2.GetPlanRequest(path=str(repository)), metadata=client.metadata)


async def clean_up(client: Client, repository: Path, *, dry_run: bool = False) -> plan_pb2.CleanUpPlanResponse:
    request = plan_pb2.CleanUpPlanRequest(path=str(repository), dry_run=dry_run, request_id=str(uuid.uuid4()))
    return await client.plans.CleanUpPlan(request, metadata=client.metadata)


def actions(response: plan_pb2.ApplyPlanResponse) -> list[tuple[str, str]]:
    return [(change.action, change.thread) for change in response.changes]


def write(name: str, text: str) -> dict[str, object]:
    return {"tool": "Write", "input": {"file_path": name, "content": text}}


def prompted(prompt: str) -> str:
    """A prompt as TOML takes it."""
    return f"prompt = '''{prompt}'''"


def system_prompts(sandbox: Sandbox) -> dict[str, str]:
    """By worktree, what each running agent was told beside its own instructions."""
    found = {}
    for agent in sandbox.agents():
        argv = command_of(agent)
        if "--append-system-prompt" in argv:
            found[agent.cwd()] = argv[argv.index("--append-system-prompt") + 1]
    return found


async def test_the_plan_of_parallel_sessions_runs_from_check_to_cleanup(client: Client, repository: Path) -> None:
    before = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")
    assert (await check(client, repository, README_PLAN)).ok

    applied = await apply(client, repository, README_PLAN)
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


async def test_threads_start_in_order_and_are_told_their_place_in_no_file(
    client: Client, shared: DaemonProcess, repository: Path
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
    told = system_prompts(shared.sandbox)[api.worktree]
    for words in ("'release'", "Get it out", "The interface", "`dir0/`", "'docs' owns `dir1/`", "The words"):
        assert words in told
    assert "send_message" in told
    assert git(Path(api.worktree), "status", "--porcelain") == "?? dir0/new.txt"

    await client.sessions.InterruptSession(session_pb2.InterruptSessionRequest(session=of(repository, "api")))
    await client.send(of(repository, "api"), script({"text": "done"}))
    await client.reach(of(repository, "docs"), IDLE, within=30)
    assert f"git merge {api.branch}" in system_prompts(shared.sandbox)[docs.worktree]


async def test_paths_of_a_session_without_a_plan_are_told_too(
    client: Client, shared: DaemonProcess, repository: Path
) -> None:
    alone = await client.create(repository, script({"hang": True}), name="alone", owns=["dir0/"], forbids=["dir1/"])
    plain = await client.create(repository, script({"hang": True}), name="plain")
    await client.reach(of(repository, "alone"), WORKING)
    await client.reach(of(repository, "plain"), WORKING)

    told = system_prompts(shared.sandbox)
    assert "`dir0/`" in told[alone.worktree]
    assert "must not write to these paths: `dir1/`" in told[alone.worktree]
    assert plain.worktree not in told


async def test_a_plan_with_one_fault_makes_nothing(client: Client, shared: DaemonProcess, repository: Path) -> None:
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
    # A ref of that name as a directory is no branch, and so is not found beforehand.
    blocker = repository / ".git" / "refs" / "heads" / "blocked" / "x.lock"
    blocker.parent.mkdir(parents=True)
    blocker.write_text("")
    plan = '[[threads]]\nid = "a"\n[[threads]]\nid = "b"\nbranch = "blocked"\n'

    error = await refused(client, repository, plan)

    assert reason_of(error) in {"GIT_FAILED", "GIT_BUSY", "BRANCH_TAKEN"}
    assert not await sessions(client, repository)
    assert git(repository, "branch", "--format=%(refname:short)").split() == ["main"]
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.own_changes("task.md")
async def test_the_world_is_checked_too(client: Client, repository: Path) -> None:
    (repository / "task.md").write_text("do it\n")
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


async def test_a_changed_plan_says_what_it_changes_and_changes_just_that(client: Client, repository: Path) -> None:
    first = """
        [[threads]]
        id = "a"
        goal = "one"
        owns = ["dir0/"]
        model = "haiku"
        [[threads]]
        id = "b"
        goal = "two"
        owns = ["dir1/"]
        [[threads]]
        id = "c"
        goal = "three"
    """
    made = await apply(client, repository, first)
    for name in "abc":
        await client.reach(of(repository, name), IDLE)
    assert actions(await apply(client, repository, first)) == [("keep", "a"), ("keep", "b"), ("keep", "c")]

    second = f"""
        [[threads]]
        id = "a"
        goal = "one"
        owns = ["dir0/", "new/"]
        budget = 2
        mode = "plan"
        [[threads]]
        id = "b"
        name = "renamed"
        goal = "two"
        {prompted(script({"text": "again"}))}
        owns = ["dir1/"]
        [[threads]]
        id = "d"
        goal = "four"
        after = ["a"]
    """
    expected = [("update", "a"), ("update", "b"), ("prompt", "b"), ("create", "d"), ("drop", "c")]
    foretold = await apply(client, repository, second, dry_run=True)
    assert actions(foretold) == expected
    assert "owns +new/" in foretold.changes[0].message
    assert (await client.get(of(repository, "a"))).owns == ["dir0/"]

    changed = await apply(client, repository, second)
    assert actions(changed) == expected
    assert changed.plan_id == made.plan_id
    a = await client.get(of(repository, "a"))
    assert (a.id, list(a.owns), a.budget_usd, a.model) == (made.sessions[0].id, ["dir0/", "new/"], 2.0, "")
    assert a.mode == common_pb2.PERMISSION_MODE_PLAN
    renamed = await client.get(of(repository, "renamed"))
    assert renamed.id == made.sessions[1].id

    async def given() -> list[str]:
        log = await client.log(of(repository, "renamed"))
        prompts = [event.prompt_queued.prompt for event in log if event.HasField("prompt_queued")]
        assert (await client.get(of(repository, "renamed"))).turns == len(prompts) == 3
        return [prompt.text if prompt.source == "owner" else prompt.source for prompt in prompts]

    assert await eventually(given) == ["two", "daemon", script({"text": "again"})]
    assert (await client.get(of(repository, "c"))).turns == 1
    assert list((await client.get(of(repository, "d"))).after) == [a.id]
    stands = await status(client, repository)
    assert [(each.thread.id, each.landing) for each in stands.threads] == [
        ("a", ""),
        ("b", ""),
        ("d", ""),
        ("c", "dropped from the plan"),
    ]
    # What was dropped comes back as it was left.
    assert actions(await apply(client, repository, second + '[[threads]]\nid = "c"\ngoal = "three"\n')) == [
        ("keep", "a"),
        ("keep", "b"),
        ("keep", "d"),
        ("update", "c"),
    ]


async def test_branch_and_base_of_what_has_begun_stay(client: Client, repository: Path) -> None:
    plan = '[[threads]]\nid = "a"\nbranch = "one"\n[[threads]]\nid = "b"\n'
    await apply(client, repository, plan)

    for changed in (plan.replace("one", "other"), plan.replace('id = "b"', 'id = "b"\nbase = "main"')):
        error = await refused(client, repository, changed + '[[threads]]\nid = "new"\n')
        assert reason_of(error) == "WRONG_STATE"
        assert "cannot be changed" in str(error.details())
    assert len(await sessions(client, repository)) == 2


async def test_a_prompt_that_nobody_has_read_is_replaced(client: Client, repository: Path) -> None:
    plan = """
        threads = [{id="first", prompt='''%s'''}, {id="late", after="first", prompt='''%s'''}]
    """
    hang = script({"hang": True})
    await apply(client, repository, plan % (hang, script({"text": "old"})))
    await client.reach(of(repository, "first"), WORKING)
    await apply(client, repository, plan % (hang, script({"text": "new"})))

    found = await client.sessions.GetSession(
        session_pb2.GetSessionRequest(session=of(repository, "late")), metadata=client.metadata
    )
    assert [prompt.text for prompt in found.pending_prompts] == [script({"text": "new"})]


async def test_a_running_agent_is_told_of_changed_paths(client: Client, repository: Path) -> None:
    plan = f"""
        [[threads]]
        id = "busy"
        {prompted(script({"hang": True}))}
        owns = ["dir0/"]
        [[threads]]
        id = "other"
        owns = ["dir1/"]
    """
    await apply(client, repository, plan)
    await client.reach(of(repository, "busy"), WORKING)
    await apply(client, repository, plan.replace("dir1/", "elsewhere/"))

    async def told() -> bool:
        queued = [
            event.prompt_queued.prompt
            for event in await client.log(of(repository, "busy"))
            if event.HasField("prompt_queued")
        ]
        return queued[-1].source == "daemon" and "'other' owns `elsewhere/`" in queued[-1].text

    await eventually(told)
    assert (await client.get(of(repository, "other"))).state == IDLE


async def test_the_same_call_is_one_application(client: Client, repository: Path) -> None:
    plan = 'threads = [{id="a"}, {id="b"}]'
    first = await apply(client, repository, plan, request_id="once")
    again = await apply(client, repository, plan, request_id="once")
    assert first == again
    assert len(await sessions(client, repository)) == 2


@pytest.mark.own_changes("moved.txt", "dir[01]/*", ".git/*", "index", "what the index says", "HEAD at", "reflog")
async def test_status_counts_what_is_inside_and_outside_and_cleanup_takes_what_has_landed(
    client: Client, repository: Path
) -> None:
    plan = """
        [[threads]]
        id = "lands"
        owns = ["dir0/", "!dir0/not/"]
        [[threads]]
        id = "stays"
        owns = ["dir1/"]
    """
    lands, stays = (await apply(client, repository, plan)).sessions
    tree = Path(lands.worktree)
    (tree / "dir0" / "in.txt").write_text("in\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "inside")
    (tree / "dir0" / "not").mkdir()
    (tree / "dir0" / "not" / "out.txt").write_text("out\n")
    (repository / "moved.txt").write_text("on\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "the target moves")

    stands = (await status(client, repository)).threads[0]
    assert (stands.ahead, stands.behind, stands.dirty, stands.landed) == (1, 1, 1, False)
    assert (list(stands.inside), list(stands.outside)) == (["dir0/in.txt"], ["dir0/not/out.txt"])

    git(repository, "merge", "-q", "--no-edit", lands.branch)
    unfinished = (await clean_up(client, repository)).steps[0]
    assert not unfinished.removed
    assert "not committed" in unfinished.reason
    (tree / "dir0" / "not" / "out.txt").unlink()

    foretold = await clean_up(client, repository, dry_run=True)
    assert [step.removed for step in foretold.steps] == [True, False]
    assert tree.exists()
    cleaned = await clean_up(client, repository)
    assert [step.removed for step in cleaned.steps] == [True, False]
    assert not cleaned.plan_removed
    assert not tree.exists()
    assert not git(repository, "branch", "--list", lands.branch)

    # What has landed is not made again, and is not lost sight of.
    assert actions(await apply(client, repository, plan)) == [("keep", "lands"), ("keep", "stays")]
    assert [each.landed for each in (await status(client, repository)).threads] == [True, False]
    other = Path(stays.worktree)
    (other / "dir1" / "x.txt").write_text("x\n")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "more")
    git(repository, "merge", "-q", "--squash", stays.branch)
    git(repository, "commit", "-qm", "squashed")
    assert (await clean_up(client, repository)).plan_removed
    assert not await plans(client, repository)


async def test_a_session_that_was_removed_by_hand_is_made_again(client: Client, repository: Path) -> None:
    plan = 'threads = [{id="a"}, {id="b"}]'
    await apply(client, repository, plan)
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=of(repository, "a"), force=True))
    assert actions(await apply(client, repository, plan)) == [("create", "a"), ("keep", "b")]


async def test_threads_of_one_plan_may_talk(client: Client, shared: DaemonProcess, repository: Path) -> None:
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


async def test_paths_go_from_one_thread_to_another_and_to_a_new_one(client: Client, repository: Path) -> None:
    plan = 'threads = [{id="a", owns=["dir0/", "dir1/"]}, {id="b", owns=["dir2/"]}]'
    await apply(client, repository, plan)
    await apply(
        client, repository, 'threads = [{id="a", owns=["dir2/"]}, {id="b", owns=["dir1/"]}, {id="c", owns=["dir0/"]}]'
    )
    assert {each.name: list(each.owns) for each in await sessions(client, repository)} == {
        "a": ["dir2/"],
        "b": ["dir1/"],
        "c": ["dir0/"],
    }


@pytest.mark.own_changes("dir[019]/*", ".git/*", "index", "what the index says", "HEAD at", "reflog")
async def test_what_was_merged_in_from_the_target_is_not_a_threads_own(client: Client, repository: Path) -> None:
    made = await apply(client, repository, 'threads = [{id="a", owns=["dir0/"]}, {id="b", owns=["dir1/"]}]')
    tree = Path(made.sessions[0].worktree)
    (tree / "dir0" / "own.txt").write_text("own\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "own")
    for text in ("one", "two"):  # the target goes on after it was merged in
        (repository / "dir1" / "landed.txt").write_text(text)
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", text)
        if text == "one":
            git(tree, "merge", "-q", "--no-edit", "main")
    stands = (await status(client, repository)).threads[0]
    assert (list(stands.inside), list(stands.outside)) == (["dir0/own.txt"], [])


async def test_an_unchanged_plan_is_applied_after_a_path_went_to_a_session_outside_it(
    client: Client, repository: Path
) -> None:
    plan = 'threads = [{id="a", owns=["dir0/"]}, {id="b", owns=["dir1/"]}]'
    made = await apply(client, repository, plan)
    request = session_pb2.UpdateSessionRequest(
        session_id=made.sessions[0].id,
        session=session_pb2.Session(owns=["dir0/", "!dir0/file0.txt"]),
        update_mask=FieldMask(paths=["owns"]),
    )
    await client.sessions.UpdateSession(request, metadata=client.metadata)
    await client.create(repository, name="beside", owns=["dir0/file0.txt"])
    assert actions(await apply(client, repository, plan)) == [("keep", "a"), ("keep", "b")]
    assert list((await client.get(of(repository, "a"))).owns) == ["dir0/", "!dir0/file0.txt"]
