"""Notes for whoever creates a session: commands and settings that are withheld, and a setup that would fit."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rametd.domain.errors import RametError
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.services.commands import projects
from rametd.services.core import Core
from rametd.services.settings import for_session
from rametd.services.trust import not_loaded, untrusted_files
from rametd.services.words import listed


@dataclass(frozen=True, slots=True)
class Notes:
    """For whoever creates a session: warnings about withheld commands and, once per repository, the offer of a setup that would fit."""

    warnings: tuple[str, ...] = ()
    offer: str = ""


async def notes(core: Core, session: Session, repo: Repo) -> Notes:
    warnings = await _claude_warnings(core, session, repo)
    if session.worktree_kind != WorktreeKind.OWN:
        return Notes(warnings)
    try:
        settings = await for_session(core, session, repo)
    except RametError as error:
        return Notes((f"nothing is set up: {error.message}", *warnings))
    if settings.untrusted is not None and repo.trusted:
        words = f"{repo.name} has changed {listed(settings.changed)} since you trusted it"
        return Notes((f"{words}: only what you trusted runs until `rametctl repo trust`", *warnings))
    if settings.untrusted is not None and settings.untrusted.setup and not settings.config.setup:
        shown = "; ".join(" ".join(command.split()) for command in settings.untrusted.setup)
        words = f"{repo.name} is not trusted: its setup ({shown[:120]}) does not run until `rametctl repo trust`"
        return Notes((words, *warnings))
    if settings.config.setup:
        return Notes(warnings)
    project = await asyncio.to_thread(projects.recognise, session.worktree)
    if project is None:
        return Notes(warnings)
    shows = f"`rametctl setup {session.name}` shows a setup for it"
    return Notes(warnings, offer=f"{repo.name} looks like a project of {project.kind}; {shows}")


async def _claude_warnings(core: Core, session: Session, repo: Repo) -> tuple[str, ...]:
    if repo.trusted:
        files = await untrusted_files(core, repo, session.worktree)
        return (not_loaded(repo, files),) if files else ()
    if not await asyncio.to_thread(_has_claude_settings, session.worktree):
        return ()
    words = "its own Claude settings, CLAUDE.md, hooks and MCP servers are not loaded until `rametctl repo trust`"
    return (f"{repo.name} is not trusted: {words}",)


def _has_claude_settings(worktree: Path) -> bool:
    return any((worktree / name).exists() for name in (".claude", "CLAUDE.md", ".mcp.json"))
