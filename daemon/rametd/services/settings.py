"""Settings as they count in one repository: the owner's, and those of its `.ramet.toml` once it is trusted."""

import asyncio
from dataclasses import dataclass

from rametd.config import Config, load
from rametd.config.files import Source, combine
from rametd.domain.errors import BadConfigError, RametError
from rametd.domain.models import Repo, Session
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core
from rametd.services.repos import info_of

FILE = ".ramet.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """``config`` is what counts; ``withheld`` what would count if the repository were trusted, None where that is the same."""

    config: Config
    withheld: Config | None = None


async def for_repository(core: Core, repo: Repo, info: RepositoryInfo) -> Config:
    """Read where the caller stands, so that a branch may carry its own. Raises `BadConfigError`."""
    if not repo.trusted:
        return core.config
    path = (info.worktree_root or info.root) / FILE
    return await asyncio.to_thread(load, core.config_file, path, home=core.home)


async def for_session(core: Core, session: Session, repo: Repo) -> Settings:
    """What counts in a session's worktree. Raises `BadConfigError`.

    The repository's file is read in the person's own checkout or, where that has none, in the commit that the session started from.
    Never in the session's worktree: an agent may write there, and what it writes must not run without anybody having looked at it.
    """
    return await at_commit(core, repo, session.base_commit)


async def at_commit(core: Core, repo: Repo, commit: str) -> Settings:
    """As `for_session`, for a worktree that no session has."""
    owner = await asyncio.to_thread(Source.read, core.config_file)
    theirs = await _source(core, repo, commit)
    if theirs is None:
        return Settings(combine(owner, home=core.home))
    if repo.trusted:
        return Settings(combine(owner, theirs, home=core.home))
    try:
        return Settings(core.config, combine(owner, theirs, home=core.home))
    except BadConfigError:
        return Settings(core.config)  # nothing of it counts, and nobody has to mend it


async def _source(core: Core, repo: Repo, commit: str) -> Source | None:
    # Of a bare repository the root is its git directory, where nobody keeps such a file.
    found = await asyncio.to_thread(Source.read, repo.root / FILE)
    if found.text:
        return found
    try:
        text = await core.git.file_at(await info_of(core, repo), commit, (FILE,))
    except RametError:
        return None  # the repository or the commit is gone: what the owner configured still counts
    return None if text is None else Source(f"{FILE} of {commit[:10]}", text.decode("utf-8", "replace"))
