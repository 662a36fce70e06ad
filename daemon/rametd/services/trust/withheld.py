"""Withheld contents in the inbox: one entry for each repository whose present commands or settings
the person has not trusted.

The daemon opens and closes these entries by itself. An entry belongs to a session of the
repository, as every request does: to the newest one that is not archived. A repository without such
a session runs nothing and has no entry.
"""

import asyncio
import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from ramet.v1 import attention_pb2

from rametd.domain.errors import InvalidInputError, RametError
from rametd.domain.models import Repo, Request, RequestKind, RequestState, Session
from rametd.domain.text import listed
from rametd.domain.trust import digest_of
from rametd.services.core import Core
from rametd.services.lifecycle import ask_person, log_request
from rametd.services.trust.contents import at_place
from rametd.store import Reader, Unit

log = structlog.get_logger()

REST_S = 2.0
"""Minimum number of seconds between two surveys."""
PATIENCE_S = 1.0
"""Seconds that a caller waits for a survey, which then continues without it."""
SHOWN = 4000
"""Characters of a difference in the inbox; `rametctl repo trust` shows all of it."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Contents of a trusted repository that are withheld now. ``digest`` identifies them; ""
    without any."""

    digest: str = ""
    keys: tuple[str, ...] = ()
    difference: str = ""


class WithheldInbox:
    """Updates the entries: `run` compares after each call of `ask` or `look`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._asked = asyncio.Event()
        self._surveyed = asyncio.Event()
        self._next = 0.0

    def ask(self) -> None:
        self._asked.set()

    def session_made(self, session: Session) -> None:
        self.ask()

    async def after_turn(self, session: Session) -> None:
        self.ask()

    async def look(self) -> None:
        """Request an update of the entries, unless there was one a moment ago."""
        if self._core.loop_time() < self._next:
            return
        self._surveyed.clear()
        self.ask()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._surveyed.wait(), PATIENCE_S)

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            for repo in await self._core.store.read(lambda reader: reader.repos.list()):
                await self.survey(repo)
            self._next = self._core.loop_time() + REST_S
            self._surveyed.set()
            await asyncio.sleep(REST_S)

    async def survey(self, repo: Repo) -> None:
        """Compare a repository that has sessions with what the person trusted."""
        core = self._core

        def read(reader: Reader) -> tuple[bool, bool]:
            entries = reader.requests.of_kind(repo.id, RequestKind.TRUST)
            return bool(reader.sessions.list(repo_id=repo.id)), any(each.state == RequestState.OPEN for each in entries)

        used, reported = await core.store.read(read)
        try:
            found = await self._withheld(repo) if repo.trusted and used else Withheld()
        except RametError as error:  # it is gone from disk, or being written
            log.debug("trust is not known", repo=repo.name, error=error.message)
            return
        if found.digest or reported:
            await core.store.write(lambda unit: _keep(unit, repo, found))

    async def _withheld(self, repo: Repo) -> Withheld:
        contents = await at_place(self._core, repo)
        trusted = await self._core.store.read(lambda reader: reader.repos.trusted(repo.id))
        changed = trusted.withheld(contents)
        if not changed:
            return Withheld()
        return Withheld(digest_of(changed), tuple(sorted(changed)), trusted.difference(contents))


def resolve_withheld(unit: Unit, request: Request, resolution: attention_pb2.Resolution, principal: str) -> None:
    """Apply the person's answer. A no dismisses the entry until the contents change again. A yes is
    refused: the person must see the contents before trusting them."""
    if resolution.WhichOneof("decision") == "approve":
        raise InvalidInputError(
            "approving this entry does not show what would run",
            hint=f"`{json.loads(request.input)['command']}` does, and asks",
        )


def _keep(unit: Unit, repo: Repo, found: Withheld) -> None:
    """Have one open entry for ``found``, unless the person has dismissed it. Close every other
    entry."""
    sessions = {each.id: each for each in unit.sessions.list(repo_id=repo.id)}
    entries = unit.requests.of_kind(repo.id, RequestKind.TRUST)
    current = [
        each for each in entries if json.loads(each.input)["digest"] == found.digest and each.session_id in sessions
    ]
    _close(unit, [each for each in entries if each.state == RequestState.OPEN and each not in current])
    if not found.digest or not sessions or any(each.state != RequestState.GONE for each in current):
        return
    newest = max(sessions.values(), key=lambda each: (each.create_time, each.id))
    command = f"rametctl repo trust {shlex.quote(repo.name)}"
    shown = found.difference if len(found.difference) <= SHOWN else f"{found.difference[:SHOWN]}\n…"
    reason = f"{repo.name} has changed {listed(found.keys)} since you trusted it: withheld until `{command}`\n{shown}"
    ask_person(unit, newest, RequestKind.TRUST, {"command": command, "digest": found.digest}, reason)


def _close(unit: Unit, entries: Sequence[Request]) -> None:
    for entry in unit.requests.close([each.id for each in entries]):
        log_request(unit, unit.sessions.get(entry.session_id), entry)
