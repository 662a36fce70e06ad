"""The state of a plan's threads, and the clean-up of landed ones."""

from pathlib import Path

import pytest

from tests.support.daemon import Client, git
from tests.support.plans import actions, apply, clean_up, plans, status


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

    # A landed thread is not created again, and stays in the status.
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


@pytest.mark.own_changes("dir[019]/*", ".git/*", "index", "what the index says", "HEAD at", "reflog")
async def test_what_was_merged_in_from_the_target_is_not_a_threads_own(client: Client, repository: Path) -> None:
    made = await apply(client, repository, 'threads = [{id="a", owns=["dir0/"]}, {id="b", owns=["dir1/"]}]')
    tree = Path(made.sessions[0].worktree)
    (tree / "dir0" / "own.txt").write_text("own\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "own")
    for text in ("one", "two"):  # the target has newer commits after the merge
        (repository / "dir1" / "landed.txt").write_text(text)
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", text)
        if text == "one":
            git(tree, "merge", "-q", "--no-edit", "main")
    stands = (await status(client, repository)).threads[0]
    assert (list(stands.inside), list(stands.outside)) == (["dir0/own.txt"], [])
