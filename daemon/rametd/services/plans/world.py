"""Check a plan against the repository with its existing sessions and branches; find problems and
the resulting threads."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rametd.domain.errors import InvalidInputError, PromptTooLargeError, RametError, RefNotFoundError
from rametd.domain.models import Repo, Session
from rametd.domain.plans import Plan, PlanThread
from rametd.domain.states import State
from rametd.domain.trust import Trusted
from rametd.git import RepositoryInfo, Tree
from rametd.plans import Known, PlanText, Problem, Reading, Thread, World, check, read, resolve
from rametd.plans.keys import PLAN, THREAD
from rametd.plans.model import ERROR, WARNING
from rametd.platform.files import read_regular
from rametd.services.checks import PROMPT_LIMIT, check_model, check_name, check_prompt
from rametd.services.core import Core
from rametd.services.trust.plan_checks import check_item, is_own_plan
from rametd.store import Reader


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked plan. ``threads`` are in the order of landing."""

    info: RepositoryInfo
    repo: Repo | None  # None if the repository is not registered yet
    reading: Reading
    threads: tuple[Thread, ...]
    problems: tuple[Problem, ...]
    prompts: Mapping[str, str]  # by thread: the prompt of its agent
    name: str
    target: str
    stored: Plan | None  # the plan as applied before
    known: Mapping[str, PlanThread]  # its stored threads, by id
    sessions: Mapping[str, Session]  # by thread: existing sessions
    trees: Mapping[str, Tree]  # by base, as named in the plan: its files

    @property
    def plan(self) -> PlanText:
        return self.reading.plan

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == ERROR)


async def check_plan(core: Core, path: Path, text: str, file: str, *, by_session: bool = False) -> Checked:
    """Read and check a plan. Raises only if there is no repository. ``file`` is absolute, "" for
    standard input."""
    info = await core.git.discover(path)
    reading = await asyncio.to_thread(read, text)
    plan = reading.plan

    def look(reader: Reader) -> tuple[Repo | None, Plan | None, tuple[PlanThread, ...], list[Session]]:
        repo = reader.repos.by_common_dir(info.common_dir)
        if repo is None:
            return None, None, (), []
        stored = applied_before(reader, repo, plan, file)
        threads = reader.plans.threads(stored.id) if stored is not None else ()
        return repo, stored, threads, reader.sessions.list(repo_id=repo.id, include_archived=True)

    repo, stored, rows, sessions = await core.store.read(look)
    known = {row.id: row for row in rows}
    by_id = {session.id: session for session in sessions}
    mine = {row.id: by_id[row.session_id] for row in rows if row.session_id in by_id}
    # Threads that have landed are not checked again, even if their session was removed.
    settled = {row.id: Known(row.name, row.branch) for row in rows if row.ended}
    settled |= {name: Known(session.name, session.branch) for name, session in mine.items()}
    threads = resolve(plan, settled, {session.name for session in sessions})
    world, target = await _world(core, info, path, plan, stored, sessions, mine)
    world = replace(world, sessions={name: known[name].session_id for name in settled})
    unchanged = {each.id for each in threads if each.id in mine and each.text.owns == known[each.id].owns}
    world = replace(world, agreed=unchanged)
    own = not by_session and await is_own_plan(core, file)
    files = await _prompt_files(core, threads, Path(file).parent if file else path, own=own)
    prompts, unread = await asyncio.to_thread(read_prompts, threads, files)
    world = replace(world, prompt_files=unread, own=own)
    problems = [*await asyncio.to_thread(check, reading, threads, world), *_values(reading, threads, prompts)]
    if not own:
        problems += await _untrusted_checks(core, repo, reading, threads, file)
    return Checked(
        info=info,
        repo=repo,
        reading=reading,
        threads=threads,
        problems=tuple(sorted(problems, key=lambda problem: (problem.line == 0, problem.line))),
        prompts=prompts,
        name=stored.name if stored is not None and not plan.name else plan.name or _name_of(file),
        target=target,
        stored=stored,
        known=known,
        sessions=mine,
        trees={base: tree for base, tree in world.bases.items() if isinstance(tree, Tree)},
    )


def applied_before(reader: Reader, repo: Repo, plan: PlanText, file: str) -> Plan | None:
    """The stored plan that a text updates: by file, else by name."""
    plans = reader.plans.list(repo.id)
    by_file = next((each for each in plans if file and each.file == file), None)
    return by_file or next((each for each in plans if plan.name and each.name == plan.name), None)


def _name_of(file: str) -> str:
    return Path(file).stem if file else "plan"


async def _world(
    core: Core,
    info: RepositoryInfo,
    path: Path,
    plan: PlanText,
    stored: Plan | None,
    sessions: list[Session],
    mine: Mapping[str, Session],
) -> tuple[World, str]:
    """The state of the repository to check against, and the target branch."""
    branches = {
        branch.name: f"it is checked out at {branch.worktree}" if branch.worktree else "it exists"
        for branch in await core.git.branches.list(info)
    }
    living = [session for session in sessions if session.state != State.ARCHIVED]
    branches |= {session.branch: f"the session {session.name} works on it" for session in living}
    bases: dict[str, Tree | RametError] = {}
    for base in dict.fromkeys(thread.base for thread in plan.threads):
        try:
            commit = (await core.git.branches.resolve_base(info, base or None, path)).commit
            bases[base] = await core.git.commits.files(info, commit)
        except RametError as error:
            bases[base] = error
    target, missing = await _target(core, info, path, plan, stored)
    own = {session.id for name, session in mine.items() if any(thread.id == name for thread in plan.threads)}
    world = World(
        branches=branches,
        names={session.name: session.id for session in sessions},
        bases=bases,
        target=missing,
        agents=sorted(core.kinds),
        bypass=core.config.permissions.allow_bypass,
        mode=core.config.permissions.default_mode,
        owners={session.name: session.owns for session in living if session.owns and session.id not in own},
    )
    return world, target


