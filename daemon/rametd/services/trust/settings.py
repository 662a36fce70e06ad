"""Settings of one repository: the owner's, and those of its `.ramet.toml` that the person has
trusted.

The daemon reads the repository's file in the person's own checkout (`contents`), never in a
worktree, commit or checkpoint of a session. Only trusted settings apply: a changed setting has its
trusted value, and a new one has no effect.
"""

from dataclasses import dataclass, replace

from rametd.config import Config, Source, combine, from_items, items
from rametd.domain.errors import BadConfigError, RametError
from rametd.domain.models import Repo, Session
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.trust.contents import INCLUDE_FILE, settings_at


@dataclass(frozen=True, slots=True)
class Settings:
    """``config`` has the settings that apply; ``untrusted`` those that would apply if the person
    trusted everything, None if they are the same.

    ``changed``: items in which the two differ.
    """

    config: Config
    untrusted: Config | None = None
    changed: tuple[str, ...] = ()


async def for_repository(core: Core, repo: Repo, info: RepositoryInfo) -> Config:
    """Settings of a repository. Raises `BadConfigError`."""
    return (await settings_of(core, repo, info)).config if repo.trusted else core.config


async def for_session(core: Core, session: Session, repo: Repo) -> Settings:
    """Settings of a session: those of its repository. Raises `BadConfigError`."""
    return await settings_of(core, repo)


async def settings_of(core: Core, repo: Repo, info: RepositoryInfo | None = None) -> Settings:
    """Settings of a repository. Raises `BadConfigError` only if the person trusts the repository;
    else the owner's settings apply."""
    try:
        theirs, include = await settings_at(core, repo, info)
    except BadConfigError:
        if repo.trusted:
            raise
        return Settings(core.config)
    except RametError:
        theirs, include = Source("", ""), ""  # the repository is gone: the owner's settings apply
    if not (theirs.text or include):
        return Settings(core.config)
    found = items(theirs) | ({INCLUDE_FILE: include} if include else {})
    try:
        everything = _with(combine(core.owner, theirs, home=core.home), include)
    except BadConfigError:
        if repo.trusted:
            raise
        return Settings(core.config)
    if not repo.trusted:
        return Settings(core.config, everything, tuple(found))
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id))
    counted = trusted.in_force(found)
    changed = tuple(key for key, text in found.items() if counted.get(key) != text)
    include = counted.pop(INCLUDE_FILE, "")
    config = _with(combine(core.owner, from_items(theirs.name, counted), home=core.home), include)
    return Settings(config, everything if changed else None, changed)


async def problem_of(core: Core, repo: Repo) -> str:
    """Why the settings in the person's checkout are invalid, trusted or not; "" if they are
    valid."""
    try:
        theirs, _ = await settings_at(core, repo)
        combine(core.owner, theirs, home=core.home)
    except BadConfigError as error:
        return error.message
    return ""


def _with(config: Config, include: str) -> Config:
    """Add the patterns of `.worktreeinclude` after those of ``carry``. As git does, skip a byte
    order mark, with which editors on Windows begin a file."""
    lines = include.removeprefix("\ufeff").split("\n")
    patterns = tuple(line for line in lines if line.strip() and not line.startswith("#"))
    return replace(config, carry=(*config.carry, *patterns)) if patterns else config
