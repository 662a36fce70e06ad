"""The radar's part of WorktreeService."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from ramet.v1 import worktree_pb2

from rametd.api.context import here, principal
from rametd.api.repo import resolve_repo
from rametd.domain.conflicts import PairConflict
from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Session
from rametd.services.core import Core
from rametd.services.lookup import find_session
from rametd.services.radar import conflicts
from rametd.services.radar.radar import Picture, Radar
from rametd.store import Reader

Context = grpc.aio.ServicerContext[Any, Any]
CLEAN = worktree_pb2.CONFLICT_KIND_CLEAN


class ConflictCalls:
    """ListConflicts and WatchConflicts."""

    _core: Core
    _radar: Radar

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
        """The repository, and the ids of the sessions named; raises `InvalidInputError` where there is no one repository."""
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
                "sessions of several repositories were named" if repositories else "no repository was named",
                hint="name one repository, or sessions of one: those of different ones never meet",
            )
        return repositories.pop(), frozenset(each.id for each in found)


WAKING = frozenset({"conflict_changed", "session_created", "session_removed", "session_archived", "session_restored"})
"""Events after which the picture may be another one."""


def wanted_pair(pair: PairConflict, wanted: frozenset[str]) -> bool:
    return not wanted or pair.session_id in wanted or pair.other_id in wanted


def messages(reader: Reader, picture: Picture, wanted: frozenset[str]) -> list[worktree_pb2.Conflict]:
    """The pairs that are not clean, of the sessions that are compared."""
    present = {each.id for each in picture.sessions}
    return [
        conflicts.message(reader, pair)
        for pair in picture.pairs
        if wanted_pair(pair, wanted) and pair.session_id in present and pair.other_id in present | {""}
    ]


def clean(picture: Picture, wanted: frozenset[str]) -> list[worktree_pb2.Conflict]:
    """The pairs of siblings that have no row."""
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
