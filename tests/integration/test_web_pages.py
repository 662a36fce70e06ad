"""Queue, conflicts, plans, costs, log, trash, upkeep and settings over HTTP, on a running
daemon."""

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from ramet.v1 import plan_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, WORKING, Client, DaemonProcess, connected, daemon_process, make_sandbox
from tests.support.eventually import eventually
from tests.support.running import client, repo_of, sandbox
from tests.support.web import Visitor, visiting

__all__ = ["client", "sandbox"]

PLAN = """
[plan]
name = "release"
[[threads]]
id = "api"
owns = ["src/api/**"]
[[threads]]
id = "<b>web</b>"
name = "web"
owns = ["src/web/**"]
after = ["api"]
"""


@pytest.fixture(scope="module")
def running() -> Iterator[DaemonProcess]:
    with make_sandbox(config="[budget]\nday = 9.5\n") as sandbox, daemon_process(sandbox) as daemon:
        sandbox.repository()
        yield daemon


@pytest.fixture
async def owner(running: DaemonProcess) -> AsyncIterator[Visitor]:
    async with visiting(running.sandbox.environ) as visitor:
        yield visitor


async def fresh(running: DaemonProcess, name: str, prompt: str = "") -> session_pb2.Session:
    async with connected(running.sandbox) as client:
        session = await client.create(repo_of(running), prompt, name=name)
        return await client.reach(session.id, IDLE)


async def shows(owner: Visitor, path: str, *words: str) -> str:
    """Return the page once it has all of ``words``."""

    async def look() -> str:
        answer = await owner.get(path)
        assert answer.status_code == 200, answer.text
        missing = [word for word in words if word not in answer.text]
        assert missing == []
        return answer.text

    page: str = await eventually(look)
    return page


async def did(owner: Visitor, path: str, **values: str) -> str:
    answer = await owner.post(path, values)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["note"])


async def test_conflicts_are_a_matrix_with_the_lines(owner: Visitor, running: DaemonProcess) -> None:
    for name in ("one", "two"):
        session = await fresh(running, name)
        (Path(session.worktree) / "dir0/file0.txt").write_text(f"line one by {name}\nline two\n")
    page = await shows(owner, "/conflicts", "will not merge", "dir0/file0.txt", "same lines: line 1 and line 1")
    assert page.count('aria-label="conflict"') == 2
    for target in re.findall(r'href="#(c-[^"]*)"', page):
        assert f'id="{target}"' in page


async def test_the_queue_shows_what_a_check_writes(owner: Visitor, running: DaemonProcess) -> None:
    session = await fresh(running, "landing")
    (Path(session.worktree) / "new.txt").write_text("new\n")
    gate = running.sandbox.root / "gate"
    check = f"printf '<b>half\\n'; while [ ! -e {gate} ]; do sleep 0.05; done; exit 1"
    await did(owner, f"/sessions/{session.id}/land", message="new", check=check)
    page = await shows(owner, "/queue", "its check runs", "&lt;b&gt;half", "Output of the check")
    (landing,) = re.findall(r"/queue/([^/]*)/retry", page)
    assert "removed from the queue" in await did(owner, f"/queue/{landing}/remove")
    gate.touch()
    # The output of an ended check stays, folded.
    await shows(owner, "/queue", "removed", "<details><summary>Output of the check", "&lt;b&gt;half")


async def contest(running: DaemonProcess, client: Client, name: str, check: str) -> list[session_pb2.Session]:
    """Create two contenders that have each ended a turn, the second with a separate file."""
    request = session_pb2.CreateSessionRequest(
        path=str(repo_of(running)), prompt=script({"text": "**Done** <i>so</i>"}), name=name, contenders=["", ""],
        check=check,
    )  # fmt: skip
    made = (await client.sessions.CreateSession(request, metadata=client.metadata)).contenders
    ended = [await client.reach(each.id, IDLE) for each in made]
    (Path(ended[1].worktree) / "<b>new.txt").write_text("new\n")
    return ended


async def test_a_contest_is_compared_checked_and_decided(
    owner: Visitor, running: DaemonProcess, client: Client
) -> None:
    one, other = await contest(running, client, "race", "echo '<b>looked</b>'; test -e '<b>new.txt'")
    page = await shows(owner, "/contest/race", "1 file +1 −0", "not run", "<strong>Done</strong>", "&lt;i&gt;so")
    assert "<i>so" not in page
    assert f'href="/contest/race?repo={one.repo_id}"' in await shows(owner, "/", "Contests:")
    assert "Contest race" in (await owner.get(f"/sessions/{one.id}")).text
    await shows(owner, "/inbox", "<strong>Done</strong>")

    assert await did(owner, "/contest/race/check", repo=one.repo_id) == "checking 2 of 2"
    await shows(owner, "/contest/race", "passed", "failed (code 1)", "&lt;b&gt;looked")
    answer = await owner.get(f"/contest/race/diff?a={one.id}&b={other.id}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sessions/{other.id}/review?against={one.id}")
    await shows(owner, answer.headers["location"], "race-1", "&lt;b&gt;new.txt")
    assert (await owner.get(f"/contest/race/diff?a={one.id}&b={one.id}")).status_code == 404
    assert "race-judge reads the changes" in await did(owner, "/contest/race/judge", repo=one.repo_id)
    page = await shows(owner, "/contest/race", "the choice is yours")
    dialogs = re.findall(r'<dialog id="p-.*?</dialog>', page, re.DOTALL)
    assert ["race-judge" in each and "advice of an agent" in each for each in dialogs] == [True, True]

    refused = await owner.post(f"/sessions/{other.id}/pick", {"land": "1"})
    assert (refused.status_code, "uncommitted work" in refused.text) == (409, True), refused.text
    assert (await client.get(one.id)).state == IDLE, "nothing is archived if the landing is refused"
    picked = await did(owner, f"/sessions/{other.id}/pick", land="1", message="Add it")
    assert picked == "picked race-2; archived race-1, race-judge; queued to land"
    await shows(owner, "/queue", "race-2", "landed")
    assert "Contests:" not in await shows(owner, "/", "race-2")
    assert (await owner.get("/contest/none")).status_code == 404


