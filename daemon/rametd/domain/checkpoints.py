"""Worktrees as they were, and conversations that begin as a part of another."""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class ConversationCut:
    """Where a conversation that has not begun comes from: another one up to a message, "" for all of it."""

    session_id: str
    source_id: str
    message_id: str


def line_of(latest: int, rewinds: Sequence[tuple[int, int]]) -> list[int]:
    """The checkpoints, newest first, that a session with so many goes on from: ``rewinds`` led from one to another, oldest first.

    The one after a rewind goes on from where that led; any other from the one before it.
    """
    parents = {before + 1: target for before, target in rewinds}
    line = [parents.get(latest + 1, latest)]
    while line[-1] > 1:
        line.append(parents.get(line[-1], line[-1] - 1))
    return line
