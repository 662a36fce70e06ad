"""Recovery after a loss of power: delete damaged git objects, replace damaged indexes, and check
the newest checkpoints.

An empty object blocks git, which does not write the object again and fails to read it (libgit2
reads forever). An empty index blocks every git command in its worktree. The daemon deletes or
replaces both before anything else. In the background it then checks each newest checkpoint, reports
a damaged one, and creates another.
"""

import asyncio

import structlog
from ramet.v1 import event_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import RametError
from rametd.domain.models import DAEMON, NewEvent, Session, WorktreeKind
from rametd.domain.states import State
from rametd.platform.processes import boot_id
from rametd.platform.state import private_file
from rametd.services import events
from rametd.services.core import Core
from rametd.services.repos import info_of
from rametd.services.worktrees.checkpoints import Checkpointer

log = structlog.get_logger()

PATIENCE_S = 2.0
"""Seconds that the start waits for the sweep, which takes some 20 ms for each repository, unless a
disk does not answer."""


class Power:
    """Recovers once for each boot: a file in the state directory has the id of the last checked
    one."""

    def __init__(self, core: Core, checkpointer: Checkpointer) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._file = core.state_dir / "boot"
        self._boot = ""
        self._sweeping: set[asyncio.Task[None]] = set()

    async def recover(self) -> None:
        """Delete objects that block git, before writing anything."""
        self._boot = await asyncio.to_thread(self._new_boot)
        if not self._boot:
            return
        repos = await self._core.store.read(lambda reader: reader.repos.list())
        self._sweeping = {asyncio.create_task(self._sweep(repo.id), name=f"sweep-{repo.name}") for repo in repos}
        if self._sweeping:
            await asyncio.wait(self._sweeping, timeout=PATIENCE_S)

    async def run(self) -> None:
        """Check the newest checkpoints once per boot."""
        if not self._boot:
            return
        await asyncio.gather(*self._sweeping)
        for session in await self._core.store.read(lambda reader: reader.sessions.list()):
            try:
                await self._look_at(session)
            except RametError as error:  # the repository is gone, or an operation runs, which makes a checkpoint itself
                log.warning("checkpoint not checked after a boot", session=session.id, error=error.message)
        await asyncio.to_thread(self._write, self._boot)
        self._boot = ""

    def _new_boot(self) -> str:
        now = boot_id()
        try:
            return "" if self._file.read_text() == now else now
        except FileNotFoundError:  # first start
            self._write(now)
            return ""

    def _write(self, boot: str) -> None:
        with open(self._file, "w", opener=private_file) as file:
            file.write(boot)

    async def _sweep(self, repo_id: str) -> None:
        core = self._core
        repo = await core.store.read(lambda reader: reader.repos.get(repo_id))
        try:
            found = await core.git.upkeep.sweep(await info_of(core, repo))
        except RametError as error:
            log.warning("objects not checked after a boot", repo=repo.name, error=error.message)
        else:
            if found:
                log.warning("deleted damaged objects and refs", repo=repo.name, count=found)
        for session in await core.store.read(lambda reader: reader.sessions.list(repo_id=repo_id)):
            await self._mend_index(session)

    async def _mend_index(self, session: Session) -> None:
        if session.state == State.ARCHIVED or session.worktree_kind != WorktreeKind.OWN:
            return
        try:
            warnings = await self._core.git.snapshots.mend_index(session.worktree)
        except RametError as error:  # `rametctl doctor` explains it
            log.warning("index not checked after a boot", session=session.id, error=error.message)
            return
        if warnings:
            log.warning("replaced a damaged index", session=session.id, warnings=warnings)
            words = "; ".join(warnings)
            await self._core.store.write_for_sure(lambda unit: events.warn(unit, session, words))

    async def _look_at(self, session: Session) -> None:
        core = self._core
        newest = await core.store.read(lambda reader: reader.checkpoints.latest(session.id))
        if newest is None:
            return
        info = await info_of(core, session)
        target = (await core.git.refs.below(info, newest.ref)).get(newest.ref)
        lost = await core.git.snapshots.lost(info, newest.snapshot)
        if not lost and target == newest.snapshot:
            return
        words = f"git has lost objects of it ({lost[0][:12]})" if lost else f"{newest.ref} is gone"
        log.warning("a checkpoint is damaged", session=session.id, number=newest.number, lost=lost)
        await core.store.write_for_sure(lambda unit: unit.events.append(_warning(session, newest, words)))
        await self._checkpointer.ask(session.id, CheckpointReason.TURN, DAEMON)


def _warning(session: Session, checkpoint: Checkpoint, words: str) -> NewEvent:
    message = (
        f"checkpoint {checkpoint.number} did not survive the loss of power: {words};"
        " the current files become the next one"
    )
    return events.make(event_pb2.Warning(message=message), session_id=session.id, repo_id=session.repo_id)
