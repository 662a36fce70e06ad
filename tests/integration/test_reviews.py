"""Review comments, syncing and forking, on a running daemon."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support.daemon import IDLE, Client, git
from tests.support.family import refusal

OPEN = worktree_pb2.COMMENT_STATE_OPEN
SENT = worktree_pb2.COMMENT_STATE_SENT
RESOLVED = worktree_pb2.COMMENT_STATE_RESOLVED


async def make(client: Client, repository: Path, prompt: str = "") -> session_pb2.Session:
    request = session_pb2.CreateSessionRequest(path=str(repository), name="one", prompt=prompt)
    answer: Any = await client.sessions.CreateSession(request)
    if prompt:
        await client.reach(answer.session.id, IDLE)
    return await client.get(answer.session.id)


def commit(place: Path, name: str, text: str) -> str:
    (place / name).write_text(text)
    git(place, "add", name)
    git(place, "commit", "-qm", f"write {name}")
    return git(place, "rev-parse", "HEAD").strip()


# Comments


async def add(client: Client, path: str, line: int, text: str = "no") -> worktree_pb2.Comment:
    request = worktree_pb2.AddCommentRequest(session="one", path=path, line=line, text=text)
    answer: Any = await client.worktrees.AddComment(request)
    comment: worktree_pb2.Comment = answer.comment
    return comment


async def listed(client: Client, *, resolved: bool = False) -> list[worktree_pb2.Comment]:
    request = worktree_pb2.ListCommentsRequest(session="one", include_resolved=resolved)
    answer: Any = await client.worktrees.ListComments(request)
    return list(answer.comments)


async def test_comments_reach_the_agent_as_one_prompt_that_quotes_the_lines(client: Client, repository: Path) -> None:
    session = await make(client, repository)
    place = Path(session.worktree) / "new.py"
    place.write_text("".join(f"line {number}\n" for number in range(1, 10)))
    first = await add(client, "new.py", 4, "say why")
    await add(client, "./new.py", 0, "split it")
    assert first.quote.splitlines()[2] == ">     4 line 4"

    sent: Any = await client.worktrees.SendComments(worktree_pb2.SendCommentsRequest(session="one"))
    assert sent.prompt.text.count("new.py") == 2
    assert ">     4 line 4" in sent.prompt.text
    assert "say why" in sent.prompt.text
    await client.reach(session.id, IDLE)
    assert [each.state for each in await listed(client)] == [SENT, SENT]

    place.write_text("a line before\n" + place.read_text())
    assert [each.current_line for each in await listed(client)] == [5, 0]
    place.write_text("all is new\n")
    assert (await listed(client))[0].current_line == 0

    for _ in range(2):  # the second call is the same
        await client.worktrees.ResolveComment(worktree_pb2.ResolveCommentRequest(comment=first.id[:8]))
    assert [each.state for each in await listed(client)] == [SENT]
    assert [each.state for each in await listed(client, resolved=True)] == [RESOLVED, SENT]


async def test_a_range_of_an_earlier_state_is_quoted_from_that_state(client: Client, repository: Path) -> None:
    session = await make(client, repository)
    place = Path(session.worktree) / "dir0/file0.txt"
    before = place.read_text().splitlines()
    place.unlink()
    request = worktree_pb2.AddCommentRequest(session="one", path="dir0/file0.txt", text="keep it", line=1, end_line=2)
    assert (await refusal(client.worktrees.AddComment(request)))[0] == "INVALID_INPUT"  # it is gone
    request.at = "base"
    request.line, request.end_line = 2, 1
    assert (await refusal(client.worktrees.AddComment(request)))[0] == "INVALID_INPUT"  # an invalid range
    request.line, request.end_line = 1, 1
    made: Any = await client.worktrees.AddComment(request)
    assert made.comment.quote == f">     1 {before[0]}" + "".join(
        f"\n  {number:>5} {text}" for number, text in enumerate(before[1:3], 2)
    )
    sent: Any = await client.worktrees.SendComments(worktree_pb2.SendCommentsRequest(session="one", text="Two things:"))
    assert sent.prompt.text.startswith("Two things:\n\n")
    assert "dir0/file0.txt:1 (as in the commit you started from)" in sent.prompt.text


async def test_two_states_are_compared_and_files_of_each_are_read(client: Client, repository: Path) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    numbers = []
    for text in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n"):
        (tree / "new.txt").write_text(text)
        made: Any = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="one"))
        numbers.append(str(made.checkpoint.number))

    async def diff(**fields: Any) -> worktree_pb2.GetDiffResponse:
        answer: Any = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="one", **fields))
        found: worktree_pb2.GetDiffResponse = answer
        return found

    async def read(path: str, at: str) -> worktree_pb2.GetFileResponse:
        answer: Any = await client.worktrees.GetFile(worktree_pb2.GetFileRequest(session="one", path=path, at=at))
        found: worktree_pb2.GetFileResponse = answer
        return found

    (change,) = (await diff(against=numbers[0], until=numbers[1])).files
    assert (change.path, change.additions, change.deletions) == ("new.txt", 1, 0)
    assert (await read("new.txt", numbers[0])).blob == change.old_blob
    assert (await read("new.txt", numbers[1])).blob == change.blob
    assert [(await read("new.txt", at)).data for at in (numbers[0], "")] == [b"one\n", b"one\ntwo\nthree\n"]
    assert b"@@ -1,2 +1,3 @@" in (await diff(against=numbers[1])).patch
    assert b"@@ -2 +2,2 @@" in (await diff(against=numbers[1], context=1)).patch
    for path, at in (("new.txt", "base"), ("../x", ""), ("dir0", "")):
        assert (await refusal(read(path, at)))[0] == "INVALID_INPUT"


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [
        ("dir0/file0.txt", 1_000, "too far"),
        ("no-such-file", 1, "where"),
        ("../outside", 1, "out"),
        ("/etc/hostname", 1, "out"),
        (".git", 0, "in"),
        ("link", 1, "out by a link"),
        ("dir0/file0.txt", 1, "  \n"),
        ("dir0/file0.txt", 1, "x" * 20_000),
    ],
)
async def test_a_comment_that_cannot_be_placed_is_refused(
    client: Client, repository: Path, path: str, line: int, text: str
) -> None:
    session = await make(client, repository)
    (Path(session.worktree) / "link").symlink_to("/etc/hostname")
    assert (await refusal(add(client, path, line, text)))[0] == "INVALID_INPUT"
    assert await listed(client) == []


async def test_there_must_be_something_to_send(client: Client, repository: Path) -> None:
    await make(client, repository)
    sent = client.worktrees.SendComments(worktree_pb2.SendCommentsRequest(session="one"))
    assert (await refusal(sent))[0] == "WRONG_STATE"


# Syncing


async def sync(client: Client, **fields: Any) -> worktree_pb2.SyncSessionResponse:
    answer = await client.worktrees.SyncSession(worktree_pb2.SyncSessionRequest(session="one", **fields))
    assert isinstance(answer, worktree_pb2.SyncSessionResponse)
    return answer


@pytest.mark.parametrize("method", [worktree_pb2.SYNC_METHOD_MERGE, worktree_pb2.SYNC_METHOD_REBASE])
async def test_new_commits_of_the_base_come_in_and_uncommitted_work_stays(
    client: Client, repository: Path, method: int
) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    commit(tree, "mine.txt", "mine\n")
    (tree / "draft.txt").write_text("a draft\n")
    tip = commit(repository, "theirs.txt", "theirs\n")

    answer = await sync(client, method=method)

    assert (answer.commits, list(answer.conflicts)) == (1, [])
    assert (tree / "theirs.txt").read_text() == "theirs\n"
    assert (tree / "draft.txt").read_text() == "a draft\n"
    assert git(tree, "status", "--porcelain").strip() == "?? draft.txt"
    assert answer.new_commit == git(tree, "rev-parse", "HEAD").strip()
    assert answer.session.base_commit == tip
    parents = git(tree, "rev-list", "--parents", "-1", "HEAD").split()
    assert len(parents) == (3 if method == worktree_pb2.SYNC_METHOD_MERGE else 2)
    diff: Any = await client.worktrees.GetDiff(worktree_pb2.GetDiffRequest(session="one", stat_only=True))
    assert sorted(file.path for file in diff.files) == ["draft.txt", "mine.txt"]
    assert (await sync(client, method=method)).commits == 0

    # One rewind undoes it: files, the branch (also after a rebase), and the base of its work.
    request = worktree_pb2.RewindSessionRequest(session="one", checkpoint=str(answer.checkpoint.number))
    back: Any = await client.worktrees.RewindSession(request)
    assert git(tree, "rev-parse", "HEAD").strip() == answer.old_commit
    assert (list(back.warnings), back.session.base_commit) == ([], session.base_commit)
    assert not (tree / "theirs.txt").exists()
    assert back.before.head == answer.new_commit


async def test_a_branch_that_is_not_ours_stays_at_a_rewind_and_that_is_said(client: Client, repository: Path) -> None:
    git(repository, "branch", "theirs")
    session = await client.create(repository, name="one", existing_branch="theirs")
    tree = Path(session.worktree)
    commit(tree, "mine.txt", "mine\n")
    commit(repository, "base.txt", "base\n")
    rebase = worktree_pb2.SYNC_METHOD_REBASE
    answer = await sync(client, method=rebase, base_ref="main")
    request = worktree_pb2.RewindSessionRequest(session="one", checkpoint=str(answer.checkpoint.number))
    back: Any = await client.worktrees.RewindSession(request)
    assert git(tree, "rev-parse", "HEAD").strip() == answer.new_commit
    assert "theirs stays where it is" in back.warnings[0]
    assert not (tree / "base.txt").exists()


@pytest.mark.parametrize("method", [worktree_pb2.SYNC_METHOD_MERGE, worktree_pb2.SYNC_METHOD_REBASE])
async def test_a_conflict_changes_nothing_and_can_be_sent_to_the_agent(
    client: Client, repository: Path, method: int
) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    head = commit(tree, "both.txt", "mine\n")
    commit(repository, "both.txt", "theirs\n")
    (tree / "draft.txt").write_text("a draft\n")

    answer = await sync(client, method=method)

    assert list(answer.conflicts) == ["both.txt"]
    assert not answer.HasField("prompt")
    assert git(tree, "rev-parse", "HEAD").strip() == head
    assert (tree / "both.txt").read_text() == "mine\n"
    assert git(tree, "status", "--porcelain").strip() == "?? draft.txt"
    asked = await sync(client, method=method, ask_agent=True)
    assert "both.txt" in asked.prompt.text
    await client.reach(session.id, IDLE)


async def test_uncommitted_work_in_the_way_is_named_and_unchanged(client: Client, repository: Path) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    commit(repository, "dir0/file0.txt", "the base has another one\n")
    (tree / "dir0/file0.txt").write_text("mine, not committed\n")
    reason, words = await refusal(sync(client))
    assert (reason, "dir0/file0.txt" in words) == ("WORKTREE_CHANGED", True), words
    assert (tree / "dir0/file0.txt").read_text() == "mine, not committed\n"
    assert git(tree, "status", "--porcelain").split() == ["M", "dir0/file0.txt"]
    git(tree, "checkout", "-q", "--", "dir0/file0.txt")
    # This file is not in the way.
    commit(tree, "mine.txt", "mine\n")
    (tree / "staged.txt").write_text("mine, only staged\n")
    git(tree, "add", "staged.txt")
    assert (await sync(client)).commits == 1
    assert git(tree, "status", "--porcelain").split() == ["A", "staged.txt"]


# Forking


async def test_a_fork_has_the_same_files_and_goes_its_own_way(client: Client, repository: Path) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    head = commit(tree, "mine.txt", "mine\n")
    (tree / "mine.txt").write_text("mine, changed\n")
    (tree / "draft.txt").write_text("a draft\n")
    (tree / "dir0/file0.txt").unlink()

    answer: Any = await client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one"))

    fork = answer.session
    other = Path(fork.worktree)
    assert (fork.name, fork.forked_from, fork.base_commit) == ("one-2", session.id, session.base_commit)
    assert fork.branch != session.branch
    assert git(other, "rev-parse", "HEAD").strip() == head
    assert git(other, "status", "--porcelain") == git(tree, "status", "--porcelain")
    assert (other / "mine.txt").read_text() == "mine, changed\n"
    (other / "draft.txt").write_text("the fork's\n")
    assert (tree / "draft.txt").read_text() == "a draft\n"


async def test_a_fork_at_a_checkpoint_has_its_files(client: Client, repository: Path) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    (tree / "draft.txt").write_text("first\n")
    made: Any = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="one"))
    (tree / "draft.txt").write_text("second\n")
    request = session_pb2.ForkSessionRequest(session="one", checkpoint=str(made.checkpoint.number), name="again")
    answer: Any = await client.sessions.ForkSession(request)
    assert (Path(answer.session.worktree) / "draft.txt").read_text() == "first\n"


async def test_a_fork_at_a_checkpoint_needs_no_tree_of_the_session_that_it_is_of(
    client: Client, repository: Path
) -> None:
    session = await make(client, repository)
    tree = Path(session.worktree)
    (tree / "draft.txt").write_text("first\n")
    made: Any = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session="one"))
    shutil.rmtree(tree)
    request = session_pb2.ForkSessionRequest(session="one", checkpoint=str(made.checkpoint.number), name="again")
    answer: Any = await client.sessions.ForkSession(request)
    assert (Path(answer.session.worktree) / "draft.txt").read_text() == "first\n"

    now = client.sessions.ForkSession(session_pb2.ForkSessionRequest(session="one"))
    assert (await refusal(now))[0] == "WORKTREE_CHANGED", "there is no such thing"
