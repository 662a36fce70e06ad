"""Run the git binary: without hooks, prompts and inherited `GIT_*` variables, and wait for lock
files."""

import asyncio
import copy
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rametd.domain.errors import GitBusyError, GitFailedError
from rametd.git.foreign import CONNECTING, restrictions
from rametd.platform import groups
from rametd.platform.groups import LOWEST

ALWAYS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),  # submodules follow by `submodules`
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "advice.detachedHead=false"),
)

PATIENCE_S: Final = 30.0
"""Seconds after which a git that does nothing at all, and talks to no server, is ended: it would
wait for ever for the writer of a pipe named ``.gitignore``, and hold the locks of its worktree."""
ONE_BY_ONE: Final = ("-c", "checkout.workers=1")
"""Options for background work: one checkout writer, even if the person has configured more."""


def at(git_dir: Path, worktree: Path) -> tuple[str, str]:
    """Options for a git command that name repository and working tree, so that git does not search
    for them."""
    return f"--git-dir={git_dir}", f"--work-tree={worktree}"


# Variables that a person sets for git on purpose. Any other GIT_* variable (GIT_DIR,
# GIT_INDEX_FILE, GIT_WORK_TREE, ...) would direct git to another repository; a daemon that is
# started in a hook inherits these.
_KEPT: Final = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EXEC_PATH",
        "GIT_LFS_SKIP_SMUDGE",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSL_CAINFO",
    }
)

_LOCKED: Final = (
    re.compile(r"[Uu]nable to create '(?P<file>[^']+\.lock)': File exists"),
    re.compile(r"could not lock config file (?P<file>\S+): File exists"),
)
_UNWRITTEN: Final = re.compile(
    rb"^error: unable to (?:write file|create file|create symlink|read sha1 file of|stat just-written file|unlink old) (.+)"
    rb"|^error: ('.+') was not filtered properly$"
    rb"|^fatal: (.+): smudge filter .+ failed$",
    re.MULTILINE,
)
"""Messages about files that git wrote in part or not at all. After "error", `git checkout` exits
with 0."""
_FILTER: Final = re.compile(r"(external|smudge|clean|process) filter|filter-process|the remote end hung up")


@dataclass(frozen=True, slots=True)
class Completed:
    """An ended git process: its exit status and its output, as bytes."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def words(self) -> str:
        """Return git's error output as one line without its prefixes, for an error's message.

        Some subcommands, such as `git commit` and `git lfs push`, print the reason to standard
        output.
        """
        output = self.stderr if self.stderr.strip() else self.stdout[:4096]
        lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
        lines = [line for line in lines if line and not line.startswith(("hint:", "Preparing worktree"))]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
        # If git's own lines only say that a filter or transport failed, the other lines say why.
        shown = lines if any(_FILTER.search(line) for line in fatal) else fatal or lines
        words = "; ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in shown)
        if self.returncode < 0:
            words = "; ".join(filter(None, [words, f"git was killed by signal {-self.returncode}"]))
        return words[:600] or f"git exited with status {self.returncode}"

    @property
    def unwritten(self) -> frozenset[str]:
        """Return the files that git reports as incomplete. Git may quote the name and add a reason
        behind it: all forms are returned."""
        said = [os.fsdecode(b"".join(groups)) for groups in _UNWRITTEN.findall(self.stderr)]
        forms = {form for rest in said for form in (rest, rest.rpartition(": ")[0], rest.rpartition(" (")[0])}
        return frozenset(forms | {form[1:-1] for form in forms if form.startswith("'")})

    @property
    def lock_file(self) -> str | None:
        """Return the lock file because of which git failed, if any."""
        if self.returncode == 0:
            return None
        text = self.stderr.decode(errors="replace")
        found = next((match for pattern in _LOCKED if (match := pattern.search(text))), None)
        return found["file"].removesuffix(".lock") + ".lock" if found else None


def path_lines(paths: Iterable[bytes]) -> bytes:
    """Return paths with any bytes as lines for ``--stdin-paths``: git reads each in quotes."""
    return b"".join(b'"%s"\n' % b"".join(b"\\%03o" % byte for byte in path) for path in paths)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the base environment of all git processes."""
    passed = {name: value for name, value in environment.items() if not name.startswith("GIT_") or name in _KEPT}
    return passed | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


