"""Repositories: registered by their first session, identified by their common git directory.

For a call in a new repository, `known_or_new` creates a row without storing it, and `register`
stores it in the unit of work of the call. So a refused call stores nothing.
"""

import asyncio
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

from ramet.v1 import event_pb2
from ramet.words import plural

from rametd.domain.errors import NameTakenError, RepoNotFoundError, WrongStateError
from rametd.domain.models import Repo, Session
from rametd.domain.operations import Kind
from rametd.git import RepositoryInfo
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ids import new_id
from rametd.services.lookup import find_repo
from rametd.store import Reader, Unit


def known_or_new(core: Core, reader: Reader, info: RepositoryInfo) -> Repo:
    """The repository's row, or the row with which it will be registered.

    Concurrent calls in a new repository name worktrees after its id, and the first one to finish
    registers it, so all must use the same id. The daemon therefore remembers the id of each new
    repository.
    """
    known = reader.repos.by_common_dir(info.common_dir)
    if known is not None:
        return known
    identity = core.newcomers.setdefault(info.common_dir, new_id())
    name = free_name(reader, info.name)
    return Repo(identity, name, info.root, info.common_dir, trust_digest="", create_time=core.clock())


def register(unit: Unit, repo: Repo, principal: str) -> Repo:
    """Store the row of a new repository; return the stored row."""
    known = unit.repos.by_common_dir(repo.common_dir)
    if known is not None:
        return known
    # Another repository may have taken the name since.
    name = free_name(unit, repo.name)
    stored = unit.repos.upsert(replace(repo, name=name, trust_digest="", create_time=unit.now))
    log_change(unit, stored, principal)
    return stored


def free_name(reader: Reader, wanted: str) -> str:
    """``wanted``, with a number if another repository has that name."""
    taken = {repo.name for repo in reader.repos.list()}
    number = 2
    name = wanted
    while name in taken:
        name = f"{wanted}-{number}"
        number += 1
    return name


def log_change(unit: Unit, repo: Repo, principal: str) -> None:
    payload = event_pb2.RepoChanged(name=repo.name, root=str(repo.root), trusted=repo.trusted)
    unit.events.append(events.make(payload, repo_id=repo.id, principal=principal))


def rename(unit: Unit, repo: Repo, new_name: str) -> Repo:
    """Rename a repository. Raises `NameTakenError`."""
    if new_name == repo.name:
        return repo
    if unit.repos.by_name(new_name):
        raise NameTakenError(f"a repository is called {new_name!r} already", hint="choose another name")
    return unit.repos.rename(repo.id, new_name)


def check_removable(reader: Reader, repo: Repo) -> None:
    """Raise `WrongStateError` while the repository has sessions, or entries in the trash."""
    sessions = reader.sessions.list(repo_id=repo.id, include_archived=True)
    if sessions:
        names = ", ".join(session.name for session in sessions[:5])
        raise WrongStateError(
            f"{repo.name} has {plural(len(sessions), 'session')}: {names}{', …' if len(sessions) > 5 else ''}",
            hint="remove them with `rametctl rm` first",
        )
    if any(each.data["repo"] == str(repo.common_dir) for each in reader.operations.list(kinds=(Kind.CREATE,))):
        raise WrongStateError(
            f"a session is being created in {repo.name}", hint="wait for it, then remove it with `rametctl rm` first"
        )
    if binned := reader.trash.list(repo.id):
        raise WrongStateError(
            f"{repo.name} has {plural(len(binned), 'entry')} in the trash",
            hint=f"delete them first: rametctl trash empty --repo {shlex.quote(repo.name)}",
        )


def remove(unit: Unit, name: str, principal: str) -> Repo:
    """Unregister a repository. Raises what `check_removable` raises."""
    repo = find_repo(unit, name)
    check_removable(unit, repo)
    if unit.spares.list(repo.id):  # a creation is about to take it
        raise WrongStateError(f"a spare of {repo.name} is in use", hint="try again")
    unit.repos.remove(repo.id)
    unit.events.append(events.make(event_pb2.RepoRemoved(name=repo.name), repo_id=repo.id, principal=principal))
    return repo


def session_counts(reader: Reader) -> Counter[str]:
    """Number of sessions of each repository, including archived ones."""
    return Counter(session.repo_id for session in reader.sessions.list(include_archived=True))


async def info_of(core: Core, of: Repo | Session) -> RepositoryInfo:
    """Ask git about a registered repository, or that of a session. Raises `RepoNotFoundError` if it
    is gone from the disk."""
    repo = of if isinstance(of, Repo) else await core.store.read(lambda reader: reader.repos.get(of.repo_id))
    at_root = await asyncio.to_thread(repo.root.exists)
    info = await core.git.discover(repo.root if at_root else repo.common_dir)
    if info.common_dir != repo.common_dir:  # its git directory is gone, and git found a repository around it
        raise RepoNotFoundError(
            f"{repo.root} is no longer the repository {repo.common_dir}: git finds {info.common_dir} there",
            hint="move it back",
        )
    return info


async def around(core: Core, path: Path) -> Repo | None:
    """The registered repository around a path, or None."""
    info = await core.git.discover(path)
    return await core.store.read(lambda reader: reader.repos.by_common_dir(info.common_dir))


def pruned_by(root: Path, remote: str) -> str:
    """Warning about a remote from which a fetch overwrites the repository's own branches."""
    beside = shlex.join(
        (
            "git",
            "-C",
            str(root),
            "config",
            "--replace-all",
            f"remote.{remote}.fetch",
            f"+refs/heads/*:refs/remotes/{remote}/*",
        )
    )
    return (
        f"this repository mirrors {remote}: `git fetch --prune` would delete branches of sessions, and their snapshots;"
        f" leave --prune out, or fetch its branches beside yours: {beside}"
    )
