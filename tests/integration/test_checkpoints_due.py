"""The checkpoint of every ended turn is created: a real store and real git, without agents."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from rametd.domain.operations import Caller, Kind
from rametd.domain.states import State
from rametd.keeper.local import LocalExecutor
from rametd.parts import assemble
from rametd.services import operations
from rametd.services.core import Core
from rametd.services.operations import new_operation
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Unit

from tests.support import repositories
from tests.support.core import bare_core
from tests.support.eventually import eventually
from tests.support.rows import a_repo, a_session


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    """Return a core with an idle session ``one`` whose first turn has ended."""
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    tree = tmp_path / "tree"
    sample.git("worktree", "add", "-q", "-b", "ramet/one", str(tree))

    def begin(unit: Unit) -> None:
        unit.repos.upsert(a_repo(root=sample.path, common_dir=sample.path / ".git"))
        session = a_session(state=State.IDLE, worktree=tree, base_commit=sample.head, turns=1, generation=1)
        unit.sessions.insert(session)

    async with bare_core(tmp_path, {**os.environ, **environment}, clock=lambda: 10.0) as core:
        await core.store.write(begin)
        core.recovered.set()
        core.state_dir.mkdir(exist_ok=True)
        yield core


async def have_checkpoints(core: Core, *turns: int) -> None:
    async def look() -> bool:
        found = await core.store.read(lambda reader: reader.checkpoints.list("one"))
        assert sorted(each.turn for each in found) == [*turns]
        return True

    await eventually(look)


async def test_a_turn_that_ends_during_the_previous_ones_checkpoint_gets_its_own(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = Checkpointer(core)
    take = core.git.snapshots.take

    async def take_while_a_turn_ends(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        taken = await take(*arguments, **named)
        ended = await core.store.write(lambda unit: unit.sessions.update("one", turns=2))
        await checkpointer.after_turn(ended)
        return taken

    monkeypatch.setattr(core.git.snapshots, "take", take_while_a_turn_ends)
    checkpointer.catch_up("one")
    await have_checkpoints(core, 1, 2)
    await checkpointer.close()


async def test_a_slow_recovery_of_an_operation_leaves_no_turn_without_checkpoint(
    core: Core, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await core.store.write(lambda unit: unit.operations.begin(new_operation(Kind.SYNC, "one", Caller("owner"))))
    monkeypatch.setattr(operations, "PATIENCE_S", 0)  # it outlasts the start

    async with AsyncExitStack() as stack:
        await assemble(core, LocalExecutor(tmp_path / "commands", tmp_path / "run")).recover(stack)
        await have_checkpoints(core, 1)
