"""A repository and what is known of it, taken at one time: what doctor and gc look at."""

from collections import Counter
from dataclasses import dataclass, field

from rametd.domain.models import Repo, Session
from rametd.git import Inventory
from rametd.git.repository import RepositoryInfo
from rametd.services.core import Core
from rametd.services.repos import info_of
from rametd.services.upkeep.rows import known_ids


@dataclass(frozen=True, slots=True)
class Scene:
    """``sessions``: the repository's, archived ones too. ``known``: ids of sessions, spares and intents of any repository.

    ``trash``: ids of what was removed and can come back: it may have a branch or refs, and has no directory. ``checked``: how many things
    were looked at, by kind.
    """

    core: Core
    repo: Repo
    info: RepositoryInfo
    inventory: Inventory
    sessions: list[Session]
    known: frozenset[str]
    trash: frozenset[str]
    checked: Counter[str] = field(default_factory=Counter)


async def take_scene(core: Core, repo: Repo, checked: Counter[str]) -> Scene:
    """Raises `RepoNotFoundError`, or what else git says of a repository that cannot be looked at."""
    sessions, before = await core.store.read(
        lambda reader: (
            list(reader.sessions.list(repo_id=repo.id, include_archived=True)),
            known_ids(reader, trash=False),
        )
    )
    info = await info_of(core, repo)
    inventory = await core.git.inventory(info)
    # A session that is made or removed while git is looked at has a row before that or after it: known is what has either.
    known, trash = await core.store.read(
        lambda reader: (before | known_ids(reader, trash=False), {entry.id for entry in reader.trash.list()})
    )
    return Scene(core, repo, info, inventory, sessions, frozenset(known), frozenset(trash), checked)
