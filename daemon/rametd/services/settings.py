"""Settings as they count in one repository: the owner's, and those of its `.ramet.toml` once it is trusted."""

import asyncio

from rametd import config
from rametd.domain.models import Repo
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core

FILE = ".ramet.toml"


async def for_repository(core: Core, repo: Repo, info: RepositoryInfo) -> config.Config:
    """Read where the caller stands, so that a branch may carry its own. Raises `BadConfigError`."""
    if not repo.trusted:
        return core.config
    path = (info.worktree_root or info.root) / FILE
    return await asyncio.to_thread(config.load, core.config_file, path, home=core.home)
