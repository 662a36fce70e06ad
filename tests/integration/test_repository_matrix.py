"""Every usual kind of repository: a session's tree equals the user's own checkout, with and without
a spare, or is refused in one line.

Known faults of similar tools with git and with names, and the test of each:

======================================================  =====================================================================================
Ten sessions are created at once                        test_pool.test_ten_sessions_at_once_all_succeed_with_and_without_spares,
                                                        worktrees.test_creation.test_ten_at_once_all_succeed
A stale lock file, a held packed-refs.lock              test_git_process.test_a_lock_file_that_stays_is_named, …is_waited_for;
                                                        test_pool.test_a_claim_waits_for_a_lock_file_and_then_names_it
A repository without a commit                           test_a_repository_without_a_commit_is_refused_first, and the next
An empty first commit, a detached HEAD                  here: ``empty first commit``, ``detached``
Bare with linked worktrees, a `.git` file elsewhere     here: ``bare``, ``separate git dir``
Submodules, sparse checkout, LFS filters                here: ``submodules``, ``sparse…``, ``…filter``
A failing post-checkout hook                            here: ``failing hooks``
The directory was deleted by hand, or is locked         worktrees.test_foreign_worktrees.test_a_deleted_directory_frees_the_branch,
                                                        worktrees.test_half_states.test_a_removal_completes_whatever_the_state
The branch is checked out elsewhere, or exists          worktrees.test_creation.test_a_branch_checked_out_elsewhere_says_where,
                                                        test_starts.test_a_branch_that_is_taken_costs_no_spare
An adopted worktree, and creation fails                 test_starts.test_an_adopted_worktree_outlives_a_creation_that_fails_and_the_session
A tree is removed under a running agent                 test_sessions, test_operation_kills
"Is it merged?"                                         snapshots.test_risk.test_commits_known_elsewhere_are_not_at_risk, test_git_landed
Stash is shared, `clean -X` deletes `.env`              test_starts.test_changes_are_copied_and_the_callers_tree_stays_unchanged
Odd names; `a/b` beside `a-b`                           test_names_become_branches_links_and_directories_without_collision_or_escape,
                                                        test_git_names
A prompt that begins with a dash                        test_client_prompts
======================================================  =====================================================================================
"""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import grpc
import pytest
from ramet.v1 import worktree_pb2

from tests.support import repositories
from tests.support.daemon import Client, Sandbox, connected, daemon_process, git, make_sandbox, reason_of
from tests.support.repositories import Sample, fingerprint

pytestmark = pytest.mark.full

Build = Callable[[Path, Mapping[str, str]], Sample]
KINDS: dict[str, Build] = {
    "plain": repositories.plain,
    "empty first commit": repositories.empty_first_commit,
    "detached": repositories.detached,
    "bare": repositories.bare_with_worktrees,
    "submodules": repositories.with_submodule,
    "sparse": repositories.sparse,
}


def kind(name: str) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        KINDS[name] = build
        return build

    return register


