"""RepoService."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
from ramet.v1 import repo_pb2, repo_pb2_grpc

from rametd.api.calls import Call, Calls, mutation
from rametd.api.paging import page_of
from rametd.domain.errors import InvalidInputError, RepoNotFoundError, WrongStateError
from rametd.domain.models import Repo
from rametd.domain.trust import Contents, Trusted, digest_of
from rametd.services import repos
from rametd.services.core import Core
from rametd.services.creation.pool import Pool
from rametd.services.landing.trees import remove_unused
from rametd.services.lookup import find_repo
from rametd.services.trust.contents import at_place, place_of
from rametd.services.trust.settings import problem_of
from rametd.services.trust.withheld import WithheldInbox
from rametd.services.views import repo_message
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]
Response = TypeVar("Response")


def message(reader: Reader, repo: Repo) -> repo_pb2.Repo:
    return repo_message(repo, repos.session_counts(reader)[repo.id])


class RepoServicer(repo_pb2_grpc.RepoServiceServicer):
    def __init__(self, core: Core, calls: Calls, pool: Pool, withheld: WithheldInbox) -> None:
        self._withheld = withheld
        self._core = core
        self._calls = calls
        self._pool = pool

    @mutation
    async def RegisterRepo(self, request: repo_pb2.RegisterRepoRequest, call: Call) -> repo_pb2.RegisterRepoResponse:
        info = await self._core.git.discover(absolute(request.path))
        self._core.git.trust(info.common_dir)

        def register(unit: Unit) -> repo_pb2.RegisterRepoResponse:
            repo = repos.known_or_new(self._core, unit, info)
            return repo_pb2.RegisterRepoResponse(repo=message(unit, repos.register(unit, repo, call.principal)))

        return await self._core.store.write(register)

    async def GetRepo(self, request: repo_pb2.GetRepoRequest, context: Context) -> repo_pb2.GetRepoResponse:
        repo = await resolve_repo(self._core, request.repo)
        return await self._core.store.read(lambda reader: repo_pb2.GetRepoResponse(repo=message(reader, repo)))

    async def ListRepos(self, request: repo_pb2.ListReposRequest, context: Context) -> repo_pb2.ListReposResponse:
        def work(reader: Reader) -> repo_pb2.ListReposResponse:
            counts = repos.session_counts(reader)
            page, token = page_of("repos", request, reader.repos.list())
            return repo_pb2.ListReposResponse(
                repos=[repo_message(repo, counts[repo.id]) for repo in page], next_page_token=token
            )

        return await self._core.store.read(work)

    async def GetTrust(self, request: repo_pb2.GetTrustRequest, context: Context) -> repo_pb2.GetTrustResponse:
        repo = await resolve_repo(self._core, request.repo)
        contents = await at_place(self._core, repo)
        trusted = await self._core.store.read(lambda reader: reader.repos.trusted(repo.id))
        items = [
            repo_pb2.TrustItem(key=key, text=text, state=trust_state(trusted, key, text))
            for key, text in contents.items()
        ]
        answer = repo_pb2.GetTrustResponse(
            place=place_of(repo),
            items=items,
            difference=trusted.difference(contents),
            digest=digest_of(contents),
            problem=await problem_of(self._core, repo),
        )
        answer.repo.CopyFrom(await self._core.store.read(lambda reader: message(reader, reader.repos.get(repo.id))))
        return answer

    @mutation
    async def UpdateRepo(self, request: repo_pb2.UpdateRepoRequest, call: Call) -> repo_pb2.UpdateRepoResponse:
        fields = set(request.update_mask.paths)
        if not fields or fields - {"name", "trusted"}:
            raise InvalidInputError("update_mask takes name and trusted", hint="name at least one of them")
        if "trusted" in fields and request.repo.trusted and not request.trust_digest:
            raise InvalidInputError("trust_digest is missing", hint="call GetTrust, and show its answer")
        repo = await resolve_repo(self._core, request.repo_id)
        contents = await seen_contents(self._core, repo, request.trust_digest) if request.trust_digest else {}

        def update(unit: Unit) -> repo_pb2.UpdateRepoResponse:
            changed = unit.repos.get(repo.id)
            if "name" in fields:
                changed = repos.rename(unit, changed, request.repo.name)
            if "trusted" in fields:
                trusted = request.repo.trusted
                changed = unit.repos.trust(repo.id, contents) if trusted else unit.repos.distrust(repo.id)
            repos.log_change(unit, changed, call.principal)
            response = repo_pb2.UpdateRepoResponse(repo=message(unit, changed))
            return call.remember(unit, response)

        response = await self._change(repo, update)
        await self._withheld.survey(await resolve_repo(self._core, repo.id))
        return response

    @mutation
    async def RemoveRepo(self, request: repo_pb2.RemoveRepoRequest, call: Call) -> repo_pb2.RemoveRepoResponse:
        repo = await resolve_repo(self._core, request.repo)
        await self._core.store.read(lambda reader: repos.check_removable(reader, repo))
        await self._pool.drain(repo)
        await self._remove_landing_trees(repo)

        def remove(unit: Unit) -> repo_pb2.RemoveRepoResponse:
            response = repo_pb2.RemoveRepoResponse(repo=repo_message(repos.remove(unit, repo.id, call.principal), 0))
            return call.remember(unit, response)

        return await self._change(repo, remove)

    async def _change(self, repo: Repo, work: Callable[[Unit], Response]) -> Response:
        """Store a change, then let git apply the stored trust: none for a removed repository, which
        is no longer registered.

        The store completes a queued write even if the caller hangs up, and a repeated request gets
        its stored answer. So the second step must not depend on the caller.
        """

        def work_and_look(unit: Unit) -> tuple[Response, Trusted | None]:
            response = work(unit)
            registered = unit.repos.by_common_dir(repo.common_dir) is not None
            return response, unit.repos.trusted(repo.id) if registered else None

        async def change() -> Response:
            response, trusted = await self._core.store.write(work_and_look)
            if trusted is None:
                self._core.git.distrust(repo.common_dir)
            else:
                self._core.git.trust(repo.common_dir, trusted.digests)
            return response

        return await asyncio.shield(asyncio.create_task(change()))

    async def _remove_landing_trees(self, repo: Repo) -> None:
        try:
            info = await repos.info_of(self._core, repo)
        except RepoNotFoundError:
            return  # gone from disk, with git's record of them
        await remove_unused(self._core, repo, info)


def trust_state(trusted: Trusted, key: str, text: str) -> repo_pb2.TrustState.ValueType:
    if trusted.covers(key, text):
        return repo_pb2.TRUST_STATE_TRUSTED
    return repo_pb2.TRUST_STATE_CHANGED if key in trusted.latest else repo_pb2.TRUST_STATE_NEW


async def seen_contents(core: Core, repo: Repo, digest: str) -> Contents:
    """Return the contents that the person has seen. Raise `WrongStateError` if they have
    changed."""
    contents = await at_place(core, repo)
    if digest_of(contents) != digest:
        hint = "rametctl repo trust shows the present contents"
        raise WrongStateError(f"{repo.name} has changed since it was shown; nothing was trusted", hint=hint)
    return contents


def absolute(path: str) -> Path:
    """Raise `InvalidInputError` for a relative path: the daemon's directory is not the caller's."""
    if not path.startswith("/") or "\0" in path:
        raise InvalidInputError(f"{path[:200]!r} is not an absolute path", hint="give the full path of the repository")
    return Path(path)


async def repo_id_around(core: Core, path: str) -> str | None:
    """Return the id of the repository around ``path``, to which an ambiguous name of a session
    refers; "" without one."""
    if not path:
        return None
    try:
        repo = await repos.around(core, absolute(path))
    except RepoNotFoundError:
        return None
    return repo.id if repo is not None else None


async def resolve_repo(core: Core, name: str) -> Repo:
    """Return a repository by id, name, or a path inside it, linked worktrees included. Raise
    `RepoNotFoundError`, `AmbiguousError`."""
    if name.startswith("/"):
        repo = await repos.around(core, absolute(name))
        if repo is not None:
            return repo
        raise RepoNotFoundError(
            f"the repository around {name} has no sessions",
            hint="`rametctl new` makes the first; `rametctl repo add` makes it known without one",
        )
    return await core.store.read(lambda reader: find_repo(reader, name))


async def resolve_or_new(core: Core, name: str) -> Repo:
    """As `resolve_repo`, but for a path inside an unregistered repository return the row that
    `repos.register` would create."""
    if not name.startswith("/"):
        return await resolve_repo(core, name)
    info = await core.git.discover(absolute(name))
    return await core.store.read(lambda reader: repos.known_or_new(core, reader, info))
