"""What a turn was for, as the list of checkpoints shows it."""

from rametd.domain.checkpoints import CheckpointReason
from rametd.domain.models import DAEMON, Session
from rametd.services.words import first_line
from rametd.store import Reader


def asked_for(reader: Reader, session: Session, reason: CheckpointReason) -> str:
    """The first line of the prompt that began the turn that runs, or the last one; where several turns are kept at once, the first of them.

    For a turn that no prompt began it is the last prompt before.
    """
    asked = [each for each in reader.prompts.list(session.id) if each.source != DAEMON and each.turn]
    last = session.turns
    # A prompt that comes while the end of a turn is being kept belongs to the next turn.
    if reason != CheckpointReason.TURN and any(each.turn > session.turns for each in asked):
        last = session.turns + 1
    first = last
    if reason == CheckpointReason.TURN:
        first -= max(session.turns - session.checkpointed_turns, 1) - 1
    kept = [each for each in asked if first <= each.turn <= last]
    before = [each for each in asked if each.turn < first]
    found = kept[:1] or before[-1:]
    return first_line(found[0].text) if found else ""
