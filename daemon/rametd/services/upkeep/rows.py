"""What the rows know of: whether anything on disk, or a ref of ours, is somebody's."""

import re

from rametd.store import Reader

IDENTITY = re.compile(r"[a-z][a-z0-9]{7}")
"""The names of worktrees that we make, which are ids (`services.ids`)."""

KINDS = frozenset({"trash", "archive", "checkpoints", "commits"})
"""Of what is kept, by the names of its refs (`kind_and_id`)."""


def known_ids(reader: Reader, *, trash: bool = True) -> set[str]:
    """Ids that something may lie on disk for: sessions, spares, operations, and where it counts the trash."""
    ids = {session.id for session in reader.sessions.list(include_archived=True)}
    ids |= {spare.id for spare in reader.spares.list()}
    ids |= {operation.session_id for operation in reader.operations.list()}
    return ids | {entry.id for entry in reader.trash.list()} if trash else ids


def is_orphan(reader: Reader, ref: str) -> bool:
    """Whether a ref of ours keeps something for no row, be it a session or what is in the trash."""
    kind, identity = kind_and_id(ref)
    if kind not in KINDS or reader.operations.list(identity):
        return False
    return is_departed(reader, identity) and reader.trash.get(identity) is None


def is_departed(reader: Reader, identity: str) -> bool:
    """Whether it is the id of a session that this Ramet had and has no more.

    Another one, another person's or with another RAMET_HOME, may work in the same repository: what is named by ids that were never ours is its own.
    """
    return reader.sessions.find(identity) is None and reader.sessions.knows_id(identity)


def kind_and_id(ref: str) -> tuple[str, str]:
    """Of ``refs/ramet/KIND/ID``, also where something follows on it; "" for what is not there."""
    kind, identity = (*ref.split("/"), "", "")[2:4]
    return kind, identity
