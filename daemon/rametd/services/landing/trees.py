"""The private worktrees that work is landed in: one for each target, kept from one landing to the next because of what setups and checks leave there."""

import asyncio
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from rametd.domain.models import Repo
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.worktrees.places import folders_of
from rametd.store import Reader

NAME = re.compile(r"landing-[0-9a-f]{10}")


@dataclass(frozen=True, slots=True)
class Unused:
    """One in which nothing is to land. ``since`` is when something last did; 0 when nothing is known of that."""

    path: Path
    since: float


def tree_name(target: str) -> str:
    """The name of a target's worktree, among those that are named by sessions' ids (which have no dash)."""
    return f"landing-{hashlib.sha256(target.encode(errors='surrogateescape')).hexdigest()[:10]}"


async def unused(core: Core, repo: Repo) -> list[Unused]:
    """Those of a repository whose queue is empty."""
    open_names, last = await core.store.read(lambda reader: _queues(reader, repo))
    folders = await asyncio.to_thread(lambda: list(folders_of(core, repo)))
    paths = await asyncio.to_thread(
        lambda: sorted(path for folder in folders for path in folder.glob("landing-*") if NAME.fullmatch(path.name))
    )
    return [Unused(path, last.get(path.name, 0.0)) for path in paths if path.name not in open_names]


async def remove_unused(core: Core, repo: Repo, info: RepositoryInfo) -> None:
    """Remove them all; what is not ours stays."""
    for tree in await unused(core, repo):
        await core.git.landing.remove_tree(info, tree.path)


def _queues(reader: Reader, repo: Repo) -> tuple[set[str], dict[str, float]]:
    """Names of worktrees whose queue has an entry that may land yet, and when each was used last."""
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
