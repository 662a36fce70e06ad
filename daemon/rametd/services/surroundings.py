"""What every process in a worktree finds in its environment: the agent, commands, setup, a person's shell."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rametd.domain.errors import BadConfigError
from rametd.domain.models import COMMAND, Repo, Session
from rametd.environment import Variables, build
from rametd.services import environments, ports
from rametd.services.core import Core
from rametd.services.settings import for_session


def variables(session: Session, repo: Repo, run_names: Iterable[str] = ()) -> dict[str, str]:
    """What tells a process where it is, and which ports are its own. ``run_names``: those of the configured commands, in order."""
    return {
        "RAMET_WORKTREE": str(session.worktree),
        "RAMET_REPO_ROOT": str(repo.root),
        "RAMET_BRANCH": session.branch,
        "RAMET_SESSION_NAME": session.name,
        **ceiling(session.worktree),
        **ports.variables(session, run_names),
    }


def ceiling(tree: Path) -> dict[str, str]:
    """Keep git in a worktree whose ``.git`` is gone from working in a repository around it."""
    return {"GIT_CEILING_DIRECTORIES": str(tree.parent)}


async def of_session(core: Core, session: Session, repo: Repo) -> dict[str, str]:
    """`variables`, with the names that the repository gives to ports."""
    return variables(session, repo, await run_names(core, session, repo))


async def run_names(core: Core, session: Session, repo: Repo) -> tuple[str, ...]:
    """Names of the configured commands, in order."""
    try:
        return tuple((await for_session(core, session, repo)).config.run)
    except BadConfigError:
        return ()  # said where a command is asked for; nothing here depends on it


async def for_command(core: Core, session: Session, repo: Repo, more: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a command: the session's, and it acts as the session, with no more rights than that has."""
    fixed = {
        "RAMET_SESSION": session.id,
        "RAMET_TOKEN": core.tokens.give(session.id),
        **_ours(core),
        **await of_session(core, session, repo),
        **more,
    }
    return await environments.for_process(core, session.id, fixed)


def for_tree(core: Core, repo: Repo, tree: Path, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command in a worktree that no session has. It runs what agents wrote, so its token lets it only look."""
    fixed = {
        **_ours(core),
        "RAMET_TOKEN": core.tokens.give(COMMAND),
        "RAMET_WORKTREE": str(tree),
        "RAMET_REPO_ROOT": str(repo.root),
        **ceiling(tree),
        **more,
    }
    return build(core.daemon_environment, Variables(), core.config.agents.claude.pass_env, fixed)


def _ours(core: Core) -> dict[str, str]:
    return {"RAMET_HOME": str(core.state_dir), "RAMET_RUNTIME_DIR": str(core.runtime_dir)}
