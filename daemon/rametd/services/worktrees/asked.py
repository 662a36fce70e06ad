"""What a turn was for, as the list of checkpoints shows it."""

from itertools import chain

from ramet.v1 import event_pb2

from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.models import DAEMON, Prompt, Session
from rametd.services.words import first_line
from rametd.store import Reader

LOOKED_AT = 200
"""Events among which the beginning of the last turn is looked for."""


def asked_for(reader: Reader, session: Session, reason: CheckpointReason) -> str:
    """The first line of what the turn began with that is under way or was the last; where several turns are kept at once, the first of them.

    Of one that began with nobody's word it is the last prompt before it.
    """
    prompts = {each.id: each for each in reader.prompts.list(session.id) if each.source != DAEMON}
    turns: list[list[Prompt]] = [[]]
    kinds = ("prompt_received", "turn_ended")
    for event in reader.events.list(session_id=session.id, kinds=kinds, limit=LOOKED_AT, newest=True):
        if event.kind == "turn_ended":
            turns.append([])
        elif prompt := prompts.get(event_pb2.Event.FromString(event.payload).prompt_received.prompt_id):
            turns[-1].append(prompt)
    # A prompt that came while the end of a turn is being kept is of the next one.
    if len(turns) > 1 and (reason == CheckpointReason.TURN or not turns[-1]):
        turns.pop()
    kept_now = max(session.turns - session.checkpointed_turns, 1) if reason == CheckpointReason.TURN else 1
    asked = list(chain(*turns[-kept_now:]))[:1] or list(chain(*turns))[-1:]
    return first_line(asked[0].text) if asked else ""
