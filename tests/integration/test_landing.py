"""The merge queue: what lands, in which order, what comes back, and that nobody's checkout is touched but by git's own fast-forward."""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import attention_pb2, repo_pb2, session_pb2

from tests.support.agents import script
from tests.support.daemon import IDLE, Client, Sandbox, connected, daemon_here, git, reason_of
from tests.support.daemon import WAITING as SESSION_WAITING
from tests.support.eventually import eventually
from tests.support.landing import (
    CHECKING,
    HELD,
    LANDED,
    QUEUED,
    REMOVED,
    RETURNED,
    WAITING,
    Landings,
    commit,
    moves,
    subjects,
    with_work,
)

Untouched = Callable[[Path], None]


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


@pytest.fixture
def landings(client: Client) -> Landings:
    return Landings(client)


@pytest.fixture
def repository(sandbox: Sandbox, untouched: Untouched) -> Path:
    """Its owner works on a branch of their own, with changes of every kind; none of it is ever anybody else's business."""
    path = sandbox.repository()
    (path / ".gitignore").write_text("*.secret\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "second")
    git(path, "checkout", "-qb", "mine")
    (path / "stashed.txt").write_text("for later\n")
    git(path, "stash", "push", "-qu")
    (path / "dir0" / "file0.txt").write_text("changed\n")
    (path / "staged.txt").write_text("staged\n")
    git(path, "add", "staged.txt")
    (path / "untracked.txt").write_text("untracked\n")
    (path / "key.secret").write_text("ignored\n")
    untouched(path)
    return path


async def refusal(call: object) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return reason_of(caught.value), caught.value.details() or ""


async def resolve(client: Client, request: str, **decision: Any) -> None:
    resolution = attention_pb2.Resolution(**decision)
    await client.attention.ResolveRequest(
        attention_pb2.ResolveRequestRequest(request=request, resolution=resolution), metadata=client.metadata
    )


@pytest.mark.parametrize("method", ["merge", "squash", "rebase"])
async def test_what_is_landed_is_on_the_target_by_the_method_that_was_asked_for(
    client: Client, landings: Landings, repository: Path, method: str
) -> None:
    session = await with_work(client, repository, "one", base_ref="main")
    commit(session, **{"more.txt": "more\n"})

    await landings.land("one", method=method)
    landed = (await landings.wait("one"))["one"]

    assert landed.state == LANDED, landed.reason
    assert landed.new_target == git(repository, "rev-parse", "main")
    assert git(repository, "show", "main:one.txt") == "one"
    assert git(repository, "show", "main:more.txt") == "more"
    expected = {
        "merge": ["Merge branch 'ramet/one' into main", "second", "first"],
        "squash": ["one", "second", "first"],
        "rebase": ["work of one", "work of one", "second", "first"],
    }
    assert subjects(repository) == expected[method]
    assert git(repository, "log", "-1", "--format=%an <%ae>, %cn", "main") == "A Person <person@example.org>, A Person"
    assert "Ramet-Session" in git(repository, "log", "-1", "--format=%B", "main") or method == "rebase"
    assert (await client.get("one")).landed_reason == f"landed on main as {landed.new_target[:12]}"
    assert moves(repository) == 2, "one for the repository's second commit, one for this"


async def test_several_are_checked_together_and_land_in_their_order(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    for name in ("one", "two", "three"):
        await with_work(client, repository, name, base_ref="main")
    runs = sandbox.root / "runs"

    queued = await landings.land("one", "two", "three", check=[f"cat one.txt two.txt three.txt >> {runs}"])
    landed = await landings.wait(*(each.id for each in queued))

    assert [each.place for each in queued] == [1, 2, 3]
    assert {each.state for each in landed.values()} == {LANDED}
    assert runs.read_text() == "one\ntwo\nthree\n"
    assert subjects(repository)[:3] == [f"Merge branch 'ramet/{name}' into main" for name in ("three", "two", "one")]
    events = [event.target_moved for event in await client.log() if event.HasField("target_moved")]
    assert [len(event.landing_ids) for event in events] == [3]


async def test_one_that_is_to_land_after_another_waits_for_it(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "first", base_ref="main")
    await with_work(client, repository, "second", base_ref="main", after=["first"])

    await landings.land("second")
    await landings.reach("second", WAITING, "first is to land first")
    await landings.land("first")

    assert {each.state for each in (await landings.wait("first", "second")).values()} == {LANDED}
    assert subjects(repository)[0] == "Merge branch 'ramet/second' into main"


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

    assert returned.reason.startswith(
        "its agent has ended the turn without a new commit; before: the check fails: code 3"
    )
    prompts = [event.prompt_queued.prompt for event in await client.log("bad") if event.HasField("prompt_queued")]
    assert prompts[0].source == "daemon"
    assert "it is bad" in prompts[0].text
    assert "git merge main" in prompts[0].text
    assert git(repository, "ls-tree", "--name-only", "main", "--", "bad.txt") == ""


async def test_what_fails_its_check_is_mended_by_its_agent_and_lands_by_itself(
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
    await resolve(client, "bad", approve=attention_pb2.Approval())

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


async def test_work_that_cannot_be_replayed_is_told_which_files_and_to_rebase(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "one", "shared.txt", "other.txt", base_ref="main")
    two = await with_work(client, repository, "two", "shared.txt", base_ref="main")
    await landings.land("one", method="rebase")
    await landings.wait("one")
    await landings.land("two", method="rebase")

    assert (await landings.reach("two", HELD)).returns == 2
    prompts = [event.prompt_queued.prompt for event in await client.log("two") if event.HasField("prompt_queued")]
    assert "  shared.txt\n" in prompts[0].text
    assert "git rebase main" in prompts[0].text
    assert git(Path(two.worktree), "status", "--porcelain") == ""
    assert subjects(repository)[0] == "work of one"


async def test_the_check_runs_after_the_setup_with_ports_and_the_target_in_its_environment(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path = sandbox.repository("set-up")
    (path / ".gitignore").write_text("made.txt\n")  # what a setup makes is no work of a session's
    (path / ".ramet.toml").write_text(
        'setup = "echo ready > made.txt"\n[land]\ncheck = "test -e made.txt && test $RAMET_TARGET = main && test $RAMET_PORT_0 -gt 0"\n'
    )
    git(path, "add", "-A")
    git(path, "commit", "-qm", "settings")
    await with_work(client, path, "one")
    await landings.land("one", check=["test ! -e made.txt"])
    assert (await landings.wait("one"))["one"].state == LANDED, "nothing of a repository runs that is not trusted"
    request = repo_pb2.UpdateRepoRequest(repo_id="set-up", repo=repo_pb2.Repo(trusted=True))
    request.update_mask.paths.append("trusted")
    await client.repos.UpdateRepo(request, metadata=client.metadata)
    await with_work(client, path, "two")

    (queued,) = await landings.land("two")

    assert len(queued.check) == 1
    assert (await landings.wait("two"))["two"].state == LANDED


async def test_what_conflicts_goes_to_its_agent_and_then_to_a_person_and_lands_when_it_is_mended(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    await with_work(client, repository, "one", "shared.txt", base_ref="main")
    two = await with_work(client, repository, "two", "shared.txt", base_ref="main")
    await landings.land("one", "two")
    returned = await landings.reach("two", RETURNED, "shared.txt")
    assert returned.returns == 1

    # The scripted agent says something, and commits nothing, in both of its turns.
    await client.reach("two", IDLE)
    held = await landings.reach("two", HELD, "without a new commit")
    assert held.returns == 2
    git(Path(two.worktree), "merge", "-q", "-X", "ours", "main")
    await landings.retry("two")

    assert (await landings.wait("two"))["two"].state == LANDED
    assert git(repository, "show", "main:shared.txt") == "two"


async def test_a_checkout_of_the_target_is_fast_forwarded_by_git_and_one_with_changes_in_the_way_is_waited_for(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path = sandbox.repository("own")
    (path / "dir0" / "file0.txt").write_text("mine\n")
    (path / "untracked.txt").write_text("untracked\n")
    (path / "taken.txt").write_text("not git's\n")
    await with_work(client, path, "apart")
    await with_work(client, path, "same", "dir0/file0.txt")
    await with_work(client, path, "taken")

    await landings.land("same", "apart", "taken")
    await landings.reach("apart", LANDED)
    await landings.reach("same", WAITING, f"changes in {path}: dir0/file0.txt")
    await landings.reach("taken", WAITING, "taken.txt")

    assert (path / "apart.txt").read_text() == "apart\n"
    assert (path / "dir0" / "file0.txt").read_text() == "mine\n"
    assert (path / "taken.txt").read_text() == "not git's\n"
    assert git(path, "status", "--porcelain").splitlines() == ["M dir0/file0.txt", "?? taken.txt", "?? untracked.txt"]
    git(path, "checkout", "-q", "--", "dir0/file0.txt")
    (path / "taken.txt").unlink()

    assert {each.state for each in (await landings.wait("same", "taken")).values()} == {LANDED}
    assert (path / "dir0" / "file0.txt").read_text() == "same\n"
    assert git(path, "status", "--porcelain") == "?? untracked.txt"


async def test_a_checkout_in_the_middle_of_a_merge_is_waited_for(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path = sandbox.repository("own")
    await with_work(client, path, "one")
    git(path, "branch", "side")
    git(path, "commit", "-q", "--allow-empty", "-m", "on main")
    git(path, "checkout", "-q", "side")
    git(path, "commit", "-q", "--allow-empty", "-m", "on side")
    git(path, "checkout", "-q", "main")
    git(path, "merge", "-q", "--no-ff", "--no-commit", "side")

    await landings.land("one")
    await landings.reach("one", WAITING, f"a merge is under way in {path}")
    git(path, "commit", "-qm", "merged by hand")

    assert (await landings.wait("one"))["one"].state == LANDED
    assert subjects(path)[:2] == ["Merge branch 'ramet/one' into main", "merged by hand"]


async def test_what_cannot_be_landed_is_refused_before_anything_is_done(
    client: Client, landings: Landings, repository: Path
) -> None:
    session = await with_work(client, repository, "works", base_ref="main")
    await client.create(repository, name="fresh", base_ref="main")
    git(repository, "branch", "followed", "main")
    git(repository, "remote", "add", "origin", str(repository))
    git(repository, "config", "branch.followed.remote", "origin")
    git(repository, "config", "branch.followed.merge", "refs/heads/main")

    assert (await refusal(landings.land("fresh")))[0] == "WRONG_STATE"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await landings.land("works", target="followed")
    assert reason_of(caught.value) == "PROTECTED_BRANCH"
    hint = str(dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"])
    assert all(way in hint for way in ("rametctl pr create works", "protected = []", "daemon restart")), hint
    assert (await refusal(landings.land("works", target="nowhere")))[0] == "REF_NOT_FOUND"
    assert (await refusal(landings.land("works", target=session.branch)))[0] == "INVALID_INPUT"
    assert (await refusal(landings.land("works", method="octopus")))[0] == "INVALID_INPUT"
    assert (await refusal(landings.land("works", check=[" "])))[0] == "INVALID_INPUT"
    assert (await refusal(landings.land("works", "nobody")))[0] == "SESSION_NOT_FOUND"
    assert (await refusal(landings.land()))[0] == "INVALID_INPUT"
    assert (await refusal(landings.wait("works")))[0] == "LANDING_NOT_FOUND"
    (Path(session.worktree) / "loose.txt").write_text("loose\n")
    reason, words = await refusal(landings.land("works"))
    assert (reason, "loose.txt" in words) == ("WRONG_STATE", True)
    assert await landings.list(include_ended=True) == []
    git(repository, "remote", "remove", "origin")

    await landings.land("works", commit_message="the rest")
    assert (await landings.wait("works"))["works"].state == LANDED
    assert git(repository, "show", "main:loose.txt") == "loose"
    assert git(repository, "log", "-1", "--format=%an: %s", session.branch) == "A Person: the rest"


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (("merge", "other"), "a merge"),
        (("rebase", "other"), "a rebase"),
        (("cherry-pick", "other"), "a cherry-pick"),
        (("revert", "--no-edit", "HEAD~1"), "a revert"),
        # The entries of a conflict without anything that is under way, as `git stash pop` leaves them.
        (("read-tree", "-m", "HEAD~1", "HEAD", "other"), "conflicts are not resolved"),
    ],
)
async def test_nothing_is_committed_in_the_middle_of_a_merge_or_the_like(
    client: Client, landings: Landings, repository: Path, begin: tuple[str, ...], what: str
) -> None:
    session = await with_work(client, repository, "works", base_ref="main")
    tree = Path(session.worktree)
    git(tree, "checkout", "-q", "-b", "other", "main")
    commit(session, **{"both.txt": "theirs\n"})
    git(tree, "checkout", "-q", session.branch)
    commit(session, **{"both.txt": "ours\n"})
    commit(session, **{"both.txt": "ours again\n"})
    tip = git(tree, "rev-parse", "HEAD")
    with suppress(subprocess.CalledProcessError):  # it stops at a conflict
        git(tree, *begin)
    (tree / "loose.txt").write_text("loose\n")

    reason, words = await refusal(landings.land("works", commit_message="the rest"))

    assert (reason, what in words) == ("WRONG_STATE", True), words
    assert git(repository, "rev-parse", session.branch) == tip
    assert await landings.list(include_ended=True) == []


async def test_a_session_at_work_is_waited_for(client: Client, landings: Landings, repository: Path) -> None:
    ask = {"tool": "Bash", "input": {"command": "true", "description": "x"}}
    session = await client.create(repository, script(ask), name="busy", base_ref="main")
    await client.reach("busy", SESSION_WAITING)
    commit(session, **{"busy.txt": "busy\n"})

    await landings.land("busy")
    await landings.reach("busy", WAITING, "its agent is at work")
    await resolve(client, "busy", approve=attention_pb2.Approval())

    assert (await landings.wait("busy"))["busy"].state == LANDED


async def test_an_entry_can_be_taken_out_while_it_is_checked_and_nothing_of_the_check_is_left(
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
    assert (await refusal(landings.remove("slow")))[0] == "WRONG_STATE"
    assert (await refusal(landings.retry("slow")))[0] == "WRONG_STATE"
    assert subjects(repository)[0] == "second"
    assert await landings.list() == []


async def test_a_repositorys_check_that_fails_on_the_target_itself_is_nobodys_fault_but_a_persons_matter(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    repository = sandbox.repository("set-up")
    (repository / ".ramet.toml").write_text('[land]\ncheck = "exit 7"\n')
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "settings")
    await with_work(client, repository, "one")
    trust = repo_pb2.UpdateRepoRequest(repo_id="set-up", repo=repo_pb2.Repo(trusted=True))
    trust.update_mask.paths.append("trusted")
    await client.repos.UpdateRepo(trust, metadata=client.metadata)

    await landings.land("one")
    held = (await landings.wait("one"))["one"]

    assert (held.state, held.returns) == (HELD, 0)
    assert held.reason.startswith("the check fails on main itself")
    (asked,) = (
        await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    ).requests
    assert asked.kind == attention_pb2.ATTENTION_KIND_LANDING
    await resolve(client, asked.id, deny=attention_pb2.Denial(message="not now"))
    assert (await landings.reach("one", REMOVED)).reason == "not now"


async def test_a_check_of_its_own_that_the_target_fails_too_goes_back_to_the_agent_which_may_bring_what_it_asks_for(
    client: Client, landings: Landings, repository: Path
) -> None:
    session = await with_work(client, repository, "one", base_ref="main")

    await landings.land("one", check=["test -f docs/guide.md || { echo no guide; exit 1; }"])
    held = (await landings.wait("one"))["one"]

    assert held.returns == 2, "its agent had it, and did nothing"
    assert (
        "before: the check fails (and on main without this work): code 1: no guide; its agent had it 2" in held.reason
    )
    prompts = [event.prompt_queued.prompt for event in await client.log("one") if event.HasField("prompt_queued")]
    assert "It fails on main without your work too." in prompts[0].text
    assert "no guide" in prompts[0].text
    commit(session, **{"docs/guide.md": "guide\n"})
    await landings.retry("one")
    assert (await landings.wait("one"))["one"].state == LANDED


async def test_an_approved_entry_is_tried_again(client: Client, landings: Landings, repository: Path) -> None:
    await with_work(client, repository, "one", base_ref="main")
    flag = repository.parent / "flag"
    await landings.land("one", check=[f"test -e {flag}"])
    await landings.reach("one", HELD)
    flag.touch()

    found = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(), metadata=client.metadata)
    (request,) = [each for each in found.requests if each.kind == attention_pb2.ATTENTION_KIND_LANDING]
    await resolve(client, request.id, approve=attention_pb2.Approval())

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


async def test_a_session_that_is_removed_leaves_its_queue(client: Client, landings: Landings, repository: Path) -> None:
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING)

    await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session=second.id, force=True), metadata=client.metadata
    )

    assert (await landings.reach("second", REMOVED)).reason == "its session was removed"
    assert QUEUED not in {each.state for each in await landings.list()}


async def test_a_session_that_is_removed_while_its_check_runs_does_not_land_and_the_check_ends(
    client: Client, landings: Landings, repository: Path, sandbox: Sandbox
) -> None:
    session = await with_work(client, repository, "slow", base_ref="main")
    await with_work(client, repository, "other", base_ref="main")
    pid = sandbox.root / "pid"
    await landings.land("slow", check=[f"echo $$ > {pid}; sleep 600"])
    await landings.reach("slow", CHECKING)
    await eventually(lambda: pid.exists() and pid.read_text().strip())

    request = session_pb2.DeleteSessionRequest(session=session.id, force=True)
    removed = await client.sessions.DeleteSession(request, metadata=client.metadata)

    assert removed.landing_target == "main"
    (entry,) = await landings.list(include_ended=True)
    assert (entry.state, entry.reason) == (REMOVED, "its session was removed")
    await eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
    await landings.land("other")
    assert (await landings.wait("other"))["other"].state == LANDED
    assert subjects(repository)[:2] == ["Merge branch 'ramet/other' into main", "second"]


async def test_a_session_that_is_archived_in_the_queue_lands_from_its_branch(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING, "first is to land first")
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=second.id), metadata=client.metadata)

    await landings.land("first")

    assert (await landings.wait(*(each.id for each in await landings.list())))["second"].state == LANDED


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
async def test_what_has_landed_is_not_queued_again(
    client: Client, landings: Landings, repository: Path, how: str
) -> None:
    await with_work(client, repository, "one", base_ref="main")
    await landings.land("one", method=how)
    await landings.wait("one")

    reason, words = await refusal(landings.land("one"))

    assert reason == "WRONG_STATE"
    assert words.startswith("one has landed already: ")
    assert "main" in words
    assert len(await landings.list(include_ended=True)) == 1


async def test_what_somebody_squashed_onto_the_target_while_it_was_queued_is_landed_without_an_empty_merge(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING)
    by_hand = git(repository, "commit-tree", "-p", "main", "-m", "by hand", f"{second.branch}^{{tree}}")
    git(repository, "update-ref", "refs/heads/main", by_hand)

    await landings.land("first")
    landed = (await landings.wait("first", "second"))["second"]

    assert (landed.state, landed.reason) == (LANDED, "already: its content is on main")
    assert subjects(repository)[:2] == ["Merge branch 'ramet/first' into main", "by hand"]
