"""Prepared spares: their state, claims by sessions, and that they obstruct nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from ramet.v1 import session_pb2, worktree_pb2
from rametd.domain.errors import BranchTakenError, GitBusyError, WorktreeChangedError
from rametd.git import Git, RepositoryInfo

from tests.support.daemon import Client, DaemonProcess, Sandbox, connected, daemon_process, git, make_sandbox
from tests.support.eventually import eventually
from tests.support.repositories import Sample, fingerprint


@pytest.fixture
async def here(environment: dict[str, str]) -> AsyncIterator[Git]:
    here = Git(environment, threads=2, lock_timeout=0.3)
    yield here
    await here.aclose()


@pytest.fixture
async def repo(here: Git, sample: Sample) -> RepositoryInfo:
    return await here.discover(sample.path)


async def test_a_spare_holds_no_branch_and_a_claim_writes_no_file(
    here: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path
) -> None:
    spare = tmp_path / "spare"
    before = fingerprint(sample)
    await here.spares.make(repo, spare, sample.head)
    assert sample.git("branch", "--show-current", at=spare) == ""
    assert sample.git("status", "--porcelain", at=spare) == ""
    assert {branch.name: branch.worktree for branch in await here.branches.list(repo)} == {"main": sample.path}
    times = {file: file.stat().st_mtime_ns for file in spare.rglob("*")}

    await here.spares.claim(repo, spare, "ramet/x", sample.head, new_branch=True)

    assert {file: file.stat().st_mtime_ns for file in spare.rglob("*")} == times
    assert sample.git("branch", "--show-current", at=spare) == "ramet/x"
    assert sample.git("status", "--porcelain", at=spare) == ""
    assert sample.git("reflog", "ramet/x").count("\n") == 0
    removal = await here.worktrees.undo_create(repo, spare, "ramet/x", sample.head)
    assert removal.left == ()
    assert fingerprint(sample) == before
    assert not spare.exists()


def written(path: Path) -> tuple[int, int, int]:
    """Return a value that changes when a file is written or replaced, and not when it is only
    read."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


async def test_bringing_a_spare_to_another_commit_writes_only_what_differs(
    here: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path
) -> None:
    spare = tmp_path / "spare"
    await here.spares.make(repo, spare, sample.git("rev-parse", "HEAD~1"))
    (spare / "installed.txt").write_text("by the setup\n")
    await here.spares.note(repo, spare, sample.git("rev-parse", "HEAD~1"))
    before = written(spare / "README.md")
    assert await here.commits.files_between(repo, sample.git("rev-parse", "HEAD~1"), sample.head) == 2

    await here.spares.update(repo, spare, sample.git("rev-parse", "HEAD~1"), sample.head, background=True)

    assert written(spare / "README.md") == before
    assert (spare / "src" / "app.py").read_text() == (sample.path / "src" / "app.py").read_text()
    assert (spare / "installed.txt").exists()
    assert sample.git("rev-parse", "HEAD", at=spare) == sample.head


async def test_an_incomplete_spare_is_not_claimed(
    here: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path
) -> None:
    async def fresh(name: str) -> Path:
        await here.spares.make(repo, tmp_path / name, sample.head)
        return tmp_path / name

    claimed = await fresh("claimed")
    await here.spares.claim(repo, claimed, "one", sample.head, new_branch=True)
    other = await fresh("other")
    (Path(sample.git("rev-parse", "--git-dir", at=other)) / "index.lock").touch()
    unlocked = await fresh("unlocked")
    sample.git("worktree", "unlock", str(unlocked))
    behind = await fresh("behind")
    sample.git("checkout", "-q", "--detach", "HEAD~1", at=behind)
    for path in (claimed, other, unlocked, behind, tmp_path / "nowhere"):
        with pytest.raises(WorktreeChangedError):
            await here.spares.claim(repo, path, "two", sample.head, new_branch=True)
    with pytest.raises(BranchTakenError):
        await here.spares.claim(repo, await fresh("good"), "one", sample.head, new_branch=True)
    sample.git("branch", "gone-on", "HEAD~1")
    with pytest.raises(WorktreeChangedError, match="moved on"):
        await here.spares.claim(repo, tmp_path / "good", "gone-on", sample.head, new_branch=False)
    assert "two" not in sample.git("branch", "--list")
    assert (await here.spares.remove(repo, claimed, sample.head)).left, "a person may work in a tree with a branch"
    assert claimed.exists()


async def test_a_claim_waits_for_a_lock_file_and_then_names_it(
    here: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path, environment: dict[str, str]
) -> None:
    spare = tmp_path / "spare"
    await here.spares.make(repo, spare, sample.head)
    lock = sample.path / ".git" / "refs" / "heads" / "new.lock"
    lock.touch()
    with pytest.raises(GitBusyError, match=r"new\.lock"):
        await here.spares.claim(repo, spare, "new", sample.head, new_branch=True)
    patient = Git(environment, threads=2)
    claim = asyncio.create_task(patient.spares.claim(repo, spare, "new", sample.head, new_branch=True))
    asyncio.get_running_loop().call_later(0.05, lock.unlink)
    await claim
    await patient.aclose()
    assert sample.git("branch", "--show-current", at=spare) == "new"


