"""TerminalService."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from ramet.v1 import terminal_pb2, terminal_pb2_grpc

from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import freshen, here, named_session, principal
from rametd.api.paging import position_of, size_of, time_and_id, token_of
from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.commands import Command, CommandKind
from rametd.domain.errors import (
    CapReachedError,
    CommandNotFoundError,
    InvalidInputError,
    NotAllowedError,
    WorkingDirectoryError,
)
from rametd.domain.models import OWNER, Repo, Session
from rametd.platform import listeners, processes
from rametd.services import environments, ports
from rametd.services.commands.scripts import shell_argv
from rametd.services.commands.setup import Setup
from rametd.services.commands.terminals import NewCommand, Terminals
from rametd.services.core import Core
from rametd.services.delivery import sender_of
from rametd.services.lifecycle import refuse_archived
from rametd.services.lookup import find_session, only
from rametd.services.missing import require_tree
from rametd.services.trust.refusals import check_trust
from rametd.services.trust.settings import Settings, for_session
from rametd.services.views import command_message
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]

LONGEST_NS = 366 * 86400 * 10**9
MOST_LIVING = 20
"""Maximum number of commands that a session may run at the same time; each has a keeper."""


class TerminalServicer(terminal_pb2_grpc.TerminalServiceServicer):
    def __init__(
        self, core: Core, calls: Calls, terminals: Terminals, setup: Setup, checkpointer: Checkpointer
    ) -> None:
        self._core = core
        self._calls = calls
        self._terminals = terminals
        self._setup = setup
        self._checkpointer = checkpointer

    @mutation
    async def StartCommand(
        self, request: terminal_pb2.StartCommandRequest, call: Call
    ) -> terminal_pb2.StartCommandResponse:
        if sum(map(bool, (request.argv, request.name, request.check.strip()))) != 1:
            raise InvalidInputError("give one command, name or check", hint="rametctl run SESSION -- COMMAND...")
        if request.HasField("timeout") and not 0 < request.timeout.ToNanoseconds() <= LONGEST_NS:
            raise InvalidInputError("invalid timeout", hint="give more than 0 and at most a year")

        session, repo = await self._session(request.session, call.principal)
        await self._core.git.worktrees.verify(session.worktree, None)
        warnings = await freshen(self._core, session.id)
        if call.principal != OWNER:
            await self._check_living(session)
        argv, more, tree = tuple(request.argv), {}, ""
        if request.check:
            argv, tree = shell_argv([request.check]), await self._core.git.diffs.tree(session.worktree)
            known = await self._core.store.read(
                lambda reader: reader.commands.find_check(session.id, request.check, tree)
            )
            if known is not None:
                return terminal_pb2.StartCommandResponse(command=await self._message(known), warnings=warnings)
            # What the check changes is undone after it.
            await self._checkpointer.ask(session.id, CheckpointReason.MANUAL, call.principal)
        if request.name:
            settings = await for_session(self._core, session, repo)
            argv = ("/bin/sh", "-c", command_named(request.name, settings, repo))
            if (port := ports.port_of(session, request.name, settings.config.run)) is not None:
                more = {"PORT": str(port)}

        answer = terminal_pb2.StartCommandResponse(warnings=warnings)

        def remember(unit: Unit, command: Command) -> None:
            answer.command.CopyFrom(command_message(unit, command))
            call.remember(unit, answer)

        command = await self._terminals.start(
            session,
            NewCommand(
                argv,
                CommandKind.CHECK if request.check else CommandKind.RUN,
                request.name or request.check,
                digest=tree,
                timeout=request.timeout.ToNanoseconds() / 1e9 if request.HasField("timeout") else None,
                principal=call.principal,
                environment=more,
                request_id=call.request_id,
                remember=remember,
            ),
        )
        if not answer.HasField("command"):  # a killed daemon started it for this request
            answer.command.CopyFrom(await self._message(command))
        return answer

    async def _check_living(self, session: Session) -> None:
        """Raise `CapReachedError` if a session already runs as many commands as it may start."""
        living = await self._core.store.read(lambda reader: len(reader.commands.living(session.id)))
        if living >= MOST_LIVING:
            raise CapReachedError(
                f"{living} commands of yours are running, the maximum",
                hint="wait for one, or end one with stop_command",
                cap="commands",
            )

    async def ListCommands(
        self, request: terminal_pb2.ListCommandsRequest, context: Context
    ) -> terminal_pb2.ListCommandsResponse:
        session = await self._one_or_all(request.session)
        before = position_of("commands", request.page_token, time_and_id)
        size = size_of(request.page_size)

        def work(reader: Reader) -> terminal_pb2.ListCommandsResponse:
            found = reader.commands.list(
                session.id if session is not None else None,
                include_ended=request.include_ended,
                before=before,
                limit=size + 1,
            )
            page = found[:size]
            more = token_of("commands", [page[-1].start_time, page[-1].id]) if len(found) > size else ""
            commands = [command_message(reader, command) for command in page]
            return terminal_pb2.ListCommandsResponse(commands=commands, next_page_token=more)

        return await self._core.store.read(work)

    async def GetCommand(
        self, request: terminal_pb2.GetCommandRequest, context: Context
    ) -> terminal_pb2.GetCommandResponse:
        return terminal_pb2.GetCommandResponse(command=await self._message(await self._command(request.command)))

    @mutation
    async def StopCommand(
        self, request: terminal_pb2.StopCommandRequest, call: Call
    ) -> terminal_pb2.StopCommandResponse:
        command = await self._command(request.command)
        allow(call.principal, command.session_id)
        stopped = await self._terminals.stop(command.id, f"stopped by {call.principal}")
        return terminal_pb2.StopCommandResponse(command=await self._message(stopped))

    async def WatchOutput(
        self, request: terminal_pb2.WatchOutputRequest, context: Context
    ) -> AsyncIterator[terminal_pb2.WatchOutputResponse]:
        command = await self._command(request.command)
        offset = request.offset
        async for piece in self._terminals.output(command.id, request.offset, follow=request.follow):
            offset = piece.end
            yield terminal_pb2.WatchOutputResponse(data=piece.data, offset=piece.start)
        command = await (self._terminals.wait if request.follow else self._terminals.get)(command.id)
        last = await self._message(command) if not command.living else None
        yield terminal_pb2.WatchOutputResponse(offset=offset, command=last)

    @mutation
    async def SetUpSession(
        self, request: terminal_pb2.SetUpSessionRequest, call: Call
    ) -> terminal_pb2.SetUpSessionResponse:
        session, _ = await self._session(request.session, call.principal)
        await freshen(self._core, session.id)

        answer = terminal_pb2.SetUpSessionResponse()

        def remember(unit: Unit, command: Command) -> None:
            answer.command.CopyFrom(command_message(unit, command))
            call.remember(unit, answer)

        asked = await self._setup.again(session, call.principal, call.request_id, remember)
        if asked.command is not None and not answer.HasField("command"):  # a command that ran already
            answer.command.CopyFrom(await self._message(asked.command))
        if asked.project is not None:
            answer.suggestion.extend(asked.project.setup)
            answer.project_kind = asked.project.kind
        return answer

    async def GetShell(self, request: terminal_pb2.GetShellRequest, context: Context) -> terminal_pb2.GetShellResponse:
        session, repo = await self._session(request.session, principal.get())
        return terminal_pb2.GetShellResponse(
            directory=str(session.worktree), environment=await environments.of_session(self._core, session, repo)
        )

    async def ListPorts(
        self, request: terminal_pb2.ListPortsRequest, context: Context
    ) -> terminal_pb2.ListPortsResponse:
        one = await self._one_or_all(request.session)
        sessions = [one] if one is not None else await self._core.store.read(lambda reader: reader.sessions.list())
        wanted = {port for session in sessions for port in block(session)}
        found = await asyncio.to_thread(listeners.listeners, wanted)
        return terminal_pb2.ListPortsResponse(
            sessions=[await self._ports(session, found) for session in sessions if one or session.port_count]
        )

    async def _ports(self, session: Session, found: Any) -> terminal_pb2.SessionPorts:
        repo = await self._core.store.read(lambda reader: reader.repos.get(session.repo_id))
        named = await environments.run_names(self._core, session, repo)
        names = dict(zip(block(session), named, strict=False))
        tree = {"RAMET_WORKTREE": str(session.worktree)}
        held = any(port in found for port in block(session))
        own = {process.pid for process in await asyncio.to_thread(processes.tagged, tree)} if held else set()
        listed = []
        for index, number in enumerate(block(session)):
            listener = found.get(number)
            listed.append(
                terminal_pb2.Port(
                    number=number,
                    variable=f"RAMET_PORT_{index}",
                    name=names.get(number, ""),
                    listening=listener is not None,
                    pid=listener.pid if listener is not None else 0,
                    program=listener.program if listener is not None else "",
                    own=listener is not None and listener.pid in own,
                )
            )
        return terminal_pb2.SessionPorts(session_id=session.id, session_name=session.name, ports=listed)

    async def _session(self, name: str, who: str) -> tuple[Session, Repo]:
        """Return a session with an existing worktree, and its repository. A calling session may
        name only itself."""
        near = here.get()

        def work(reader: Reader) -> tuple[Session, Repo]:
            session = find_session(reader, name, repo_id=near)
            return session, reader.repos.get(session.repo_id)

        session, repo = await self._core.store.read(work)
        allow(who, session.id)
        refuse_archived(session)
        await require_tree(self._core, session, WorkingDirectoryError)
        return session, repo

    async def _one_or_all(self, name: str) -> Session | None:
        return await named_session(self._core, name) if name else None

    async def _command(self, name: str) -> Command:
        return await self._core.store.read(lambda reader: find_command(reader, name))

    async def _message(self, command: Command) -> terminal_pb2.Command:
        return await self._core.store.read(lambda reader: command_message(reader, command))


def allow(who: str, session_id: str) -> None:
    """Raise `NotAllowedError` if a session would run a command in another's worktree."""
    if sender_of(who) not in {"", session_id}:
        raise NotAllowedError("a session may run and end commands in its own worktree only", hint="ask that session")


def block(session: Session) -> range:
    return range(session.port_base, session.port_base + session.port_count)


def find_command(reader: Reader, name: str) -> Command:
    """Return a command by id or unique prefix. Raise `CommandNotFoundError`, `AmbiguousError`."""
    found = reader.commands.find_by_prefix(name) if name else []
    missing = CommandNotFoundError(f"there is no command {name!r}", hint="`rametctl run SESSION --list` shows them")
    return only(found, name, "commands", missing)


def command_named(name: str, settings: Settings, repo: Repo) -> str:
    """Return the shell command under ``run.NAME``. Raise `CommandNotFoundError`,
    `NotTrustedError`."""
    check_trust(settings, repo, lambda config: config.run.get(name))
    if name in settings.config.run:
        return settings.config.run[name]
    names = ", ".join(settings.config.run)
    raise CommandNotFoundError(
        f"no command is called {name!r} in {repo.name}",
        hint=f"there are: {names}" if names else f"name it in .ramet.toml: run.{name} = …",
        names=names,
    )
