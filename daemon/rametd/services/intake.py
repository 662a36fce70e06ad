"""Store calm lines of all agents together: one unit of work for all lines since the last commit.

If a hundred agents write a line each, this is one write instead of a hundred. A line is calm if it
changes only a session's last words (`Frame.is_calm`). An agent's runner stores all other lines
itself, after the calm ones before them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Protocol

import structlog
from ramet.v1 import event_pb2

from rametd.agents.base import Doing, Fact, Frame, Said
from rametd.domain.errors import StaleBatchError
from rametd.domain.models import LastWords, NewEvent, Session
from rametd.failpoints import Failpoint
from rametd.store import Store, Unit

log = structlog.get_logger()

BATCH_BYTES = 4 << 20
"""Maximum bytes of lines in one write, which the last agent may exceed: a longer write would delay
all others."""


class Source(Protocol):
    """An agent with calm lines to store. It adds itself once and waits for `stored` or
    `refused`."""

    generation: int
    frames: list[Frame]  # not stored yet; grows while the source waits

    @property
    def session(self) -> Session: ...

    def stored(self, frames: Sequence[Frame]) -> None:
        """Drop these frames, the first of the source: they are committed."""

    def refused(self) -> None:
        """Store the frames in the source itself, which then gets the error: they cannot be stored
        together."""


class Intake:
    """Runs a task while sources wait."""

    def __init__(self, store: Store, failpoint: Failpoint) -> None:
        self._store = store
        self._failpoint = failpoint
        self._waiting: list[Source] = []
        self._task: asyncio.Task[None] | None = None
        self._apart = 0  # how many sources to store one by one, to find the stale one

    def add(self, source: Source) -> None:
        """Store the calm lines at the front of ``source``."""
        self._waiting.append(source)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="intake")
            self._task.add_done_callback(self._done)

    async def _run(self) -> None:
        try:
            while self._waiting:
                try:
                    taken = await self._store.write_for_sure(self._work, lifecycle=False)
                except StaleBatchError:
                    if self._apart:
                        self._apart -= 1
                        self._waiting.pop(0).refused()
                    else:
                        self._apart = len(self._waiting)
                    continue
                self._apart = max(self._apart - 1, 0)
                del self._waiting[: len(taken)]
                for source, frames in taken:
                    if frames:
                        source.stored(frames)
                    else:
                        source.refused()
        finally:
            # Reset it here, not in `_done`, which runs later: a source that is added in between
            # would wait for a task that has ended.
            self._task = None

    def _work(self, unit: Unit) -> list[tuple[Source, list[Frame]]]:
        # This runs in the writer's thread, and takes all sources that wait by then. Only the event
        # loop removes them.
        taken = take(self._waiting[:1] if self._apart else self._waiting[:])
        store_calm(unit, taken)
        if sum(bool(frames) for _, frames in taken) > 1:
            self._failpoint.hit("lines.read")
        return taken

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("lines are stored for each agent separately", exc_info=error)
            waiting, self._waiting = self._waiting, []
            for source in waiting:
                source.refused()


def line_events(session: Session, frames: Sequence[Frame]) -> list[NewEvent]:
    """Create the events of consecutive lines: one for each line, but only one for consecutive
    pieces of a message.

    A model writes dozens of pieces in a second, and the complete message repeats them. Their events
    are only for watchers, and have no lines.
    """
    found: list[NewEvent] = []
    pieces: list[Frame] = []
    for frame in frames:
        if frame.event.HasField("partial"):
            pieces.append(frame)
            continue
        if pieces:
            _add_pieces(found, session, pieces)
        found += (_event(session, event, b"") for event in frame.before)
        found.append(_event(session, frame.event, frame.line.removesuffix(b"\n")))
    if pieces:
        _add_pieces(found, session, pieces)
    return found


def _add_pieces(found: list[NewEvent], session: Session, pieces: list[Frame]) -> None:
    if (joined := _joined(pieces)) is not None:
        found.append(_event(session, joined, b""))
    pieces.clear()


def _joined(run: Iterable[Frame]) -> event_pb2.Event | None:
    """Join pieces into one event; None if they have nothing to show, such as a tool's input."""
    joined: event_pb2.Event | None = None
    for frame in run:
        piece = frame.event.partial
        if piece.parent_tool_use_id or not (piece.text or piece.thinking or piece.output_tokens):
            continue
        if joined is None:
            joined = event_pb2.Event()
            joined.CopyFrom(frame.event)
            continue
        joined.partial.text += piece.text
        joined.partial.thinking += piece.thinking
        joined.partial.output_tokens += piece.output_tokens
    return joined


def _event(session: Session, event: event_pb2.Event, line: bytes) -> NewEvent:
    return NewEvent(
        event.WhichOneof("payload") or "agent_notice",
        session.id,
        session.repo_id,
        f"session:{session.id}",
        event.SerializeToString(),
        line,
    )


def last_words(session: Session, facts: Iterable[Fact]) -> LastWords:
    """The last message and the present activity from ``facts``."""
    said, doing = Said("", ""), ""
    for fact in facts:
        if isinstance(fact, Said):
            said = fact
        elif isinstance(fact, Doing):
            doing = fact.words
    return LastWords(session.id, said.conversation_id, said.message_id, doing.replace(f"{session.worktree}/", ""))


def take(waiting: Sequence[Source]) -> list[tuple[Source, list[Frame]]]:
    """Take the calm lines at the front of each source, up to `BATCH_BYTES`."""
    taken: list[tuple[Source, list[Frame]]] = []
    size = 0
    for source in waiting:
        frames = list(takewhile(lambda frame: frame.is_calm, source.frames[:]))
        taken.append((source, frames))
        size += frames[-1].end - frames[0].start if frames else 0
        if size >= BATCH_BYTES:
            break
    return taken


def store_calm(unit: Unit, taken: Sequence[tuple[Source, list[Frame]]]) -> None:
    """Advance the agents and append the events of their lines. Raise `StaleBatchError` if another
    daemon advanced an agent."""
    batches: dict[str, tuple[int, int, int]] = {}
    appended: list[NewEvent] = []
    words: list[LastWords] = []
    for source, frames in taken:
        session = source.session
        if session.id in batches:
            frames.clear()  # a second source of the session stores its frames itself
        if not frames:
            continue
        batches[session.id] = (source.generation, frames[0].start, frames[-1].end)
        appended += line_events(session, frames)
        if any(frame.facts for frame in frames):
            words.append(last_words(session, (fact for frame in frames for fact in frame.facts)))
    unit.agents.advance_all(batches)
    unit.events.append(*appended, words=words)