# ── with a daemon ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 2\n") as sandbox:
        yield sandbox


@pytest.fixture
def daemon(sandbox: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_process(sandbox) as daemon:
        yield daemon


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with connected(daemon.sandbox) as client:
        yield client


async def pool_of(client: Client, path: Path) -> worktree_pb2.GetPoolResponse:
    return await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(path)), metadata=client.metadata)


async def ready(client: Client, path: Path, count: int) -> list[worktree_pb2.Spare]:
    """Wait until the pool has so many spares, without a call."""

    async def look() -> worktree_pb2.GetPoolResponse:
        pool = await pool_of(client, path)
        assert [spare.state for spare in pool.spares] == ["ready"] * count, pool
        return pool

    return list((await eventually(look)).spares)


async def test_the_pool_is_filled_in_the_background_and_sessions_are_given_its_trees(
    client: Client, sandbox: Sandbox
) -> None:
    path = sandbox.repository()
    await client.create(path, name="first")
    spares = await ready(client, path, 2)
    listed = await client.sessions.ListSessions(session_pb2.ListSessionsRequest(include_archived=True))
    assert [session.name for session in listed.sessions] == ["first"], "a spare is no session"
    assert git(path, "branch", "--format=%(refname:short)").split() == ["main", "ramet/first"]

    session = await client.create(path, name="second")

    assert session.id in [spare.id for spare in spares]
    assert session.worktree in [spare.path for spare in spares]
    assert (Path(session.worktree).parent / "by-name" / "second").resolve() == Path(session.worktree)
    await ready(client, path, 2)
    pool = await pool_of(client, path)
    assert (pool.size, pool.claims, pool.misses, pool.held_reason) == (2, 1, 1, "")
    assert all(spare.bytes for spare in pool.spares)
    assert pool.disk_free_bytes


@pytest.mark.full
async def test_ten_sessions_at_once_all_succeed_with_and_without_spares(client: Client, sandbox: Sandbox) -> None:
    path = sandbox.repository()
    await client.create(path, name="first")
    spares = {spare.id for spare in await ready(client, path, 2)}

    made = await asyncio.gather(*(client.create(path, "", name=f"n{number}") for number in range(10)))

    assert len({session.branch for session in made}) == len({session.worktree for session in made}) == 10
    assert spares < {session.id for session in made}
    for session in made:
        tree = Path(session.worktree)
        assert git(tree, "branch", "--show-current") == session.branch
        assert git(tree, "status", "--porcelain") == ""


async def test_spares_follow_a_moved_base_and_another_base_is_checked_out_at_the_claim(
    client: Client, sandbox: Sandbox
) -> None:
    path = sandbox.repository()
    old = git(path, "rev-parse", "HEAD")
    await client.create(path)
    before = await ready(client, path, 2)
    (path / "new.txt").write_text("new\n")
    git(path, "add", "new.txt")
    git(path, "commit", "-qm", "second")

    moved = await client.create(path)  # before the first check
    assert moved.id in [spare.id for spare in before]
    assert (Path(moved.worktree) / "new.txt").exists()
    answer = await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(path)))
    assert {spare.commit for spare in answer.spares} == {git(path, "rev-parse", "HEAD")}
    assert {spare.id for spare in answer.spares} & {spare.id for spare in before}, "updated, not created again"
    back = await client.create(path, base_ref=old)
    assert back.id in [spare.id for spare in answer.spares]
    assert not (Path(back.worktree) / "new.txt").exists()
    assert git(Path(back.worktree), "status", "--porcelain") == ""


async def test_a_spare_that_was_changed_is_not_used_and_the_session_is_created(
    client: Client, sandbox: Sandbox
) -> None:
    path = sandbox.repository()
    await client.create(path)
    for spare in await ready(client, path, 2):
        git(Path(spare.path), "checkout", "-q", "-b", f"mine-{spare.id}")
    session = await client.create(path, name="made")
    assert git(Path(session.worktree), "branch", "--show-current") == "ramet/made"
    assert git(Path(session.worktree), "status", "--porcelain") == ""


@pytest.mark.full
async def test_draining_removes_all_and_the_next_session_brings_them_back(client: Client, sandbox: Sandbox) -> None:
    path = sandbox.repository()
    await client.create(path)
    spares = await ready(client, path, 2)
    drained = sandbox.ctl("pool", "drain", "--repo", str(path), "--json").json
    assert {each["id"] for each in drained} == {spare.id for spare in spares}
    assert not any(Path(spare.path).exists() for spare in spares)
    assert git(path, "worktree", "list").count("\n") == 1
    pool = await pool_of(client, path)
    assert (list(pool.spares), "drained" in pool.held_reason) == ([], True)
    await client.create(path)
    await ready(client, path, 2)
    assert sandbox.ctl("pool", "fill", "--repo", str(path)).stdout.count("ready") == 2
    assert "2 of 2 ready" in sandbox.ctl("pool", cwd=path).stdout


