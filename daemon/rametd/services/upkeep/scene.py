"""A repository and what is known of it, taken at one time: what doctor and gc look at."""

from collections import Counter
from dataclasses import dataclass, field

from rametd.domain.models import Repo, Session
from rametd.git import Inventory, RepositoryInfo
from rametd.services.core import Core
from rametd.services.repos import info_of
from rametd.services.upkeep.rows import KINDS, is_departed, kind_and_id, known_ids
from rametd.store import Reader


@dataclass(frozen=True, slots=True)
class Scene:
    """``sessions``: the repository's, archived ones too. ``known``: ids of sessions, spares and operations of any repository.

    ``trash``: ids of what was removed and can come back: it may have a branch or refs, and has no directory. ``checked``: how many things
    were looked at, by kind. ``departed``: of the other ids that things in the repository are named by, those of sessions that were this Ramet's;
    ``strangers``: the rest, which are another Ramet's.
    """

    core: Core
    repo: Repo
    info: RepositoryInfo
    inventory: Inventory
    sessions: list[Session]
    known: frozenset[str]
    trash: frozenset[str]
    departed: frozenset[str]
    strangers: frozenset[str]
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
    inventory = await core.git.upkeep.inventory(info)
    named = _ids_in(inventory)

    def look(reader: Reader) -> tuple[set[str], set[str], set[str]]:
        # A session that is made or removed while git is looked at has a row before that or after it: known is what has either.
        known = before | known_ids(reader, trash=False)
        trash = {entry.id for entry in reader.trash.list()}
        return known, trash, {each for each in named - known - trash if is_departed(reader, each)}

    known, trash, departed = (frozenset(ids) for ids in await core.store.read(look))
    strangers = frozenset(named - known - trash - departed)
    return Scene(core, repo, info, inventory, sessions, known, trash, departed, strangers, checked)


def _ids_in(inventory: Inventory) -> set[str]:
    """What refs and branches of ours, and the entries of our worktrees, are named by."""
    ids = {identity for kind, identity in map(kind_and_id, inventory.refs) if kind in KINDS}
    ids |= {path.name for path in inventory.made.values()}
    return ids | {
        entry.path.name for entry in inventory.registrations if entry.path is not None and inventory.ours(entry)
    }
