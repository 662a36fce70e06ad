"""Removal and trash: a removed session is restored exactly, or a warning names the difference."""

import shutil
from pathlib import Path

import grpc
import pytest
from ramet.v1 import attention_pb2, repo_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.archiving import archive, refusal, remove, restore_trash, state_of, turns, work_on
from tests.support.daemon import IDLE, Client, Sandbox, git, hint_of
from tests.support.doctor import commands_in, run
from tests.support.eventually import eventually


async def test_a_removed_archive_is_restored_from_the_trash_with_all_that_it_held(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, name="twice")
    tree = Path(made.worktree)
    before = work_on(tree)
    await archive(client, "twice")

    reason, words = await refusal(remove(client, "twice"))
    assert reason == "WORK_AT_RISK"
    assert "uncommitted" in words
    await remove(client, "twice", force=True)
    refs = git(repository, "for-each-ref", "--format=%(refname)", "refs/ramet/archive", "refs/ramet/trash")
    assert refs == f"refs/ramet/trash/{made.id}"

    back = await restore_trash(client, "twice")
    assert not back.warnings
    assert state_of(tree) == before


async def test_commits_made_on_the_branch_of_an_archive_go_to_the_trash_with_it(
    client: Client, repository: Path
) -> None:
    made = await client.create(repository, name="goes-on")
    was = work_on(Path(made.worktree))
    await archive(client, "goes-on")
    ours = f"refs/heads/{made.branch}"
    tip = git(repository, "commit-tree", "-p", ours, "-m", "by hand", f"{ours}^{{tree}}")
    git(repository, "update-ref", ours, tip)

    await remove(client, "goes-on", force=True)

    assert not git(repository, "branch", "--list", made.branch)
    assert tip in git(repository, "rev-list", f"--glob=refs/ramet/commits/{made.id}").split()
    back = await restore_trash(client, "goes-on")
    # The worktree is restored exactly; warnings name newer commits and changes of others, which
    # stay.
    assert git(repository, "rev-parse", ours) == git(repository, "rev-parse", f"{tip}^")
    assert state_of(Path(made.worktree)) == was
    assert any(tip[:12] in warning for warning in back.warnings)
    assert tip in git(repository, "rev-list", f"--glob=refs/ramet/commits/{made.id}").split()


