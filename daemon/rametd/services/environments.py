"""Environments of processes in worktrees: agents, commands, setup, the person's shell, and git that
acts for the person."""

import asyncio
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ramet.environment import FORGE

from rametd.domain.errors import BadConfigError
from rametd.domain.models import COMMAND, OWNER, Agent, AgentState, Repo, Session
from rametd.domain.states import State
from rametd.domain.text import listed
from rametd.environment import Variables, build
from rametd.services import ports
from rametd.services.core import Core
from rametd.services.lifecycle import log_update
from rametd.services.trust.settings import for_session
from rametd.store import Reader, Unit


def variables(session: Session, repo: Repo, run_names: Iterable[str] = ()) -> dict[str, str]:
    """Variables that describe the session's worktree and ports. ``run_names``: names of the
    configured commands, in order."""
    return {
        "RAMET_WORKTREE": str(session.worktree),
        "RAMET_REPO_ROOT": str(repo.root),
        "RAMET_BRANCH": session.branch,
        "RAMET_SESSION_NAME": session.name,
        **ceiling(session.worktree),
        **ports.variables(session, run_names),
    }


def ceiling(tree: Path) -> dict[str, str]:
    """Variables that keep git from using an outer repository if the ``.git`` of a worktree is
    gone."""
    return {"GIT_CEILING_DIRECTORIES": str(tree.parent)}


async def of_session(core: Core, session: Session, repo: Repo) -> dict[str, str]:
    """`variables`, with the repository's names for ports."""
    return variables(session, repo, await run_names(core, session, repo))


async def run_names(core: Core, session: Session, repo: Repo) -> tuple[str, ...]:
    """Names of the configured commands, in order."""
    try:
        return tuple((await for_session(core, session, repo)).config.run)
    except BadConfigError:
        return ()  # the call that runs a command reports it


async def for_command(core: Core, session: Session, repo: Repo, more: Mapping[str, str]) -> dict[str, str]:
    """The complete environment of a session's command, which has the session's token and rights."""
    fixed = {
        "RAMET_SESSION": session.id,
        "RAMET_TOKEN": core.tokens.give(session.id),
        **_ours(core),
        **await of_session(core, session, repo),
        **more,
    }
    return await for_process(core, session.id, fixed)


def for_tree(core: Core, repo: Repo, tree: Path, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command in a worktree without a session. The command runs code of
    agents, so its token only allows reading."""
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


SOCKETS = ("SSH_AUTH_SOCK", "VSCODE_GIT_IPC_HANDLE")
"""Variables with the path of a socket, which ends with the login or window that created it."""


@dataclass(frozen=True, slots=True)
class Given:
    """Variables that a person names: ``values`` to set, names ``taken`` from the caller, names
    ``removed``."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    taken: Mapping[str, str] = field(default_factory=dict, repr=False)
    removed: Collection[str] = ()

    def applied_to(self, variables: Variables) -> Variables:
        return variables.changed(self.values, self.taken, self.removed)


async def variables_of(core: Core, session_id: str) -> Variables:
    return await asyncio.to_thread(core.environments.read, session_id)


async def for_process(core: Core, session_id: str, fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent or a command of a session."""
    variables = await variables_of(core, session_id)
    return build(core.daemon_environment, variables, core.config.agents.claude.pass_env, fixed)


async def for_git(core: Core, session_id: str, *, forge: bool = False) -> dict[str, str]:
    """Return the environment of git that acts for the person; with ``forge``, of pushes and `gh`.

    Git's hooks get it too and run code of agents, so its token only allows reading.
    """
    variables = await variables_of(core, session_id)
    fixed = {
        "RAMET_HOME": str(core.state_dir),
        "RAMET_RUNTIME_DIR": str(core.runtime_dir),
        "RAMET_TOKEN": core.tokens.give(COMMAND),
    }
    return build(core.daemon_environment, variables, FORGE if forge else (), fixed)


def digest_of(core: Core, variables: Variables) -> str:
    """Return a digest that shows whether an agent has the present environment, and reveals no
    value."""
    return core.tokens.digest(variables.deciding(core.daemon_environment))


async def refresh(
    core: Core, session_id: str, caller: Mapping[str, str], principal: str, given: Given | None = None
) -> list[str]:
    """Give a session and its descendants the fresh variables of a call of the owner. Return
    warnings.

    The file is written before the row. After a kill in between, the next agent process has the new
    values, and a living agent gets them after the next call. A session's own call changes nothing.
    """
    if principal != OWNER:
        return []
    session, descendants, agent = await core.store.read(lambda reader: _members(reader, session_id))
    digests: dict[str, str] = {}
    before = await variables_of(core, session_id)
    after = await asyncio.to_thread(core.environments.change, session_id, lambda own: _renewed(own, caller, given))
    if (digest := digest_of(core, after)) != session.environment:
        digests[session_id] = digest
    for each in descendants:
        variables = await asyncio.to_thread(core.environments.change, each.id, lambda own: own.refreshed(caller))
        if (digest := digest_of(core, variables)) != each.environment:
            digests[each.id] = digest
    core.failpoint.hit("environment.written")
    if digests:

        def note(unit: Unit) -> None:
            for changed, digest in digests.items():
                log_update(unit, unit.sessions.update(changed, environment=digest), ["environment"], principal)

        await core.store.write(note)
    warnings = [
        f"{name} of {session.name} no longer exists ({path}); from a shell that has one: "
        f"rametctl set {shlex.quote(session.name)} --env {name}"
        for name, path in await asyncio.to_thread(gone_sockets, after)
    ]
    in_turn = session.state in {State.WORKING, State.WAITING}
    if session_id in digests and in_turn and agent is not None and agent.state == AgentState.LIVE:
        names = listed(after.differing(before)) or "variables"
        warnings.append(f"{session.name} is in a turn: its agent gets the new {names} with the first prompt after it")
    return warnings


def _members(reader: Reader, session_id: str) -> tuple[Session, list[Session], Agent | None]:
    """Return a session, its descendants that are not archived, and its newest agent."""
    session = reader.sessions.get(session_id)
    below: dict[str, Session] = {}
    for each in reader.sessions.family(session.root_id or session.id):  # parents precede their children
        if each.parent_id == session.id or each.parent_id in below:
            below[each.id] = each
    descendants = [each for each in below.values() if each.state != State.ARCHIVED]
    return session, descendants, reader.agents.latest(session_id)


def _renewed(own: Variables, caller: Mapping[str, str], given: Given | None) -> Variables:
    renewed = own.refreshed(caller)
    return renewed if given is None else given.applied_to(renewed)


def gone_sockets(variables: Variables) -> list[tuple[str, str]]:
    """Return name and path of each socket of a session that no longer exists. Blocks."""
    values = {**variables.called, **variables.given}
    return [(name, path) for name in SOCKETS if (path := values.get(name)) and not Path(path).exists()]
