"""The checks of the merge queue: time and place, reports of failures, and interrupted checks."""

from pathlib import Path

from ramet.v1 import attention_pb2

from tests.support.agents import script
from tests.support.daemon import WAITING as SESSION_WAITING
from tests.support.daemon import Client, Sandbox, git
from tests.support.eventually import eventually
from tests.support.family import answer, approve, refusal
from tests.support.landing import CHECKING, HELD, LANDED, REMOVED, RETURNED, Landings, commit, subjects, with_work


async def test_the_one_that_breaks_the_check_is_found_and_goes_back_while_the_others_land(
    client: Client, landings: Landings, repository: Path
) -> None:
    names = ("a", "b", "bad", "c", "d")
    for name in names:
        await with_work(client, repository, name, base_ref="main")
    await landings.land(*names, check=["test ! -e bad.txt || { echo it is bad; exit 3; }"])

    landed = await landings.wait("a", "b", "c", "d")
    assert {each.state for each in landed.values()} == {LANDED}
    returned = await landings.reach("bad", HELD)

    assert returned.reason.startswith("the check fails: code 3")
    assert "; its agent made no new commit; asked its agent 2 times" in returned.reason
    prompts = [event.prompt_queued.prompt for event in await client.log("bad") if event.HasField("prompt_queued")]
    assert prompts[0].source == "daemon"
    assert "it is bad" in prompts[0].text
    assert "git merge main" in prompts[0].text
    assert git(repository, "ls-tree", "--name-only", "main", "--", "bad.txt") == ""


async def test_an_agent_repairs_a_failed_check_and_its_work_lands(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    mend = {"tool": "Bash", "input": {"command": "git rm -q bad.txt && git commit -qm mended", "description": "mend"}}
    (sandbox.root / "advice").write_text(script(mend))
    await with_work(client, repository, "bad", "bad.txt", "good.txt", base_ref="main")

    await landings.land(
        "bad", check=[f"test ! -e bad.txt || {{ cat {sandbox.root / 'advice'}; echo; echo bad; exit 1; }}"]
    )
    await landings.reach("bad", RETURNED)
    await client.reach("bad", SESSION_WAITING)
    await approve(client, "bad")

    landed = (await landings.wait("bad"))["bad"]
    assert (landed.state, landed.returns) == (LANDED, 1)
    assert git(repository, "ls-tree", "--name-only", "main", "--", "bad.txt", "good.txt") == "good.txt"


async def test_a_target_that_moves_while_the_check_runs_is_checked_again_with_what_came(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    await with_work(client, repository, "one", base_ref="main")
    flag, there = sandbox.root / "flag", f"git -C {repository}"
    made = f"$({there} -c user.name=x -c user.email=x commit-tree -p main -m theirs main^{{tree}})"
    meanwhile = f"test -e {flag} || {{ touch {flag}; {there} update-ref refs/heads/main {made}; }}"

    await landings.land("one", check=[meanwhile])

    assert (await landings.wait("one"))["one"].state == LANDED
    assert subjects(repository)[:2] == ["Merge branch 'ramet/one' into main", "theirs"]


async def test_the_check_runs_after_the_setup_with_ports_and_the_target_in_its_environment(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path = sandbox.repository("set-up")
    (path / ".gitignore").write_text("made.txt\n")  # files of a setup are no work of a session
    (path / ".ramet.toml").write_text(
        'setup = "echo ready > made.txt"\n[land]\ncheck = "test -e made.txt && test $RAMET_TARGET = main && test $RAMET_PORT_0 -gt 0"\n'
    )
    git(path, "add", "-A")
    git(path, "commit", "-qm", "settings")
    await with_work(client, path, "one")
    await landings.land("one", check=["test ! -e made.txt"])
    assert (await landings.wait("one"))["one"].state == LANDED, "nothing of an untrusted repository runs"
    await client.trust(path)
    await with_work(client, path, "two")

    (queued,) = await landings.land("two")

    assert len(queued.check) == 1
    assert (await landings.wait("two"))["two"].state == LANDED


async def test_a_landing_withdrawn_during_its_check_leaves_nothing_of_the_check(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    await with_work(client, repository, "slow", base_ref="main")
    pid = sandbox.root / "pid"
    await landings.land("slow", check=[f"echo $$ > {pid}; sleep 600"])
    await landings.reach("slow", CHECKING)
    await eventually(lambda: pid.exists() and pid.read_text().strip())

    removed = await landings.remove("slow")

    assert removed.state == REMOVED
    await eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
    for again in (landings.remove, landings.retry):
        reason, words, *_ = await refusal(again("slow"))
        assert (reason, words) == ("WRONG_STATE", "slow is not in the queue")
    assert subjects(repository)[0] == "second"
    assert await landings.list() == []


async def test_a_check_that_fails_on_the_target_itself_goes_to_a_person(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    repository = sandbox.repository("set-up")
    (repository / ".ramet.toml").write_text('[land]\ncheck = "exit 7"\n')
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "settings")
    await with_work(client, repository, "one")
    await client.trust(repository)

    await landings.land("one")
    held = (await landings.wait("one"))["one"]

    assert (held.state, held.returns) == (HELD, 0)
    assert held.reason.startswith("the check fails on main itself")
    (asked,) = (
        await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    ).requests
    assert asked.kind == attention_pb2.ATTENTION_KIND_LANDING
    await answer(client, asked.id, deny=attention_pb2.Denial(message="not now"))
    assert (await landings.reach("one", REMOVED)).reason == "not now"


async def test_a_sessions_own_check_that_the_target_fails_too_goes_to_its_agent(
    client: Client, landings: Landings, repository: Path
) -> None:
    session = await with_work(client, repository, "one", base_ref="main")

    await landings.land("one", check=["test -f docs/guide.md || { echo no guide; exit 1; }"])
    held = (await landings.wait("one"))["one"]

    assert held.returns == 2, "its agent got it, and did nothing"
    assert (
        "the check fails (and on main without this work): code 1: no guide; its agent made no new commit;"
        " asked its agent 2 times" in held.reason
    )
    prompts = [event.prompt_queued.prompt for event in await client.log("one") if event.HasField("prompt_queued")]
    assert "It fails on main without your work too." in prompts[0].text
    assert "no guide" in prompts[0].text
    commit(session, **{"docs/guide.md": "guide\n"})
    found = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    (request,) = [each for each in found.requests if each.kind == attention_pb2.ATTENTION_KIND_LANDING]
    await approve(client, request.id)
    assert (await landings.wait("one"))["one"].state == LANDED


async def test_a_check_may_do_what_it_likes_in_the_private_worktree(
    client: Client, landings: Landings, repository: Path
) -> None:
    for name in ("one", "two"):
        await with_work(client, repository, name, base_ref="main")
    before = git(repository, "rev-parse", "main")
    spoil = "git checkout -q main && echo spoilt > dir0/file0.txt && touch left.txt && mkdir -p new && touch new/file"

    await landings.land("one", check=[spoil])
    assert (await landings.wait("one"))["one"].state == LANDED
    await landings.land("two", check=["test ! -e left.txt && test ! -e new && git diff --quiet HEAD"])
    assert (await landings.wait("two"))["two"].state == LANDED

    assert git(repository, "diff", "--name-only", before, "main").splitlines() == ["one.txt", "two.txt"]
