"""The command and environment of an agent's process, for a session or for a spare's warm agent."""

import shlex
from collections.abc import Mapping

from rametd.agents.base import Launch, Start
from rametd.domain.checkpoints import ConversationCut
from rametd.domain.errors import NotTrustedError
from rametd.domain.models import Repo, Session
from rametd.domain.text import listed
from rametd.keeper.executor import LaunchSpec
from rametd.services import environments
from rametd.services.core import Core
from rametd.services.trust.refusals import untrusted_files


async def launch_of(
    core: Core,
    session: Session,
    repo: Repo,
    *,
    around: Mapping[str, str],
    briefing: str,
    cut: ConversationCut | None = None,
    caller: str = "",
) -> Launch:
    """``around``: variables that describe the worktree. ``caller``: id of the session from whose
    caller the agent gets its environment; by default this session."""
    kind = core.kind(session.agent)
    untrusted = await untrusted_files(core, repo, session.worktree, session.agent)
    if untrusted and kind.reads_settings:
        raise NotTrustedError(
            f"{session.agent} would load {listed(untrusted)}, which you have not trusted",
            hint=f"`rametctl repo trust {shlex.quote(repo.name)}` shows it and lets {session.agent} start",
        )
    environment = await environment_of(core, session, around, caller=caller)
    return kind.launch(session, Start(repo.trusted and not untrusted, environment, briefing, cut))


async def environment_of(
    core: Core, session: Session, around: Mapping[str, str], *, caller: str = ""
) -> dict[str, str]:
    """Return the environment of a session's agent, without the variables that its program adds."""
    fixed = {
        "RAMET_SESSION": session.id,
        "RAMET_TOKEN": core.tokens.give(session.id),
        "RAMET_HOME": str(core.state_dir),
        "RAMET_RUNTIME_DIR": str(core.runtime_dir),
        **around,
        **core.kind(session.agent).variables,
    }
    return await environments.for_process(core, caller or session.id, fixed)


def spec_of(core: Core, session: Session, launch: Launch, generation: int) -> LaunchSpec:
    return LaunchSpec(
        session_id=session.id,
        generation=generation,
        argv=launch.argv,
        cwd=session.worktree,
        environment=launch.environment,
        cgroup=core.cgroup_of(session.id),
        segment_bytes=core.config.journal.rotate_at,
        nice=core.config.agents.nice,
    )