@pytest.mark.full
async def test_spares_go_with_their_repository_and_with_a_smaller_size(
    client: Client, daemon: DaemonProcess, sandbox: Sandbox
) -> None:
    path = sandbox.repository()
    session = await client.create(path)
    spares = await ready(client, path, 2)
    sandbox.configure((sandbox.root / "config" / "ramet" / "config.toml").read_text().replace("size = 2", "size = 1"))
    daemon.restart()
    async with connected(sandbox) as later:
        (left,) = await ready(later, path, 1)
        assert left.id in [spare.id for spare in spares]
        await later.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=session.id, force=True))
        await later.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest())
        assert sandbox.ctl("repo", "rm", "repo").code == 0
        assert not Path(left.path).exists()
        assert git(path, "worktree", "list").count("\n") == 0


@pytest.mark.full
async def test_with_too_little_room_on_the_disk_there_are_no_spares_and_it_is_said(sandbox: Sandbox) -> None:
    config = (sandbox.root / "config" / "ramet" / "config.toml").read_text()
    sandbox.configure(config.replace("size = 2", 'size = 2\nmin_free = "1MiB"'))
    path = sandbox.repository()
    with daemon_process(sandbox) as daemon:
        async with connected(sandbox) as client:
            await client.create(path)
            await ready(client, path, 2)
        sandbox.configure(config.replace("size = 2", 'size = 2\nmin_free = "1000GiB"'))
        daemon.restart()
        async with connected(sandbox) as client:
            await ready(client, path, 0)
            assert "pool.min_free" in (await pool_of(client, path)).held_reason
            with pytest.raises(grpc.aio.AioRpcError):
                await pool_of(client, sandbox.root)


IGNORED = "made\n.env*\nnode_modules\n"


def settle(path: Path, settings: str, include: str = "") -> None:
    """Commit the settings of a repository whose setup leaves marks."""
    (path / ".gitignore").write_text(IGNORED)
    (path / ".ramet.toml").write_text(settings)
    (path / ".worktreeinclude").write_text(include)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "settings")


BEFORE = 'setup = ["echo one > made"]\ncarry = [".env"]\n'


@pytest.mark.parametrize(
    ("settings", "include"),
    [
        (BEFORE.replace("one", "two"), ""),
        (BEFORE.replace(".env", ".env.two"), ""),
        (BEFORE, ".env.two\n"),
        (BEFORE + 'carry_rewrite = [".env"]\n', ""),
        (BEFORE + 'carry_limit = "1MiB"\n', ""),
        (BEFORE + 'setup_files = ["dir0/*"]\n', ""),
    ],
    ids=["setup", "carry", "include", "rewrite", "limit", "files"],
)
async def test_a_session_gets_a_spare_only_if_todays_trusted_settings_prepared_it(
    client: Client, sandbox: Sandbox, settings: str, include: str
) -> None:
    path = sandbox.repository()
    settle(path, BEFORE)
    (path / ".env").write_text("A=1\n")
    (path / ".env.two").write_text("B=1\n")
    await client.trust(path)
    await client.create(path, name="first")
    before = {spare.id for spare in await ready(client, path, 2)}
    same = await client.create(path, name="same")
    assert same.id in before, "unchanged settings that are trusted"
    assert (Path(same.worktree) / "made").read_text() == "one\n"
    before |= {spare.id for spare in await ready(client, path, 2)}

    settle(path, settings, include)
    untrusted = await client.create(path, name="untrusted")
    assert untrusted.id in before, "the trusted settings still apply"
    await client.trust(path)
    changed = await client.create(path, name="changed")

    assert changed.id not in before
    fresh = await ready(client, path, 2)
    assert not before & {spare.id for spare in fresh}
    assert (Path(fresh[0].path) / "made").read_text() == ("two\n" if "two > made" in settings else "one\n")
    assert (await client.create(path, name="again")).id in {spare.id for spare in fresh}


async def test_a_session_is_warned_of_what_its_spare_lacks(client: Client, sandbox: Sandbox) -> None:
    path = sandbox.repository()
    settle(path, 'setup = ["true"]\ncarry = ["node_modules"]\n')
    (path / "node_modules").mkdir()
    (path / "node_modules" / "linked").symlink_to(sandbox.root / "home")
    await client.trust(path)
    await client.create(path, name="first")
    spares = await ready(client, path, 2)

    request = session_pb2.CreateSessionRequest(path=str(path), name="second", request_id="second")
    made = await client.sessions.CreateSession(request, metadata=client.metadata)

    assert made.session.id in {spare.id for spare in spares}
    assert [words for words in made.warnings if words.startswith("node_modules/linked is not carried: ")]

    async def logged() -> list[str]:
        said = [each.warning.message for each in await client.log("second") if each.HasField("warning")]
        assert said
        return said

    (words,) = await eventually(logged)
    assert words in made.warnings
