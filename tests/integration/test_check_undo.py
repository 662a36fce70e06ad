"""Undo of a check's changes, unless something else may have changed files: a real store and real
git, without a daemon."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from ramet.v1 import event_pb2
from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.commands import Command, CommandKind, CommandState
from rametd.domain.models import DAEMON, AgentState, BackgroundCommand
from rametd.domain.operations import Caller, Kind
from rametd.domain.states import State
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core
from rametd.services.operations import new_operation
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.rewind import Rewinder, remember_before
from rametd.store import Unit

from tests.support.core import bare_core
from tests.support.daemon import git
from tests.support.rows import a_repo, a_session, an_agent


class Launched:
    """Return a supervisor whose agents have all started, and do nothing."""

    async def settled(self, session_id: str) -> None:
        pass

    async def quiet(self, session_id: str) -> None:
        pass


@dataclass
class World:
    core: Core
    checkpointer: Checkpointer
    rewinder: Rewinder
    tree: Path

    async def begin(self, command_id: str = "check", **fields: Any) -> Command:
        """Begin a check, as the API does."""
        made = await self.checkpointer.ask("one", CheckpointReason.MANUAL, DAEMON)
        kind = fields.pop("kind", CommandKind.CHECK)
        command = Command(
            *(command_id, "one", "repo", kind, "make", ("make",), self.tree, CommandState.RUNNING, "", 0, "", ""),
            *(None, 0, 0, made.tree, DAEMON, 10.0, None),
        )
        return await self.core.store.write(lambda unit: unit.commands.insert(replace(command, **fields)))

    async def end(self, command: Command, ended: float | None = None) -> list[str]:
        """Record its end after the undo. Return the session's warnings."""
        await self.rewinder.undo_check(command, ended)
        await self.core.store.write(
            lambda unit: unit.commands.update(command.id, state=CommandState.EXITED, end_time=20.0)
        )
        return await self.warnings()

    async def warnings(self) -> list[str]:
        events = await self.core.store.read(lambda reader: reader.events.list())
        return [event_pb2.Event.FromString(each.payload).warning.message for each in events if each.kind == "warning"]

    async def change(self, **columns: Any) -> None:
        await self.core.store.write(lambda unit: unit.sessions.update("one", **columns))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    root, tree = tmp_path / "repo", tmp_path / "tree"
    git(tmp_path, "init", "-q", "-b", "main", str(root))
    git(root, "config", "user.name", "T")
    git(root, "config", "user.email", "t@example.org")
    (root / "kept").write_text("1\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    git(root, "worktree", "add", "-q", "-b", "ramet/one", str(tree))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    async with bare_core(tmp_path, environ, clock=lambda: 10.0) as core:
        session = a_session(state=State.IDLE, worktree=tree, base_commit=git(root, "rev-parse", "HEAD"))

        def begin(unit: Unit) -> None:
            unit.repos.upsert(a_repo(root=root, common_dir=root / ".git"))
            unit.sessions.insert(session)

        await core.store.write(begin)
        core.recovered.set()
        checkpointer = Checkpointer(core)
        yield World(core, checkpointer, Rewinder(core, cast("Supervisor", Launched()), checkpointer), tree)
        await checkpointer.close()


def undone(files: str, checkpoint: int = 2) -> str:
    return (
        f"undid what changed during the check: {files}; "
        f"if you made any of these changes: rametctl rewind one {checkpoint}"
    )


async def test_an_undo_names_the_files_and_the_checkpoint_that_has_them(world: World) -> None:
    """A person may have edited a file while the check ran."""
    (world.tree / "work").write_text("uncommitted\n")
    check = await world.begin()
    (world.tree / "report").write_text("9\n")
    (world.tree / "kept").write_text("by hand\n")
    assert await world.end(check) == [undone("kept, report")]
    assert git(world.tree, "status", "--porcelain") == "?? work"
    made = await world.core.store.read(lambda reader: reader.checkpoints.latest("one"))
    assert made is not None
    assert (made.number, git(world.tree, "show", f"{made.tree}:kept")) == (2, "by hand")


async def test_a_check_that_changes_nothing_is_not_mentioned(world: World) -> None:
    assert await world.end(await world.begin()) == []


async def person_commits(world: World) -> None:
    git(world.tree, "commit", "-q", "--allow-empty", "-m", "by hand")


async def sync_finishes(world: World) -> None:
    """A sync that found nothing to capture: its checkpoint is that of the check."""
    latest = await world.checkpointer.make("one", CheckpointReason.SYNC)
    assert latest.reason == CheckpointReason.MANUAL
    (world.tree / "synced").write_text("base\n")
    git(world.tree, "add", "synced")
    git(world.tree, "commit", "-qm", "of the base")
    await world.change(base_commit=git(world.tree, "rev-parse", "HEAD"))


async def turn_ends(world: World) -> None:
    (world.tree / "turn").write_text("the agent's\n")
    await world.change(turns=1)


async def turn_without_a_checkpoint_ends(world: World) -> None:
    (world.tree / "turn").write_text("the agent's\n")
    await world.change(turns=1, checkpointed_turns=1)


async def turn_runs(world: World) -> None:
    await world.change(state=State.WORKING)


async def person_stages(world: World) -> None:
    (world.tree / "kept").write_text("staged\n")
    git(world.tree, "add", "kept")
    (world.tree / "kept").write_text("1\n")


async def person_rewinds(world: World) -> None:
    await world.change(checkpoint=7)
    (world.tree / "older").write_text("of an older checkpoint\n")


async def command_runs(world: World) -> None:
    await world.begin("other", kind=CommandKind.RUN)


async def command_has_run(world: World) -> None:
    await world.begin("other", kind=CommandKind.RUN, state=CommandState.EXITED, start_time=1.0, end_time=11.0)


async def agent_has_a_background(world: World) -> None:
    running = BackgroundCommand("b", "sleep 9", start_time=1.0)
    agent = an_agent(state=AgentState.LIVE, background_commands=(running,))
    await world.core.store.write(lambda unit: unit.agents.insert(agent))


async def operation_begins(world: World) -> None:
    sync = new_operation(Kind.SYNC, "one", Caller(DAEMON))
    await world.core.store.write(lambda unit: unit.operations.begin(sync))


async def repository_appears(world: World) -> None:
    git(world.tree, "clone", "-q", str(world.tree.parent / "repo"), "inside")


@pytest.mark.parametrize(
    "meanwhile",
    [
        person_commits,
        sync_finishes,
        turn_ends,
        turn_without_a_checkpoint_ends,
        turn_runs,
        person_stages,
        person_rewinds,
        command_runs,
        command_has_run,
        agent_has_a_background,
        operation_begins,
        repository_appears,
    ],
)
async def test_whatever_else_happens_during_a_check_is_not_undone(
    world: World, meanwhile: Callable[[World], Awaitable[None]]
) -> None:
    check = await world.begin()
    await meanwhile(world)
    (world.tree / "report").write_text("9\n")
    before = git(world.tree, "rev-parse", "HEAD"), git(world.tree, "status", "--porcelain")
    base = await world.core.store.read(lambda reader: reader.sessions.get("one").base_commit)
    [warning] = await world.end(check)
    assert warning.startswith("files that the check `make` changed stay: ")
    assert (git(world.tree, "rev-parse", "HEAD"), git(world.tree, "status", "--porcelain")) == before
    assert await world.core.store.read(lambda reader: reader.sessions.get("one").base_commit) == base


@pytest.mark.parametrize("edit", ["written", "deleted"])
async def test_a_file_that_changed_after_the_check_stays(world: World, edit: str) -> None:
    """No daemon ran when the check ended, and a person edited files before the next one started."""
    check, ended = await world.begin(), time.time() - 3600
    (world.tree / "report").write_text("9\n")
    os.utime(world.tree / "report", (ended, ended))
    if edit == "written":
        (world.tree / "kept").write_text("by hand\n")
    else:
        (world.tree / "kept").unlink()
    before = git(world.tree, "status", "--porcelain")

    [warning] = await world.end(check, ended)

    assert warning == "files that the check `make` changed stay: kept, report changed after its end"
    assert git(world.tree, "status", "--porcelain") == before


async def test_changes_until_the_end_of_the_check_are_undone(world: World) -> None:
    check = await world.begin()
    (world.tree / "report").write_text("9\n")
    assert await world.end(check, time.time()) == [undone("report")]


async def test_the_last_of_several_checks_undoes_the_changes_of_all(world: World) -> None:
    one, two = await world.begin("a"), await world.begin("b")
    for name in ("one", "two"):
        (world.tree / name).write_text("built\n")
    assert await world.end(one) == []
    assert (world.tree / "one").exists(), "another check works with these files"
    assert await world.end(two) == [undone("one, two")]
    assert git(world.tree, "status", "--porcelain") == ""


async def test_any_error_of_an_undo_becomes_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    check = await world.begin()

    async def broken(*arguments: object) -> tuple[str, ...]:
        raise ValueError("no such thing")

    monkeypatch.setattr(world.core.git.diffs, "changed_files", broken)
    assert await world.end(check) == ["files that the check `make` changed stay: no such thing"]


@pytest.mark.parametrize("resumed", ["by the recovery", "by the check"])
async def test_an_undo_that_was_cut_short_is_finished_before_files_are_compared(world: World, resumed: str) -> None:
    check = await world.begin()
    (world.tree / "report").write_text("9\n")
    (world.tree / "kept").write_text("2\n")
    [latest] = await world.core.store.read(lambda reader: reader.checkpoints.list("one"))
    data = {"checkpoint": latest.id, "files_only": "yes", "check": check.id}
    cut = new_operation(Kind.REWIND, "one", Caller(DAEMON), **data)

    async def cut_short(unit_of: World) -> None:
        await unit_of.core.store.write(lambda unit: unit.operations.begin(cut))
        made = await unit_of.checkpointer.make("one", CheckpointReason.REWIND)
        await unit_of.core.store.write(lambda unit: remember_before(unit, cut, made))
        (unit_of.tree / "kept").write_text("1\n")

    await cut_short(world)
    world.core.recovered.clear()
    ending = asyncio.create_task(world.end(check))
    if resumed == "by the recovery":
        await world.core.operations.recover(lambda session_id: asyncio.sleep(0))
    world.core.recovered.set()
    assert undone("kept, report") in await ending
    assert git(world.tree, "status", "--porcelain") == ""