async def test_one_command_restores_a_removed_session_exactly(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    made = await client.create(
        repository, script({"text": "done"}), name="back", environment={"ANTHROPIC_API_KEY": "the key"}
    )
    was = await client.reach("back", IDLE)
    rule = attention_pb2.CreateRuleRequest(
        repo=str(repository), session="back", effect=attention_pb2.RULE_EFFECT_ALLOW, rule="Bash(ls:*)"
    )
    await client.attention.CreateRule(rule)
    tree = Path(made.worktree)
    before = work_on(tree)
    secret = sandbox.root / "state" / "secrets"

    gone = await remove(client, "back", force=True)
    assert gone.trash_ref == f"refs/ramet/trash/{made.id}"
    assert not tree.exists()
    assert not git(repository, "branch", "--list", made.branch)
    (entry,) = (await client.worktrees.ListTrash(worktree_pb2.ListTrashRequest())).entries
    assert (entry.id, entry.name, entry.branch, entry.repo) == (made.id, "back", made.branch, made.repo)

    answer = await restore_trash(client, "back")

    assert not answer.warnings
    session = await client.get("back")
    assert (session.id, session.branch, session.conversation_id) == (made.id, made.branch, made.conversation_id)
    assert (session.turns, session.cost_usd) == (was.turns, was.cost_usd)
    assert state_of(tree) == before
    rules = await client.attention.ListRules(attention_pb2.ListRulesRequest(repo=str(repository)))
    assert [each.rule for each in rules.rules] == ["Bash(ls:*)"]
    assert not (await client.worktrees.ListTrash(worktree_pb2.ListTrashRequest())).entries
    assert list(secret.rglob(f"{made.id}.env"))
    await client.send("back", script({"text": "again"}))
    await eventually(lambda: turns(client, "back", 2))
    texts = [event.prompt_queued.prompt.text for event in await client.log("back") if event.HasField("prompt_queued")]
    assert len(texts) == 2


async def test_a_restore_reports_taken_names_and_changes_nothing_of_others(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="name")
    work_on(Path(made.worktree))
    await remove(client, "name", force=True)
    other = await client.create(repository, name="name", branch=made.branch)

    answer = await restore_trash(client, made.id)

    assert answer.session.name == "name-2"
    assert answer.session.branch == f"{made.branch}-restored"
    assert len(answer.warnings) == 3  # branch, name, ports
    assert git(Path(other.worktree), "status", "--porcelain") == ""
    assert not git(repository, "for-each-ref", "refs/ramet/trash")


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
@pytest.mark.parametrize("locked", [False, True], ids=["unlocked", "locked"])
async def test_a_refusal_for_a_taken_path_says_how_to_free_it(
    client: Client, sandbox: Sandbox, repository: Path, gone: bool, locked: bool
) -> None:
    tree = Path((await client.create(repository, name="k1")).worktree)
    (tree / "only.txt").write_text("of k1\n")
    await remove(client, "k1", force=True)
    git(repository, "worktree", "add", "-q", *(["--lock"] if locked else []), "-b", "theirs", str(tree))
    if gone:
        shutil.rmtree(tree)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await restore_trash(client, "k1")

    (command,) = commands_in(hint_of(caught.value))
    await run(sandbox, repository, command)
    await restore_trash(client, "k1")
    assert (tree / "only.txt").read_text() == "of k1\n"
    assert tree.with_name(f"{tree.name}.aside").exists() != gone


async def test_a_trash_entry_is_named_by_name_prefix_or_id(client: Client, repository: Path) -> None:
    first = await client.create(repository, name="same")
    await remove(client, "same")
    second = await client.create(repository, name="same")
    await remove(client, "same")
    reason, words = await refusal(restore_trash(client, "same"))
    assert reason == "AMBIGUOUS"
    assert first.id in words
    assert second.id in words
    assert (await refusal(restore_trash(client, "nothing")))[0] == "TRASH_ENTRY_NOT_FOUND"
    # A repeated removal does not remove another session whose id has this prefix.
    assert (await refusal(remove(client, "same")))[0] == "SESSION_NOT_FOUND"
    bystander = await client.create(repository, name="bystander")
    assert (await refusal(remove(client, bystander.id[:3])))[0] == "SESSION_NOT_FOUND"
    assert (await restore_trash(client, second.id[:7])).session.id == second.id


async def test_restore_repeated_after_a_lost_answer_says_that_it_is_restored(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="heard")
    await remove(client, "heard")
    await restore_trash(client, "heard")

    for name in ("heard", made.id, f"{made.repo}/heard"):
        assert await refusal(restore_trash(client, name)) == ("WRONG_STATE", "heard was restored already")
    await client.create(repository, name="never")
    assert (await refusal(restore_trash(client, "never")))[0] == "TRASH_ENTRY_NOT_FOUND"
    await remove(client, "heard")
    await restore_trash(client, "heard")


async def test_an_emptied_trash_keeps_nothing_and_its_repository_can_be_forgotten_then(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:

    made = await client.create(repository, name="waste", environment={"ANTHROPIC_API_KEY": "the key"})
    work_on(Path(made.worktree))
    git(repository, "update-ref", f"refs/ramet/checkpoints/{made.id}/1", "main")
    await remove(client, "waste", force=True)
    forget = repo_pb2.RemoveRepoRequest(repo=str(repository))
    reason, words = await refusal(client.repos.RemoveRepo(forget))
    assert reason == "WRONG_STATE"
    assert "trash" in words

    answer = await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(entries=["waste"]))

    assert [entry.id for entry in answer.entries] == [made.id]
    assert not git(repository, "for-each-ref", "refs/ramet")
    assert not list((sandbox.root / "state").rglob(f"{made.id}.env"))
    await client.repos.RemoveRepo(forget)


async def test_work_that_was_squashed_into_the_base_is_no_longer_at_risk(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="landed")
    tree = Path(made.worktree)
    (tree / "new.txt").write_text("one\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    assert (await refusal(remove(client, "landed")))[0] == "WORK_AT_RISK"
    git(repository, "merge", "-q", "--squash", made.branch)
    git(repository, "commit", "-q", "-m", "squashed")

    async def landed_by_content() -> bool:
        return (await client.get("landed")).landed_reason == "its content is on main"

    await eventually(landed_by_content)
    (tree / "dirty.txt").write_text("not covered\n")
    assert (await refusal(remove(client, "landed")))[0] == "WORK_AT_RISK"
    (tree / "dirty.txt").unlink()
    await remove(client, "landed")


async def test_review_comments_are_restored_from_the_trash(client: Client, repository: Path) -> None:
    made = await client.create(repository, name="reviewed")
    (Path(made.worktree) / "a.txt").write_text("line\n")
    added = await client.worktrees.AddComment(
        worktree_pb2.AddCommentRequest(session="reviewed", path="a.txt", line=0, text="why?")
    )
    await remove(client, "reviewed", force=True)
    await restore_trash(client, "reviewed")
    listed = await client.worktrees.ListComments(worktree_pb2.ListCommentsRequest(session="reviewed"))
    assert [each.id for each in listed.comments] == [added.comment.id]


async def test_a_link_in_the_place_of_a_worktree_is_no_worktree_without_work(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    tree = Path((await client.create(repository, name="linked")).worktree)
    (tree / "only.txt").write_text("here\n")
    tree.rename(tmp_path / "moved")
    tree.symlink_to(tmp_path / "moved")

    reason, words = await refusal(remove(client, "linked"))

    assert (reason, "symbolic link" in words) == ("WORK_AT_RISK", True), words
    assert (tmp_path / "moved/only.txt").read_text() == "here\n"
    tree.unlink()
    (tmp_path / "moved").rename(tree)
    await remove(client, "linked", force=True)
