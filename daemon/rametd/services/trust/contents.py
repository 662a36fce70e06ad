"""The contents of a repository that need trust, read from a directory or a commit.

See `rametd.domain.trust`. The daemon reads them in the person's own checkout, or at HEAD of a bare
repository. It never reads settings in a session's worktree; there it only compares the files that
Claude would load with the trusted ones.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rametd.agents.presets import PRESETS
from rametd.config import Source, items
from rametd.domain.models import Repo
from rametd.domain.trust import SIZE_LIMIT, UNBOUNDED, shown
from rametd.git import RepositoryInfo
from rametd.platform.files import read_regular
from rametd.services.core import Core
from rametd.services.repos import info_of
from rametd.services.trust.plan_checks import plan_items

SETTINGS_FILE = ".ramet.toml"
CLAUDE = ".claude"
INCLUDE_FILE = ".worktreeinclude"
CLAUDE_FILES = (".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/scheduled_tasks.json")
"""Files from which Claude starts programs, or which let it start them without asking."""
CLAUDE_FOLDERS = {
    ".claude/agents": ".md",
    ".claude/commands": ".md",
    ".claude/skills": ".md",
    ".claude/hooks": "",
    ".claude/plugins": "",
    ".claude/workflows": "",
}
"""Folders of such files, with the suffix of their names. Their front matter has hooks, permissions
and MCP servers; their text has shell commands."""
PLACES: dict[str, tuple[str, ...]] = {
    "claude": (".mcp.json", ".claude/"),
    **{preset.name: preset.places for preset in PRESETS},
}
"""Files and folders (with a slash at the end) that each agent loads from a repository."""
FILES = tuple(dict.fromkeys((*CLAUDE_FILES, *(each for each in chain(*PLACES.values()) if not each.endswith("/")))))
FOLDERS = CLAUDE_FOLDERS | {
    each[:-1]: "" for each in chain(*PLACES.values()) if each.endswith("/") and each != f"{CLAUDE}/"
}
GENERATED = frozenset({".gitignore", "package.json", "package-lock.json", "bun.lock", "bun.lockb", "node_modules"})
"""Names that agents write into their folders themselves. OpenCode's plugins import these files,
which therefore count as code that a trusted command runs."""
NESTED_FOLDERS = frozenset({"agents", "commands", "skills"})
"""Folders that Claude also loads from a nested `.claude`, when it reads a file beside it."""
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Folders below git's hooks that are not read."""
MOST_FILES = 5_000
MOST_LEVELS = 16
MOST_BYTES = 16 << 20
"""Limits. Beyond one of them, no file counts as trusted: see `UNBOUNDED`."""


def runs(path: str) -> bool:
    """Whether a file, by its path relative to the worktree and in any letter case, needs trust."""
    path = path.casefold()
    if path in {SETTINGS_FILE, INCLUDE_FILE, *FILES}:
        return True
    return any(
        inside.startswith(f"{folder}/")
        and inside.endswith(suffix)
        and (folder in CLAUDE_FOLDERS or GENERATED.isdisjoint(inside.split("/")))
        for top in dict.fromkeys(("", *_claude_places(path)))
        for folder, suffix in _folders_at(top).items()
        for inside in (path.removeprefix(f"{top}/") if top else path,)
    )


def _claude_places(path: str) -> list[str]:
    """Directories whose `.claude` contains ``path``; "" is the worktree's top."""
    parts = path.split("/")
    return ["/".join(parts[:i]) for i, part in enumerate(parts) if part.casefold() == CLAUDE]


def _folders_at(place: str) -> dict[str, str]:
    """Folders that agents load in ``place``, which is the top or has a `.claude`."""
    if not place:
        return FOLDERS
    return {folder: suffix for folder, suffix in CLAUDE_FOLDERS.items() if folder.rpartition("/")[2] in NESTED_FOLDERS}


