"""Starting points of sessions: a base, an existing branch, or a checkout that Ramet did not
create."""

import shlex
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rametd.domain.errors import (
    AmbiguousError,
    InvalidInputError,
    NameTakenError,
    PathTakenError,
    RefNotFoundError,
    UnbornBranchError,
    WorktreeChangedError,
)
from rametd.domain.models import Repo, WorktreeKind
from rametd.git import REASON, Base, RepositoryInfo, check_branch_name, short_slug
from rametd.services.checks import check_name
from rametd.services.core import Core
from rametd.services.creation.request import NewSession, Start
from rametd.services.delivery import sender_of
from rametd.store import Reader

NAMED = 5
"""Branches that a hint names."""


def check_start(new: NewSession) -> None:
    """Raise `InvalidInputError` for options that exclude each other."""
    places = [
        name
        for name, given in (
            ("--in-place", new.in_place),
            ("adopt", new.adopt is not None),
            ("--existing", bool(new.existing_branch)),
        )
        if given
    ]
    if len(places) > 1:
        raise InvalidInputError(f"{' and '.join(places)} exclude each other", hint="give one of them")
    if new.in_place or new.adopt is not None:
        for name, given in (
            ("--base", new.base_ref),
            ("--branch", new.branch),
            ("--with-changes", new.with_changes),
            ("--fetch", new.fetch),
        ):
            if given:
                raise InvalidInputError(
                    f"{name} does not go with {places[0]}", hint="that worktree is used as it is: leave it out"
                )
    if new.with_changes and (new.base_ref or new.existing_branch):
        raise InvalidInputError(
            "uncommitted changes need the commit that they were made on",
            hint="leave --base and --existing out: the session starts from what is checked out here",
        )


async def find_start(core: Core, repo: Repo, info: RepositoryInfo, new: NewSession, fetched: Base | None) -> Start:
    """Find the starting point; ``fetched`` replaces the base. Raises typed errors for missing or
    taken names; creates nothing."""
    if new.in_place:
        return await _in_place(core, repo, info)
    if new.adopt is not None:
        return await _adopted(core, repo, info)
    if new.with_changes and info.worktree_root is None:
        raise InvalidInputError(f"{new.path} is in no worktree", hint="leave --with-changes out")
    if new.existing_branch:
        return await _existing(core, info, new)
    if new.fork is not None:
        source = new.fork.source
        branch = check_branch_name(new.branch) if new.branch else ""
        return Start(source.base_ref, new.fork.head, source.base_commit, branch)
    base = fetched or await core.git.branches.resolve_base(info, new.base_ref or None, new.path)
    if sender_of(new.principal) and new.base_ref and not await core.git.commits.reachable(info, base.commit):
        # A checkpoint, or a commit that only a reflog or its id names.
        raise InvalidInputError(
            f"{new.base_ref} is on no branch, tag or remote branch", hint="start from a branch, or commit first"
        )
    branch = check_branch_name(new.branch) if new.branch else ""
    return Start(base.ref, base.commit, base.commit, branch)


async def _existing(core: Core, info: RepositoryInfo, new: NewSession) -> Start:
    branch = new.existing_branch
    base = await core.git.branches.resolve_base(info, new.base_ref, new.path) if new.base_ref else None
    tip = await core.git.branches.tip(info, branch)
    if tip is not None:
        return Start(new.base_ref or branch, tip, base.commit if base else tip, branch, new_branch=False)
    remote = await core.git.remotes.find_branch(info, branch)
    if remote is None:
        raise RefNotFoundError(f"there is no branch {branch!r}", hint=await _near(core, info, new))
    found = await core.git.branches.resolve_base(info, f"refs/remotes/{remote.tracking}", None)
    return Start(
        new.base_ref or remote.tracking,
        found.commit,
        base.commit if base else found.commit,
        check_branch_name(remote.branch),
        upstream=remote,
    )


async def _near(core: Core, info: RepositoryInfo, new: NewSession) -> str:
    """Hint for a missing branch: what the caller may have meant."""
    name = new.existing_branch
    with suppress(RefNotFoundError, AmbiguousError):
        found = await core.git.branches.resolve_base(info, name, new.path)
        return f"it names the commit {found.commit[:12]}: --base {name} creates a branch from it"
    names = sorted(await core.git.branches.names(info))
    near = f"branches: {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}; " if names else ""
    if await core.git.remotes.list(info):
        return f"{near}for a remote branch that was not fetched yet, add --fetch"
    return f"{near}--branch {shlex.quote(name)} creates it"


async def _in_place(core: Core, repo: Repo, info: RepositoryInfo) -> Start:
    if info.worktree_root is None:
        raise InvalidInputError(
            f"{info.root} is bare: it has no checkout",
            hint="run this in one of its worktrees, or leave --in-place out",
        )
    return await _as_it_is(core, repo, info, info.worktree_root, WorktreeKind.IN_PLACE)


async def _adopted(core: Core, repo: Repo, info: RepositoryInfo) -> Start:
    if info.worktree_root is None or not info.is_worktree:
        raise InvalidInputError(
            f"{info.root} is the repository itself, not a linked worktree",
            hint="to work in it: rametctl new --in-place; to create a worktree: rametctl new",
        )
    return await _as_it_is(core, repo, info, info.worktree_root, WorktreeKind.ADOPTED)


async def _as_it_is(core: Core, repo: Repo, info: RepositoryInfo, worktree: Path, kind: WorktreeKind) -> Start:
    await core.git.worktrees.verify(worktree, None)
    await core.store.read(lambda reader: require_unshared(reader, repo, worktree))
    registered = {each.path: each for each in await core.git.worktrees.list(info)}
    known = registered.get(worktree)
    if known is not None and known.locked == REASON:
        raise WorktreeChangedError(
            f"Ramet created {worktree}, and no session has it", hint="`rametctl doctor` says what to do"
        )
    head = info.head
    if head.commit is None:
        raise UnbornBranchError(
            f"{head.branch} has no commit yet",
            hint="give --initial-commit for an empty first commit",
        )
    return Start(
        head.branch or head.commit,
        head.commit,
        head.commit,
        head.branch or "",
        new_branch=False,
        kind=kind,
        worktree=worktree,
    )


def require_unshared(reader: Reader, repo: Repo, worktree: Path) -> None:
    """Raise `PathTakenError` if a session works in that worktree: two would overwrite each other's
    files."""
    for session in reader.sessions.list(repo_id=repo.id):
        if session.worktree == worktree:
            raise PathTakenError(
                f"{session.name} works in {worktree} already",
                hint=f"send it the prompt (rametctl send {session.reference}), or remove it first (rametctl rm {session.reference})",
                path=str(worktree),
                session=session.id,
            )


def choose_name(
    reader: Reader, new: NewSession, repo: Repo, fallback: str, taken: Collection[str] = frozenset()
) -> str:
    """The name as typed, else one made from the forked session, the branch or the prompt, with a
    number if it is taken."""
    if new.name:
        check_name(new.name)
        if new.name in taken or reader.sessions.by_name(new.name, repo.id):
            raise NameTakenError(
                f"a session of {repo.name} is called {new.name!r} already", hint="choose another --name"
            )
        return new.name
    branch = (new.branch or new.existing_branch).rsplit("/", 1)[-1]
    wanted = branch or short_slug(new.prompt[:400]).replace("/", "-")
    wanted = new.fork.source.name if new.fork is not None else wanted or fallback.rsplit("/", 1)[-1]
    name, number = wanted, 2
    while name in taken or reader.sessions.by_name(name, repo.id):
        name, number = f"{wanted}-{number}", number + 1
    return name
