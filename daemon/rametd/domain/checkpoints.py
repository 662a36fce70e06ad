"""Checkpoints of worktrees, and conversations that start from a part of another conversation."""

from dataclasses import dataclass
from enum import StrEnum


class CheckpointReason(StrEnum):
    """Why a checkpoint was created."""

    TURN = "turn"  # a turn ended
    MANUAL = "manual"  # a caller asked for it
    REWIND = "rewind"  # a rewind was about to overwrite it
    SYNC = "sync"  # a sync was about to overwrite it
    FORK = "fork"  # a session was forked from here
    START = "start"  # the session began here


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot in a session's line, pinned by a ref: all files of the worktree that git does not
    ignore.

    It outlives a removed session until the trash entry of that session expires.
    """

    id: str
    session_id: str
    number: int  # within the session, from 1
    reason: CheckpointReason
    turn: int  # number of turns that had ended
    snapshot: str  # id of the object that `ref` points at
    tree: str  # git tree of the files
    head: str  # commit that was checked out; "" before the first commit
    ref: str
    create_time: float
    summary: str  # excerpt of the turn's prompt
    files: int  # files, added and deleted lines: changed since the previous checkpoint
    additions: int
    deletions: int
    conversation_id: str  # the agent's conversation at that time; "" before the first
    message_id: str  # its last message by the agent; "" before the first
    parent: int  # number of the previous checkpoint in the session's line; 0 for the first


@dataclass(frozen=True, slots=True)
class ConversationCut:
    """The part of another conversation from which a new one starts: up to ``message_id``, "" for
    all of it."""

    session_id: str
    source_id: str
    message_id: str
