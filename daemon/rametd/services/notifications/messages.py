"""Texts of notifications: compose one message of items in the store, with or without texts of
agents and people."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ramet.visible import visible
from ramet.words import plural

from rametd.domain.models import Request, RequestKind, Session
from rametd.domain.notifications import Notification, Topic
from rametd.domain.text import first_line
from rametd.services.agents.questions import describe

LINES = 10
"""Maximum number of items that a message lists; it counts the others."""
LINE = 200
"""Characters of a line."""

NEUTRAL = {
    RequestKind.PERMISSION: "wants to use {tool}",
    RequestKind.QUESTION: "has a question",
    RequestKind.PLAN: "has a plan and wants it approved",
    RequestKind.ELICITATION: "{tool} asks for input",
    RequestKind.REVIEW: "has ended its turn",
    RequestKind.CONFLICT: "conflicts with another session",
    RequestKind.LANDING: "cannot land without you",
    RequestKind.OWNERSHIP: "asks for paths of another session",
    RequestKind.TROUBLE: "cannot continue without you",
    RequestKind.LOGIN: "needs a login of its agent",
    RequestKind.TRUST: "is of a repository that changed what you trusted",
}
"""Text about a request that contains no words of the agent or the person."""
BRIEF = {Topic.WAITING: "needs you", Topic.REVIEW: "is done", Topic.FAILED: "has failed", Topic.LANDED: "has landed",
         Topic.BUDGET: "has spent its budget", Topic.CONFLICT: "has a conflict", Topic.LIMIT: "waits for a usage limit"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a message."""

    topic: Topic
    kind: str  # of the request; "" if the item is no request
    session: str
    session_id: str
    repo: str
    request_id: str
    text: str
    neutral: str  # the same without a text of the agent or the person
    time: float

    def line(self, *, include_text: bool) -> str:
        return _short(f"{self.session}: {self.text if include_text else self.neutral}")


@dataclass(frozen=True, slots=True)
class Message:
    """A message for one way. ``id`` stays the same if the message is sent again."""

    id: str
    entries: tuple[Entry, ...]

    @property
    def title(self) -> str:
        if not self.entries:
            return "Ramet: test"
        if len(self.entries) == 1:
            return _short(f"{self.entries[0].session} {BRIEF[self.entries[0].topic]}")
        names = dict.fromkeys(entry.session for entry in self.entries)
        if len(names) == 1:
            return _short(f"{next(iter(names))}: {len(self.entries)} items")
        need = any(entry.topic != Topic.LANDED for entry in self.entries)
        return f"{plural(len(names), 'session')} {'need you' if need else 'have landed'}"

    def body(self, *, include_text: bool) -> str:
        if not self.entries:
            return "Notifications arrive this way."
        lines = [entry.line(include_text=include_text) for entry in self.entries[:LINES]]
        if (more := len(self.entries) - LINES) > 0:
            lines.append(f"and {more} more: rametctl inbox")
        return "\n".join(lines)

    @property
    def urgent(self) -> bool:
        return any(entry.topic in {Topic.WAITING, Topic.FAILED} for entry in self.entries)

    def event(self, *, include_text: bool) -> dict[str, Any]:
        """The JSON of a webhook and of a command."""
        return {
            "id": self.id,
            "title": self.title,
            "text": self.body(include_text=include_text),
            "test": not self.entries,
            "items": [
                {
                    "topic": str(entry.topic),
                    "kind": entry.kind,
                    "session": entry.session,
                    "session_id": entry.session_id,
                    "repo": entry.repo,
                    "request_id": entry.request_id,
                    "text": visible(entry.text if include_text else entry.neutral),
                    "time": entry.time,
                }
                for entry in self.entries
            ],
        }


def of_request(notification: Notification, request: Request, session: Session, repo: str) -> Entry:
    if request.kind in {RequestKind.PERMISSION, RequestKind.QUESTION, RequestKind.PLAN, RequestKind.ELICITATION}:
        text = describe(request, session)
    elif request.kind == RequestKind.REVIEW:
        text = session.turn_summary or "has ended its turn"
    else:
        text = request.reason or NEUTRAL[request.kind]
    neutral = NEUTRAL[request.kind].format(tool=request.tool)
    return Entry(
        notification.topic, str(request.kind), session.name, session.id, repo, request.id, text, neutral, request.create_time
    )  # fmt: skip


def of_landing(notification: Notification, name: str, repo: str, target: str) -> Entry:
    words = f"has landed on {target}"
    return Entry(
        notification.topic, "", name, notification.session_id, repo, "", words, words, notification.create_time
    )


def of_limit(notification: Notification, session: Session, repo: str) -> Entry:
    words = "waits until a usage limit is lifted"
    return Entry(notification.topic, "", session.name, session.id, repo, "", words, words, notification.create_time)


def merge(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Sort entries for a person: first those that an agent waits for, then the oldest."""
    order = list(Topic)
    return tuple(sorted(entries, key=lambda entry: (order.index(entry.topic), entry.time)))


def _short(text: str) -> str:
    line = visible(first_line(text))
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"
