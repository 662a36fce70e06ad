"""Turns that a person made in a session's conversation outside of Ramet, taken into its transcript, costs and checkpoints.

They are applied like lines of an agent, but of no process of ours: generation 0, no control requests, and the session's state is left alone.
"""

import uuid
from dataclasses import replace

from ramet.v1 import event_pb2
from ramet.words import plural

from rametd.agents.base import AgentKind, Outside
from rametd.domain.models import OWNER, Agent, AgentState, Session
from rametd.services import events
from rametd.services.agents.projection import Projection
from rametd.services.policy import Policy
from rametd.services.views import prompt_message
from rametd.store import Unit

GENERATION = 0


class OutsideProjection(Projection):
    """Applies lines that tell of the past: no turn runs, and none ends now."""

    def flush(self) -> None:
        self._stored = self.agent  # there is no row
        super().flush()

    def _work(self) -> None:
        pass

    def _end_turn(self) -> None:
        pass


def take_in(unit: Unit, kind: AgentKind, session: Session, outside: Outside, policy: Policy, place: str) -> Session:
    """Store the turns with their events and costs, once; a turn whose prompt is known was taken in before."""
    fresh = [turn for turn in outside.turns if unit.prompts.get(turn.prompt_id) is None]
    at = {"session_id": session.id, "repo_id": session.repo_id}
    if fresh:
        words = (
            f"{plural(len(fresh), 'turn')} made {place} {'is' if len(fresh) == 1 else 'are'} part of the session now"
        )
        unit.events.append(events.make(event_pb2.Warning(message=words), **at))
    agent = Agent(session.id, GENERATION, AgentState.EXITED, unit.now)
    for turn in fresh:
        prompt = unit.prompts.add(turn.prompt_id or str(uuid.uuid4()), session.id, turn.prompt, OWNER)
        payload = event_pb2.PromptQueued(prompt=prompt_message(prompt))
        unit.events.append(events.make(payload, principal=OWNER, **at))
        projection = OutsideProjection(unit, session, replace(agent), policy)
        offset = 0
        for line in turn.lines:
            projection.apply(kind.read(agent, offset, offset + len(line), line))
            offset += len(line)
        projection.flush()
        session = unit.sessions.get(session.id)
    return session