@kind("separate git dir")
def separate_git_dir(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    sample.git("init", "-q", "--separate-git-dir", str(path.with_name("elsewhere.git")))
    return sample


@kind("inside another")
def inside_another(path: Path, environment: Mapping[str, str]) -> Sample:
    repositories.plain(path, environment)
    return repositories.plain(path / "inner", environment)


@kind("sparse without cones")
def sparse_without_cones(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    sample.write("docs/guide.md")
    sample.write("docs/notes.txt")
    sample.commit("docs")
    sample.git("sparse-checkout", "set", "--no-cone", "*.md", "!/docs/guide.md", "/src/")
    return sample


@kind("partial clone")
def partial_clone(path: Path, environment: Mapping[str, str]) -> Sample:
    source = repositories.plain(path.with_name("source"), environment)
    source.git("config", "uploadpack.allowFilter", "true")
    source.git("config", "uploadpack.allowAnySHA1InWant", "true")
    source.git("clone", "-q", "--filter=blob:none", f"file://{source.path}", str(path))
    return Sample(path, environment)


FILTER = """import sys
def read():
    size = sys.stdin.buffer.read(4)
    if not size: raise SystemExit
    return sys.stdin.buffer.read(int(size, 16) - 4) if int(size, 16) else None
def lines():
    return [line for line in iter(read, None)]
def write(*lines):
    for line in lines: sys.stdout.buffer.write(b"%04x" % (len(line) + 4) + line)
    sys.stdout.buffer.write(b"0000"); sys.stdout.buffer.flush()
lines(); write(b"git-filter-server\\n", b"version=2\\n"); lines(); write(b"capability=clean\\n", b"capability=smudge\\n")
while True:
    command = lines()[0]; content = b"".join(lines())
    write(b"status=success\\n"); write(content.swapcase()); write()
"""


@kind("process filter")
def process_filter(path: Path, environment: Mapping[str, str]) -> Sample:
    """Configure a required long-running filter, as LFS is."""
    sample = repositories.plain(path, environment)
    program = path.with_name("filter.py")
    program.write_text(FILTER)
    sample.git("config", "filter.swap.process", f"{shlex.quote(sys.executable)} {program}")
    sample.git("config", "filter.swap.required", "true")
    sample.write(".gitattributes", "*.bin filter=swap\n")
    sample.write("large.bin", "Content As A Person Sees It\n")
    sample.commit("filtered")
    assert sample.git("show", "HEAD:large.bin") == "cONTENT aS a pERSON sEES iT"
    return sample


@kind("clean and smudge filter")
def clean_and_smudge(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    for direction in ("clean", "smudge"):
        sample.git("config", f"filter.rot.{direction}", "tr a-zA-Z n-za-mN-ZA-M")
    sample.write(".gitattributes", "*.txt filter=rot\n*.crlf text eol=crlf\n")
    sample.write("secret.txt", "hello\n")
    sample.write("windows.crlf", "one\r\ntwo\r\n")
    sample.commit("filtered")
    assert sample.git("show", "HEAD:secret.txt") == "uryyb"
    return sample


@kind("core.worktree")
def core_worktree(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = separate_git_dir(path, environment)
    sample.git("config", "core.worktree", str(path))
    return sample


@kind("core.worktree of all worktrees")
def core_worktree_of_all(path: Path, environment: Mapping[str, str]) -> Sample:
    """Create a repository with the extension, as of a submodule."""
    sample = core_worktree(path, environment)
    sample.git("config", "extensions.worktreeConfig", "true")
    return sample


@kind("worktree configuration")
def worktree_configuration(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    sample.git("config", "extensions.worktreeConfig", "true")
    sample.git("config", "--worktree", "user.name", "Of This Worktree")
    return sample


@kind("case is ignored")
def case_is_ignored(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    sample.git("config", "core.ignorecase", "true")
    sample.git("branch", "ramet/ONE")  # conflicts with ramet/one on a file system that ignores case
    return sample


@kind("symbolic link")
def through_a_link(path: Path, environment: Mapping[str, str]) -> Sample:
    repositories.plain(path.with_name("real"), environment)
    path.symlink_to("real", target_is_directory=True)
    return Sample(path, environment)


@kind("spaces and Unicode")
def spaces_and_unicode(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path.with_name("Übung 株式 $x 'q' \"d\""), environment)
    sample.write("ein Ordner/日本 語.txt", "x\n")
    sample.write("-dash", "x\n")
    sample.commit("names")
    return sample


@kind("100,000 refs")
def many_refs(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    head = sample.head
    lines = sorted(f"{head} refs/{where}/n{n:05}" for where in ("heads/many", "tags") for n in range(50_000))
    (path / ".git" / "packed-refs").write_text(
        "# pack-refs with: peeled fully-peeled sorted \n" + "\n".join(sorted(lines, key=lambda each: each[41:])) + "\n"
    )
    return sample


@kind("failing hooks")
def failing_hooks(path: Path, environment: Mapping[str, str]) -> Sample:
    sample = repositories.plain(path, environment)
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change"):
        hook = path / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    return sample


@kind("objects that cannot be written")
def borrowed_objects(path: Path, environment: Mapping[str, str]) -> Sample:
    """Create a clone that shares the objects of a read-only repository."""
    source = repositories.plain(path.with_name("source"), environment)
    source.git("gc", "-q")
    source.git("clone", "-q", "--shared", str(source.path), str(path))
    for place in (source.path / ".git" / "objects").rglob("*"):
        place.chmod(0o555 if place.is_dir() else 0o444)
    return Sample(path, environment)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox, daemon_process(sandbox):
        yield sandbox


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with connected(sandbox) as client:
        yield client


async def fill(client: Client, path: Path) -> list[worktree_pb2.Spare]:
    answer = await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(path)), metadata=client.metadata)
    return list(answer.spares)


async def pool_of(client: Client, path: Path) -> worktree_pb2.GetPoolResponse:
    return await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo=str(path)), metadata=client.metadata)


async def drain(client: Client, path: Path) -> None:
    await client.worktrees.DrainPool(worktree_pb2.DrainPoolRequest(repo=str(path)), metadata=client.metadata)


def contents(tree: Path) -> dict[str, bytes]:
    """Return all files except git's own; those of an ignored nested repository belong to that
    one."""
    return {
        str(file.relative_to(tree)): file.read_bytes()
        for file in tree.rglob("*")
        if file.is_file() and ".git" not in file.relative_to(tree).parts
    }


@pytest.mark.parametrize("name", KINDS)
async def test_a_session_has_what_the_users_own_checkout_has_with_and_without_a_spare(
    client: Client, tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    sample = KINDS[name](tmp_path / "repo", environment)
    elsewhere = {"bare", "separate git dir", "core.worktree", "core.worktree of all worktrees", "symbolic link"}
    before = fingerprint(sample) if name not in elsewhere else None
    own, entries = contents(sample.path), sample.git("ls-files", "-t", "-s")
    await client.create(sample.path, name=f"{tmp_path.name} first")  # registers the repository
    await drain(client, sample.path)
    made = [await client.create(sample.path, branch="ramet/cold")]
    spares = await fill(client, sample.path)
    assert [spare.state for spare in spares] == ["ready"]
    made.append(await client.create(sample.path, branch="ramet/warm"))
    assert made[1].id == spares[0].id, "it got the spare"

    for session in made:
        tree = Path(session.worktree)
        assert sample.git("branch", "--show-current", at=tree) == session.branch
        assert contents(tree) == own
        assert sample.git("ls-files", "-t", "-s", at=tree) == entries
        assert sample.git("status", "--porcelain", at=tree) == ""
        (tree / "work.txt").write_text("work\n")
        sample.git("add", "--sparse", "work.txt", at=tree)
        sample.git("-c", "core.hooksPath=/dev/null", "commit", "-qm", "work", at=tree)
        sample.git("rev-parse", f"{session.branch}~1", at=tree) if name != "empty first commit" else None
    assert sample.git("status", "--porcelain", "--ignore-submodules=none") == ""
    if before is not None:
        after = fingerprint(sample)
        assert {key: after[key] for key in ("index", "HEAD", "config", "stash", "files")} == {
            key: before[key] for key in ("index", "HEAD", "config", "stash", "files")
        }


async def test_what_is_checked_out_less_after_a_spare_was_made_is_not_in_the_session(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.plain(tmp_path / "repo", environment)
    await client.create(sample.path)
    spares = await fill(client, sample.path)
    sample.git("sparse-checkout", "set", "nothing")

    session = await client.create(sample.path, name="sparse")

    assert session.id not in [spare.id for spare in spares]
    assert contents(Path(session.worktree)) == contents(sample.path)
    (spare,) = await fill(client, sample.path)
    assert spare.id not in [each.id for each in spares], "it was created without a spare"
    assert contents(Path(spare.path)) == contents(sample.path)


async def test_a_sha256_repository_is_refused_and_nothing_is_created(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.unborn(tmp_path / "repo", environment, "--object-format=sha256")
    sample.git("commit", "-q", "--allow-empty", "-m", "first")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(sample.path)
    assert reason_of(caught.value) == "REPO_UNSUPPORTED"
    assert "\n" not in (caught.value.details() or "")
    assert not (sample.path / ".git" / "ramet").exists()


async def test_a_reftable_repository_works_or_is_refused_in_one_line(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    tried = await asyncio.to_thread(
        subprocess.run,
        ["git", "init", "-q", "--ref-format=reftable", str(tmp_path / "repo")],
        env=environment,
        capture_output=True,
        check=False,
    )
    if tried.returncode != 0:
        pytest.skip(f"this git has no reftables: {tried.stderr.decode().splitlines()[0]}")
    sample = Sample(tmp_path / "repo", environment)
    sample.git("commit", "-q", "--allow-empty", "-m", "first")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(sample.path)
    assert reason_of(caught.value) == "REPO_UNSUPPORTED"
    assert not (sample.path / ".git" / "ramet").exists()


async def test_a_repository_without_a_commit_is_refused_first(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.unborn(tmp_path / "repo", environment)
    sample.write("staged.txt")
    sample.git("add", "-A")
    before = fingerprint(sample)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(sample.path)
    assert reason_of(caught.value) == "NO_COMMIT"
    assert fingerprint(sample) == before
    assert sample.git("worktree", "list").count("\n") == 0
    held = (await pool_of(client, sample.path)).held_reason
    assert not await fill(client, sample.path)
    assert "no commit" in (await pool_of(client, sample.path)).held_reason, held


async def test_an_initial_commit_changes_nothing_else(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.unborn(tmp_path / "repo", environment)
    sample.write("staged.txt")
    sample.git("add", "-A")
    before = fingerprint(sample)

    session = await client.create(sample.path, initial_commit=True)

    assert sample.git("log", "--format=%s|%P", "main") == "Initial commit|"
    assert sample.git("ls-tree", "main") == ""
    after = fingerprint(sample)
    assert {key: after[key] for key in ("index", "HEAD", "config", "files")} == {
        key: before[key] for key in ("index", "HEAD", "config", "files")
    }
    assert session.base_commit == sample.head
    again = await client.create(sample.path, initial_commit=True, name="again")
    assert again.base_commit == session.base_commit, "there is a commit, so none is created"


NAMES = (
    "a/b", "a-b", "A-B", "with space", "..", "../../etc", "-dash", "x.lock", ".hidden", "ends.", "日本語", "🦀", "a..b", "@{x}", "HEAD", "n" * 200,
)  # fmt: skip


async def test_names_become_branches_links_and_directories_without_collision_or_escape(
    client: Client, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.plain(tmp_path / "repo", environment)
    sessions = [await client.create(sample.path, name=name) for name in NAMES]

    assert [session.name for session in sessions] == list(NAMES), "labels stay as typed"
    branches = [session.branch for session in sessions]
    assert len({branch.casefold() for branch in branches}) == len(NAMES)
    root = Path(sessions[0].worktree).parent
    assert {Path(session.worktree) for session in sessions} <= set(root.iterdir())
    links = {link.resolve() for link in (root / "by-name").iterdir()}
    assert links == {Path(session.worktree) for session in sessions}
    for session in sessions:
        git(sample.path, "check-ref-format", f"refs/heads/{session.branch}")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.create(sample.path, name="n" * 300)
    assert reason_of(caught.value) == "BAD_NAME"
