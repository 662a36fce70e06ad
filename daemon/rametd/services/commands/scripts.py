"""Shell commands of the configuration: one after the other as one command, also in worktrees that no session has."""

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
from rametd.platform.priority import LOWEST
from rametd.services import environments
from rametd.services.commands import projects
from rametd.services.commands.carry import carry
from rametd.services.commands.terminals import NewCommand, Remember, Terminals, remember_nothing
from rametd.services.core import Core

TAIL_BYTES = 16 << 10
OF_A_SESSION = re.compile(r"RAMET_(PORT|SESSION|BRANCH)")
"""In a command: what it does is for one session alone, so that a spare cannot have it done beforehand."""


@dataclass(frozen=True, slots=True)
class SetupResult:
    """``digest`` is what `Session.setup_digest` is to be; ``words`` say what went wrong, "" when nothing did."""

    digest: str
    state: SetupState
    words: str = ""

    @property
    def ok(self) -> bool:
        return self.state in {SetupState.NONE, SetupState.DONE}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``status`` is as in `Command.exit_status`; ``words`` one line on what went wrong; ``tail`` the end of the output."""

    ok: bool
    status: str
    words: str
    tail: str


class Scripts:
    """Runs them in trees that are prepared for sessions to come, or that work is landed in."""

    def __init__(self, core: Core, terminals: Terminals) -> None:
        self._core = core
        self._terminals = terminals

    async def run_in(self, tree: Path, repo: Repo, config: Config, *, variables: Mapping[str, str] = {}) -> SetupResult:
        """Carry and set up a worktree that no session has, such as a spare. Never raises but when cancelled.

        ``variables`` are added to its environment. The digest is "" where the setup depends on the session that it is for: whoever
        takes the tree over then has it run again.
        """
        carried = await carry(self._core, repo.root, tree, config, settle=False)
        if not config.setup:
            return SetupResult("", SetupState.NONE, "; ".join(carried.words))
        if any(OF_A_SESSION.search(command) for command in config.setup):
            return SetupResult("", SetupState.NONE)
        result = await self._run_apart(
            config.setup,
            tree,
            repo,
            CommandKind.SETUP,
            variables=variables,
            timeout=config.setup_timeout,
            before=LOWEST,  # nobody waits for it
        )
        digest = await asyncio.to_thread(digest_of, tree, config)
        return SetupResult(digest, SetupState.DONE if result.ok else SetupState.FAILED, result.words)

    async def check(
        self,
        commands: Sequence[str],
        tree: Path,
        repo: Repo,
        *,
        timeout: float,  # noqa: ASYNC109 - the command's, which outlives our waiting
        variables: Mapping[str, str] = {},
        remember: Remember = remember_nothing,
    ) -> CheckResult:
        """Run ``commands`` one after the other in ``tree`` until one fails. Ended, with all its processes, when we are cancelled.

        ``remember`` runs in the unit of work that says that it runs, and learns as which command.
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
            # The start goes on all the same: what comes of it must not be left to run for nobody.
            command = await asyncio.shield(starting)
            await asyncio.shield(self._terminals.stop(command.id, "nobody waits for it"))
            raise
        try:
            done = await self._terminals.wait(command.id)
        except asyncio.CancelledError:
            await asyncio.shield(self._terminals.stop(command.id, "nobody waits for it"))
            raise
        words = "" if done.succeeded else await self.why(done)
        result = CheckResult(done.succeeded, done.exit_status, words, await self._terminals.tail(done, TAIL_BYTES))
        await self._terminals.forget(done)
        return result

    async def why(self, command: Command) -> str:
        """One line on how it failed, with the last that it said."""
        how = command.stop_reason or command.exit_status or "nobody saw how it ended"
        lines = [line.strip() for line in (await self._terminals.tail(command, 4096)).splitlines() if line.strip()]
        return f"{how}: {lines[-1][:300]}" if lines else how


def shell_argv(commands: Sequence[str]) -> tuple[str, ...]:
    """One program that runs shell commands, each in a shell of its own and told before it runs, until one fails."""
    steps = (
        f"printf '%s\\n' {shlex.quote('$ ' + command)} && /bin/sh -c {shlex.quote(command)}" for command in commands
    )
    return ("/bin/sh", "-c", " &&\n".join(steps))


def digest_of(tree: Path, config: Config) -> str:
    """What a setup depends on: its commands, and the content of the files it names. Blocks."""
    digest = hashlib.sha256(repr(config.setup).encode())
    for path in projects.named_files(tree, config.setup_files):
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(str(path.relative_to(tree)).encode("utf-8", "surrogateescape") + b"\0" + content)
    return digest.hexdigest()[:32]
