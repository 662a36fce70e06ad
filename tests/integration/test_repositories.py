"""Registration of repositories: by calls that need it, and never by a refused call."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import common_pb2, plan_pb2, repo_pb2, session_pb2, worktree_pb2

from tests.support.daemon import Client, DaemonProcess, Ran, Sandbox, connected, daemon_here, git, reason_of
from tests.support.doctor import findings


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with daemon_here(sandbox), connected(sandbox) as client:
        yield client


def state_of(sandbox: Sandbox, repository: Path) -> tuple[str, list[Path], str]:
    """Return everything that a call could leave: refs and worktrees of the repository, files among
    the worktrees, rows."""
    root = sandbox.root / "state"
    made = [path for name in ("worktrees", "index", "environments") for path in (root / name).rglob("*")]
    return git(repository, "for-each-ref"), made, git(repository, "worktree", "list")


async def known(client: Client) -> tuple[list[str], list[str]]:
    """Return the repositories' names, and the kinds of all events."""
    repos = (await client.repos.ListRepos(repo_pb2.ListReposRequest())).repos
    return [repo.name for repo in repos], [event.WhichOneof("payload") or "" for event in await client.log()]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "adopt, of the repository itself": ({"adopt_path": "REPO"}, "INVALID_INPUT"),
    "adopt, of what is no worktree": ({"adopt_path": "/"}, "REPO_NOT_FOUND"),
    "adopt, with a base": ({"adopt_path": "TREE", "base_ref": "main"}, "INVALID_INPUT"),
    "a base that is not there": ({"base_ref": "nothing"}, "REF_NOT_FOUND"),
    "a branch that is taken": ({"branch": "main"}, "BRANCH_TAKEN"),
    "an existing branch that is not there": ({"existing_branch": "nothing"}, "REF_NOT_FOUND"),
    "a fetch without a remote": ({"fetch": True}, "REF_NOT_FOUND"),
    "a mode that is forbidden": ({"mode": common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS}, "BYPASS_FORBIDDEN"),
    "a parent that is not there": ({"parent": "nobody"}, "SESSION_NOT_FOUND"),
    "after one that is not there": ({"after": ["nobody"]}, "SESSION_NOT_FOUND"),
    "a name that no shell likes": ({"name": "\n"}, "BAD_NAME"),
    "files that git cannot check out": ({}, "GIT_FAILED"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_session_that_is_refused_does_not_make_its_repository_known(
    running: DaemonProcess, shared: Client, what: str
) -> None:
    fields, reason = REFUSED[what]
    sandbox = running.sandbox
    repository = sandbox.repository(f"repo{list(REFUSED).index(what)}")
    tree = repository.with_name(f"{repository.name}-by-hand")
    git(repository, "worktree", "add", "-q", "--detach", str(tree))
    if not fields:
        git(repository, "config", "filter.broken.smudge", "false")
        git(repository, "config", "filter.broken.required", "true")
        (repository / ".git" / "info" / "attributes").write_text("* filter=broken\n")
    places = {"REPO": str(repository), "TREE": str(tree)}
    before = state_of(sandbox, repository)

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await shared.create(repository, **{name: places.get(str(value), value) for name, value in fields.items()})

    assert reason_of(refused.value) == reason, refused.value.details()
    assert await known(shared) == ([], ["daemon_started"])
    assert state_of(sandbox, repository) == before
    assert not await findings(shared)


@pytest.mark.parametrize("fields", [{"branch": "a..b"}, {"name": "\n"}, {"existing_branch": "x", "branch": "-"}])
async def test_a_session_that_is_refused_makes_no_first_commit(
    running: DaemonProcess, shared: Client, fields: dict[str, Any], tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")

    with pytest.raises(grpc.aio.AioRpcError):
        await shared.create(tmp_path, initial_commit=True, **fields)

    assert await known(shared) == ([], ["daemon_started"])
    assert state_of(running.sandbox, tmp_path)[0] == ""


async def test_a_repository_that_is_not_forgotten_keeps_its_spares(sandbox: Sandbox, repository: Path) -> None:
    sandbox.configure("[pool]\nsize = 1\n")
    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.create(repository, name="one")
        (spare,) = (await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo="repo"))).spares

        for words in ("has 1 session: one", "has 1 entry in the trash"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.repos.RemoveRepo(repo_pb2.RemoveRepoRequest(repo="repo"))
            assert reason_of(refused.value) == "WRONG_STATE"
            assert words in (refused.value.details() or "")
            pool = await client.worktrees.GetPool(worktree_pb2.GetPoolRequest(repo="repo"))
            assert ([each.id for each in pool.spares], pool.held_reason) == ([spare.id], "")
            if words == "has 1 session: one":
                await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="one"))
        await client.worktrees.EmptyTrash(worktree_pb2.EmptyTrashRequest(repo="repo"))
        await client.repos.RemoveRepo(repo_pb2.RemoveRepoRequest(repo="repo"))
        assert not Path(spare.path).exists()


