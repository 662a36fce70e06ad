"""After a loss of power, or whatever else ended the machine: what it has left of the objects of repositories, and of checkpoints.

Objects without their content block git, which takes them for written and fails as it reads them (libgit2 reads for ever): they go before anything else. Of each
session the newest checkpoint is looked at then, in the background: what is not whole is told, and its files as they are become another checkpoint.
"""

import asyncio

import structlog
from ramet.v1 import event_pb2

from rametd.domain.checkpoints import Checkpoint, CheckpointReason
from rametd.domain.errors import RametError
from rametd.domain.models import DAEMON, NewEvent, Session
from rametd.platform.processes import boot_id
from rametd.platform.state import private_file
from rametd.services import events
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure
from rametd.services.repos import info_of
from rametd.services.worktrees.checkpoints import Checkpointer

log = structlog.get_logger()

PATIENCE_S = 2.0
"""How long the start waits for the first: some 20 ms for each repository, unless its disk does not answer."""


class Power:
    """Whether the machine was started since this state was looked at last is known by a file in it that has the boot's id."""

    def __init__(self, core: Core, checkpointer: Checkpointer) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._file = core.state_dir / "boot"
        self._boot = ""
        self._sweeping: set[asyncio.Task[None]] = set()

    async def recover(self) -> None:
        """Before anything is written: clear away what blocks git."""
        self._boot = await asyncio.to_thread(self._new_boot)
        if not self._boot:
            return
        repos = await self._core.store.read(lambda reader: reader.repos.list())
        self._sweeping = {asyncio.create_task(self._sweep(repo.id), name=f"sweep-{repo.name}") for repo in repos}
        if self._sweeping:
            await asyncio.wait(self._sweeping, timeout=PATIENCE_S)

    async def run(self) -> None:
        """Look at checkpoints, once, and note that it was done."""
        if not self._boot:
            return
        await asyncio.gather(*self._sweeping)
        for session in await self._core.store.read(lambda reader: reader.sessions.list()):
            try:
                await self._look_at(session)
            except (
                RametError
            ) as error:  # its repository is gone, or somebody has its files in hand, who keeps them first
                log.warning("not looked at after a new boot", session=session.id, error=error.message)
        await asyncio.to_thread(self._write, self._boot)
        self._boot = ""

    def _new_boot(self) -> str:
        now = boot_id()
        try:
            return "" if self._file.read_text() == now else now
        except FileNotFoundError:  # nothing was kept yet, or by an earlier release alone
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
            log.warning("not swept after a new boot", repo=repo.name, error=error.message)
        else:
            if found:
                log.warning(
                    "objects and refs that had lost their content were cleared away", repo=repo.name, count=found
                )

    async def _look_at(self, session: Session) -> None:
        core = self._core
        newest = await core.store.read(lambda reader: reader.checkpoints.latest(session.id))
        if newest is None:
            return
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        info = await info_of(core, repo)
        kept = (await core.git.refs.below(info, newest.ref)).get(newest.ref)
        lost = await core.git.snapshots.lost(info, newest.snapshot)
        if not lost and kept == newest.snapshot:
            return
        words = f"git has not all of it ({lost[0][:12]})" if lost else f"{newest.ref} is gone"
        log.warning("a checkpoint is not whole", session=session.id, number=newest.number, lost=lost)
        await write_for_sure(core.store, lambda unit: unit.events.append(_told(session, newest, words)))
        await self._checkpointer.ask(session.id, CheckpointReason.TURN, DAEMON)


def _told(session: Session, checkpoint: Checkpoint, words: str) -> NewEvent:
    message = (
        f"checkpoint {checkpoint.number} did not survive that the machine went down: {words};"
        " the files as they are now are kept as the next one"
    )
    return events.make(event_pb2.Warning(message=message), session_id=session.id, repo_id=session.repo_id)
