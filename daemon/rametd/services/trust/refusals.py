"""Refusals and warnings about contents that the person has not trusted."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rametd.config import Config
from rametd.domain.errors import NotTrustedError
from rametd.domain.landing import Landing
from rametd.domain.models import Repo
from rametd.domain.text import listed
from rametd.git import RepositoryInfo
from rametd.services.core import Core
from rametd.services.repos import info_of
from rametd.services.trust.contents import at_commit, claude_files_in, git_files, included_files, loads
from rametd.services.trust.settings import Settings


def check_trust(settings: Settings, repo: Repo, part: Callable[[Config], object]) -> None:
    """Raise `NotTrustedError` if the person has not trusted the present value of a part of the
    configuration."""
    if settings.untrusted is None or part(settings.untrusted) == part(settings.config):
        return
    why = "has changed it since you trusted it" if repo.trusted else "is not trusted"
    raise NotTrustedError(
        f"{repo.name} {why}, so it does not run", hint=f"rametctl repo trust {shlex.quote(repo.name)}"
    )


async def hooks_trusted(core: Core, repo: Repo, info: RepositoryInfo, environment: Mapping[str, str]) -> bool:
    """Whether git may run the repository's hooks: the person trusts the repository, and the present
    hooks in the checkout."""
    if not repo.trusted:
        return False
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id))
    return not trusted.withheld(await git_files(core, repo, info, environment))


def hooks_withheld(repo: Repo, names: Sequence[str]) -> str:
    """The warning that git hooks did not run."""
    hooks = f"{names[0]} hook" if len(names) == 1 else f"hooks {', '.join(names)}"
    why = "has changed them since you trusted it" if repo.trusted else "is not trusted"
    return (
        f"{repo.name} {why}: its {hooks} did not run; `rametctl repo trust {shlex.quote(repo.name)}` lets git run them"
    )


async def included_withheld(core: Core, repo: Repo) -> tuple[str, ...]:
    """The warning that git's configuration includes files of the checkout that the person has not
    trusted; empty if there are none."""
    found = await included_files(core, repo, await info_of(core, repo))
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id))
    names = tuple(trusted.withheld(found))
    if not names:
        return ()
    words = f"git's configuration includes {listed(names)} with content that you have not trusted: its filters and drivers do not run"
    return (f"{words}, and nothing is fetched or pushed, until `rametctl repo trust {shlex.quote(repo.name)}`",)


async def untrusted_files(core: Core, repo: Repo, tree: Path, agent: str) -> tuple[str, ...]:
    """Files in a worktree that an agent would load, with content that is not trusted. If there are
    any, the agent loads no file of the repository."""
    found = {path: text for path, text in (await claude_files_in(core, tree)).items() if loads(agent, path)}
    if not found:
        return ()
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id))
    return tuple(trusted.withheld(found))


def not_loaded(repo: Repo, agent: str, files: tuple[str, ...]) -> str:
    """Warning that an agent loads nothing of the repository, because the worktree has untrusted
    ``files``."""
    what = "Claude settings, CLAUDE.md, hooks and MCP servers" if agent == "claude" else f"settings for {agent}"
    return (
        f"the worktree has {listed(files)} with content that you have not trusted: {what} of {repo.name} are "
        f"not loaded; see `rametctl repo trust {shlex.quote(repo.name)}`"
    )


async def changes_of_landing(core: Core, landing: Landing) -> str:
    """Warning about untrusted commands and settings that a landing changes or removes; "" for
    none."""
    repo = await core.store.read(lambda reader: reader.repos.get(landing.repo_id))
    if not repo.trusted:
        return ""
    info = await info_of(core, repo)
    tip = await core.git.branches.tip(info, landing.branch)
    base = await core.git.commits.merge_base(info, landing.branch, landing.target) if tip is not None else None
    if tip is None or base is None:
        return ""
    before, after = await at_commit(core, info, base), await at_commit(core, info, tip)
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id))
    changed = [key for key in trusted.withheld(after) if before.get(key) != after[key]]
    removed = [key for key in before if key not in after]
    parts = (
        [f"changes {listed(changed)}, withheld until `rametctl repo trust {shlex.quote(repo.name)}`"] if changed else []
    )
    parts += [f"removes {listed(removed)}"] if removed else []
    return f"{landing.session_name} {' and '.join(parts)}" if parts else ""