async def test_a_pick_names_those_that_work_until_it_may_stop_them(
    owner: Visitor, running: DaemonProcess, client: Client
) -> None:
    one, other = await contest(running, client, "slow", "")
    prompt = session_pb2.SendPromptRequest(session=other.id, prompt=script({"hang": True}))
    await client.sessions.SendPrompt(prompt, metadata=client.metadata)
    await client.reach(other.id, WORKING)
    await shows(owner, "/contest/slow", "Interrupt those that are still working: slow-2")
    refused = await owner.post(f"/sessions/{one.id}/pick")
    assert (refused.status_code, "slow-2 (working)" in refused.text) == (409, True)
    assert await did(owner, f"/sessions/{one.id}/pick", stop="1") == "picked slow-1; archived slow-2"


async def test_a_session_is_forked(owner: Visitor, running: DaemonProcess) -> None:
    session = await fresh(running, "source", "hello")
    answer = await owner.post(f"/sessions/{session.id}/fork", {"prompt": "go on", "name": "copy"})
    assert answer.status_code == 200, answer.text
    await shows(owner, answer.json()["go"], "copy", "go on")
    refused = await owner.post(f"/sessions/{session.id}/fork", {"prompt": "go on", "agent": "no-such"})
    assert refused.status_code == 409


async def test_a_plan_is_a_graph_with_the_paths_of_its_threads(
    owner: Visitor, running: DaemonProcess, client: Client
) -> None:
    assert "No plans are applied" in (await owner.get("/plans")).text
    repo = repo_of(running)
    text = PLAN.replace("<b>web</b>", "web")
    request = plan_pb2.ApplyPlanRequest(
        path=str(repo), text=text, file=str(repo / "plan.toml"), request_id=str(uuid.uuid4())
    )
    await client.plans.ApplyPlan(request)
    page = await shows(owner, "/plans", "src/api/**", "src/web/**", 'aria-label="Threads of release"')
    assert (page.count('class="edge"'), page.count('class="box"')) == (1, 2)


async def test_costs_are_charts_with_the_budget(owner: Visitor, running: DaemonProcess) -> None:
    await fresh(running, "spender", 'DO:[{"text": "done"}]')
    page = await shows(owner, "/costs", "budget $9.50", "spender", ">repo</text>", "claude")
    assert page.count("<svg") == 4


async def test_the_log_names_the_actor_of_each_action(owner: Visitor, running: DaemonProcess) -> None:
    session = await fresh(running, "told", 'DO:[{"text": "<i>hello</i>"}]')
    assert "&lt;i&gt;hello" in await shows(owner, f"/log?session={session.id}", "turn_ended")
    audit = await shows(owner, f"/log?session={session.id}&audit=1", "by you", "prompt_queued")
    assert "turn_ended" not in audit


async def test_what_was_removed_is_restored_or_deleted_for_good(owner: Visitor, running: DaemonProcess) -> None:
    for name in ("back", "away"):
        session = await fresh(running, name)
        await did(owner, f"/sessions/{session.id}/remove")
        await shows(owner, "/trash", f"/{session.id}/restore", name)
        if name == "back":
            assert "back is restored" in await did(owner, f"/trash/{session.id}/restore")
            assert (await owner.get(f"/sessions/{session.id}")).status_code == 200
        else:
            assert "deleted away" in await did(owner, f"/trash/{session.id}/forget")
            await shows(owner, "/trash", "The trash is empty")


async def test_a_checkpoint_is_created_shown_and_rewound_to(owner: Visitor, running: DaemonProcess) -> None:
    session = await fresh(running, "kept")
    where = f"/sessions/{session.id}/checkpoints"
    file = Path(session.worktree) / "a.txt"
    file.write_text("one\n")
    await did(owner, where)
    (Path(session.worktree) / "b.txt").write_text("b\n")
    made = int((await did(owner, where)).removeprefix("checkpoint "))
    file.write_text("two\n")
    page = await shows(owner, where, f"/review?against={made - 1}&amp;until={made}")
    await shows(owner, f"/sessions/{session.id}/review?against={made - 1}&until={made}", "1 file", "b.txt")
    assert "undoes it" in await did(owner, f"{where}/{made}/rewind", files="1")
    assert file.read_text() == "one\n"
    guest = owner.link(session=session.id)
    assert "/rewind" not in (await guest.get(where)).text
    assert "/rewind" in page
    assert (await guest.get("/log")).status_code == 403


async def test_upkeep_finds_and_repairs_and_settings_are_shown(owner: Visitor) -> None:
    page = await shows(owner, "/upkeep", "Doctor", "Clean up")
    assert "kept" in page
    assert "repaired" in await did(owner, "/upkeep/fix")
    assert "removed" in await did(owner, "/upkeep/collect")
    await shows(owner, "/settings", "budget.day", "9.5", "owner")


async def test_a_page_that_needs_the_daemon_waits_for_it(owner: Visitor, running: DaemonProcess) -> None:
    running.kill()
    await owner.site.link.close()  # or calls on the broken channel would wait for the next daemon
    away = await owner.get("/upkeep")
    assert (away.status_code, "The daemon does not answer" in away.text) == (503, True)
    assert '<meta http-equiv="refresh" content="2">' in away.text
    running.start()
    await eventually(lambda: owner.site.view.outage is None)
    await shows(owner, "/upkeep", "Doctor")
