"""A person's changes in a spare: they stay in place, with a warning, and no session gets them
silently."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from ramet.v1 import worktree_pb2
from rametd.domain.errors import WorktreeChangedError
from rametd.git import Git, RepositoryInfo

from tests.support.daemon import Client, Sandbox, connected, daemon_here, git, make_sandbox
from tests.support.eventually import eventually
from tests.support.repositories import Sample

pytestmark = pytest.mark.full


@pytest.fixture
async def here(environment: dict[str, str]) -> AsyncIterator[Git]:
    here = Git(environment, threads=2, lock_timeout=0.3)
    yield here
    await here.aclose()


@pytest.fixture
async def repo(here: Git, sample: Sample) -> RepositoryInfo:
    return await here.discover(sample.path)


@pytest.fixture
async def spare(here: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path) -> Path:
    """Create a spare at the commit before the last, with a file of its setup."""
    made = tmp_path / "spare"
    await here.spares.make(repo, made, old_of(sample))
    sample.write("installed.lock", "by the setup\n", at=made)
    await here.spares.note(repo, made, old_of(sample))
    return made


def old_of(sample: Sample) -> str:
    return sample.git("rev-parse", "main~1")


def commit(sample: Sample, spare: Path) -> None:
    sample.write("work.py", "work\n", at=spare)
    sample.commit("work", at=spare)


def stage(sample: Sample, spare: Path) -> None:
    sample.write("README.md", "work\n", at=spare)
    sample.git("add", "README.md", at=spare)
    sample.git("checkout", "-q", "HEAD^{tree}", "--", "src", at=spare)


def begin_a_merge(sample: Sample, spare: Path) -> None:
    sample.git("merge", "-q", "--no-commit", "--no-ff", "main", at=spare)


def make_a_repository(sample: Sample, spare: Path) -> None:
    sample.git("init", "-q", str(spare / "inner"))
    sample.write("inner/work.py", "work\n", at=spare)


WORK: dict[str, Callable[[Sample, Path], object]] = {
    "commit": commit,
    "new file": lambda sample, spare: sample.write("src/new.py", "work\n", at=spare),
    "edit of what the setup made": lambda sample, spare: sample.write("installed.lock", "work\n", at=spare),
    "staged": stage,
    "merge": begin_a_merge,
    "repository inside": make_a_repository,
}


def everything(spare: Path) -> dict[str, bytes]:
    files = (path for path in spare.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(spare)): path.read_bytes() for path in files}


@pytest.mark.parametrize("work", WORK)
async def test_a_changed_spare_is_neither_updated_nor_removed(
    here: Git, repo: RepositoryInfo, sample: Sample, spare: Path, work: str
) -> None:
    WORK[work](sample, spare)
    before, head = everything(spare), sample.git("rev-parse", "HEAD", at=spare)
    with pytest.raises(WorktreeChangedError):
        await here.spares.update(repo, spare, old_of(sample), sample.head, background=True)
    removal = await here.spares.remove(repo, spare, old_of(sample))
    assert len(removal.left) == 1
    assert str(spare) in removal.left[0]
    assert (await here.worktrees.undo_create(repo, spare, "", None)).left, "it belongs to the person from now on"
    assert everything(spare) == before
    assert sample.git("rev-parse", "HEAD", at=spare) == head


async def test_files_of_a_spares_setup_are_no_work(
    here: Git, repo: RepositoryInfo, sample: Sample, spare: Path
) -> None:
    os.utime(spare / "README.md", (1, 1))  # touched, not changed
    await here.spares.update(repo, spare, old_of(sample), sample.head, background=True)
    await here.spares.note(repo, spare, sample.head)
    assert (await here.spares.remove(repo, spare, sample.head)).left == ()
    assert not spare.exists()


async def test_a_commit_of_a_spare_whose_directory_was_deleted_stays_on_git_s_list(
    here: Git, repo: RepositoryInfo, sample: Sample, spare: Path
) -> None:
    commit(sample, spare)
    made = sample.git("rev-parse", "HEAD", at=spare)
    spare.rename(spare.with_name("moved"))
    assert (await here.spares.remove(repo, spare, old_of(sample))).left
    assert made in sample.git("worktree", "list", "--porcelain")


async def test_of_a_spare_that_was_being_made_commits_alone_count(
    here: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path
) -> None:
    for name in ("half", "worked-in"):
        await here.spares.make(repo, tmp_path / name, sample.head)
        sample.write("half-installed.lock", "by the setup\n", at=tmp_path / name)
    commit(sample, tmp_path / "worked-in")
    assert (await here.spares.remove(repo, tmp_path / "half", sample.head, unfinished=True)).left == ()
    assert (await here.spares.remove(repo, tmp_path / "worked-in", sample.head, unfinished=True)).left
    assert ((tmp_path / "half").exists(), (tmp_path / "worked-in").exists()) == (False, True)


# ── with a daemon ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox:
        yield sandbox


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


async def filled(client: Client, path: Path) -> Path:
    """Wait for the only spare, at the base."""
    answer = await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(path)))
    (spare,) = answer.spares
    assert spare.commit == git(path, "rev-parse", "HEAD")
    return Path(spare.path)


def advance(path: Path) -> None:
    git(path, "commit", "-q", "--allow-empty", "-m", "the base moves")


async def warnings_of(client: Client, name: str = "") -> list[str]:
    return [event.warning.message for event in await client.log(name) if event.HasField("warning")]


async def test_the_pool_gives_up_a_changed_spare_and_creates_another(client: Client, sandbox: Sandbox) -> None:
    path = sandbox.repository()
    await client.create(path, name="one")
    worked_in = await filled(client, path)
    (worked_in / "work.py").write_text("work\n")
    advance(path)

    other = await filled(client, path)

    assert other != worked_in
    assert (worked_in / "work.py").read_text() == "work\n"
    (words,) = await warnings_of(client)
    assert "work.py" in words
    assert f"rametctl adopt {worked_in}" in words
    assert (await client.create(path, name="mine", adopt_path=str(worked_in))).worktree == str(worked_in)
    (other / "more.py").write_text("work\n")
    drained = await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(path)))
    assert list(drained.spares) == []
    assert (other / "more.py").exists()


@pytest.mark.parametrize("how", ["commit", "at another commit", "with changes"])
async def test_a_session_is_not_created_in_a_changed_spare(client: Client, sandbox: Sandbox, how: str) -> None:
    path = sandbox.repository()
    await client.create(path, name="one")
    spare = await filled(client, path)
    (spare / "dir0" / "file0.txt").write_text("work\n")
    if how == "commit":
        git(spare, "commit", "-qam", "work")
    elif how == "at another commit":
        advance(path)
    else:
        (path / "dir0" / "file0.txt").write_text("changed\n")

    session = await client.create(path, name="two", with_changes=how == "with changes")

    assert Path(session.worktree) != spare
    assert session.branch == "ramet/two"
    assert (spare / "dir0" / "file0.txt").read_text() == "work\n"
    changed = git(Path(session.worktree), "status", "--porcelain")
    assert changed == ("M dir0/file0.txt" if how == "with changes" else "")


async def test_a_session_with_changed_files_of_its_spare_gets_a_warning(client: Client, sandbox: Sandbox) -> None:
    path = sandbox.repository()
    await client.create(path, name="one")
    spare = await filled(client, path)
    (spare / "work.py").write_text("work\n")

    session = await client.create(path, name="two")
    (Path(session.worktree) / "later.py").write_text("the session's own\n")

    assert Path(session.worktree) == spare, "a claim checks no file"
    (words,) = await eventually(lambda: at_least_one(client, "two"))
    assert words.endswith(": work.py")


async def test_a_claim_looks_at_the_files_of_a_spare_whose_changes_are_followed() -> None:
    with make_sandbox(config="[pool]\nsize = 1\nwarm_agents = 1\n") as sandbox:
        async with daemon_here(sandbox), connected(sandbox) as client:
            path = sandbox.repository()
            await client.create(path, name="one")

            async def warm() -> Path:
                pool = await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(path)))
                assert [spare.warm_agent for spare in pool.spares] == [True], pool
                return Path(pool.spares[0].path)

            spare = await eventually(warm)
            (spare / "dir0" / "file0.txt").touch()
            assert (await client.create(path, name="two")).worktree == str(spare), "nothing was changed"
            spare = await eventually(warm)
            (spare / "work.py").write_text("work\n")
            assert (await client.create(path, name="three")).worktree != str(spare)
            assert (spare / "work.py").exists()


async def at_least_one(client: Client, name: str) -> list[str]:
    found = await warnings_of(client, name)
    assert found
    return found
