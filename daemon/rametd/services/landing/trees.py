"""Worktrees of merge queues, one for each target. Later landings reuse the results of setups and
checks in it."""

import asyncio
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from rametd.domain.models import Repo
from rametd.git import OF_QUEUES, RepositoryInfo
from rametd.services.core import Core
from rametd.services.worktrees.places import folders_of
from rametd.store import Reader

NAME = re.compile(OF_QUEUES + r"[0-9a-f]{10}")


@dataclass(frozen=True, slots=True)
class Unused:
    """A worktree whose queue is empty. ``since``: time of the last landing, 0 if unknown."""

    path: Path
    since: float


def tree_name(target: str) -> str:
    """Name of a target's worktree. It has a dash, unlike the ids that name sessions' worktrees."""
    return f"{OF_QUEUES}{hashlib.sha256(target.encode(errors='surrogateescape')).hexdigest()[:10]}"


async def unused(core: Core, repo: Repo) -> list[Unused]:
    """Worktrees of a repository whose queue is empty."""
    open_names, last = await core.store.read(lambda reader: _queues(reader, repo))
    folders = await asyncio.to_thread(lambda: list(folders_of(core, repo)))
    paths = await asyncio.to_thread(
        lambda: sorted(path for folder in folders for path in folder.glob(f"{OF_QUEUES}*") if NAME.fullmatch(path.name))
    )
    return [Unused(path, last.get(path.name, 0.0)) for path in paths if path.name not in open_names]


async def remove_unused(core: Core, repo: Repo, info: RepositoryInfo) -> None:
    """Remove the unused worktrees."""
    for tree in await unused(core, repo):
        await core.git.landing.remove_tree(info, tree.path)


def _queues(reader: Reader, repo: Repo) -> tuple[set[str], dict[str, float]]:
    """Names of worktrees whose queue has an open entry, and the last use of each."""
    living = {
        tree_name(each.target)
        for each in reader.landings.open(repo.id)
        if reader.sessions.find(each.session_id) is not None
    }
    last: dict[str, float] = {}
    for each in reader.landings.ended(repo.id):
        name = tree_name(each.target)
        last[name] = max(last.get(name, 0.0), each.update_time)
    return living, last
