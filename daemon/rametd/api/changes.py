"""WorktreeService: diffs, once and as they change."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.context import named_session
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Session
from rametd.git import MAX_PATCH, Diff, DiffOptions, Tracker, Whitespace
from rametd.services.core import Core
from rametd.services.missing import require_tree
from rametd.services.repos import info_of
from rametd.services.trackers import Trackers
from rametd.services.worktrees.changes import Against, against, change_message, compare, paths_inside, warnings_of

Context = grpc.aio.ServicerContext[Any, Any]

DEFAULT_PATCH = 8 << 20
LARGEST_PATCH = 48 << 20
WHITESPACE = {
    worktree_pb2.WHITESPACE_UNSPECIFIED: Whitespace.SHOW,
    worktree_pb2.WHITESPACE_SHOW: Whitespace.SHOW,
    worktree_pb2.WHITESPACE_IGNORE_AT_EOL: Whitespace.IGNORE_AT_EOL,
    worktree_pb2.WHITESPACE_IGNORE_CHANGE: Whitespace.IGNORE_CHANGE,
    worktree_pb2.WHITESPACE_IGNORE_ALL: Whitespace.IGNORE_ALL,
}


def patch_limit(asked: int, default: int) -> int:
    if asked > LARGEST_PATCH:
        raise InvalidInputError(f"max_bytes is over {LARGEST_PATCH:,}", hint="ask for less, or use git itself")
    return asked or default


class ChangeCalls:
    _core: Core
    _trackers: Trackers

    async def GetDiff(self, request: worktree_pb2.GetDiffRequest, context: Context) -> worktree_pb2.GetDiffResponse:
        core = self._core
        limit = patch_limit(request.max_bytes, DEFAULT_PATCH)
        if request.whitespace not in WHITESPACE:
            raise InvalidInputError(f"there is no way {request.whitespace} to see white space", hint="use one of four")
        session = await named_session(core, request.session)
        paths = paths_inside(session.worktree, request.paths)
        options = DiffOptions(WHITESPACE[request.whitespace], paths, binary=request.binary)
        old = await against(core, session, request.against)
        diff = await compare(core, session, old, patch=not request.stat_only, max_patch=limit, options=options)
        return worktree_pb2.GetDiffResponse(
            files=[change_message(change) for change in diff.files],
            patch=diff.patch or b"",
            truncated=diff.truncated,
            against_commit=old.commit,
            additions=sum(change.additions for change in diff.files),
            deletions=sum(change.deletions for change in diff.files),
            warnings=warnings_of(diff),
        )

    async def WatchChanges(
        self, request: worktree_pb2.WatchChangesRequest, context: Context
    ) -> AsyncIterator[worktree_pb2.WatchChangesResponse]:
        core = self._core
        limit = patch_limit(request.max_bytes, MAX_PATCH)
        session = await named_session(core, request.session)
        old = await against(core, session, request.against, sessions=False)
        await require_tree(core, session)
        async with self._trackers.held(session) as tracker:
            changes = tracker.changes()
            try:
                seen = (await tracker.tree()).tree
                yield await self._changed(session, old, tracker, "", seen, limit if request.include_patch else None)
                async for _ in changes:
                    before, seen = seen, (await tracker.tree()).tree
                    if seen != before:
                        patch = limit if request.include_patch else None
                        yield await self._changed(session, old, tracker, before, seen, patch)
            finally:
                changes.close()

    async def _changed(
        self, session: Session, old: Against, tracker: Tracker, before: str, now: str, limit: int | None
    ) -> worktree_pb2.WatchChangesResponse:
        """What differs between ``old`` and the tree ``now``; ``before`` is that of the last answer, "" for the first."""
        core = self._core
        info = await info_of(core, await core.store.read(lambda reader: reader.repos.get(session.repo_id)))
        whole = await core.git.diffs.between(
            info, old.tree, now, patch=limit is not None and not before, max_patch=limit or 0
        )
        since: Diff = whole
        if before:
            since = await core.git.diffs.between(info, before, now, patch=limit is not None, max_patch=limit or 0)
        told = [change_message(change) for change in since.files]
        names = sorted({name for change in told for name in (change.path, change.old_path) if name})
        return worktree_pb2.WatchChangesResponse(
            files=[change_message(change) for change in whole.files],
            changed_paths=names,
            patch=since.patch or b"",
            truncated=since.truncated,
            additions=sum(change.additions for change in whole.files),
            deletions=sum(change.deletions for change in whole.files),
            live=tracker.live,
            note=tracker.note,
        )