async def _target(
    core: Core, info: RepositoryInfo, path: Path, plan: PlanText, stored: Plan | None
) -> tuple[str, RametError | None]:
    if plan.target:
        if await core.git.branches.tip(info, plan.target) is None:
            hint = "name a local branch"
            return plan.target, RefNotFoundError(f"there is no branch {plan.target!r} to land on", hint=hint)
        return plan.target, None
    if stored is not None:
        return stored.target, None
    try:
        return (await core.git.branches.resolve_base(info, plan.base or None, path)).ref, None
    except RametError:
        return plan.base, None  # the check of bases reports it


async def _prompt_files(core: Core, threads: tuple[Thread, ...], folder: Path, *, own: bool) -> dict[str, Path]:
    """Prompt files that a plan may name, by name.

    The person's own plan may name any file. A plan in a repository or from standard input may only
    name files that the surrounding checkout tracks, with symbolic links resolved.
    """
    names = {thread.text.prompt_file for thread in threads if thread.text.prompt_file}
    if own:
        return {name: folder / name for name in names}
    try:
        top = (await core.git.discover(folder)).worktree_root
    except RametError:
        top = None
    if top is None:
        return {}

    real = await asyncio.to_thread(
        lambda: {name: Path(os.path.realpath(folder / name)) for name in names if "\0" not in name}
    )
    places = {name: str(path.relative_to(top)) for name, path in real.items() if path.is_relative_to(top)}
    tracked = await core.git.worktrees.tracked_among(top, sorted(set(places.values())))
    return {name: real[name] for name, path in places.items() if path in tracked}


def read_prompts(
    threads: tuple[Thread, ...], files: Mapping[str, Path]
) -> tuple[dict[str, str], dict[str, RametError | None]]:
    """Prompts by thread, and errors by file. ``files``: the files that may be read. Blocks."""
    unread: dict[str, RametError | None] = {}
    prompts: dict[str, str] = {}
    for thread in threads:
        name, prompt = thread.text.prompt_file, thread.prompt
        if name and not thread.text.prompt:
            try:
                prompt = _read_prompt(_allowed(name, files))
            except InvalidInputError as error:
                unread[name] = error
        prompts[thread.id] = prompt
    return prompts, unread


def _allowed(name: str, files: Mapping[str, Path]) -> Path:
    if name not in files:
        hint = "git add it, or keep the plan outside of any repository"
        raise InvalidInputError(f"{name} is not a file that this checkout tracks", hint=hint)
    return files[name]


def _read_prompt(path: Path) -> str:
    try:
        data = read_regular(path, PROMPT_LIMIT)
        if data is None and path.is_file():
            raise PromptTooLargeError(
                f"{path} is over {PROMPT_LIMIT:,} bytes", hint="name the file in the prompt instead"
            )
        if data is None:
            raise InvalidInputError(f"{path} is not a regular file", hint="name a file with the prompt's text")
        text = data.decode("utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror}", hint="paths are relative to the plan's file"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from error
    if not text.strip():
        raise InvalidInputError(f"{path} has no text", hint="say what the agent should do")
    return text


async def _untrusted_checks(
    core: Core, repo: Repo | None, reading: Reading, threads: tuple[Thread, ...], file: str
) -> list[Problem]:
    """A warning for each thread whose check the person has not trusted."""
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id)) if repo is not None else Trusted()

    def warning(thread: Thread) -> Problem:
        words = f"its check ({'; '.join(thread.text.check)}) does not run until you trust it"
        hint = "apply the plan, then: rametctl repo trust"
        return Problem("untrusted-check", words, hint, severity=WARNING, **reading.at_thread(thread.text, "check"))

    return [
        warning(thread)
        for thread in threads
        if thread.text.check and not trusted.covers(*check_item(file, thread.id, thread.text.check))
    ]


def _values(reading: Reading, threads: tuple[Thread, ...], prompts: Mapping[str, str]) -> Iterator[Problem]:
    """Problems for which creating the sessions would fail."""

    def place(thread: Thread, key: str) -> dict[str, Any]:
        table = (THREAD, thread.text.index) if (THREAD, thread.text.index, key) in reading.lines else (PLAN,)
        return {**reading.at(*table, key), "threads": (thread.id,)}

    for thread in threads:
        try:
            check_name(thread.name)
        except RametError as error:
            yield Problem("bad-name", error.message, error.hint, **place(thread, "name"))
        try:
            check_model(thread.text.model)
        except RametError as error:
            yield Problem("bad-model", error.message, error.hint, **place(thread, "model"))
        try:
            check_prompt(prompts[thread.id], empty_is_fine=True)
        except RametError as error:
            key = "prompt" if thread.text.prompt else "goal"
            yield Problem("bad-prompt", error.message, error.hint, **place(thread, key))
