"""Worktrees that were deleted or moved by hand: what is there to be done, for whoever comes upon one."""

import asyncio
import shlex

from rametd.domain.errors import PreconditionError, WorktreeChangedError
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.states import State
from rametd.services.core import Core


async def require_tree(core: Core, session: Session, error: type[PreconditionError] = WorktreeChangedError) -> None:
    """Raise ``error`` where the worktree of a session was deleted or moved by hand, with what brings it back."""
    if session.state == State.ARCHIVED or await asyncio.to_thread(session.worktree.is_dir):
        return
    name = shlex.quote(session.name)
    stood = await core.store.read(lambda reader: reader.checkpoints.current(session))
    if session.worktree_kind != WorktreeKind.OWN:
        hint = f"bring it back by hand, since Ramet did not make it; or `rametctl rm {name}`"
    else:
        hint = f"to have it again from its branch: `rametctl archive {name} && rametctl restore {name}`"
        if stood is not None:
            hint = (
                f"to have it again with the files of checkpoint {stood.number}, where it stood: `rametctl archive {name} && rametctl restore {name}`;"
                f" to go on elsewhere: `rametctl fork {name} --at {stood.number}`"
            )
    raise error(f"the worktree {session.worktree} is gone", hint=hint, worktree=str(session.worktree))
