"""Whether what was kept of a session that is back is kept nowhere else, so that its ref has to stay."""

import structlog

from rametd.domain.errors import RametError
from rametd.domain.models import Session
from rametd.git import Kept
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core

log = structlog.get_logger()


async def is_alone(core: Core, info: RepositoryInfo, session: Session, kept: Kept) -> bool:
    """See `Git.is_alone`; what cannot be compared counts as alone."""
    try:
        return await core.git.is_alone(info, kept, session.worktree, f"refs/ramet/checkpoints/{session.id}/")
    except RametError as error:
        log.info("cannot be compared", ref=kept.ref, error=error.message)
        return True