async def test_a_plan_that_is_refused_does_not_make_its_repository_known(
    running: DaemonProcess, shared: Client
) -> None:
    repository = running.sandbox.repository("planned")
    git(repository, "config", "filter.broken.smudge", "test %f != later.txt")
    git(repository, "config", "filter.broken.required", "true")
    (repository / ".git" / "info" / "attributes").write_text("later.txt filter=broken\n")
    git(repository, "branch", "whole")
    (repository / "later.txt").write_text("x\n")
    git(repository, "-c", "filter.broken.clean=cat", "add", "-A")
    git(repository, "-c", "filter.broken.clean=cat", "commit", "-qm", "later")
    before = state_of(running.sandbox, repository)
    one, two = (f'[[threads]]\nid = "{name}"\ngoal = "g"\nowns = ["{name}/"]\n' for name in ("one", "two"))

    for text, reason in (
        (one + one, "BAD_PLAN"),
        (f'{one}base = "whole"\n{two}', "GIT_FAILED"),  # the first of the two exists by then
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await shared.plans.ApplyPlan(plan_pb2.ApplyPlanRequest(path=str(repository), text=text))
        assert reason_of(refused.value) == reason, refused.value.details()

    assert await known(shared) == ([], ["daemon_started"])
    assert state_of(running.sandbox, repository) == before


async def test_concurrent_sessions_in_a_new_repository_register_it_once(client: Client, sandbox: Sandbox) -> None:
    for parent in ("a", "b"):  # two of one name
        (sandbox.root / parent).mkdir()
    repositories = [sandbox.repository(f"{parent}/shop") for parent in ("a", "b")]

    made = await asyncio.gather(*(client.create(repository) for _ in range(3) for repository in repositories))

    assert sorted({session.repo for session in made}) == ["shop", "shop-2"]
    assert len({Path(session.worktree).parent.name.rpartition("-")[2] for session in made}) == 2  # their ids
    names, events = await known(client)
    assert sorted(names) == ["shop", "shop-2"]
    assert events.count("repo_changed") == 2
    first = events.index("repo_changed")
    assert events[first + 1] == "session_created"
    assert not await findings(client)


async def test_a_setup_is_offered_once_a_repository_also_to_simultaneous_sessions(
    client: Client, repository: Path
) -> None:
    (repository / "Cargo.toml").write_text("[package]\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a project")
    with pytest.raises(grpc.aio.AioRpcError):
        await client.create(repository, branch="main")

    request = session_pb2.CreateSessionRequest(path=str(repository))
    answers = await asyncio.gather(*(client.sessions.CreateSession(request) for _ in range(3)))

    warnings = [warning for answer in answers for warning in answer.warnings]
    assert [warning.startswith("tip: ") for warning in warnings] == [True], warnings


def pool_words(ran: Ran) -> str:
    assert ran.code == 0, ran
    return ran.stdout


async def test_the_pool_of_a_repository_without_a_session_is_shown_filled_and_drained(
    sandbox: Sandbox, repository: Path
) -> None:
    sandbox.configure("[pool]\nsize = 1\n")
    async with daemon_here(sandbox), connected(sandbox) as client:
        await pool_is_used(client, sandbox, repository)


async def pool_is_used(client: Client, sandbox: Sandbox, repository: Path) -> None:
    async def pool(*words: str) -> str:
        return pool_words(await asyncio.to_thread(sandbox.ctl, "pool", *words, cwd=repository))

    before = state_of(sandbox, repository)
    assert "it fills with the first session of the repository, or with `rametctl pool fill`" in await pool("status")
    assert await pool("drain") == "0 spares removed\n"
    assert await known(client) == ([], ["daemon_started"])
    assert state_of(sandbox, repository) == before

    assert "ready" in await pool("fill")
    assert (await known(client))[0] == ["repo"]
    assert "1 of 1 ready" in await pool("status")
    assert await pool("drain") == "1 spare removed\n"
    assert not await findings(client)
    elsewhere = await asyncio.to_thread(sandbox.ctl, "pool", "fill", cwd=sandbox.root)
    assert (elsewhere.code, "no git repository around" in elsewhere.stderr) == (3, True), elsewhere


async def test_the_pool_is_shown_despite_a_broken_file_of_the_repository(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="one")
    await client.trust(repository)
    (repository / ".ramet.toml").write_text("pool = 7\n")

    words = pool_words(await asyncio.to_thread(sandbox.ctl, "pool", "status", cwd=repository))

    assert "No spares are created now: " in words
    assert ".ramet.toml" in words
    pool_words(await asyncio.to_thread(sandbox.ctl, "pool", "drain", cwd=repository))
    (repository / ".ramet.toml").write_text("[pool]\nsize = 0\n")
    await client.trust(repository)
    assert "pool.size is 0" in pool_words(await asyncio.to_thread(sandbox.ctl, "pool", "status", cwd=repository))


async def test_the_file_of_a_repository_is_shown_apart_until_the_repository_is_trusted(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    async def ctl(*words: str, code: int = 0) -> Ran:
        ran = await asyncio.to_thread(sandbox.ctl, *words, cwd=repository)
        assert ran.code == code, ran
        return ran

    async def setup() -> tuple[Any, list[Any]]:
        """Return the effective and the ignored value of the setting ``setup``."""
        shown = (await ctl("config", "show", "--json")).json
        (counts,) = [each["value"] for each in shown["settings"] if each["key"] == "setup"]
        return counts, [each["value"] for each in shown.get("withheld", ())]

    assert "is not in effect" not in (await ctl("config", "show")).stdout
    (repository / ".ramet.toml").write_text('setup = "make deps"\n')
    assert await setup() == ([], [["make deps"]])
    config = (await ctl("config", "show")).stdout
    assert f"{repository}/.ramet.toml is not in effect: {repository} is not trusted. It says:" in config
    assert '  setup = ["make deps"]' in config
    assert config.partition("is not in effect")[2] in (await ctl("config", "show", "setup")).stdout
    assert "make deps" not in (await ctl("config", "show", "teardown")).stdout

    (command,) = [line.partition(": ")[2] for line in config.splitlines() if line.startswith("to apply it")]
    for words in command.split(" && "):
        await ctl(*words.split()[1:], *(("--yes",) if "trust" in words else ()))
    assert await setup() == (["make deps"], [])
    assert "is not in effect" not in (await ctl("config", "show")).stdout
    assert (await ctl("repo", "trust", "--no")).code == 0
    assert "to apply it: rametctl repo trust repo\n" in (await ctl("config", "show")).stdout
    assert "make deps" in (await ctl("repo", "trust", "--yes")).stdout
    await ctl("repo", "trust", "--no")

    (repository / ".ramet.toml").write_text("setup = 7\n")
    config = (await ctl("config", "show")).stdout
    assert "is not trusted; it also has an error: " in config
    assert "setup" in config.partition("it also has an error: ")[2]
    assert "setup" in (await ctl("repo", "trust", "--yes", code=1)).stderr


@pytest.mark.own_changes(".git/*")
async def test_a_name_whose_branch_is_taken_says_where_the_work_is(client: Client, repository: Path) -> None:
    git(repository, "branch", "ramet/taken")
    request = session_pb2.CreateSessionRequest(path=str(repository), name="taken")
    answer = await client.sessions.CreateSession(request)
    assert answer.session.branch == "ramet/taken-2"
    assert [each for each in answer.warnings if "taken" in each] == [
        "branch ramet/taken is taken: the work is on ramet/taken-2; to continue an existing branch: rametctl new --existing BRANCH"
    ]