def claude_files(tree: Path, nested: Iterable[str] = ()) -> dict[str, str]:
    """Files in a worktree that Claude would load and that may run programs. Blocks, a millisecond
    for some dozen files.

    ``nested``: paths inside of nested `.claude` directories.
    """
    found: dict[str, str] = {}
    places = sorted({"", *(place for path in nested for place in _claude_places(path))})
    try:
        for name in (*FILES, *chain.from_iterable(_in_folders(tree, place) for place in places)):
            if len(found) >= MOST_FILES:
                raise _UnboundedError(f"more than {MOST_FILES:,} files")
            if (data := _read(tree / name)) is not None:
                found[name] = shown(data)
    except _UnboundedError as error:
        found[UNBOUNDED] = str(error)
    return found


def loads(agent: str, path: str) -> bool:
    """Whether an agent loads a file that needs trust. An unknown agent may load every one."""
    places = PLACES.get(agent)
    if places is None or path == UNBOUNDED:
        return True
    nested = f"{CLAUDE}/" in places and CLAUDE in path.casefold().split("/")
    return nested or any(path == each or (each.endswith("/") and path.startswith(each)) for each in places)


class _UnboundedError(Exception):
    """Raised when the files that Claude would load exceed a limit."""


def runs_by_link(tree: Path, real: str) -> bool:
    """Whether a link leads from a file or folder that needs trust to the file ``real``, a path
    without links. Blocks."""
    if any(os.path.realpath(tree / name) == real for name in (SETTINGS_FILE, INCLUDE_FILE, *FILES)):
        return True
    with suppress(_UnboundedError):
        return any(real.startswith(f"{each.real}/") and real.endswith(each.suffix) for each in _directories(tree, ""))
    return True


class _Directory(NamedTuple):
    path: str
    real: str
    suffix: str
    names: list[str]


def _directories(tree: Path, place: str) -> Iterator[_Directory]:
    """The folders that Claude loads from the `.claude` in ``place``, and all folders in them,
    through links too."""
    top = tree / place
    for folder, suffix in _folders_at(place).items():
        seen: set[str] = set()  # links may lead in a circle
        for directory, folders, names in os.walk(top / folder, followlinks=True):
            real = os.path.realpath(directory)
            skipped = {".git"} if folder in CLAUDE_FOLDERS else {".git"} | GENERATED
            folders[:] = [] if real in seen else sorted(set(folders) - skipped)
            names = [name for name in names if name not in skipped]
            if real in seen:
                continue
            seen.add(real)
            if len(seen) > MOST_FILES or len(Path(directory).relative_to(top).parts) > MOST_LEVELS:
                raise _UnboundedError(f"more than {MOST_LEVELS} levels or {MOST_FILES:,} directories")
            yield _Directory(directory, real, suffix, names)


def _in_folders(tree: Path, place: str) -> Iterator[str]:
    for path, _, suffix, names in _directories(tree, place):
        yield from (os.path.relpath(Path(path, name), tree) for name in names if name.endswith(suffix))


def _read(path: Path) -> bytes | None:
    """Read a file of the worktree; None if there is no regular file."""
    try:
        data = read_regular(path, MOST_BYTES)
        if data is None and path.is_file():
            raise _UnboundedError(f"{path.name} has more than {MOST_BYTES:,} bytes")
    except OSError:
        return None
    return data


def _read_include(top: Path) -> bytes | None:
    path = top / INCLUDE_FILE
    try:
        return read_regular(path, SIZE_LIMIT) if path.resolve().is_relative_to(top.resolve()) else None
    except OSError:
        return None


async def claude_files_in(core: Core, tree: Path) -> dict[str, str]:
    """`claude_files`, including nested `.claude` directories that git tracks."""
    return await asyncio.to_thread(claude_files, tree, await core.git.worktrees.tracked_below(tree, CLAUDE))


async def settings_at(core: Core, repo: Repo, info: RepositoryInfo | None = None) -> tuple[Source, str]:
    """The `.ramet.toml` and `.worktreeinclude` of the person's checkout; empty if missing. Raises
    `BadConfigError`."""
    if not is_bare(repo):
        return await asyncio.to_thread(
            lambda: (
                Source.read(repo.root / SETTINGS_FILE, inside=repo.root),
                (_read_include(repo.root) or b"").decode("utf-8", "replace"),
            )
        )
    files = await core.git.commits.files_at(info or await info_of(core, repo), "HEAD", (SETTINGS_FILE, INCLUDE_FILE))
    settings, include = (files.get(name, b"").decode("utf-8", "replace") for name in (SETTINGS_FILE, INCLUDE_FILE))
    return Source(f"{SETTINGS_FILE} of HEAD", settings), include


