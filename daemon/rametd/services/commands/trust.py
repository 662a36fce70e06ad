"""Commands that a repository brings, and that wait until it is trusted; and what there is to be told about them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rametd.config import Config
from rametd.domain.errors import NotTrustedError, RametError
from rametd.domain.models import Repo, Session, WorktreeKind
from rametd.services.commands import projects
from rametd.services.core import Core
from rametd.services.settings import Settings, for_session


def check_trust(settings: Settings, repo: Repo, wanted: Callable[[Config], bool]) -> None:
    """Raise `NotTrustedError` where what is wanted is there, in a repository that is not trusted."""
    if settings.withheld is not None and wanted(settings.withheld):
        raise NotTrustedError(
            f"{repo.name} is not trusted, so that its own commands do not run", hint=f"rametctl repo trust {repo.name}"
        )


def hooks_withheld(repo: Repo, names: Sequence[str]) -> str:
    """The warning that git hooks did not run."""
    hooks = f"{names[0]} hook" if len(names) == 1 else f"hooks {', '.join(names)}"
    return f"{repo.name} is not trusted: its {hooks} did not run; `rametctl repo trust {repo.name}` has git run them"


@dataclass(frozen=True, slots=True)
class Notes:
    """What to tell whoever makes a session: of commands that wait for trust, and, once per repository, of a setup that would fit."""

    told: tuple[str, ...] = ()
    offer: str = ""


async def notes(core: Core, session: Session, repo: Repo) -> Notes:
    if session.worktree_kind != WorktreeKind.OWN:
        return Notes()
    try:
        settings = await for_session(core, session, repo)
    except RametError as error:
        return Notes((f"nothing is set up: {error.message}",))
    if settings.config.setup:
        return Notes()
    if settings.withheld is not None and settings.withheld.setup:
        shown = "; ".join(" ".join(command.split()) for command in settings.withheld.setup)
        return Notes(
            (f"{repo.name} is not trusted: its setup ({shown[:120]}) does not run until `rametctl repo trust`",)
        )
    project = await asyncio.to_thread(projects.recognise, session.worktree)
    if project is None:
        return Notes()
    return Notes(
        offer=f"{repo.name} looks like a project of {project.kind}; `rametctl setup {session.name}` shows a setup for it"
    )
