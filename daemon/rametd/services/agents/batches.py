"""Batches of an agent's lines: one unit of work for each, together with the offset it ends at.

That the offset and what follows from the lines are committed as one is what makes it exactly once. A batch that was applied before, by a daemon
that was replaced in the middle, is refused by `Agents.advance` as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rametd.agents.base import (
    Activity,
    Answered,
    ControlAsked,
    ControlCancelled,
    Frame,
    Initialized,
    PromptReturned,
    PromptSeen,
    TurnBegan,
    TurnSkipped,
)
from rametd.domain.models import Agent, Session
from rametd.services.agents.projection import Projection
from rametd.services.policy import Policy
from rametd.store import Unit

URGENT = (
    ControlAsked,
    ControlCancelled,
    Initialized,
    PromptReturned,
    PromptSeen,
    TurnBegan,
    TurnSkipped,
    Activity,
    Answered,
)
"""Facts that somebody waits for; a batch with one of them is committed at once."""


@dataclass(frozen=True, slots=True)
class Projected:
    """What a batch has led to."""

    session: Session
    agent: Agent
    turn_ended: bool
    told: tuple[str, ...]  # ids of sessions that were told something by it


def is_urgent(frames: Sequence[Frame]) -> bool:
    """Whether a batch must not wait for company."""
    return any(isinstance(fact, URGENT) for frame in frames for fact in frame.facts)


def project(unit: Unit, session_id: str, generation: int, frames: Sequence[Frame], policy: Policy) -> Projected:
    """Apply a batch of consecutive frames; raises `StaleBatchError` when it does not begin at the stored offset."""
    unit.agents.advance(session_id, generation, frames[-1].end, expect_offset=frames[0].start)
    agent = unit.agents.get(session_id, generation)
    if agent is None:
        raise AssertionError("an agent that advanced exists")
    projection = Projection(unit, unit.sessions.get(session_id), agent, policy)
    for frame in frames:
        projection.apply(frame)
    projection.flush()
    return Projected(projection.session, projection.agent, projection.turn_ended, tuple(projection.told))
