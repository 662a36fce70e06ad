"""Find sessions and repositories by the text that a person types."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from rametd.domain.errors import AmbiguousError, RametError, RepoNotFoundError, SessionNotFoundError
from rametd.domain.models import Repo, Session
from rametd.store import Reader

SHORTEST_PREFIX = 4
"""Minimum length of a prefix of an id, as for commits in git. A shorter word is only a name: the
name of a removed session must not match another session's id."""
SHORTEST_NAME_PREFIX = 2


class Identified(Protocol):
    @property
    def id(self) -> str: ...


Found = TypeVar("Found", bound=Identified)


def only(
    found: Sequence[Found], name: str, kind: str, missing: RametError, *, hint: str = "give more of the id"
) -> Found:
    """Return the only match of a prefix, or the one whose id is ``name``. Raise ``missing`` without
    a match, `AmbiguousError` with several."""
    matching = [each for each in found if each.id == name] or found
    if not matching:
        raise missing
    if len(matching) > 1:
        matches = ", ".join(each.id for each in matching)
        raise AmbiguousError(f"{name!r} fits several {kind}: {matches}", hint=hint, matches=matches)
    return matching[0]


def find_session(reader: Reader, name: str, *, repo_id: str | None = None, complete: bool = False) -> Session:
    """Find a session by id, name (``NAME`` or ``REPO/NAME``), or unique prefix of an id (four
    characters or more) or of a name.

    The search is in this order. If sessions of several repositories have the name, it finds the one
    in ``repo_id``. The name of a removed session is never a prefix of another name. ``complete``:
    no prefixes of names. Raises `SessionNotFoundError`, `AmbiguousError`.
    """
    if not name:
        raise SessionNotFoundError("no session was named", hint="`rametctl ls --all` lists them")
    if (exact := reader.sessions.find(name)) is not None:
        return exact
    named = reader.sessions.by_name(name)
    if not named and "/" in name:
        repo_name, _, rest = name.partition("/")
        named = [each for repo in reader.repos.by_name(repo_name) for each in reader.sessions.by_name(rest, repo.id)]
    here = [session for session in named if session.repo_id == repo_id]
    if len(here) == 1 or len(named) == 1:
        return (here or named)[0]
    found = named or (reader.sessions.find_by_prefix(name) if len(name) >= SHORTEST_PREFIX else [])
    if len(found) == 1:
        return found[0]
    removed = any(name in {entry.name, entry.session_id} for entry in reader.trash.list())
    if not found and not removed and not complete and len(name) >= SHORTEST_NAME_PREFIX:
        found = reader.sessions.by_name_prefix(name)
        here = [session for session in found if session.repo_id == repo_id]
        if len(here) == 1 or len(found) == 1:
            return (here or found)[0]
    if not found:
        hint = "`rametctl ls --all` lists them"
        if removed:
            hint = f"it was removed; restore it: `rametctl restore {shlex.quote(name)}`"
        raise SessionNotFoundError(f"there is no session {name!r}", hint=hint)
    repos = {repo.id: repo.name for repo in reader.repos.list()}
    matches = ", ".join(f"{repos[session.repo_id]}/{session.name} ({session.id})" for session in found)
    raise AmbiguousError(
        f"{name!r} fits several sessions: {matches}", hint="give more of the name, or the id", matches=matches
    )


def find_repo(reader: Reader, name: str) -> Repo:
    """Find a repository by id, name, or a path inside a registered one. Raises `RepoNotFoundError`,
    `AmbiguousError`."""
    repos = reader.repos.list()
    for repo in repos:
        if name == repo.id:
            return repo
    named = [repo for repo in repos if name == repo.name]
    if len(named) == 1:
        return named[0]
    if named:
        matches = ", ".join(f"{repo.root} ({repo.id})" for repo in named)
        raise AmbiguousError(f"{name!r} fits several repositories: {matches}", hint="use the id", matches=matches)
    path = Path(name)
    inside = [repo for repo in repos if path.is_relative_to(repo.root)] if path.is_absolute() else []
    if not inside:
        raise RepoNotFoundError(f"no repository {name!r} is registered", hint="`rametctl repo ls` lists them")
    return max(inside, key=lambda repo: len(repo.root.parts))