class GitProcess:
    """Runs git. ``lock_timeout``: seconds to wait for a lock file of another process."""

    def __init__(
        self,
        environment: Mapping[str, str],
        lock_timeout: float = 10.0,
        trusted: Mapping[Path, Collection[str]] = MappingProxyType({}),
    ) -> None:
        self._trusted = trusted  # registered repositories, whose configured programs may run
        self._environment = clean_environment(environment)
        self._lock_timeout = lock_timeout
        self._prefix: tuple[str, ...] = ()
        self._always: tuple[str, ...] = ALWAYS

    def in_background(self) -> "GitProcess":
        """Return a runner with the lowest priority, for background work."""
        quiet = copy.copy(self)
        quiet._prefix = LOWEST
        quiet._always = (*ALWAYS, *ONE_BY_ONE)
        return quiet

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of every git process."""
        return self._environment

    async def read(
        self, where: Path, *arguments: str, stdin: bytes | None = None, environment: Mapping[str, str] | None = None
    ) -> bytes:
        """Run a git command that changes nothing, without locks; return its output. Raise
        GitFailedError."""
        extra = {"GIT_OPTIONAL_LOCKS": "0"} | dict(environment or {})
        done = await self.run(where, *arguments, stdin=stdin, environment=extra)
        if done.returncode != 0:
            raise failed(done, arguments)
        return done.stdout

    async def read_up_to(self, limit: int, where: Path, *arguments: str) -> tuple[bytes, bool]:
        """Return the first ``limit`` bytes of a reading command's output, and whether there was
        more; then end git."""
        process = await self._start(where, arguments, {"GIT_OPTIONAL_LOCKS": "0"})
        try:
            # Read both at the same time: git would block on a full stderr while we wait for its
            # output.
            (output, more), (words, _) = await asyncio.gather(
                groups.read(process, process.stdout, limit), groups.read(process, process.stderr, groups.MOST_WORDS)
            )
            await process.wait()
        finally:
            await groups.end(process)
        if more:
            return output, True
        if process.returncode:
            raise failed(Completed(process.returncode, output, words), arguments)
        return output, False

    async def write(
        self,
        where: Path,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        lock: int | None = None,
    ) -> bytes:
        """Run a git command that changes something; return its output. Raise GitBusyError,
        GitFailedError."""
        done = await self.run(where, *arguments, stdin=stdin, environment=environment, lock=lock)
        if done.returncode != 0:
            raise failed(done, arguments)
        return done.stdout

    async def run(
        self,
        where: Path,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        lock: int | None = None,
    ) -> Completed:
        """Run a git command to its end, with any exit status. Raise GitBusyError if a lock file
        exists for ``lock_timeout``.

        The process inherits ``lock``, the descriptor of the repository's lock. The race: the daemon
        is killed while its git still writes. Without the inherited lock, the next daemon's clean-up
        would interleave with that git.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._lock_timeout
        pause = 0.02
        while True:
            done = await self._once(where, arguments, stdin, environment, lock)
            if done.lock_file is None:
                return done
            if loop.time() + pause > deadline:
                raise _busy(where, done.lock_file)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def refuse_locked(self, locks: Collection[Path]) -> None:
        """Wait until none of these lock files exists. Raise GitBusyError after ``lock_timeout``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._lock_timeout
        while found := await asyncio.to_thread(lambda: [each for each in locks if os.path.lexists(each)]):
            if loop.time() > deadline:
                raise _busy(found[0].parent, found[0].name)
            await asyncio.sleep(0.02)

    async def _once(
        self,
        where: Path,
        arguments: Sequence[str],
        stdin: bytes | None,
        environment: Mapping[str, str] | None,
        lock: int | None,
    ) -> Completed:
        process = await self._start(where, arguments, environment, lock, piped=stdin is not None)
        verb = verb_of(arguments)
        try:
            stdout, stderr = await groups.communicate(
                process,
                stdin,
                most=groups.MOST_WORDS if verb in CONNECTING else None,
                patience=None if verb in CONNECTING else PATIENCE_S,
            )
        except groups.StuckError:
            raise GitFailedError(
                f"git {verb} waits for a file that does not end, such as a pipe",
                hint=f"find it: find {shlex.quote(str(where))} -type p; remove it and try again",
                command=verb,
            ) from None
        except groups.OutputError as error:
            raise GitFailedError(
                f"git {verb} {error}",
                hint="a filter, a hook or the server prints without end; run the command by hand to see what",
                command=verb,
            ) from None
        finally:
            await groups.end(process)  # cancelled, unless it has ended
        assert process.returncode is not None  # communicate() has waited
        return Completed(process.returncode or int(_UNWRITTEN.search(stderr) is not None), stdout, stderr)

    async def _start(
        self,
        where: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None,
        lock: int | None = None,
        *,
        piped: bool = False,
    ) -> asyncio.subprocess.Process:
        complete = self._environment | dict(environment or {})
        verb = verb_of(arguments)
        try:
            restricted = await asyncio.to_thread(restrictions, where, verb, arguments, complete, self._trusted)
        except (OSError, subprocess.SubprocessError) as error:
            raise GitFailedError(f"git {verb}: {error}", command=verb) from error
        try:
            # Use `-C`, not cwd: a missing directory is then an error of git, and FileNotFoundError
            # means that git is missing.
            return await groups.start(
                *self._prefix,
                "git",
                *self._always,
                # Discovery has checked the owner of the repository and of its main worktree, by the
                # path that the person has configured, perhaps in a file that git does not read.
                *(("-c", f"safe.directory={where}") if {where, where / ".git"} & self._trusted.keys() else ()),
                "-C",
                str(where),
                *arguments,
                stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # The caller's list of protocols has precedence: it fetches a submodule from a path
                # that it names.
                env=self._environment | dict(restricted) | dict(environment or {}),
                cwd="/",
                pass_fds=() if lock is None else (lock,),
            )
        except FileNotFoundError as error:
            raise GitFailedError(
                "git was not found", hint="install git, or put its directory on the daemon's PATH"
            ) from error


def _busy(where: Path, lock_file: str) -> GitBusyError:
    file = os.path.normpath(where / lock_file)  # git may name it relative to where it ran
    return GitBusyError(
        f"git is blocked by {file}",
        hint="another git command is running there; if none is, remove that file",
        file=file,
    )


def failed(done: Completed, arguments: Sequence[str]) -> GitFailedError:
    """Return the error for a failed git command."""
    verb = verb_of(arguments)
    return GitFailedError(f"git {verb}: {done.words}", command=verb)


def verb_of(arguments: Sequence[str]) -> str:
    """Return git's subcommand among its arguments."""
    return next((word for word in arguments if not word.startswith("-") and "=" not in word), "git")
