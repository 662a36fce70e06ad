"""Plans that are applied again: exactly the differences are announced and applied."""

from pathlib import Path

from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import common_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, WORKING, Client, reason_of
from tests.support.eventually import eventually
from tests.support.plans import actions, apply, of, prompted, refused, sessions, status


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
    # A dropped thread that returns keeps its session.
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


async def test_an_unread_prompt_is_replaced(client: Client, repository: Path) -> None:
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


async def test_a_running_agent_gets_its_changed_paths(client: Client, repository: Path) -> None:
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

    async def has_new_briefing() -> bool:
        queued = [
            event.prompt_queued.prompt
            for event in await client.log(of(repository, "busy"))
            if event.HasField("prompt_queued")
        ]
        return queued[-1].source == "daemon" and "'other' owns `elsewhere/`" in queued[-1].text

    await eventually(has_new_briefing)
    assert (await client.get(of(repository, "other"))).state == IDLE


async def test_a_session_that_was_removed_by_hand_is_created_again(client: Client, repository: Path) -> None:
    plan = 'threads = [{id="a"}, {id="b"}]'
    await apply(client, repository, plan)
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=of(repository, "a"), force=True))
    assert actions(await apply(client, repository, plan)) == [("create", "a"), ("keep", "b")]


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
