"""Where a session's conversation stands at the moment that a checkpoint of it is made."""

import json

from rametd.domain.models import Session
from rametd.store import Reader

LOOKED_AT = 200
"""Messages of an agent among which its last words are looked for: those of subagents lie between."""


def position(reader: Reader, session: Session) -> tuple[str, str]:
    """The conversation, and the message in it, that somebody who goes on from here goes on from."""
    words = _last_words(reader, session) if session.conversation_begun else ""
    cut = reader.conversation_cuts.get(session.id)
    if not words and cut is not None:  # it has not said anything of its own yet
        return cut.source_id, cut.message_id
    return session.conversation_id, words


def _last_words(reader: Reader, session: Session) -> str:
    """The uuid of the agent's last message in its conversation; subagents speak in others."""
    said = reader.events.each(session_id=session.id, kinds=("assistant_message",), limit=LOOKED_AT, newest=True)
    for event in said:
        message = json.loads(event.frame) if event.frame else {}
        if message.get("parent_tool_use_id") is None and isinstance(message.get("uuid"), str):
            return str(message["uuid"]) if message.get("session_id") == session.conversation_id else ""
    return ""
