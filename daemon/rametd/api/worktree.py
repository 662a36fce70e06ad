"""WorktreeService."""

from typing import Any

import grpc
from ramet.v1 import worktree_pb2, worktree_pb2_grpc

from rametd.domain.errors import InvalidInputError
from rametd.git.diff import MAX_PATCH, FileChange
from rametd.services.core import Core
from rametd.services.lookup import find_session
from rametd.services.repos import info_of

Context = grpc.aio.ServicerContext[Any, Any]

KINDS = {
    "added": worktree_pb2.CHANGE_KIND_ADDED,
    "modified": worktree_pb2.CHANGE_KIND_MODIFIED,
    "deleted": worktree_pb2.CHANGE_KIND_DELETED,
    "renamed": worktree_pb2.CHANGE_KIND_RENAMED,
    "copied": worktree_pb2.CHANGE_KIND_COPIED,
    "type changed": worktree_pb2.CHANGE_KIND_TYPE_CHANGED,
}
LARGEST_PATCH = 48 << 20


def change_message(change: FileChange) -> worktree_pb2.FileChange:
    return worktree_pb2.FileChange(
        path=change.path,
        old_path=change.old_path or "",
        kind=KINDS[change.status],
        additions=change.additions,
        deletions=change.deletions,
        binary=change.binary,
    )


class WorktreeServicer(worktree_pb2_grpc.WorktreeServiceServicer):
    def __init__(self, core: Core) -> None:
        self._core = core

    async def GetDiff(self, request: worktree_pb2.GetDiffRequest, context: Context) -> worktree_pb2.GetDiffResponse:
        core = self._core
        if request.max_bytes > LARGEST_PATCH:
            raise InvalidInputError(f"max_bytes is over {LARGEST_PATCH:,}", hint="ask for less, or use git itself")
        session = await core.store.read(lambda reader: find_session(reader, request.session))
        against = session.base_commit
        if request.against not in {"", "base"}:
            repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
            against = (await core.git.resolve_base(await info_of(core, repo), request.against, None)).commit
        diff = await core.git.diff(
            session.worktree, against, patch=not request.stat_only, max_patch=request.max_bytes or MAX_PATCH
        )
        return worktree_pb2.GetDiffResponse(
            files=[change_message(change) for change in diff.files],
            patch=diff.patch or b"",
            truncated=diff.truncated,
            against_commit=against,
            additions=sum(change.additions for change in diff.files),
            deletions=sum(change.deletions for change in diff.files),
        )
