"""Find and list checkpoints, on the session's line or abandoned by a rewind."""

from ramet.v1 import worktree_pb2

from rametd.domain.checkpoints import Checkpoint
from rametd.domain.errors import CheckpointNotFoundError
from rametd.domain.models import Session
from rametd.services.lookup import only
from rametd.services.messages import to_message
from rametd.store import Reader


def find_checkpoint(reader: Reader, session: Session, name: str) -> Checkpoint:
    """Find a checkpoint by number, id or unique prefix of an id. Raise `CheckpointNotFoundError`,
    `AmbiguousError`."""
    if name.isascii() and name.isdigit() and len(name) < 10:
        found = reader.checkpoints.by_number(session.id, int(name))
        if found is not None:
            return found
    fitting = reader.checkpoints.find_by_prefix(session.id, name) if name else []
    missing = CheckpointNotFoundError(
        f"{session.name} has no checkpoint {name!r}", hint=f"`rametctl checkpoints {session.reference}` lists them"
    )
    return only(fitting, name, "checkpoints", missing, hint="use the number")


def list_checkpoints(reader: Reader, session_id: str, before: int | None, limit: int) -> list[worktree_pb2.Checkpoint]:
    """Messages of checkpoints, newest first. In a message, ``abandoned`` means that a rewind went
    back before it, ``current`` that the session continues from it."""
    session = reader.sessions.get(session_id)
    on_it = set(reader.checkpoints.line(session_id, session.checkpoint))
    messages = []
    for checkpoint in reader.checkpoints.list(session_id, before=before, limit=limit):
        message = checkpoint_message(checkpoint)
        message.abandoned = checkpoint.number not in on_it
        message.current = checkpoint.number == session.checkpoint
        messages.append(message)
    return messages


def checkpoint_message(checkpoint: Checkpoint) -> worktree_pb2.Checkpoint:
    return to_message(worktree_pb2.Checkpoint, checkpoint, commit=checkpoint.tree)
