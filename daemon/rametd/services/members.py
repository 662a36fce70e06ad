"""Messages about the sessions of a family for agents: state, messages, transcript."""

from ramet.v1 import event_pb2, orchestration_pb2

from rametd.domain.models import Prompt, Session
from rametd.services import family
from rametd.services.delivery import sender_of
from rametd.services.messages import to_message
from rametd.store import Reader

LAST_WORDS = 2000
"""Characters of an agent's last text in a list."""


def member_of(reader: Reader, caller: Session | None, session: Session) -> orchestration_pb2.Member:
    return to_message(
        orchestration_pb2.Member,
        session,
        relation=family.relation(reader, caller, session),
        reason=session.state_reason,
        last_words=last_words(reader, session.id)[:LAST_WORDS],
    )


def last_words(reader: Reader, session_id: str, *, failed: bool = True) -> str:
    """The last text of the agent itself, not of a subagent; ``failed``: of a turn that failed
    too."""
    kinds = ("assistant_message",) if failed else ("assistant_message", "turn_ended")
    for event in reader.events.each(session_id=session_id, kinds=kinds, limit=30, newest=True):
        found = event_pb2.Event.FromString(event.payload)
        if found.turn_ended.is_error:
            return ""
        said = found.assistant_message
        words = "".join(block.text for block in said.blocks)
        if words and not said.parent_tool_use_id:
            return words
    return ""


def message_of(reader: Reader, prompt: Prompt) -> orchestration_pb2.Message:
    sender_id = sender_of(prompt.source)
    sender = reader.sessions.find(sender_id) if sender_id else None
    return to_message(
        orchestration_pb2.Message,
        prompt,
        from_id=sender_id or prompt.source,
        from_name=sender.name if sender is not None else prompt.source,
        to_id=prompt.session_id,
        to_name=reader.sessions.get(prompt.session_id).name,
    )


TRANSCRIPT_KINDS = ("assistant_message", "user_message", "turn_ended", "prompt_queued")
CUT = "…"
TRANSCRIBED = 1000
"""Maximum number of events that a transcript reads."""


def transcript(reader: Reader, session_id: str, max_bytes: int) -> tuple[str, bool]:
    """Return the newest part of a conversation as lines, and whether older text was left out."""
    lines: list[str] = []
    room = max_bytes
    seen = 0
    for event in reader.events.each(session_id=session_id, kinds=TRANSCRIPT_KINDS, limit=TRANSCRIBED, newest=True):
        seen += 1
        text = transcript_line(event_pb2.Event.FromString(event.payload))
        if text:
            encoded = text.encode()
            if len(encoded) >= room:
                if (rest := room - len(CUT.encode()) - 1) > 0:  # one reply alone may exceed the limit
                    lines.append(CUT + encoded[-rest:].decode(errors="ignore"))
                return "\n".join(reversed(lines)), True
            room -= len(encoded) + 1
            lines.append(text)
    return "\n".join(reversed(lines)), seen == TRANSCRIBED


def transcript_line(event: event_pb2.Event) -> str:
    match event.WhichOneof("payload"):
        case "assistant_message":
            parts = []
            for block in event.assistant_message.blocks:
                if block.text:
                    parts.append(block.text)
                elif block.HasField("tool_call"):
                    parts.append(f"[calls {block.tool_call.tool} {block.tool_call.input_json[:500]}]")
            return "\n".join(parts)
        case "user_message":
            return "\n".join(f"[gets {result.text[:500]}]" for result in event.user_message.results)
        case "prompt_queued":
            return f"[{event.prompt_queued.prompt.source} says] {event.prompt_queued.prompt.text[:2000]}"
        case "turn_ended":
            return f"[turn ended: {event.turn_ended.subtype}]"
    return ""
