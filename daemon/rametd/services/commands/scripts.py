"""Shell commands of the configuration, run one after another as one command, also in worktrees
without a session."""

import asyncio
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rametd.config import Config
from rametd.domain.commands import Command, CommandKind
from rametd.domain.errors import RametError
from rametd.domain.models import Repo, SetupState
from rametd.platform.groups import LOWEST
from rametd.services import environments
from rametd.services.commands import projects
from rametd.services.commands.carry import carry
from rametd.services.commands.terminals import NewCommand, Remember, Terminals, remember_nothing
from rametd.services.core import Core
from rametd.services.trust.settings import settings_of

TAIL_BYTES = 16 << 10
OF_A_SESSION = re.compile(r"RAMET_(PORT|SESSION|BRANCH)")
"""Variables of a session: a command that uses them cannot run beforehand in a spare."""


@dataclass(frozen=True, slots=True)
class SetupResult:
    """``digest``: the new `Session.setup_digest`. ``words`` describes the failure, "" without
    one. ``warnings`` has a line for each path that was not carried."""

    digest: str
    state: SetupState
    words: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.state in {SetupState.NONE, SetupState.DONE}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``status`` is as in `Command.exit_status`. ``words`` describes a failure in one line.
    ``tail`` is the end of the output."""

    ok: bool
    status: str
    words: str
    tail: str


class Scripts:
    """Runs scripts in spares and in the worktrees of merge queues."""

    def __init__(self, core: Core, terminals: Terminals) -> None:
        self._core = core
        self._terminals = terminals

    async def run_in(self, tree: Path, repo: Repo, config: Config, *, variables: Mapping[str, str] = {}) -> SetupResult:
        """Carry files into a worktree without a session, such as a spare, and run the setup. Raises
        only when cancelled.

        ``variables`` are added to the environment. The digest is "" if the setup depends on
        variables of a session: it then runs when a session gets the worktree.
        """
        carried = await carry(self._core, repo.root, tree, config, settle=False)
        warnings = tuple(carried.words)
        if not config.setup or any(OF_A_SESSION.search(command) for command in config.setup):
            return SetupResult("", SetupState.NONE, warnings=warnings)
        if words := await self._withdrawn(repo, config):
            return SetupResult("", SetupState.FAILED, words, warnings)
        result = await self._run_apart(
            config.setup,
            tree,
            repo,
            CommandKind.SETUP,
            variables=variables,
            timeout=config.setup_timeout,
            before=LOWEST,  # no session waits for it
        )
        digest = await asyncio.to_thread(digest_of, tree, config)
        state = SetupState.DONE if result.ok else SetupState.FAILED
        return SetupResult(digest, state, result.words, warnings)

    async def _withdrawn(self, repo: Repo, config: Config) -> str:
        """Why the setup may no longer run, "" if it may: while files were carried, the person may
        have withdrawn the trust."""
        try:
            now = await self._core.store.read(lambda reader: reader.repos.get(repo.id))
            setup = (await settings_of(self._core, now)).config.setup
        except RametError as error:
            return error.message
        return "" if setup == config.setup else f"the setup of {repo.name}, or the trust in it, has changed meanwhile"

    async def check(
        self,
        commands: Sequence[str],
        tree: Path,
        repo: Repo,
        *,
        timeout: float,  # noqa: ASYNC109 - of the command, which may outlive this call
        variables: Mapping[str, str] = {},
        remember: Remember = remember_nothing,
    ) -> CheckResult:
        """Run ``commands`` one after another in ``tree`` until one fails. Cancelling this call ends
        them with all their processes.

        ``remember`` gets the command, in the unit of work that stores that it runs.
        """
        return await self._run_apart(
            commands, tree, repo, CommandKind.CHECK, variables=variables, timeout=timeout, remember=remember
        )

    async def _run_apart(
        self,
        commands: Sequence[str],
        tree: Path,
        repo: Repo,
        kind: CommandKind,
        *,
        variables: Mapping[str, str],
        timeout: float,  # noqa: ASYNC109 - as above
        remember: Remember = remember_nothing,
        before: Sequence[str] = (),
    ) -> CheckResult:
        environment = environments.for_tree(self._core, repo, tree, variables)
        new = NewCommand(
            (*before, *shell_argv(commands)),
            kind,
            str(kind),
            timeout=timeout,
            environment=environment,
            remember=remember,
        )
        starting = asyncio.create_task(self._terminals.start_apart(tree, repo, new))
        try:
            command = await asyncio.shield(starting)
        except RametError as error:
            return CheckResult(ok=False, status="", words=error.message, tail="")
        except asyncio.CancelledError:
            # The start continues: end the command afterwards.
            command = await asyncio.shield(starting)
            await asyncio.shield(self._terminals.stop(command.id, "its caller was cancelled"))
            raise
        try:
            done = await self._terminals.wait(command.id)
        except asyncio.CancelledError:
            await asyncio.shield(self._terminals.stop(command.id, "its caller was cancelled"))
            raise
        words = "" if done.succeeded else await self.why(done)
        result = CheckResult(done.succeeded, done.exit_status, words, await self._terminals.tail(done, TAIL_BYTES))
        await self._terminals.forget(done)
        return result

    async def why(self, command: Command) -> str:
        """Describe in one line how a command failed, with its last line of output."""
        how = command.stop_reason or command.exit_status or "its end was not seen"
        lines = [line.strip() for line in (await self._terminals.tail(command, 4096)).splitlines() if line.strip()]
        return f"{how}: {lines[-1][:300]}" if lines else how


def shell_argv(commands: Sequence[str]) -> tuple[str, ...]:
    """Arguments of a program that prints and runs shell commands, each in its own shell, until one
    of them fails."""
    steps = (
        f"printf '%s\\n' {shlex.quote('$ ' + command)} && /bin/sh -c {shlex.quote(command)}" for command in commands
    )
    return ("/bin/sh", "-c", " &&\n".join(steps))


def digest_of(tree: Path, config: Config) -> str:
    """Digest of a setup: its commands, and the content of the files that it depends on. Blocks."""
    digest = hashlib.sha256(repr(config.setup).encode())
    for path in projects.named_files(tree, config.setup_files):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(str(path.relative_to(tree)).encode("utf-8", "surrogateescape") + b"\0" + content)
    return digest.hexdigest()[:32]


def prepared_by(config: Config) -> str:
    """Digest of the settings that decide what `Scripts.run_in` does in a worktree."""
    settings = (
        config.setup,
        config.setup_files,
        config.setup_timeout,
        config.carry,
        config.carry_rewrite,
        config.carry_limit,
    )
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:32]
