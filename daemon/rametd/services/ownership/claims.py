"""Claims: the patterns that living sessions own, and the owner of a path."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from rametd.domain.errors import InvalidInputError, PathsNotOwnedError, PathsOwnedError
from rametd.domain.models import Session
from rametd.git import Tree
from rametd.ownership import Patterns, check_size, contains, overlap
from rametd.services.core import Core
from rametd.services.family import ancestors
from rametd.store import Reader

IGNORE_CASE = sys.platform == "darwin"
"""Whether the usual file system of this platform ignores letter case."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A path that a session may not write: another ``owner`` has it, it is ``forbidden``, or it is
    outside the session's own paths."""

    path: str
    owner: Session | None
    forbidden: bool

    @property
    def why(self) -> str:
        if self.owner is not None:
            return f"{self.path} belongs to the session {self.owner.name!r}"
        if self.forbidden:
            return f"{self.path} is one of the paths that you must not change"
        return f"{self.path} is not within the paths that you own"


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims that apply to one session; falsy if it may write every path of its worktree."""

    session: Session
    owns: Patterns
    forbids: Patterns
    others: tuple[tuple[Session, Patterns], ...]
    given: frozenset[str]  # ids of sessions that got a part of the session's paths, and take precedence there
    ignore_case: bool = IGNORE_CASE

    def __bool__(self) -> bool:
        return bool(self.owns or self.forbids or self.others)

    def foreign(self, *names: str) -> Foreign | None:
        """Judge a path by all its names, relative to the worktree. Return None if the session may
        write it; else the result has the first name."""
        mine = self._covers(self.owns, names)
        owner = next(
            (
                other
                for other, owns in self.others
                if (not mine or other.id in self.given) and self._covers(owns, names)
            ),
            None,
        )
        forbidden = self._covers(self.forbids, names)
        if owner is None and not forbidden and (mine or not self.owns):
            return None
        return Foreign(names[0], owner, forbidden)

    def _covers(self, patterns: Patterns, names: Sequence[str]) -> bool:
        return any(patterns.matches(name, ignore_case=self.ignore_case) for name in names)


@lru_cache(maxsize=1024)
def patterns_of(texts: tuple[str, ...]) -> Patterns:
    """Parse stored patterns, without invalid ones."""
    try:
        return Patterns.parse(texts)
    except InvalidInputError as error:
        at = int(error.data["index"])
        return patterns_of(texts[:at] + texts[at + 1 :])


async def claims_on(core: Core, session_id: str) -> Claims:
    """Claims that apply to a session, with the letter case rule of its repository."""

    def read(reader: Reader) -> tuple[Claims, Path]:
        session = reader.sessions.get(session_id)
        return claims_of(reader, session), reader.repos.get(session.repo_id).common_dir

    claims, common_dir = await core.store.read(read)
    if claims.ignore_case or not claims:
        return claims
    return replace(claims, ignore_case=await core.git.ignores_case(common_dir))


def claims_of(reader: Reader, session: Session) -> Claims:
    others = [each for each in reader.sessions.owning(session.repo_id) if each.id != session.id]
    given = frozenset(
        each.id
        for each in others
        if each.owns != session.owns and session.id in {above.id for above in ancestors(reader, each)}
    )
    return Claims(
        session,
        patterns_of(session.owns),
        patterns_of(session.forbids),
        tuple((each, patterns_of(each.owns)) for each in others),
        given,
    )


def check_claims(
    reader: Reader,
    repo_id: str,
    owns: Sequence[str],
    forbids: Sequence[str],
    *,
    parent: Session | None,
    session_id: str = "",
    tree: Tree | None = None,
) -> None:
    """Check that a session may own paths: its parent owns them, and no other session does, except
    its descendants.

    A child without paths of its own shares its parent's. ``tree``: files of the repository, for
    letter case and links. Raises `InvalidInputError`, `PathsNotOwnedError`, `PathsOwnedError`.
    """
    for patterns in (owns, forbids):
        check_size(patterns)
    mine = Patterns.parse(owns)
    Patterns.parse(forbids)
    ignore_case, links = IGNORE_CASE or (tree is not None and tree.ignore_case), tree.links if tree is not None else {}
    if not mine or (parent is not None and tuple(owns) == parent.owns):
        return
    if parent is not None and parent.owns:
        outside = contains(patterns_of(parent.owns), mine, ignore_case=ignore_case)
        if outside is not None:
            raise PathsNotOwnedError(
                f"{outside} is not within what you own: {', '.join(parent.owns)}",
                hint="give away a part of your own paths",
                path=outside,
            )
    above = {each.id for each in (parent, *ancestors(reader, parent))} if parent is not None else set()
    for other in reader.sessions.owning(repo_id):
        shares = parent is not None and other.owns == parent.owns and other.root_id == parent.root_id
        below = session_id in {each.id for each in ancestors(reader, other)}
        if other.id == session_id or other.id in above or shares or below:
            continue
        example = overlap(mine, patterns_of(other.owns), ignore_case=ignore_case, links=links)
        if example is not None:
            raise PathsOwnedError(
                f"{example} belongs to the session {other.name!r}, which owns {', '.join(other.owns)}",
                hint=f"use narrower patterns, or hand it over first: `rametctl set {other.reference} --disown PATTERN`",
                path=example,
                owner=other.id,
            )
