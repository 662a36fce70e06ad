"""What stays under its ref after a session was brought back, because not all of it could come back: until it expires."""

from dataclasses import dataclass
from functools import partial

import structlog

from rametd.domain.errors import ChangedError, NotFoundError, RametError
from rametd.domain.models import Repo, Session
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core
from rametd.services.departures import alone
from rametd.services.departures.trash import Trash
from rametd.services.repos import info_of
from rametd.services.upkeep.garbage import DAY_S
from rametd.services.upkeep.rows import is_still_kept, kind_and_id
from rametd.store import Reader, Unit

log = structlog.get_logger()

FOLDERS = ("refs/ramet/archive/", "refs/ramet/trash/")


@dataclass(frozen=True, slots=True)
class StillKept:
    """``warnings``: what the restore told, none where that is not known. ``expire_time``: seconds since the epoch."""

    session: Session
    ref: str
    commit: str
    warnings: tuple[str, ...]
    expire_time: float

    @property
    def what(self) -> str:
        """What is kept, in words that follow on "it keeps"."""
        if not self.warnings:
            return f"what {self.session.name} had when it was put away, though it is back"
        return f"what restoring {self.session.name} could not bring back as it was: {'; '.join(self.warnings)}"

    def when(self, now: float) -> str:
        """When it goes, in words that follow on "it goes by itself"."""
        days = (self.expire_time - now) / DAY_S
        return "within the hour" if days <= 0 else f"in {days:.0f} days" if days >= 1.5 else "tomorrow or so"


async def readable(core: Core, info: RepositoryInfo, refs: dict[str, str]) -> dict[str, str]:
    """Those among ``refs`` of which git still has what they keep, as far as it takes to tell of it."""
    found: dict[str, str] = {}
    for ref, commit in refs.items():
        try:
            if await core.git.kept(info, ref) is not None:
                found[ref] = commit
        except RametError as error:
            log.warning("a ref is not whole", ref=ref, error=error.message)
    return found


async def still_kept(core: Core, info: RepositoryInfo, refs: dict[str, str]) -> list[StillKept]:
    """Those among ``refs`` (ref → commit) that keep more of a session than came back."""

    def find(reader: Reader) -> list[tuple[str, Session, tuple[str, ...], float]]:
        return [
            (ref, reader.sessions.get(kind_and_id(ref)[1]), *_restored(reader, ref))
            for ref in refs
            if is_still_kept(reader, ref)
        ]

    found: list[StillKept] = []
    for ref, session, warnings, since in await core.store.read(find):
        if not since:
            if not await readable(core, info, {ref: refs[ref]}):
                continue  # doctor tells
            kept = await core.git.kept(info, ref)
            since = kept.time if kept is not None else core.clock()
        found.append(StillKept(session, ref, refs[ref], warnings, since + core.config.retention.trash))
    return found


async def is_alone(core: Core, info: RepositoryInfo, still: StillKept) -> bool:
    """Whether anything of it is really there alone. A restore warns of much that takes nothing away, such as of another branch or other ports."""
    try:
        kept = await core.git.kept(info, still.ref)
    except RametError as error:
        log.info("cannot be compared", ref=still.ref, error=error.message)
        return True
    return kept is not None and await alone.is_alone(core, info, still.session, kept)


def _restored(reader: Reader, ref: str) -> tuple[tuple[str, ...], float]:
    """What was told when the session was brought back from where the ref is, and when; 0 where that is not known."""
    origin, identity = kind_and_id(ref)
    found = reader.restores.get(identity, origin)
    return (found.warnings, found.time) if found is not None else ((), 0.0)


async def drop_expired(core: Core, trash: Trash, repo: Repo) -> None:
    """Forget what nobody has asked for in time."""
    if not await core.store.read(lambda reader: reader.sessions.list(repo_id=repo.id, include_archived=True)):
        return
    try:
        info = await info_of(core, repo)
    except NotFoundError:  # `doctor` tells
        return
    for kept in await still_kept(core, info, await core.git.refs_below(info, *FOLDERS)):
        if kept.expire_time <= core.clock():
            try:
                await trash.drop_ref(kept.session, kept.ref, kept.commit, partial(_require_still_kept, kept))
            except RametError as error:  # the others need not wait for it
                log.warning("housekeeping", ref=kept.ref, error=error.message)


def _require_still_kept(kept: StillKept, unit: Unit) -> None:
    if not is_still_kept(unit, kept.ref):
        raise ChangedError(f"{kept.ref} is in use again", hint="nothing is to be done")
