"""Trust that the person withdraws, or a repository that they remove, while a session or a spare is
being created."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import repo_pb2, session_pb2, worktree_pb2
from rametd.services.commands import scripts, setup
from rametd.services.commands.carry import carry
from rametd.services.creation.building import Builder
from rametd.services.creation.pool import Pool

from tests.support.daemon import Client, Sandbox, connected, daemon_here, git, make_sandbox, reason_of
from tests.support.eventually import eventually


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with make_sandbox(config="[pool]\nsize = 1\n") as sandbox:
        yield sandbox


@pytest.fixture
def project(sandbox: Sandbox) -> Path:
    """Create a repository whose setup leaves a mark, and that carries a file."""
    path = sandbox.repository()
    (path / ".gitignore").write_text(".env\n")
    (path / ".ramet.toml").write_text(f'setup = ["echo $RAMET_WORKTREE >> {sandbox.root}/ran"]\ncarry = [".env"]\n')
    git(path, "add", "-A")
    git(path, "commit", "-qm", "settings")
    (path / ".env").write_text("A=1\n")
    return path


def after(function: Callable[..., Awaitable[Any]], then: Callable[[], Awaitable[object]]) -> Callable[..., Any]:
    """Wrap a function: ``then`` happens once, before the function returns."""
    done = False

    async def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal done
        result = await function(*arguments, **options)
        if not done:
            done = True
            await then()
        return result

    return wrapped


def ran(sandbox: Sandbox) -> list[str]:
    file = sandbox.root / "ran"
    return file.read_text().split() if file.exists() else []


async def test_no_setup_of_a_session_runs_without_trust(
    sandbox: Sandbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.trust(project)
        monkeypatch.setattr(setup, "carry", after(carry, lambda: client.trust(project, trusted=False)))
        session = await client.create(project, name="one")

        async def look() -> bool:
            return (await client.get("one")).setup == session_pb2.SETUP_STATE_UNTRUSTED

        await eventually(look)
        assert (Path(session.worktree) / ".env").exists()
        assert ran(sandbox) == []


async def test_no_setup_of_a_spare_runs_without_trust(
    sandbox: Sandbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.trust(project)
        monkeypatch.setattr(scripts, "carry", after(carry, lambda: client.trust(project, trusted=False)))
        fill = worktree_pb2.FillPoolRequest(repo=str(project))
        (spare,) = (await client.worktrees.FillPool(fill)).spares
        assert ran(sandbox) == []

        (fresh,) = (await client.worktrees.FillPool(fill)).spares
        assert fresh.id != spare.id, "it was prepared by settings that no longer apply"
        assert not (Path(fresh.path) / ".env").exists()


async def test_a_creation_is_refused_if_its_trust_was_withdrawn_meanwhile(
    sandbox: Sandbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.trust(project)
        take = Pool.take
        with monkeypatch.context() as patch:
            patch.setattr(Pool, "take", after(take, lambda: client.trust(project, trusted=False)))
            with pytest.raises(grpc.aio.AioRpcError, match="the trust in repo was withdrawn") as refused:
                await client.create(project, name="one")
        assert reason_of(refused.value) == "CHANGED"
        assert git(project, "branch", "--format=%(refname:short)") == "main"
        await client.create(project, name="one")
        assert ran(sandbox) == []


async def forget(client: Client) -> str:
    """Remove the repository; return the refusal, "" without one."""
    try:
        await client.repos.RemoveRepo(repo_pb2.RemoveRepoRequest(repo="repo"), metadata=client.metadata)
    except grpc.aio.AioRpcError as error:
        return error.details() or ""
    return ""


@pytest.mark.parametrize("spare", [False, True])
async def test_a_repository_stays_while_a_session_is_created_in_it(
    sandbox: Sandbox, project: Path, monkeypatch: pytest.MonkeyPatch, spare: bool
) -> None:
    said: list[str] = []

    async def remove(client: Client) -> None:
        said.append(await forget(client))

    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.trust(project)
        await client.create(sandbox.repository("other"), name="elsewhere")  # git then knows which are registered
        if spare:
            await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(project)))
        monkeypatch.setattr(Builder, "build", after(Builder.build, lambda: remove(client)))
        session = await client.create(project, name="one")
        assert said == ["a session is being created in repo"]
        created = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=session.id))
        assert created.checkpoint.number
        assert await eventually(lambda: ran(sandbox))


@pytest.mark.parametrize("spare", [False, True])
async def test_a_creation_registers_a_repository_again_that_was_removed_before_it_began(
    sandbox: Sandbox, project: Path, monkeypatch: pytest.MonkeyPatch, spare: bool
) -> None:
    said: list[str] = []

    async def remove(client: Client) -> None:
        said.append(await forget(client))

    async with daemon_here(sandbox), connected(sandbox) as client:
        await client.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(project)), metadata=client.metadata)
        await client.create(sandbox.repository("other"), name="elsewhere")
        if spare:
            await client.worktrees.FillPool(worktree_pb2.FillPoolRequest(repo=str(project)))
        monkeypatch.setattr(Pool, "take", after(Pool.take, lambda: remove(client)))
        session = await client.create(project, name="one")
        assert said == ["a spare of repo is in use" if spare else ""]
        created = await client.worktrees.CreateCheckpoint(worktree_pb2.CreateCheckpointRequest(session=session.id))
        assert created.checkpoint.number
