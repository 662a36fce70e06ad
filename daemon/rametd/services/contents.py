"""The contents of a repository that trust is about, read from a directory or from a commit.

See `rametd.domain.trust`. The person's place is their own checkout, or the tip of the branch that a bare repository has as its HEAD. A worktree of a session
is never read for settings; of its files only those that Claude would load there are compared with the trusted ones.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from rametd.config import Source, items
from rametd.domain.models import Repo
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core
from rametd.services.plan_checks import plan_items
from rametd.services.repos import info_of

SETTINGS_FILE = ".ramet.toml"
INCLUDE_FILE = ".worktreeinclude"
CLAUDE_FILES = (".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/scheduled_tasks.json")
"""Files of Claude's own that start programs, or let it start them without asking."""
CLAUDE_FOLDERS = {
    ".claude/agents": ".md",
    ".claude/commands": ".md",
    ".claude/skills": ".md",
    ".claude/hooks": "",
    ".claude/plugins": "",
    ".claude/workflows": "",
}
"""Folders of such files, by what their names end with: their front matter has hooks, permissions and MCP servers, their text shell commands."""
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
SIZE_LIMIT = 1 << 20
"""Bytes of a file that are shown; a larger one is shown as its digest."""


def runs(path: str) -> bool:
    """Whether a path in a worktree, relative to its top, is of a file that trust is about, in any letter case."""
    path = path.casefold()
    return path in {SETTINGS_FILE, INCLUDE_FILE, *CLAUDE_FILES} or any(
        path.startswith(f"{folder}/") and path.endswith(suffix) for folder, suffix in CLAUDE_FOLDERS.items()
    )


def claude_files(tree: Path) -> dict[str, str]:
    """What Claude would load in a worktree and that may run something. Blocks; a millisecond for some dozen files."""
    found = {}
    for name in (*CLAUDE_FILES, *_in_folders(tree)):
        if (data := read_regular(tree / name)) is not None:
            found[name] = shown(data)
    return found


def _in_folders(tree: Path) -> Iterator[str]:
    for folder, suffix in CLAUDE_FOLDERS.items():
        seen: set[str] = set()  # links may lead in a circle
        for place, folders, names in os.walk(tree / folder, followlinks=True):
            real = os.path.realpath(place)
            folders[:] = [] if real in seen else sorted(set(folders) - SKIPPED)
            if real not in seen:
                yield from (os.path.relpath(Path(place, name), tree) for name in names if name.endswith(suffix))
            seen.add(real)


def read_regular(path: Path) -> bytes | None:
    """The bytes of a regular file, through symbolic links; None for anything else. Never waits for a pipe. Blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def shown(data: bytes) -> str:
    """What a person is shown of a file; other bytes are always another text."""
    try:
        if len(data) <= SIZE_LIMIT:
            return data.decode()
    except UnicodeDecodeError:
        pass
    return f"{len(data):,} bytes that are not shown, sha256 {hashlib.sha256(data).hexdigest()}"


async def settings_at(core: Core, repo: Repo, info: RepositoryInfo | None = None) -> tuple[Source, str]:
    """The `.ramet.toml` and `.worktreeinclude` of the person's place; empty where it has none. Raises `BadConfigError`."""
    if not is_bare(repo):
        return await asyncio.to_thread(
            lambda: (
                Source.read(repo.root / SETTINGS_FILE),
                (read_regular(repo.root / INCLUDE_FILE) or b"").decode("utf-8", "replace"),
            )
        )
    files = await core.git.files_at(info or await info_of(core, repo), "HEAD", (SETTINGS_FILE, INCLUDE_FILE))
    settings, include = (files.get(name, b"").decode("utf-8", "replace") for name in (SETTINGS_FILE, INCLUDE_FILE))
    return Source(f"{SETTINGS_FILE} of HEAD", settings), include


async def at_place(core: Core, repo: Repo, info: RepositoryInfo | None = None) -> dict[str, str]:
    """All contents of the person's place."""
    settings, include = await settings_at(core, repo, info)
    if is_bare(repo):
        claude = await _claude_files_at(core, info or await info_of(core, repo), "HEAD")
    else:
        claude = await asyncio.to_thread(claude_files, repo.root)
    hooks = await hook_files(core, repo, info or await info_of(core, repo), core.daemon_environment)
    return {**gather(settings, include, claude), **hooks, **await plan_items(core, repo)}


async def hook_files(core: Core, repo: Repo, info: RepositoryInfo, environment: Mapping[str, str]) -> dict[str, str]:
    """The files of git's hooks where `core.hooksPath` lies in the person's checkout, so that a pull or a landing can change them."""
    if is_bare(repo):
        return {}
    folder = await core.git.hooks_folder(info, environment)
    return await asyncio.to_thread(_files_below_hooks, repo.root, info.common_dir, folder)


def _files_below_hooks(root: Path, common_dir: Path, folder: Path) -> dict[str, str]:
    folder = Path(os.path.normpath(folder))
    if folder.name == "_":  # husky: its scripts in `.husky/_` run those in `.husky`
        folder = folder.parent
    if folder == root or not folder.is_relative_to(root) or folder.is_relative_to(common_dir):
        return {}
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - SKIPPED)
        for path in (Path(place, name) for name in names):
            if (data := read_regular(path)) is not None:
                found[os.path.relpath(path, root)] = shown(data)
    return found


async def at_commit(core: Core, info: RepositoryInfo, commit: str) -> dict[str, str]:
    """All contents of a commit."""
    files = await core.git.files_at(info, commit, (SETTINGS_FILE, INCLUDE_FILE))
    settings = Source(SETTINGS_FILE, files.get(SETTINGS_FILE, b"").decode("utf-8", "replace"))
    include = files.get(INCLUDE_FILE, b"").decode("utf-8", "replace")
    return gather(settings, include, await _claude_files_at(core, info, commit))


async def _claude_files_at(core: Core, info: RepositoryInfo, revision: str) -> dict[str, str]:
    found = await core.git.files_at(info, revision, (*CLAUDE_FILES, *CLAUDE_FOLDERS))
    return {path: shown(data) for path, data in found.items() if runs(path)}


def gather(settings: Source, include: str, claude: Mapping[str, str]) -> dict[str, str]:
    return {**items(settings), **({INCLUDE_FILE: include} if include else {}), **claude}


def place_of(repo: Repo) -> str:
    """Where the contents are read, in words."""
    return f"HEAD of {repo.root}" if is_bare(repo) else str(repo.root)


def is_bare(repo: Repo) -> bool:
    """Whether it has no main worktree: then a branch's tip stands for the person's checkout."""
    return repo.root == repo.common_dir
