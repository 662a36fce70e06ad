"""Worktrees as they were, and conversations that begin as a part of another."""

from dataclasses import dataclass
from enum import StrEnum


class CheckpointReason(StrEnum):
    """Why a checkpoint was made."""

    TURN = "turn"  # a turn ended
    MANUAL = "manual"  # somebody asked for it
    REWIND = "rewind"  # a rewind was about to overwrite it
    SYNC = "sync"  # a sync was about to overwrite it
    FORK = "fork"  # a session was forked from here
    START = "start"  # the session began here


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Files of a worktree, untracked ones included and ignored ones not, kept by a ref. It outlives its session as long as the trash does."""

    id: str
    session_id: str
    number: int  # within the session, from 1
    reason: CheckpointReason
    turn: int  # turns that had ended
    snapshot: str  # the object that its ref points at
    tree: str  # of its files
    head: str  # what was checked out; "" before the first commit
    ref: str
    create_time: float
    summary: str  # what was asked for in its turn
    files: int  # changed since the checkpoint before, as are the lines
    additions: int
    deletions: int
    conversation_id: str  # the conversation as it was then, and the agent's last words in it: "" before the first
    message_id: str
    parent: int  # the number of the checkpoint that the session stood at before; 0 for the first


@dataclass(frozen=True, slots=True)
class ConversationCut:
    """Where a conversation that has not begun comes from: another one up to a message, "" for all of it."""

    session_id: str
    source_id: str
    message_id: str
