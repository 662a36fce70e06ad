"""Snapshot of a repository and its rows, the input of doctor and gc."""

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

    ``trash``: ids in the trash, which may have branches and refs, but no directory. ``checked``: counts of checked things
    by kind. ``departed``: ids of this Ramet's former sessions that still name things in the repository. ``strangers``: all
    other such ids, which belong to another Ramet.
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
    """Raises `RepoNotFoundError`, and other errors of git for an unreadable repository."""
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
        # A session that is created or removed meanwhile has a row before or after reading git: either counts.
        known = before | known_ids(reader, trash=False)
        trash = {entry.id for entry in reader.trash.list()}
        return known, trash, {each for each in named - known - trash if is_departed(reader, each)}

    known, trash, departed = (frozenset(ids) for ids in await core.store.read(look))
    strangers = frozenset(named - known - trash - departed)
    return Scene(core, repo, info, inventory, sessions, known, trash, departed, strangers, checked)


def _ids_in(inventory: Inventory) -> set[str]:
    """Ids in the names of our refs, branches and registered worktrees."""
    ids = {identity for kind, identity in map(kind_and_id, inventory.refs) if kind in KINDS}
    ids |= {path.name for path in inventory.made.values()}
    return ids | {
        entry.path.name for entry in inventory.registrations if entry.path is not None and inventory.ours(entry)
    }
