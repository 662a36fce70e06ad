"""States of a session and the table of allowed transitions."""

from enum import StrEnum

from rametd.domain.errors import WrongStateError


class State(StrEnum):
    """States of a session. Whether its agent's process is alive is a separate fact."""

    QUEUED = "queued"  # waiting for a slot, by priority
    STARTING = "starting"  # preparing the worktree, running setup, or starting the agent
    WORKING = "working"  # a turn is running
    WAITING = "waiting"  # the turn is blocked on a person
    IDLE = "idle"  # the last turn ended; ready for the next prompt
    PAUSED = "paused"  # held by a budget, a usage limit or a person; prompts stay queued
    LOST = "lost"  # the agent died unexpectedly; resumed automatically, up to a cap
    FAILED = "failed"  # cannot continue without a person
    ARCHIVED = "archived"  # no worktree on disk; can be restored completely


_S = State

TRANSITIONS: dict[State, frozenset[State]] = {
    # QUEUED → WORKING without a slot: a background task of a running agent starts a turn.
    _S.QUEUED: frozenset({_S.STARTING, _S.WORKING, _S.WAITING, _S.IDLE, _S.PAUSED, _S.LOST, _S.FAILED}),
    _S.STARTING: frozenset({_S.WORKING, _S.WAITING, _S.IDLE, _S.QUEUED, _S.PAUSED, _S.LOST, _S.FAILED}),
    _S.WORKING: frozenset({_S.WAITING, _S.IDLE, _S.PAUSED, _S.LOST, _S.FAILED}),
    _S.WAITING: frozenset({_S.WORKING, _S.IDLE, _S.PAUSED, _S.LOST, _S.FAILED}),
    # IDLE → WORKING without a prompt: a background task of the agent starts a turn.
    _S.IDLE: frozenset({_S.QUEUED, _S.WORKING, _S.WAITING, _S.PAUSED, _S.LOST, _S.FAILED, _S.ARCHIVED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.IDLE, _S.FAILED, _S.ARCHIVED}),
    _S.LOST: frozenset({_S.QUEUED, _S.STARTING, _S.IDLE, _S.PAUSED, _S.FAILED, _S.ARCHIVED}),
    _S.FAILED: frozenset({_S.QUEUED, _S.IDLE, _S.PAUSED, _S.ARCHIVED}),
    _S.ARCHIVED: frozenset({_S.IDLE}),
}

SLOT_STATES = frozenset({State.STARTING, State.WORKING})
"""States that hold one of the ``max_working`` slots. WAITING does not: an unanswered request must
not block the queue overnight."""

BUSY_STATES = frozenset({State.STARTING, State.WORKING, State.WAITING})
"""States in which a turn is under way."""


def check_transition(old: State, new: State) -> None:
    """Raise ``WrongStateError`` unless ``old`` → ``new`` is in the table."""
    if new not in TRANSITIONS[old]:
        raise WrongStateError(f"a session that is {old} cannot become {new}", old=old, new=new)
