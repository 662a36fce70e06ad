"""RepoService."""

from pathlib import Path
from typing import Any

import grpc
from ramet.v1 import repo_pb2, repo_pb2_grpc

from rametd.api.calls import Call, Calls
from rametd.api.context import principal
from rametd.api.paging import offset, position_of, size_of, token_of
from rametd.domain.errors import InvalidInputError, RepoNotFoundError
from rametd.domain.models import OWNER, Repo
from rametd.services import repos
from rametd.services.core import Core
from rametd.services.creation.pool import Pool
from rametd.services.landing.trees import remove_unused
from rametd.services.lookup import find_repo
from rametd.services.views import repo_message
from rametd.store import Reader, Unit

Context = grpc.aio.ServicerContext[Any, Any]


def message(reader: Reader, repo: Repo) -> repo_pb2.Repo:
    return repo_message(repo, repos.session_counts(reader)[repo.id])


class RepoServicer(repo_pb2_grpc.RepoServiceServicer):
    def __init__(self, core: Core, calls: Calls, pool: Pool) -> None:
        self._core = core
        self._calls = calls
        self._pool = pool

    async def RegisterRepo(
        self, request: repo_pb2.RegisterRepoRequest, context: Context
    ) -> repo_pb2.RegisterRepoResponse:
        who = principal.get()

        async def work(call: Call) -> repo_pb2.RegisterRepoResponse:
            info = await self._core.git.discover(absolute(request.path))
            self._core.git.trust(info.common_dir)

            def register(unit: Unit) -> repo_pb2.RegisterRepoResponse:
                repo = repos.known_or_new(self._core, unit, info)
                return repo_pb2.RegisterRepoResponse(repo=message(unit, repos.register(unit, repo, who)))

            return await self._core.store.write(register)

        return await self._calls.once("RegisterRepo", request, repo_pb2.RegisterRepoResponse, work)

    async def GetRepo(self, request: repo_pb2.GetRepoRequest, context: Context) -> repo_pb2.GetRepoResponse:
        repo = await resolve_repo(self._core, request.repo)
        return await self._core.store.read(lambda reader: repo_pb2.GetRepoResponse(repo=message(reader, repo)))

    async def ListRepos(self, request: repo_pb2.ListReposRequest, context: Context) -> repo_pb2.ListReposResponse:
        start = position_of("repos", request.page_token, offset) or 0
        size = size_of(request.page_size)

        def work(reader: Reader) -> repo_pb2.ListReposResponse:
            counts = repos.session_counts(reader)
            found = reader.repos.list()
            page = found[start : start + size]
            token = token_of("repos", start + size) if start + size < len(found) else ""
            return repo_pb2.ListReposResponse(
                repos=[repo_message(repo, counts[repo.id]) for repo in page], next_page_token=token
            )

        return await self._core.store.read(work)

    async def UpdateRepo(self, request: repo_pb2.UpdateRepoRequest, context: Context) -> repo_pb2.UpdateRepoResponse:
        fields = set(request.update_mask.paths)
        if not fields or fields - {"name", "trusted"}:
            raise InvalidInputError("update_mask takes name and trusted", hint="name at least one of them")
        who = principal.get()

        async def work(call: Call) -> repo_pb2.UpdateRepoResponse:
            repo = await resolve_repo(self._core, request.repo_id)

            def update(unit: Unit) -> repo_pb2.UpdateRepoResponse:
                changed = repos.update(
                    unit,
                    repo.id,
                    new_name=request.repo.name if "name" in fields else None,
                    trusted=request.repo.trusted if "trusted" in fields else None,
                    principal=who,
                )
                response = repo_pb2.UpdateRepoResponse(repo=message(unit, changed))
                call.remember(unit, response)
                return response

            return await self._core.store.write(update)

        return await self._calls.once("UpdateRepo", request, repo_pb2.UpdateRepoResponse, work)

    async def RemoveRepo(self, request: repo_pb2.RemoveRepoRequest, context: Context) -> repo_pb2.RemoveRepoResponse:
        who = principal.get()

        async def work(call: Call) -> repo_pb2.RemoveRepoResponse:
            repo = await resolve_repo(self._core, request.repo)
            await self._core.store.read(lambda reader: repos.check_removable(reader, repo))
            await self._pool.drain(repo)
            await self._remove_landing_trees(repo)

            def remove(unit: Unit) -> repo_pb2.RemoveRepoResponse:
                response = repo_pb2.RemoveRepoResponse(repo=repo_message(repos.remove(unit, repo.id, who), 0))
                call.remember(unit, response)
                return response

            return await self._core.store.write(remove)

        return await self._calls.once("RemoveRepo", request, repo_pb2.RemoveRepoResponse, work)

    async def _remove_landing_trees(self, repo: Repo) -> None:
        try:
            info = await repos.info_of(self._core, repo)
        except RepoNotFoundError:
            return  # gone from disk, and what git knew of them with it
        await remove_unused(self._core, repo, info)


def absolute(path: str) -> Path:
    """Raises `InvalidInputError` for a relative path: the daemon stands elsewhere than the caller."""
    if not path.startswith("/") or "\0" in path:
        raise InvalidInputError(f"{path[:200]!r} is not an absolute path", hint="give the full path of the repository")
    return Path(path)


async def repo_id_around(core: Core, path: str) -> str | None:
    """The repository whose sessions are meant where a name fits several; none around ``path``, or no path, is no fault."""
    if not path:
        return None
    try:
        repo = await repos.around(core, absolute(path))
    except RepoNotFoundError:
        return None
    return repo.id if repo is not None else None


async def resolve_repo(core: Core, name: str) -> Repo:
    """By id or name, or by a path inside it, linked worktrees included. Raises `RepoNotFoundError`, `AmbiguousError`."""
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
    """The same, but for a path inside a repository that is not registered the row that it would get (`repos.register`)."""
    if not name.startswith("/"):
        return await resolve_repo(core, name)
    info = await core.git.discover(absolute(name))
    if principal.get() == OWNER:
        core.git.trust(info.common_dir)
    return await core.store.read(lambda reader: repos.known_or_new(core, reader, info))
