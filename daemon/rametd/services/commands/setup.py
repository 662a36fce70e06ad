"""Setup and teardown of worktrees. Copy ignored files into a new one and run its setup; run the
teardown before its removal.

A setup runs once per worktree, and again when the files that it depends on change. An agent starts
even if the setup fails; a warning describes the failure.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from ramet.v1 import event_pb2, session_pb2

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
from rametd.services.messages import enum_numbers
from rametd.services.tasks import Tasks
from rametd.services.trust.refusals import check_trust
from rametd.services.trust.settings import for_session
from rametd.store import Reader, Unit

log = structlog.get_logger()

SETUP_STATES = enum_numbers(session_pb2.SetupState.DESCRIPTOR, SetupState)


@dataclass(frozen=True, slots=True)
class Asked:
    """Result of a requested setup: its command or, if no setup is configured, a project with a
    suggestion."""

    command: Command | None
    project: projects.Project | None = None


class Setup:
    """Runs one task for each session; `ready` awaits it."""

    def __init__(self, core: Core, terminals: Terminals) -> None:
        self._core = core
        self._terminals = terminals
        self.scripts = Scripts(core, terminals)
        self.run_in, self.check = self.scripts.run_in, self.scripts.check
        self._tasks = Tasks("setup")
        self._hurries: dict[str, asyncio.Event] = {}  # by session that waits in `ready`
        self._unsubscribe = core.store.subscribe(self._notice)

    # ── hooks ─────────────────────────────────────────────────────────────────────────────────────

    def begin(self, session: Session) -> None:
        """Carry missing files, then run the setup, in the background: for a new worktree, or after
        the person has trusted more."""
        self._tasks.queue(session.id, self._prepare(session.id, fresh=True))

    async def ready(self, session: Session) -> None:
        """Wait until the setup ends or times out, or `hurry` releases the wait."""
        if session.id not in self._tasks:
            self._tasks.queue(session.id, self._prepare(session.id, fresh=False))
        running = self._tasks.get(session.id)
        assert running is not None
        hurry = self._hurries[session.id] = asyncio.Event()
        cut = asyncio.create_task(hurry.wait())
        try:
            await asyncio.wait([running, cut], return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()
            del self._hurries[session.id]

    async def over(self, session_id: str) -> None:
        """Return once no setup of a session runs."""
        await self._tasks.wait(session_id)

    def hurry(self, session_id: str) -> None:
        """Release callers of `ready`, for a session that is being stopped, interrupted or removed.
        The setup continues."""
        if (waiting := self._hurries.get(session_id)) is not None:
            waiting.set()

    async def tear_down(self, session: Session) -> Sequence[str]:
        """Run the teardown before the worktree is removed, then end all commands; return
        warnings."""
        if (task := self._tasks.get(session.id)) is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._terminals.end_all(session.id, "its worktree is being removed", kind=CommandKind.SETUP)
        try:
            words = await self._tear_down(session)
        except RametError as error:
            words = f"the teardown was not run: {error.message}"
        if words:
            await self._warn(session, words)
        await self._terminals.end_all(session.id, "its worktree is being removed")
        return (words,) if words else ()

    async def _tear_down(self, session: Session) -> str:
        """Run the teardown; return why it failed, "" if it did not."""
        core = self._core
        if session.worktree_kind != WorktreeKind.OWN or not await asyncio.to_thread(session.worktree.is_dir):
            return ""
        repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
        config = (await for_session(core, session, repo)).config
        if not config.teardown:
            return ""
        # Wait for a teardown that a killed daemon started.
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
        """Resume or start the setups that a killed daemon did not finish."""
        for session in await self._core.store.read(lambda reader: reader.sessions.setup_due()):
            if not wanted(session.id):
                continue
            if session.setup == SetupState.RUNNING or (session.generation == 0 and not session.setup_digest):
                self.begin(session)

    async def close(self) -> None:
        self._unsubscribe()
        await self._tasks.close()

    def _notice(self, happened: Sequence[Event]) -> None:
        for event in happened:
            if event.kind == "repo_changed" and event_pb2.Event.FromString(event.payload).repo_changed.trusted:
                self._tasks.queue(f"repo {event.repo_id}", self._begin_outstanding(event.repo_id))

    async def _begin_outstanding(self, repo_id: str) -> None:
        for session in await self._core.store.read(lambda reader: reader.sessions.list(repo_id=repo_id)):
            untouched = session.generation == 0 and session.setup == SetupState.NONE
            if session.setup == SetupState.UNTRUSTED or untouched:
                self.begin(session)

    # ── a session's worktree ──────────────────────────────────────────────────────────────────────

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
                # Copying takes time, in which the person may have withdrawn the trust.
                repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
                settings = await for_session(core, session, repo)
            if settings.config.setup:
                await self._set_up_if_due(session, settings.config)
            elif settings.untrusted is not None and settings.untrusted.setup and session.setup == SetupState.NONE:
                await self._store(session.id, SetupState.UNTRUSTED, "", reason="its setup is not trusted")
        except WrongStateError as error:
            # An operation has the worktree: the setup stays due, and the agent waits for it.
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
            command = last  # started by a killed daemon
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
        # Compute the digest again: a setup may write the files that it depends on, such as a lock
        # file.
        digest = await asyncio.to_thread(digest_of, session.worktree, config)
        if done.succeeded:
            await self._store(session.id, SetupState.DONE, digest, command_id=done.id)
        else:
            await self._store(session.id, SetupState.FAILED, digest, await self.scripts.why(done), command_id=done.id)

    async def again(
        self, session: Session, principal: str, request_id: str, remember: Callable[[Unit, Command], None]
    ) -> Asked:
        """Run a session's setup, even if it ran before. Raises `NotTrustedError`,
        `WrongStateError`, `BadConfigError`."""
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
            self._tasks.queue(session.id, self._judge(session, settings.config, running))
        return Asked(running)

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────

    async def _store(
        self, session_id: str, state: SetupState, digest: str, reason: str = "", command_id: str = ""
    ) -> None:
        await self._core.store.write_for_sure(
            lambda unit: change(unit, session_id, state, digest, reason=reason, command_id=command_id),
        )

    async def _warn(self, session: Session, words: str) -> None:
        await self._core.store.write_for_sure(lambda unit: events.warn(unit, session, words))


def change(
    unit: Unit, session_id: str, state: SetupState, digest: str, *, reason: str = "", command_id: str = ""
) -> None:
    """Store and log the state of a setup, unless the session is gone."""
    session = unit.sessions.find(session_id)
    if session is None:
        return
    unit.sessions.update(session_id, setup=state, setup_digest=digest, setup_reason=reason)
    payload = event_pb2.SetupChanged(state=SETUP_STATES[state], command_id=command_id, reason=reason)
    events.log(unit, session, payload)


def newest_setup(reader: Reader, session_id: str) -> Command | None:
    return next((each for each in reader.commands.list(session_id) if each.kind == CommandKind.SETUP), None)


def why_failed(session: Session) -> str:
    """Why the setup failed, in one line; "" if it did not."""
    return (session.setup_reason or "it failed") if session.setup == SetupState.FAILED else ""
