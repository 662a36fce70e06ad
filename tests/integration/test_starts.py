"""Starting points of sessions: remote branches, the caller's changes, foreign checkouts; refusals,
and unchanged checkouts."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2

from tests.support import repositories
from tests.support.daemon import Client, Sandbox, connected, daemon_process, make_sandbox, reason_of
from tests.support.eventually import eventually
from tests.support.repositories import Sample, fingerprint


def untouched(sample: Sample) -> dict[str, object]:
    """Return its `fingerprint`, without the branches of sessions."""
    found = fingerprint(sample)
    refs = found["refs"]
    assert isinstance(refs, list)
    return found | {"refs": [ref for ref in refs if "/ramet/" not in ref]}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox, daemon_process(sandbox):
        yield sandbox


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with connected(sandbox) as client:
        yield client


async def refusal(client: Client, path: Path, **fields: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(path, **fields)
    assert "\n" not in (caught.value.details() or "")
    return reason_of(caught.value)


async def remove(client: Client, session: session_pb2.Session) -> None:
    request = session_pb2.DeleteSessionRequest(session=session.id, force=True)
    await client.sessions.DeleteSession(request, metadata=client.metadata)


async def changed(client: Client, name: str) -> list[str]:
    """Return the paths that a session has changed."""
    request = worktree_pb2.GetDiffRequest(session=name, stat_only=True)
    return [each.path for each in (await client.worktrees.GetDiff(request, metadata=client.metadata)).files]


async def fill(client: Client, path: Path) -> list[str]:
    answer = await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(path)), metadata=client.metadata)
    return [spare.id for spare in answer.spares]


@pytest.mark.parametrize("named", ["topic", "origin/topic"])
async def test_a_remote_branch_becomes_a_local_one_that_follows_it_as_git_would(
    client: Client, tmp_path: Path, environment: dict[str, str], named: str
) -> None:
    sample = repositories.with_remote(tmp_path / "repo", environment)
    request = session_pb2.CreateSessionRequest(path=str(sample.path), name="mine", existing_branch=named)
    answer = await client.sessions.CreateSession(request)
    session, tree = answer.session, Path(answer.session.worktree)
    assert not any("taken" in each for each in answer.warnings), "an existing branch was named"
    assert session.branch == "topic"
    assert sample.git("rev-parse", "--abbrev-ref", "@{upstream}", at=tree) == "origin/topic"
    assert sample.git("rev-parse", "HEAD", at=tree) == sample.git("rev-parse", "origin/topic")
    assert await refusal(client, sample.path, existing_branch="origin/topic") == "BRANCH_TAKEN"
    await remove(client, session)
    assert "topic" not in sample.git("branch", "--list"), "Ramet created it"
    assert sample.git("config", "--get-regexp", "^branch\\.").count("topic") == 0


async def test_tags_and_commits_are_bases(client: Client, tmp_path: Path, environment: dict[str, str]) -> None:
    sample = repositories.with_remote(tmp_path / "repo", environment)
    for base in ("v1", sample.head[:12], "origin/topic"):
        session = await client.create(sample.path, base_ref=base)
        assert session.base_commit == sample.git("rev-parse", f"{base}^{{commit}}")


async def test_the_base_is_fetched_first_and_a_branch_behind_starts_from_its_remote(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_remote(tmp_path / "repo", environment)
    other = tmp_path / "other"
    sample.git("clone", "-q", str(tmp_path / "repo-origin.git"), str(other), at=tmp_path)
    (other / "newer.txt").write_text("newer\n")
    newer = sample.commit("newer", at=other)
    sample.git("push", "-q", at=other)
    before = sample.head

    session = await client.create(sample.path, fetch=True)

    assert (session.base_commit, session.base_ref) == (newer, "origin/main")
    assert sample.head == before, "the person's own branch does not move"
    assert (Path(session.worktree) / "newer.txt").exists()
    sample.write("ours.txt")
    ours = sample.commit("ours")
    assert (await client.create(sample.path, fetch=True)).base_commit == ours, "the person's own commits are included"


@pytest.mark.parametrize("named", ["feat/new", "origin/feat/new"])
@pytest.mark.parametrize("narrow", [False, True])
async def test_a_branch_that_only_the_remote_has_is_fetched_and_worked_on(
    client: Client, tmp_path: Path, environment: dict[str, str], named: str, narrow: bool
) -> None:
    sample = repositories.with_remote(tmp_path / "repo", environment)
    other = tmp_path / "other"
    sample.git("clone", "-q", str(tmp_path / "repo-origin.git"), str(other), at=tmp_path)
    sample.git("switch", "-q", "-c", "feat/new", at=other)
    (other / "new.txt").write_text("new\n")
    tip = sample.commit("new", at=other)
    sample.git("push", "-q", "origin", "feat/new", at=other)
    if narrow:  # as in a clone of a single branch
        sample.git("config", "remote.origin.fetch", "+refs/heads/main:refs/remotes/origin/main")
    assert await refusal(client, sample.path, existing_branch=named) == "REF_NOT_FOUND"

    based = await client.create(sample.path, base_ref=named, fetch=True)
    assert (based.branch != "feat/new", based.base_ref, based.base_commit) == (True, "origin/feat/new", tip)

    session = await client.create(sample.path, existing_branch=named, fetch=True)

    assert (session.branch, session.base_commit) == ("feat/new", tip)
    assert (Path(session.worktree) / "new.txt").exists()
    if not narrow:
        assert sample.git("rev-parse", "--abbrev-ref", "@{upstream}", at=Path(session.worktree)) == "origin/feat/new"
    assert await refusal(client, sample.path, existing_branch="nowhere", fetch=True) == "REMOTE_FAILED"
    assert await refusal(client, sample.path, base_ref="v1", fetch=True) == "REF_NOT_FOUND", "a tag follows no branch"


async def test_of_several_remotes_the_person_says_which(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_remote(tmp_path / "repo", environment)
    sample.git("remote", "add", "fork", str(tmp_path / "repo-origin.git"))
    assert await refusal(client, sample.path, existing_branch="unheard-of", fetch=True) == "AMBIGUOUS"
    session = await client.create(sample.path, existing_branch="topic", fetch=True)
    assert session.base_ref == "origin/topic", "only one of them is known to have it"


async def test_a_failed_remote_is_reported_in_gits_words_and_nothing_is_created(
    client: Client, tmp_path: Path, environment: dict[str, str], sample: Sample
) -> None:
    clone = repositories.with_remote(tmp_path / "clone", environment)
    (tmp_path / "clone-origin.git").rename(tmp_path / "moved.git")
    before = untouched(clone)
    assert await refusal(client, clone.path, fetch=True) == "REMOTE_FAILED"
    assert untouched(clone) == before
    assert await refusal(client, sample.path, fetch=True) == "REF_NOT_FOUND", "it has no remote"


async def test_an_initial_commit_is_created_only_after_a_fetch_finds_no_base(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.unborn(tmp_path / "repo", environment)
    assert await refusal(client, sample.path, initial_commit=True, fetch=True) == "REF_NOT_FOUND"
    remote = repositories.with_remote(tmp_path / "other", environment)
    sample.git("remote", "add", "origin", str(tmp_path / "other-origin.git"))
    sample.git("symbolic-ref", "HEAD", "refs/heads/nowhere")
    assert await refusal(client, sample.path, initial_commit=True, fetch=True) == "REMOTE_FAILED"
    sample.git("symbolic-ref", "HEAD", "refs/heads/main")

    session = await client.create(sample.path, initial_commit=True, fetch=True)

    assert session.base_commit == remote.git("rev-parse", "origin/main")
    assert not sample.git("for-each-ref", "refs/heads/main", "refs/heads/nowhere")


async def test_changes_are_copied_and_the_callers_tree_stays_unchanged(client: Client, sample: Sample) -> None:
    sample.write("src/app.py", "stashed\n")
    sample.git("stash", "-q")
    sample.write("src/app.py", "staged\n")
    sample.git("add", "src/app.py")
    sample.write("src/app.py", "unstaged\n")
    sample.write("new/untracked.txt", "untracked\n")
    sample.write(".env", "SECRET=1\n")
    (sample.path / "README.md").unlink()
    before = untouched(sample)
    for _ in range(2):  # created and claimed
        session = await client.create(sample.path, with_changes=True)
        await fill(client, sample.path)
        tree = Path(session.worktree)
        assert (tree / "src" / "app.py").read_text() == "unstaged\n"
        assert (tree / "new" / "untracked.txt").read_text() == "untracked\n"
        assert not (tree / "README.md").exists()
        changed = sample.git("status", "--porcelain", "-uall", at=tree).split("\n")
        assert sorted(line.strip() for line in changed) == ["?? new/untracked.txt", "D README.md", "M src/app.py"]
        assert sample.git("rev-parse", "HEAD", at=tree) == sample.head
    assert untouched(sample) == before
    assert await refusal(client, sample.path, with_changes=True, base_ref="main") == "INVALID_INPUT"


async def test_a_session_in_place_works_in_the_checkout_alone_and_leaves_it_when_it_goes(
    client: Client, sample: Sample
) -> None:
    sample.write("mine.txt", "not committed\n")
    before = untouched(sample)
    session = await client.create(sample.path / "src", in_place=True, name="here")
    assert (session.worktree, session.branch) == (str(sample.path), "main")
    assert session.worktree_kind == session_pb2.WORKTREE_KIND_IN_PLACE
    assert await refusal(client, sample.path, in_place=True) == "PATH_TAKEN"
    assert await refusal(client, sample.path, in_place=True, branch="x") == "INVALID_INPUT"
    await eventually(lambda: client.checkpoints("here"))
    assert await changed(client, "here") == [], "the person's changes there are no change of the session"
    sample.write("its.txt", "new\n")
    assert await changed(client, "here") == ["its.txt"]
    (sample.path / "its.txt").unlink()

    await remove(client, session)

    assert untouched(sample) == before
    again = await client.create(sample.path, in_place=True, name="here")
    await remove(client, again)


async def test_a_detached_checkout_can_be_worked_in(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.detached(tmp_path / "repo", environment)
    session = await client.create(sample.path, in_place=True)
    assert (session.branch, session.base_commit) == ("", sample.head)
    await remove(client, session)


async def test_an_adopted_worktree_outlives_a_creation_that_fails_and_the_session(
    client: Client, sample: Sample, tmp_path: Path
) -> None:
    tree = tmp_path / "by hand"
    sample.git("worktree", "add", "-q", "-b", "hand", str(tree))
    sample.write("work.txt", "in the making\n", at=tree)
    there = Sample(tree, sample.environment)
    before = untouched(there)
    taken = await client.create(sample.path, name="taken")

    assert await refusal(client, tree, adopt_path=str(tree), name="taken") == "NAME_TAKEN"
    assert untouched(there) == before
    session = await client.create(tree, adopt_path=str(tree / "src"))
    assert (session.worktree, session.branch, session.name) == (str(tree), "hand", "hand")
    assert session.worktree_kind == session_pb2.WORKTREE_KIND_ADOPTED
    assert await refusal(client, tree, adopt_path=str(tree)) == "PATH_TAKEN"
    await remove(client, session)

    assert untouched(there) == before
    assert sample.git("worktree", "list").count("by hand") == 1
    assert await refusal(client, sample.path, adopt_path=str(sample.path)) == "INVALID_INPUT", "as with --in-place"
    assert await refusal(client, sample.path, adopt_path=taken.worktree) == "PATH_TAKEN"


async def test_a_branch_that_is_taken_costs_no_spare(client: Client, sample: Sample) -> None:
    await client.create(sample.path, branch="mine")
    spares = await fill(client, sample.path)
    assert await refusal(client, sample.path, branch="mine") == "BRANCH_TAKEN"
    assert await refusal(client, sample.path, existing_branch="main") == "BRANCH_TAKEN"
    assert await fill(client, sample.path) == spares
    sample.git("branch", "free")
    assert (await client.create(sample.path, existing_branch="free")).id == spares[0]


async def test_what_is_asked_of_a_session_shows_the_disk_it_takes(client: Client, sample: Sample) -> None:
    session = await client.create(sample.path)
    request = session_pb2.GetSessionRequest(session=session.id, include_disk_use=True)
    answer = await client.sessions.GetSession(request, metadata=client.metadata)
    assert answer.disk_bytes >= sum(file.stat().st_size for file in Path(session.worktree).rglob("*") if file.is_file())
