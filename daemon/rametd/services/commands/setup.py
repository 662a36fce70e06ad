"""Preparing worktrees: carried files, then the setup; the teardown before they go; checks of work.

A setup runs once per tree, and again when the files that it depends on are others than when it ran. It never keeps an agent from starting: what
goes wrong is said, and the tree can be used all the same.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from ramet.v1 import event_pb2

from rametd.config import Config
from rametd.domain.commands import Command, CommandKind
from rametd.domain.errors import RametError, WrongStateError
from rametd.domain.models import DAEMON, Event, Repo, Session, SetupState, WorktreeKind
from rametd.domain.states import State
from rametd.services import events
from rametd.services.commands import projects
from rametd.services.commands.carry import carry
from rametd.services.commands.scripts import Scripts, digest_of, shell_argv
from rametd.services.commands.terminals import NewCommand, Terminals
from rametd.services.core import Core
from rametd.services.lifecycle import refuse_archived
from rametd.services.persistence import write_for_sure
from rametd.services.settings import for_session
from rametd.services.trust import check_trust
from rametd.services.views import SETUP_STATES
from rametd.store import Reader, Unit

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request for a setup led to: a command, or, where none is configured, one that would fit."""

    command: Command | None
    project: projects.Project | None = None


class Setup:
    """What it starts for sessions is one task each; `ready` awaits it."""

    def __init__(self, core: Core, terminals: Terminals) -> None:
        self._core = core
        self._terminals = terminals
        self.scripts = Scripts(core, terminals)
        self.run_in, self.check = self.scripts.run_in, self.scripts.check
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hurries: dict[str, asyncio.Event] = {}  # by session; of those that wait for it
        self._unsubscribe = core.store.subscribe(self._notice)

    # ── moments of a session's life ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, session: Session) -> None:
        """A worktree was made, or more is allowed in it: carry what it was not given yet, then set up, in the background."""
        self._spawn(session.id, self._prepare(session.id, fresh=True))

    async def ready(self, session: Session) -> None:
        """Wait until the worktree is prepared, as well as that goes: until a setup's own time is over, or somebody is in a hurry."""
        if session.id not in self._tasks:
            self._spawn(session.id, self._prepare(session.id, fresh=False))
        hurry = self._hurries[session.id] = asyncio.Event()
        cut = asyncio.create_task(hurry.wait())
        try:
            await asyncio.wait([self._tasks[session.id], cut], return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()
            del self._hurries[session.id]

    async def over(self, session_id: str) -> None:
        """Return once nothing is being prepared for a session."""
        while (task := self._tasks.get(session_id)) is not None:
            await asyncio.wait([task])

    def hurry(self, session_id: str) -> None:
        """Somebody wants to stop, interrupt or remove a session, and must not wait for its setup; that goes on."""
        if (waiting := self._hurries.get(session_id)) is not None:
            waiting.set()

    async def tear_down(self, session: Session) -> Sequence[str]:
        """The worktree is about to go: run the teardown, then end every command. What went wrong with that, in words."""
        if (task := self._tasks.get(session.id)) is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._terminals.end_all(session.id, "its worktree goes", kind=CommandKind.SETUP)
        try:
            words = await self._tear_down(session)
        except RametError as error:
            words = f"the teardown was not run: {error.message}"
        if words:
            await self._warn(session, words)
        await self._terminals.end_all(session.id, "its worktree goes")
        return (words,) if words else ()

    async def _tear_down(self, session: Session) -> str:
        """Why it failed, "" where it did not."""
        core = self._core
        if session.worktree_kind != WorktreeKind.OWN or not await asyncio.to_thread(session.worktree.is_dir):
            return ""
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        config = (await for_session(core, session, repo)).config
        if not config.teardown:
            return ""
        # One that a killed daemon began is seen through and not begun again.
        living = await core.store.read(lambda reader: reader.commands.living(session.id))
        running = next((each for each in living if each.kind == CommandKind.TEARDOWN), None)
        if running is None:
            new = NewCommand(
                shell_argv(config.teardown), CommandKind.TEARDOWN, "teardown", timeout=config.teardown_timeout
            )
            running = await self._terminals.start(session, new)
        done = await self._terminals.wait(running.id)
        return "" if done.succeeded else f"the teardown failed: {await self.scripts.why(done)}"

    async def recover(self, wanted: Callable[[str], bool] = lambda session_id: True) -> None:
        """Go on with what a killed daemon had begun, or not begun yet, for sessions."""
        for session in await self._core.store.read(lambda reader: reader.sessions.setup_due()):
            if not wanted(session.id):
                continue
            if session.setup == SetupState.RUNNING or (session.generation == 0 and not session.setup_digest):
                self.begin(session)

    async def close(self) -> None:
        self._unsubscribe()
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _notice(self, happened: Sequence[Event]) -> None:
        for event in happened:
            if event.kind == "repo_changed" and event_pb2.Event.FromString(event.payload).repo_changed.trusted:
                self._spawn(f"repo {event.repo_id}", self._begin_outstanding(event.repo_id))

    async def _begin_outstanding(self, repo_id: str) -> None:
        for session in await self._core.store.read(lambda reader: reader.sessions.list(repo_id=repo_id)):
            untouched = session.generation == 0 and session.setup == SetupState.NONE
            if session.setup == SetupState.UNTRUSTED or untouched:
                self.begin(session)

    def _spawn(self, key: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """One after the other for each ``key``."""
        before = self._tasks.get(key)

        async def in_turn() -> None:
            if before is not None:
                await asyncio.wait([before])
            await coroutine

        task = self._tasks[key] = asyncio.create_task(in_turn(), name=f"setup-{key}")
        task.add_done_callback(lambda done: self._task_done(key, done))

    def _task_done(self, key: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("preparing a worktree failed", of=key, exc_info=error)

    # ── a session's worktree ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _prepare(self, session_id: str, *, fresh: bool) -> None:
        core = self._core
        session = await core.store.read(lambda reader: reader.sessions.find(session_id))
        if session is None or session.worktree_kind != WorktreeKind.OWN or session.state == State.ARCHIVED:
            return
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        try:
            settings = await for_session(core, session, repo)
            if fresh:
                await self._carry(session, repo, settings.config)
            if settings.config.setup:
                await self._set_up_if_due(session, settings.config)
            elif settings.untrusted is not None and settings.untrusted.setup and session.setup == SetupState.NONE:
                await self._store(session.id, SetupState.UNTRUSTED, "", reason="its setup is not trusted")
        except WrongStateError as error:
            # It is being rewound, or goes: what is due stays due, and its agent waits for it.
            log.info("not set up yet", session=session.id, reason=error.message)
        except RametError as error:
            await self._store(session.id, SetupState.FAILED, session.setup_digest, reason=error.message)

    async def _carry(self, session: Session, repo: Repo, config: Config) -> None:
        carried = await carry(self._core, repo.root, session.worktree, config, settle=True)
        for words in carried.words:
            await self._warn(session, words)

    async def _set_up_if_due(self, session: Session, config: Config) -> None:
        digest = await asyncio.to_thread(digest_of, session.worktree, config)
        if session.setup_digest == digest and session.setup in {SetupState.DONE, SetupState.FAILED}:
            return
        last = await self._core.store.read(lambda reader: newest_setup(reader, session.id))
        if last is not None and last.digest == digest and (last.living or session.setup == SetupState.RUNNING):
            command = last  # begun by a daemon that was killed
        else:
            command = await self._start(session, config, digest, DAEMON, "", lambda unit, started: None)
        await self._judge(session, config, command)

    async def _start(
        self,
        session: Session,
        config: Config,
        digest: str,
        principal: str,
        request_id: str,
        remember: Callable[[Unit, Command], None],
    ) -> Command:
        def began(unit: Unit, command: Command) -> None:
            change(unit, session.id, SetupState.RUNNING, session.setup_digest, command_id=command.id)
            remember(unit, command)

        return await self._terminals.start(
            session,
            NewCommand(
                shell_argv(config.setup),
                CommandKind.SETUP,
                "setup",
                timeout=config.setup_timeout,
                digest=digest,
                principal=principal,
                request_id=request_id,
                remember=began,
            ),
        )

    async def _judge(self, session: Session, config: Config, command: Command) -> None:
        done = await self._terminals.wait(command.id)
        # Anew: a setup may write the very files that it depends on, such as a lock file that was not there.
        digest = await asyncio.to_thread(digest_of, session.worktree, config)
        if done.succeeded:
            await self._store(session.id, SetupState.DONE, digest, command_id=done.id)
        else:
            await self._store(session.id, SetupState.FAILED, digest, await self.scripts.why(done), command_id=done.id)

    async def again(
        self, session: Session, principal: str, request_id: str, remember: Callable[[Unit, Command], None]
    ) -> Asked:
        """Run a session's setup, also if it has run. Raises `NotTrustedError`, `WrongStateError`, `BadConfigError`."""
        core = self._core
        refuse_archived(session)
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        settings = await for_session(core, session, repo)
        check_trust(settings, repo, lambda config: config.setup)
        if not settings.config.setup:
            return Asked(None, await asyncio.to_thread(projects.recognise, session.worktree))
        running = await core.store.read(lambda reader: newest_setup(reader, session.id))
        if running is None or not running.living:
            digest = await asyncio.to_thread(digest_of, session.worktree, settings.config)
            running = await self._start(session, settings.config, digest, principal, request_id, remember)
        if session.id not in self._tasks:
            self._spawn(session.id, self._judge(session, settings.config, running))
        return Asked(running)

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _store(
        self, session_id: str, state: SetupState, digest: str, reason: str = "", command_id: str = ""
    ) -> None:
        await write_for_sure(
            self._core.store,
            lambda unit: change(unit, session_id, state, digest, reason=reason, command_id=command_id),
        )

    async def _warn(self, session: Session, words: str) -> None:
        await write_for_sure(self._core.store, lambda unit: events.warn(unit, session, words))


def change(
    unit: Unit, session_id: str, state: SetupState, digest: str, *, reason: str = "", command_id: str = ""
) -> None:
    """Store and log how far a setup is; nothing for a session that is gone by now."""
    session = unit.sessions.find(session_id)
    if session is None:
        return
    unit.sessions.update(session_id, setup=state, setup_digest=digest, setup_reason=reason)
    payload = event_pb2.SetupChanged(state=SETUP_STATES[state], command_id=command_id, reason=reason)
    events.log(unit, session, payload)


def newest_setup(reader: Reader, session_id: str) -> Command | None:
    return next((each for each in reader.commands.list(session_id) if each.kind == CommandKind.SETUP), None)


def why_failed(session: Session) -> str:
    """Why its setup failed, in one line; "" where it did not."""
    return (session.setup_reason or "it failed") if session.setup == SetupState.FAILED else ""
