"""The merge queue: results, order, and that only git's own fast-forward changes a checkout."""

import asyncio
import re
import shlex
from pathlib import Path

import grpc
import pytest
from ramet.v1 import worktree_pb2

from tests.support.daemon import Client, Sandbox, git, reason_of
from tests.support.family import refusal
from tests.support.landing import (
    HELD,
    LANDED,
    WAITING,
    Landings,
    break_filter,
    commit,
    moves,
    subjects,
    with_work,
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

    reason, words = await refusal(landings.land("one"))
    assert (reason, words.startswith("one has landed already: "), "main" in words) == ("WRONG_STATE", True, True)
    assert len(await landings.list(include_ended=True)) == 1


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
    await landings.reach("second", WAITING, "waits for first to land")
    await landings.land("first")

    assert {each.state for each in (await landings.wait("first", "second")).values()} == {LANDED}
    assert subjects(repository)[0] == "Merge branch 'ramet/second' into main"


async def test_git_fast_forwards_a_checkout_of_the_target_and_waits_for_changes_in_the_way(
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
    await landings.reach("same", WAITING, f"changes in {path} are in the way: dir0/file0.txt; commit or move them")
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
    waiting = await landings.reach("one", WAITING, f"a merge is under way in {path}")
    assert f"`git -C {path} merge --abort`" in waiting.reason
    git(path, "commit", "-qm", "merged by hand")

    assert (await landings.wait("one"))["one"].state == LANDED
    assert subjects(path)[:2] == ["Merge branch 'ramet/one' into main", "merged by hand"]


async def test_a_target_that_two_worktrees_have_is_landed_once_one_has_another_branch(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path, other = sandbox.repository("own"), sandbox.root / "other"
    await with_work(client, path, "one")
    git(path, "worktree", "add", "-q", "--force", str(other), "main")

    await landings.land("one")
    await landings.reach("one", WAITING, f"main is checked out in {path} and {other}")
    git(other, "checkout", "-q", "--detach")

    assert (await landings.wait("one"))["one"].state == LANDED
    assert [git(each, "status", "--porcelain") for each in (path, other)] == ["", ""]


async def test_a_target_in_a_worktree_that_was_moved_is_landed_once_git_knows_its_place(
    client: Client, landings: Landings, sandbox: Sandbox
) -> None:
    path, other, moved = sandbox.repository("own"), sandbox.root / "other", sandbox.root / "moved"
    await with_work(client, path, "one", base_ref="main")
    git(path, "checkout", "-q", "--detach")
    git(path, "worktree", "add", "-q", str(other), "main")
    other.rename(moved)

    await landings.land("one", target="main")
    await landings.reach("one", WAITING, f"main is checked out in {other}, which is missing")
    git(moved, "worktree", "repair")

    assert (await landings.wait("one"))["one"].state == LANDED
    assert (git(moved, "status", "--porcelain"), (moved / "one.txt").exists()) == ("", True)


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
    assert all(way in hint for way in ("rametctl pr create works", "--local", "nothing is pushed")), hint
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


async def test_work_squashed_onto_the_target_while_queued_lands_without_empty_merge(
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


async def test_nothing_lands_while_something_is_under_way_in_its_worktree(
    client: Client, landings: Landings, repository: Path
) -> None:
    session = await with_work(client, repository, "works", base_ref="main")
    tree, before = Path(session.worktree), git(repository, "rev-parse", "main")
    git(tree, "bisect", "start")
    (tree / "loose.txt").write_text("loose\n")

    for fields in ({}, {"commit_message": "the rest"}):
        reason, words = await refusal(landings.land("works", **fields))
        assert (reason, "a bisect is under way" in words) == ("WRONG_STATE", True), words

    assert (await client.get("works")).under_way == "a bisect"
    diff = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="works", stat_only=True))
    assert diff.warnings == ["a bisect is under way in its worktree"]
    assert await landings.list(include_ended=True) == []
    assert git(repository, "rev-parse", "main") == before


async def test_a_landing_in_the_middle_of_a_merge_goes_to_a_person_with_the_command(
    client: Client, landings: Landings, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rametd.services.landing.lane.PATIENCE_S", 0.0)
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING)
    git(Path(second.worktree), "bisect", "start")

    await landings.land("first")
    held = await landings.reach("second", HELD, "bisect is under way")

    (command,) = re.findall("`([^`]+)`", held.reason)
    git(Path(second.worktree), *shlex.split(command)[3:])
    await landings.retry("second")
    assert (await landings.wait("second"))["second"].state == LANDED


async def test_an_entry_whose_agent_ended_with_uncommitted_files_is_given_to_a_person(
    client: Client, landings: Landings, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rametd.services.landing.lane.PATIENCE_S", 0.0)
    await with_work(client, repository, "first", base_ref="main")
    second = await with_work(client, repository, "second", base_ref="main", after=["first"])
    await landings.land("second")
    await landings.reach("second", WAITING)
    (Path(second.worktree) / "loose.txt").write_text("loose\n")

    await landings.land("first")
    held = await landings.reach("second", HELD)

    assert held.reason == "not committed: loose.txt; commit it, or tell its agent to"
    commit(second)
    await landings.retry("second")
    assert (await landings.wait("second"))["second"].state == LANDED


async def test_a_tree_that_cannot_be_checked_out_says_so_and_is_given_to_a_person(
    client: Client, landings: Landings, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rametd.services.landing.queue.SHORTEST_REST_S", 0.01)
    session = await with_work(client, repository, "works", base_ref="main")
    commit(session, **{".gitattributes": "*.txt filter=locked\n"})
    git(repository, "config", "filter.locked.smudge", "echo 'have you unlocked it?' >&2; false")
    git(repository, "config", "filter.locked.clean", "cat")
    git(repository, "config", "filter.locked.required", "true")

    await landings.land("works", check=["true"])
    held = await landings.reach("works", HELD, "have you unlocked it?")

    assert "smudge filter locked failed" in held.reason
    git(repository, "config", "--remove-section", "filter.locked")
    await landings.retry("works")
    assert (await landings.wait("works"))["works"].state == LANDED


async def test_a_checkout_that_git_cannot_write_stays_unchanged_and_goes_to_a_person(
    client: Client, landings: Landings, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rametd.services.landing.queue.SHORTEST_REST_S", 0.01)
    monkeypatch.setattr("rametd.services.landing.queue.LONGEST_REST_S", 0.01)
    path = sandbox.repository("own")
    broken = break_filter(path, "z.txt")
    await with_work(client, path, "one", "a.txt", "z.txt")
    await with_work(client, path, "other")

    await landings.land("one")
    held = await landings.reach("one", HELD, "smudge filter picky failed")

    assert f"git merge in {path}: " in held.reason
    assert held.reason.endswith("; mend that, then `rametctl queue retry one`")
    listed = (await asyncio.to_thread(sandbox.ctl, "inbox")).stdout
    assert "smudge filter picky failed" in listed
    assert "rametctl queue retry one" in listed
    assert git(path, "status", "--porcelain") == ""
    assert not (path / "a.txt").exists()
    await landings.land("other")
    assert (await landings.wait("other"))["other"].state == LANDED
    broken.unlink()
    await landings.retry("one")
    assert (await landings.wait("one"))["one"].state == LANDED
    assert (path / "a.txt").read_text() == "one\n"


async def test_a_passed_check_stays_valid_while_the_checkout_is_not_free(
    client: Client, landings: Landings, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rametd.services.landing.move.TRIES", 10_000)
    monkeypatch.setattr("rametd.services.landing.queue.LONGEST_REST_S", 0.01)
    path, runs = sandbox.repository("own"), sandbox.root / "runs"
    broken = break_filter(path, "z.txt")
    await with_work(client, path, "one", "a.txt", "z.txt")
    await landings.land("one", check=[f"echo run >> {runs}"])
    await landings.reach("one", WAITING, "smudge filter picky failed")

    git(path, "bisect", "start")
    await landings.reach("one", WAITING, f"a bisect is under way in {path}")
    git(path, "bisect", "reset")
    await landings.reach("one", WAITING, "smudge filter picky failed")
    broken.unlink()

    assert (await landings.wait("one"))["one"].state == LANDED
    assert runs.read_text() == "run\n"


async def test_a_branch_with_an_upstream_is_landed_on_only_with_local(
    client: Client, landings: Landings, repository: Path
) -> None:
    await with_work(client, repository, "local", base_ref="main")
    git(repository, "branch", "ours", "main")
    git(repository, "remote", "add", "origin", str(repository))
    git(repository, "config", "branch.ours.remote", "origin")
    git(repository, "config", "branch.ours.merge", "refs/heads/main")
    before = git(repository, "rev-parse", "main")

    reason, words = await refusal(landings.land("local", target="ours"))
    assert (reason, words.split(";")[0]) == ("PROTECTED_BRANCH", "ours has an upstream")
    await landings.land("local", target="ours", local=True)

    assert (await landings.wait("local"))["local"].state == LANDED
    # The branch needs no question to the person.
    _, words = await refusal(landings.land("local", target="ours"))
    assert words.startswith("local has landed already")
    assert git(repository, "rev-parse", "main") == before != git(repository, "rev-parse", "ours")
    git(repository, "remote", "remove", "origin")
