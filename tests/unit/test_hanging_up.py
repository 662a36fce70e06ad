"""A caller that hangs up while a session's row, or a change of a repository, is being stored."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ramet.v1 import repo_pb2
from rametd.api.calls import Calls
from rametd.api.repo import RepoServicer
from rametd.domain.errors import ReadOnlyError
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.pool import Pool
from rametd.services.hooks import SessionHooks
from rametd.services.trust.withheld import WithheldInbox

from tests.support import repositories
from tests.support.core import bare_core
from tests.support.eventually import eventually


class SlowStore:
    """A writer that, like the real one, completes each work even if its caller no longer waits."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def write(self, work: Callable[[Any], None]) -> None:
        self.begun.set()
        await self.go.wait()
        work(None)


async def hang_up_during(work: Callable[[Any], None]) -> None:
    store = SlowStore()
    creator = Creator(
        cast(Core, SimpleNamespace(store=store, operations=SimpleNamespace(handle=lambda *kind: None))),
        cast(SessionHooks, None),
        cast(Pool, None),
    )
    storing = asyncio.create_task(creator._insert(work))
    await store.begun.wait()
    storing.cancel()
    await asyncio.sleep(0)
    store.go.set()
    await storing


async def test_a_row_that_is_stored_counts_as_stored() -> None:
    done: list[object] = []
    await hang_up_during(done.append)
    assert done == [None]


async def test_one_that_is_not_stored_is_to_be_undone() -> None:
    def refuse(unit: object) -> None:
        raise ReadOnlyError("the disk is full")

    with pytest.raises(asyncio.CancelledError):
        await hang_up_during(refuse)


@pytest.mark.parametrize("change", ["trust", "distrust", "remove"])
async def test_git_applies_the_trust_that_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.git("config", "include.path", "../.gitconfig")
    (sample.path / ".gitconfig").write_text("[user]\n\tname = x\n")
    async with bare_core(tmp_path, environment, clock=lambda: 1.0) as core:

        async def drain(*_: object) -> None:
            pass

        servicer = RepoServicer(core, Calls(core), cast(Pool, SimpleNamespace(drain=drain)), WithheldInbox(core))
        added = repo_pb2.RegisterRepoRequest(path=str(sample.path))
        repo = (await servicer.RegisterRepo(added, None)).repo
        common = (await core.store.read(lambda reader: reader.repos.get(repo.id))).common_dir
        shown = await servicer.GetTrust(repo_pb2.GetTrustRequest(repo=repo.id), cast(Any, None))

        async def changed(change: str) -> None:
            if change == "remove":
                await servicer.RemoveRepo(repo_pb2.RemoveRepoRequest(repo=repo.id), None)
                return
            request = repo_pb2.UpdateRepoRequest(repo_id=repo.id, repo=repo_pb2.Repo(trusted=change == "trust"))
            request.trust_digest = shown.digest if change == "trust" else ""
            request.update_mask.paths.append("trusted")
            await servicer.UpdateRepo(request, None)

        def in_force() -> bool:
            return bool(core.git._context.trusted.get(common))

        if change != "trust":
            await changed("trust")
        assert in_force() == (change != "trust")

        begun, gate, write = asyncio.Event(), threading.Event(), core.store.write

        async def slow(work: Callable[[Any], Any]) -> Any:
            begun.set()
            return await write(lambda unit: (gate.wait(), work(unit))[1])

        monkeypatch.setattr(core.store, "write", slow)
        caller = asyncio.create_task(changed(change))
        await begun.wait()
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        gate.set()
        await eventually(lambda: in_force() == (change == "trust"))
        assert (common in core.git._context.trusted) == (change != "remove")
        await servicer.RegisterRepo(added, None)
        assert in_force() == (change == "trust")
