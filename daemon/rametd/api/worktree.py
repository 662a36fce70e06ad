"""WorktreeService: what changed in worktrees, comments, checkpoints, conflicts, spares, the trash,
and upkeep."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from ramet.v1 import worktree_pb2, worktree_pb2_grpc

from rametd.api.calls import Call, Calls, mutation
from rametd.api.context import freshen, here, named_session, principal
from rametd.api.paging import offset, page_of, position_of, size_of, time_and_id, token_of
from rametd.api.repo import resolve_or_new, resolve_repo
from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.comments import Comment
from rametd.domain.conflicts import PairConflict
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Prompt, Repo, Session
from rametd.domain.spares import Spare
from rametd.domain.text import utf8
from rametd.git import EVERYTHING, MAX_PATCH, Diff, DiffOptions, Tracker, Whitespace
from rametd.services.agents.supervisor import Supervisor
from rametd.services.archiving.remove import Remover
from rametd.services.archiving.restore import Restorer
from rametd.services.archiving.trash import Trash, find_entry, message
from rametd.services.core import Core
from rametd.services.creation.pool import Pool, PoolStatus
from rametd.services.lookup import find_session
from rametd.services.messages import from_message, to_message
from rametd.services.missing import require_tree
from rametd.services.radar import conflicts
from rametd.services.radar.radar import Picture, Radar
from rametd.services.repos import info_of, register
from rametd.services.trackers import Trackers
from rametd.services.upkeep.collector import Collector
from rametd.services.upkeep.doctor import Doctor
from rametd.services.views import prompt_message, under_way
from rametd.services.worktrees.changes import Against, against, change_message, compare, paths_inside, warnings_of
from rametd.services.worktrees.checkpoints import Checkpointer
from rametd.services.worktrees.comments import CommentPlace, Reviewer, clean_path, comment_message, file_at
from rametd.services.worktrees.history import checkpoint_message, find_checkpoint, list_checkpoints
from rametd.services.worktrees.rewind import Rewinder
from rametd.services.worktrees.sync import Sync, Syncer
from rametd.store import Reader, Unit

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

CLEAN = worktree_pb2.CONFLICT_KIND_CLEAN

WAKING = frozenset({"conflict_changed", "session_created", "session_removed", "session_archived", "session_restored"})
"""Events after which the diff may have changed."""


class WorktreeServicer(worktree_pb2_grpc.WorktreeServiceServicer):
    def __init__(
        self,
        core: Core,
        calls: Calls,
        checkpointer: Checkpointer,
        rewinder: Rewinder,
        remover: Remover,
        restorer: Restorer,
        trash: Trash,
        pool: Pool,
        radar: Radar,
        syncer: Syncer,
        trackers: Trackers,
        supervisor: Supervisor,
    ) -> None:
        self._core = core
        self._calls = calls
        self._checkpointer = checkpointer
        self._rewinder = rewinder
        self._pool = pool
        self._radar = radar
        self._trackers = trackers
        self._reviewer = Reviewer(core)
        self._syncer = syncer
        self._restorer = restorer
        self._trash = trash
        self._collector = Collector(core, remover)
        self._doctor = Doctor(core, supervisor)

    # Changes

    async def GetDiff(self, request: worktree_pb2.GetDiffRequest, context: Context) -> worktree_pb2.GetDiffResponse:
        core = self._core
        limit = patch_limit(request.max_bytes, DEFAULT_PATCH)
        if request.whitespace not in WHITESPACE:
            raise InvalidInputError(f"there is no way {request.whitespace} to see white space", hint="use one of four")
        session = await named_session(core, request.session)
        paths = paths_inside(session.worktree, request.paths)
        options = DiffOptions(
            WHITESPACE[request.whitespace],
            paths,
            binary=request.binary,
            context=request.context or EVERYTHING.context,
        )
        old = await against(core, session, request.against)
        diff = await compare(
            core,
            session,
            old,
            until=request.until,
            patch=not request.stat_only,
            max_patch=limit,
            options=options,
        )
        return worktree_pb2.GetDiffResponse(
            files=[change_message(change) for change in diff.files],
            patch=diff.patch or b"",
            truncated=diff.truncated,
            against_commit=old.commit,
            additions=sum(change.additions for change in diff.files),
            deletions=sum(change.deletions for change in diff.files),
            warnings=[*await asyncio.to_thread(_unfinished, session), *warnings_of(diff)],
            tree=diff.new,
        )

    async def GetFile(self, request: worktree_pb2.GetFileRequest, context: Context) -> worktree_pb2.GetFileResponse:
        core = self._core
        session = await named_session(core, request.session)
        found = await file_at(core, session, clean_path(request.path), request.at)
        return worktree_pb2.GetFileResponse(data=found.data or b"", size=found.size, blob=found.blob)

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
        """Return the changes from ``old`` to the tree ``now``; ``before`` is the tree of the last
        answer, "" for the first."""
        core = self._core
        info = await info_of(core, await core.store.read(lambda reader: reader.repos.get(session.repo_id)))
        whole = await core.git.diffs.between(
            info, old.tree, now, patch=limit is not None and not before, max_patch=limit or 0
        )
        since: Diff = whole
        if before:
            since = await core.git.diffs.between(info, before, now, patch=limit is not None, max_patch=limit or 0)
        changed = [change_message(change) for change in since.files]
        names = sorted({name for change in changed for name in (change.path, change.old_path) if name})
        return worktree_pb2.WatchChangesResponse(
            files=[change_message(change) for change in whole.files],
            changed_paths=names,
            patch=since.patch or b"",
            truncated=since.truncated,
            additions=sum(change.additions for change in whole.files),
            deletions=sum(change.deletions for change in whole.files),
            live=tracker.live,
            note=tracker.note,
            warnings=await asyncio.to_thread(_unfinished, session),
        )

    # Comments and syncs

    @mutation
    async def AddComment(self, request: worktree_pb2.AddCommentRequest, call: Call) -> worktree_pb2.AddCommentResponse:
        session = await named_session(self._core, request.session)

        def answer(unit: Unit, comment: Comment) -> worktree_pb2.AddCommentResponse:
            made = comment_message(comment, comment.line)
            return call.remember(unit, worktree_pb2.AddCommentResponse(comment=made))

        place = CommentPlace(request.path, request.line, request.end_line or request.line, request.at)
        return await self._reviewer.add(session, place, request.text, call.principal, answer)

    async def ListComments(
        self, request: worktree_pb2.ListCommentsRequest, context: Context
    ) -> worktree_pb2.ListCommentsResponse:
        near = here.get()
        session, found = await self._core.store.read(
            lambda reader: (
                session := find_session(reader, request.session, repo_id=near),
                reader.comments.list(session.id, resolved=request.include_resolved),
            )
        )
        page, token = page_of("comments", request, found)
        places = await self._reviewer.where_now(session, page)
        return worktree_pb2.ListCommentsResponse(
            comments=[comment_message(comment, place) for comment, place in zip(page, places, strict=True)],
            next_page_token=token,
        )

    @mutation
    async def ResolveComment(
        self, request: worktree_pb2.ResolveCommentRequest, call: Call
    ) -> worktree_pb2.ResolveCommentResponse:
        def answer(unit: Unit, comment: Comment) -> worktree_pb2.ResolveCommentResponse:
            return call.remember(unit, worktree_pb2.ResolveCommentResponse(comment=comment_message(comment)))

        return await self._reviewer.resolve(request.comment, call.principal, answer)

    @mutation
    async def SendComments(
        self, request: worktree_pb2.SendCommentsRequest, call: Call
    ) -> worktree_pb2.SendCommentsResponse:
        session = await named_session(self._core, request.session)
        await freshen(self._core, session.id)

        def answer(unit: Unit, prompt: Prompt, sent: list[Comment]) -> worktree_pb2.SendCommentsResponse:
            comments = [comment_message(each) for each in sent]
            return call.remember(
                unit, worktree_pb2.SendCommentsResponse(prompt=prompt_message(prompt), comments=comments)
            )

        return await self._reviewer.send(session, request.text, call.principal, answer)

    @mutation
    async def SyncSession(
        self, request: worktree_pb2.SyncSessionRequest, call: Call
    ) -> worktree_pb2.SyncSessionResponse:
        session = await named_session(self._core, request.session)
        await freshen(self._core, session.id)
        wanted = from_message(Sync, request, rebase=request.method == worktree_pb2.SYNC_METHOD_REBASE)
        return await self._syncer.sync(session, wanted, call.caller)

    # Checkpoints

    async def ListCheckpoints(
        self, request: worktree_pb2.ListCheckpointsRequest, context: Context
    ) -> worktree_pb2.ListCheckpointsResponse:
        near = here.get()
        before = position_of("checkpoints", request.page_token, offset)
        size = size_of(request.page_size)

        def work(reader: Reader) -> worktree_pb2.ListCheckpointsResponse:
            session = find_session(reader, request.session, repo_id=near)
            found = list_checkpoints(reader, session.id, before, size + 1)
            page = found[:size]
            return worktree_pb2.ListCheckpointsResponse(
                checkpoints=page,
                next_page_token=token_of("checkpoints", page[-1].number) if len(found) > size else "",
            )

        return await self._core.store.read(work)

    @mutation
    async def CreateCheckpoint(
        self, request: worktree_pb2.CreateCheckpointRequest, call: Call
    ) -> worktree_pb2.CreateCheckpointResponse:
        session = await named_session(self._core, request.session)
        await require_tree(self._core, session)
        made = await self._checkpointer.ask(session.id, CheckpointReason.MANUAL, call.principal)
        warnings = [
            f"not in the checkpoint, as git could not read it: {line}" for line in self._checkpointer.unread(session.id)
        ]
        return worktree_pb2.CreateCheckpointResponse(checkpoint=checkpoint_message(made), warnings=warnings)

    @mutation
    async def RewindSession(
        self, request: worktree_pb2.RewindSessionRequest, call: Call
    ) -> worktree_pb2.RewindSessionResponse:
        session = await named_session(self._core, request.session)
        await require_tree(self._core, session)
        checkpoint = await self._core.store.read(lambda reader: find_checkpoint(reader, session, request.checkpoint))
        await freshen(self._core, session.id)
        return await self._rewinder.rewind(session, checkpoint, files_only=request.files_only, caller=call.caller)

    # Conflicts

    async def ListConflicts(
        self, request: worktree_pb2.ListConflictsRequest, context: Context
    ) -> worktree_pb2.ListConflictsResponse:
        repo_id, wanted = await self._meant(request.repo, tuple(request.sessions))
        picture = await self._radar.picture(repo_id)

        def answer(reader: Reader) -> worktree_pb2.ListConflictsResponse:
            found = messages(reader, picture, wanted)
            if request.include_clean:
                found += clean(picture, wanted)
            return worktree_pb2.ListConflictsResponse(
                conflicts=found,
                session_ids=[each.id for each in picture.sessions],
                landing_order=picture.order,
                order_conflicts=picture.order_conflicts,
            )

        return await self._core.store.read(answer)

    async def WatchConflicts(
        self, request: worktree_pb2.WatchConflictsRequest, context: Context
    ) -> AsyncIterator[worktree_pb2.WatchConflictsResponse]:
        core = self._core
        repo_id, wanted = await self._meant(request.repo, tuple(request.sessions))
        watcher = core.hub.watch(await core.store.read(lambda reader: reader.events.last_seq()), kinds=WAKING)
        last: worktree_pb2.WatchConflictsResponse | None = None
        try:
            async with self._radar.watched(repo_id) as look:
                while True:
                    answer = await self._seen(await look(), wanted)
                    if answer != last:
                        yield answer
                        last = answer
                    while not any(each.repo_id == repo_id for each in await watcher.next()):
                        pass
        finally:
            watcher.close()

    async def _seen(self, picture: Picture, wanted: frozenset[str]) -> worktree_pb2.WatchConflictsResponse:
        return worktree_pb2.WatchConflictsResponse(
            conflicts=await self._core.store.read(lambda reader: messages(reader, picture, wanted)),
            session_ids=[each.id for each in picture.sessions],
            landing_order=picture.order,
            order_conflicts=picture.order_conflicts,
        )

    async def _meant(self, repo: str, names: tuple[str, ...]) -> tuple[str, frozenset[str]]:
        """Return the repository and the ids of the named sessions. Raise `InvalidInputError` unless
        all are of one repository."""
        near = here.get()
        found = await self._core.store.read(lambda reader: [find_session(reader, name, repo_id=near) for name in names])
        repositories = {each.repo_id for each in found}
        if repo:
            repositories.add((await resolve_repo(self._core, repo)).id)
        elif not found and principal.get().startswith("session:"):
            own = principal.get().removeprefix("session:")
            repositories = {(await self._core.store.read(lambda reader: reader.sessions.get(own))).repo_id}
        if len(repositories) != 1:
            raise InvalidInputError(
                "sessions of several repositories were named" if repositories else "no repository given",
                hint="name one repository, or sessions of one; sessions of different repositories never conflict",
            )
        return repositories.pop(), frozenset(each.id for each in found)

    # Spares

    async def GetPool(self, request: worktree_pb2.GetPoolRequest, context: Context) -> worktree_pb2.GetPoolResponse:
        status = await self._pool.status(await resolve_or_new(self._core, request.repo))
        return worktree_pb2.GetPoolResponse(
            spares=self._spares(status),
            size=status.size,
            warm_agents=status.warm_agents,
            held_reason=status.held_reason,
            disk_free_bytes=status.disk_free,
            claims=status.claims,
            misses=status.misses,
        )

    def _spares(self, status: PoolStatus) -> list[worktree_pb2.Spare]:
        has, cold = self._pool.warmer.has, self._pool.spares.cold
        return [
            spare_message(spare, size, warm=has(spare.id), cold=cold.get(spare.id, "")) for spare, size in status.spares
        ]

    @mutation
    async def FillPool(self, request: worktree_pb2.FillPoolRequest, call: Call) -> worktree_pb2.FillPoolResponse:
        wanted = await resolve_or_new(self._core, request.repo)
        self._core.git.trust(wanted.common_dir)
        repo = await self._core.store.write(lambda unit: register(unit, wanted, call.principal))
        await self._pool.fill(repo)
        status = await self._pool.status(repo)
        return worktree_pb2.FillPoolResponse(spares=self._spares(status))

    @mutation
    async def DrainPool(self, request: worktree_pb2.DrainPoolRequest, call: Call) -> worktree_pb2.DrainPoolResponse:
        removed = await self._pool.drain(await resolve_or_new(self._core, request.repo))
        return worktree_pb2.DrainPoolResponse(spares=[spare_message(spare) for spare in removed])

    # The trash

    async def ListTrash(
        self, request: worktree_pb2.ListTrashRequest, context: Context
    ) -> worktree_pb2.ListTrashResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None
        size = size_of(request.page_size)
        after = position_of("trash", request.page_token, time_and_id)

        def work(reader: Reader) -> worktree_pb2.ListTrashResponse:
            entries = reader.trash.list(repo_id)
            if after is not None:  # newest first, then by id
                time, identity = after
                entries = [each for each in entries if (-each.create_time, each.id) > (-time, identity)]
            page = entries[:size]
            token = token_of("trash", [page[-1].create_time, page[-1].id]) if len(entries) > size else ""
            return worktree_pb2.ListTrashResponse(
                entries=[message(reader, entry) for entry in page], next_page_token=token
            )

        return await self._core.store.read(work)

    @mutation
    async def RestoreTrash(
        self, request: worktree_pb2.RestoreTrashRequest, call: Call
    ) -> worktree_pb2.RestoreTrashResponse:
        near = here.get()
        entry = await self._core.store.read(lambda reader: find_entry(reader, request.entry, near=near))
        response = await self._restorer.from_trash(entry, call.caller)
        response.warnings.extend(await freshen(self._core, entry.session_id))
        return response

    @mutation
    async def EmptyTrash(self, request: worktree_pb2.EmptyTrashRequest, call: Call) -> worktree_pb2.EmptyTrashResponse:
        repo_id = (await resolve_repo(self._core, request.repo)).id if request.repo else None

        def find(reader: Reader) -> worktree_pb2.EmptyTrashResponse:
            if request.entries:
                entries = [find_entry(reader, name, repo_id) for name in request.entries]
            else:
                entries = reader.trash.list(repo_id)
            found = {entry.id: message(reader, entry) for entry in entries}
            return worktree_pb2.EmptyTrashResponse(entries=found.values())

        response = await self._core.store.read(find)
        await self._trash.empty(response, call.caller)
        return response

    # Upkeep

    @mutation
    async def CollectGarbage(
        self, request: worktree_pb2.CollectGarbageRequest, call: Call
    ) -> worktree_pb2.CollectGarbageResponse:
        items = await self._collector.collect(
            await self._repo(request.repo), dry_run=request.dry_run, principal=call.principal
        )
        return worktree_pb2.CollectGarbageResponse(
            items=[
                to_message(
                    worktree_pb2.Garbage,
                    item,
                    name=utf8(item.name),
                    reason=utf8(item.reason),
                    removed=item.removed,
                    warnings=map(utf8, item.warnings),
                )
                for item in items
            ],
            bytes=sum(item.bytes for item in items if (item.is_removable if request.dry_run else item.removed)),
        )

    @mutation
    async def Diagnose(self, request: worktree_pb2.DiagnoseRequest, call: Call) -> worktree_pb2.DiagnoseResponse:
        diagnosis = await self._doctor.diagnose(await self._repo(request.repo), fix=request.fix)
        return worktree_pb2.DiagnoseResponse(
            findings=[
                to_message(
                    worktree_pb2.Finding,
                    found,
                    subject=utf8(found.subject),
                    message=utf8(found.message),
                    advice=utf8(found.advice),
                    fixable=found.fix is not None,
                )
                for found in diagnosis.findings
            ],
            checked=diagnosis.checked,
        )

    async def _repo(self, name: str) -> Repo | None:
        return await resolve_repo(self._core, name) if name else None


def patch_limit(asked: int, default: int) -> int:
    if asked > LARGEST_PATCH:
        raise InvalidInputError(f"max_bytes is over {LARGEST_PATCH:,}", hint="ask for less, or use git itself")
    return asked or default


def concerns(pair: PairConflict, wanted: frozenset[str]) -> bool:
    return not wanted or pair.session_id in wanted or pair.other_id in wanted


def messages(reader: Reader, picture: Picture, wanted: frozenset[str]) -> list[worktree_pb2.Conflict]:
    """Return the conflicting pairs among the compared sessions."""
    present = {each.id for each in picture.sessions}
    return [
        conflicts.message(reader, pair)
        for pair in picture.pairs
        if concerns(pair, wanted) and pair.session_id in present and pair.other_id in present | {""}
    ]


def clean(picture: Picture, wanted: frozenset[str]) -> list[worktree_pb2.Conflict]:
    """Return the clean pairs of siblings, which have no row."""
    known = {(each.session_id, each.other_id) for each in picture.pairs}
    sessions = sorted(picture.sessions, key=lambda each: each.id)
    return [
        pair_message(one, other)
        for number, one in enumerate(sessions)
        for other in sessions[number + 1 :]
        if (one.id, other.id) not in known and (not wanted or one.id in wanted or other.id in wanted)
    ]


def pair_message(one: Session, other: Session) -> worktree_pb2.Conflict:
    return worktree_pb2.Conflict(
        session_id=one.id, session_name=one.name, other_id=other.id, other_name=other.name, kind=CLEAN
    )


def spare_message(spare: Spare, size: int = 0, *, warm: bool = False, cold: str = "") -> worktree_pb2.Spare:
    return to_message(worktree_pb2.Spare, spare, reason=spare.reason or cold, warm_agent=warm, bytes=size)


def _unfinished(session: Session) -> list[str]:
    """Return a warning if git has not finished an operation in the session's worktree. Blocks."""
    busy = under_way(session.worktree)
    return [f"{busy} is under way in its worktree"] if busy else []
