"""Refuse work in a worktree that was deleted or moved by hand, with a hint on restoring it."""

import asyncio
import shlex

from rametd.domain.errors import PreconditionError, WorktreeChangedError
from rametd.domain.models import Session, WorktreeKind
from rametd.domain.states import State
from rametd.services.core import Core


async def require_sound_tree(core: Core, session: Session) -> None:
    """Raise `WorktreeChangedError` if the worktree of a session is gone or was replaced, so that
    nothing may start in it."""
    if session.state == State.ARCHIVED:
        return
    try:
        await core.git.worktrees.verify(session.worktree, None)
    except WorktreeChangedError:
        await require_tree(core, session)  # if it is gone, with the hint that restores it
        raise


async def require_tree(core: Core, session: Session, error: type[PreconditionError] = WorktreeChangedError) -> None:
    """Raise ``error`` if the worktree of a session is gone; the hint restores it."""
    if session.state == State.ARCHIVED or await asyncio.to_thread(session.worktree.is_dir):
        return
    name = shlex.quote(session.name)
    last = await core.store.read(lambda reader: reader.checkpoints.current(session))
    if session.worktree_kind != WorktreeKind.OWN:
        hint = f"restore it by hand, as Ramet did not create it, or `rametctl rm {name}`"
    else:
        hint = f"create it again from its branch: `rametctl archive {name} && rametctl restore {name}`"
        if last is not None:
            hint = (
                f"create it again with the files of checkpoint {last.number}, its last: `rametctl archive {name} && rametctl restore {name}`;"
                f" or continue in another session: `rametctl fork {name} --at {last.number}`"
            )
    raise error(f"the worktree {session.worktree} is gone", hint=hint, worktree=str(session.worktree))
