"""A conversation that is gone: the session begins a new one, whose first prompt carries a summary of the old one."""

import math
import uuid

from ramet.v1 import event_pb2

from rametd.domain.models import PromptState, Session
from rametd.services import events
from rametd.store import Reader, Unit

RECAP_LIMIT = 8000
ENTRY_LIMIT = 800
ENTRIES = 60
"""Characters of a whole summary and of each entry, and the number of entries."""
PREFACE = (
    "[Ramet] Your earlier conversation in this worktree is lost, so you do not remember it. The files are as they were left."
    " This is a summary of it, oldest first; all of it is done, so do not begin with it again."
)


def begin_anew(unit: Unit, session: Session) -> Session:
    """Give a session whose conversation is gone a new one; its first prompt carries the summary (`recap`)."""
    session = unit.sessions.update(
        session.id,
        conversation_id=str(uuid.uuid4()),
        conversation_begun=False,
        conversation_lost=True,
        last_message_id="",
    )
    warning = event_pb2.Warning(
        message="the agent's transcript is gone: the session begins a new conversation, with a summary of the old one"
    )
    unit.events.append(events.make(warning, session_id=session.id, repo_id=session.repo_id))
    return session


def recap(reader: Reader, session: Session) -> str:
    """What the journal has of a conversation that is gone, as the beginning of the first prompt of the new one."""
    until = math.inf
    cut = reader.conversation_cuts.get(session.id)
    sources = [each for each in (session.forked_from, session.id) if each]
    if cut is not None and cut.message_id:
        known = [each for source in sources for each in reader.checkpoints.list(source)]
        until = max((each.create_time for each in known if each.message_id == cut.message_id), default=until)
    entries = [entry for source in sources for entry in _entries(reader, source, until)]
    lines: list[str] = []
    room = RECAP_LIMIT
    for _, who, text in sorted(entries, reverse=True)[:ENTRIES]:
        words = f"{who}: {text if len(text) <= ENTRY_LIMIT else f'{text[:ENTRY_LIMIT]}…'}"
        if (room := room - len(words)) < 0:
            lines.append("(earlier parts are left out)")
            break
        lines.append(words)
    if not lines:
        return ""
    return "\n\n".join(
        [
            PREFACE,
            *reversed(lines),
            "[Ramet] End of the summary. The request is:",
            "",
        ]
    )


def _entries(reader: Reader, session_id: str, until: float) -> list[tuple[float, str, str]]:
    asked = [
        (prompt.receive_time, "Asked", prompt.text)
        for prompt in reader.prompts.list(session_id)
        if prompt.state == PromptState.RECEIVED and not prompt.continues and prompt.receive_time is not None
    ]
    ended = reader.events.list(session_id=session_id, kinds=("turn_ended",), limit=ENTRIES, newest=True)
    answered = [(event.time, "You", event_pb2.Event.FromString(event.payload).turn_ended.text) for event in ended]
    return [entry for entry in (*asked, *answered) if entry[0] <= until and entry[2]]