async def at_place(core: Core, repo: Repo) -> dict[str, str]:
    """All contents of the person's checkout that need trust."""
    settings, include = await settings_at(core, repo)
    info = await info_of(core, repo)
    if is_bare(repo):
        claude = await _claude_files_at(core, info, "HEAD")
    else:
        claude = await claude_files_in(core, repo.root)
    git = await git_files(core, repo, info, core.daemon_environment)
    return {**gather(settings, include, claude), **git, **await plan_items(core, repo)}


async def git_files(core: Core, repo: Repo, info: RepositoryInfo, environment: Mapping[str, str]) -> dict[str, str]:
    """Hooks and included git configuration among the files of the person's checkout: a pull or a
    landing can change them."""
    if is_bare(repo):
        return {}
    folder = await core.git.hooks_folder(info, environment)
    hooks = await asyncio.to_thread(files_below_hooks, repo.root, info.common_dir, folder)
    return {**hooks, **await included_files(core, repo, info)}


async def included_files(core: Core, repo: Repo, info: RepositoryInfo) -> dict[str, str]:
    """Files of the person's checkout that the repository's own git configuration includes."""
    files = await core.git.included_files(info)
    return await asyncio.to_thread(
        lambda: {name: shown(data) for name, file in files.items() if (data := _read(file)) is not None}
    )


def files_below_hooks(root: Path, common_dir: Path, folder: Path) -> dict[str, str]:
    folder = Path(os.path.normpath(folder))
    if folder.name == "_":  # husky: its scripts in `.husky/_` run those in `.husky`
        folder = folder.parent
    if folder == root or not folder.is_relative_to(root) or folder.is_relative_to(common_dir):
        return {}
    found: dict[str, str] = {}
    seen: set[str] = set()  # links may lead in a circle
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = [] if real in seen else sorted(set(folders) - SKIPPED)
        seen.add(real)
        for path in (Path(place, name) for name in names):
            try:
                if len(found) >= MOST_FILES:
                    raise _UnboundedError(f"more than {MOST_FILES:,} files of hooks")
                if (data := _read(path)) is not None:
                    found[os.path.relpath(path, root)] = shown(data)
            except _UnboundedError as error:
                return {UNBOUNDED: str(error)}
    return found


async def at_commit(core: Core, info: RepositoryInfo, commit: str) -> dict[str, str]:
    """All contents of a commit that need trust."""
    included = await core.git.included_files(info)
    files = await core.git.commits.files_at(info, commit, (SETTINGS_FILE, INCLUDE_FILE, *included))
    settings = Source(SETTINGS_FILE, files.get(SETTINGS_FILE, b"").decode("utf-8", "replace"))
    include = files.get(INCLUDE_FILE, b"").decode("utf-8", "replace")
    git = {name: shown(files[name]) for name in included if name in files}
    return {**gather(settings, include, await _claude_files_at(core, info, commit)), **git}


async def _claude_files_at(core: Core, info: RepositoryInfo, revision: str) -> dict[str, str]:
    found = await core.git.commits.files_at(info, revision, (*FILES, *FOLDERS), anywhere=CLAUDE)
    return {path: shown(data) for path, data in found.items() if runs(path)}


def gather(settings: Source, include: str, claude: Mapping[str, str]) -> dict[str, str]:
    return {**items(settings), **({INCLUDE_FILE: include} if include else {}), **claude}


def place_of(repo: Repo) -> str:
    """Name for people of the place where the contents are read."""
    return f"HEAD of {repo.root}" if is_bare(repo) else str(repo.root)


def is_bare(repo: Repo) -> bool:
    """Whether the repository has no main worktree; then HEAD replaces the person's checkout."""
    return repo.root == repo.common_dir
