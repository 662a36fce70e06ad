"""Contests: several sessions with the same prompt, base and check that start together, until a
person picks one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from ramet.words import plural

from rametd.domain.errors import InvalidInputError
from rametd.domain.models import Repo, Session
from rametd.git import short_slug
from rametd.services import repos
from rametd.services.checks import check_name
from rametd.services.core import Core
from rametd.services.creation.creator import Creator
from rametd.services.creation.request import Created, NewSession
from rametd.store import Reader, Unit

MOST = 100


class Contests:
    def __init__(self, core: Core, creator: Creator) -> None:
        self._core = core
        self._creator = creator
        self._naming = asyncio.Lock()  # the chosen names must stay free until the contest is stored

    async def create(
        self, new: NewSession, agents: Sequence[str], remember: Callable[[Unit, Sequence[Session]], None]
    ) -> list[Created]:
        """Create a contender for each of ``agents`` ("" for that of ``new``), all or none.

        A name from the prompt gets a number if it is taken; a given name does not.
        """
        check(new, agents)
        info = await self._core.git.discover(new.path)
        async with self._naming:
            named = await self._core.store.read(
                lambda reader: contenders(reader, repos.known_or_new(self._core, reader, info), new, agents)
            )
            return await self._creator.create_all(named, remember, one_base=True)


def check(new: NewSession, agents: Sequence[str]) -> None:
    """Raise `InvalidInputError` for options that several sessions cannot share."""
    if len(agents) > MOST:
        raise InvalidInputError(f"a contest of {plural(len(agents), 'session')}", hint=f"create at most {MOST}")
    for option, given, why in (
        ("--existing", new.existing_branch, "a branch is checked out in one worktree only"),
        ("--in-place", new.in_place, "one session at a time works in a checkout"),
        ("adopt", new.adopt, "one session at a time works in a checkout"),
        ("--own", new.owns, "contenders change the same paths, and a path has one owner"),
    ):
        if given:
            raise InvalidInputError(f"several sessions cannot share {option}", hint=why)


def contenders(reader: Reader, repo: Repo, new: NewSession, agents: Sequence[str]) -> list[NewSession]:
    """The sessions of a contest with their names: NAME-1, NAME-2 if all have the same agent, else
    NAME-AGENT, or NAME-AGENT-2 for a second one of that agent."""
    kinds = [agent or new.agent for agent in agents]
    if new.name:
        check_name(new.name)
    wanted = new.name or new.branch.rsplit("/", 1)[-1] or short_slug(new.prompt[:400]).replace("/", "-") or "contest"
    suffixes = list(_suffixes(kinds))
    contests = {each.contest for each in reader.sessions.list(repo_id=repo.id, include_archived=True)}
    for number in count(1):
        contest = wanted if number == 1 else f"{wanted}-{number}"
        name = new.name or contest  # storing the session refuses a given name that is taken
        taken = any(reader.sessions.by_name(name + suffix, repo.id) for suffix in suffixes)
        if contest not in contests and (new.name or not taken):
            break
    return [
        replace(
            new,
            agent=kind,
            name=name + suffix,
            branch=new.branch and new.branch + suffix,
            contest=contest,
            fetch=new.fetch and index == 0,  # the others start from the base of the first
        )
        for index, (kind, suffix) in enumerate(zip(kinds, suffixes, strict=True))
    ]


def _suffixes(kinds: Sequence[str]) -> Iterator[str]:
    totals, seen = Counter(kinds), Counter[str]()
    for kind in kinds:
        seen[kind] += 1
        numbered = f"-{seen[kind]}" if totals[kind] > 1 else ""
        yield numbered if len(totals) == 1 and numbered else f"-{kind}{numbered}"
