"""Whether a row exists for a directory or a ref."""

import re

from rametd.store import Reader

IDENTITY = re.compile(r"[a-z][a-z0-9]{7}")
"""Names of worktrees that Ramet creates: ids (`services.ids`)."""

KINDS = frozenset({"trash", "archive", "checkpoints", "commits"})
"""Kinds of refs (`kind_and_id`)."""


def known_ids(reader: Reader, *, trash: bool = True) -> set[str]:
    """Ids that may have files: sessions, spares, operations, and with ``trash`` removed sessions."""
    ids = {session.id for session in reader.sessions.list(include_archived=True)}
    ids |= {spare.id for spare in reader.spares.list()}
    ids |= {operation.session_id for operation in reader.operations.list()}
    return ids | {entry.id for entry in reader.trash.list()} if trash else ids


def is_orphan(reader: Reader, ref: str) -> bool:
    """Whether neither a session nor the trash has the ref."""
    kind, identity = kind_and_id(ref)
    if kind not in KINDS or reader.operations.list(identity):
        return False
    return is_departed(reader, identity) and reader.trash.get(identity) is None


def is_departed(reader: Reader, identity: str) -> bool:
    """Whether this Ramet had a session of this id and has it no longer.

    Another Ramet (another person, another RAMET_HOME) may work in the same repository: unknown ids are its own.
    """
    return reader.sessions.find(identity) is None and reader.sessions.knows_id(identity)


def kind_and_id(ref: str) -> tuple[str, str]:
    """Split ``refs/ramet/KIND/ID`` or a ref below it; "" for missing parts."""
    kind, identity = (*ref.split("/"), "", "")[2:4]
    return kind, identity
