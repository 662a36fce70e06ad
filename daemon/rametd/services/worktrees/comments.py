"""Review comments: collected on a session's work, given to its agent as one prompt, tracked until they are dealt with."""

import asyncio
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ramet.v1 import event_pb2, worktree_pb2
from ramet.words import plural

from rametd.domain.comments import Comment, CommentState
from rametd.domain.errors import AmbiguousError, CommentNotFoundError, InvalidInputError, WrongStateError
from rametd.domain.models import Prompt, Session
from rametd.services import events
from rametd.services.core import Core
from rametd.services.delivery import post
from rametd.services.ids import new_id
from rametd.services.lifecycle import refuse_archived
from rametd.services.views import stamp
from rametd.store import Reader, Unit

T = TypeVar("T")

TEXT_LIMIT = 16 << 10
FILE_LIMIT = 8 << 20
AROUND = 2
"""Lines quoted before and after the one that is meant."""
QUOTED_WIDTH = 300

STATES = {
    CommentState.OPEN: worktree_pb2.COMMENT_STATE_OPEN,
    CommentState.SENT: worktree_pb2.COMMENT_STATE_SENT,
    CommentState.RESOLVED: worktree_pb2.COMMENT_STATE_RESOLVED,
}


class Reviewer:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def add(
        self,
        session: Session,
        path: str,
        line: int,
        text: str,
        principal: str,
        answer: Callable[[Unit, Comment], T],
    ) -> T:
        """Store a comment; return what ``answer`` makes of it in the same unit of work.

        Raises `InvalidInputError` for a missing file or line, and for a text that is empty or too long.
        """
        refuse_archived(session)
        if not text.strip() or len(text.encode("utf-8", "surrogatepass")) > TEXT_LIMIT:
            raise InvalidInputError(
                "a comment has 1 to 16,384 bytes of text", hint="say what is to be done differently"
            )
        clean = clean_path(path)
        lines = await asyncio.to_thread(read_lines, session.worktree, clean)
        if lines is None:
            raise InvalidInputError(
                f"there is no file {clean!r} in the worktree of {session.name}",
                hint=f"`rametctl diff {session.name} --name-only` lists what it changed",
            )
        if line > len(lines):
            raise InvalidInputError(
                f"{clean} has {plural(len(lines), 'line')}, not {line}", hint="leave :LINE out for the whole file"
            )
        comment = Comment(
            id=new_id(),
            session_id=session.id,
            path=clean,
            line=line,
            text=text.strip(),
            quote=quoted(lines, line),
            anchor=lines[line - 1] if line else "",
            state=CommentState.OPEN,
            author=principal,
            prompt_id="",
            create_time=self._core.clock(),
            resolve_time=None,
        )

        def store(unit: Unit) -> T:
            unit.comments.add(comment)
            _log(unit, session, comment, principal)
            return answer(unit, comment)

        return await self._core.store.write(store)

    async def resolve(self, name: str, principal: str, answer: Callable[[Unit, Comment], T]) -> T:
        """Mark a comment as resolved; a second call changes nothing."""

        def work(unit: Unit) -> T:
            comment = find_comment(unit, name)
            if comment.state != CommentState.RESOLVED:
                comment = unit.comments.update(comment.id, state=CommentState.RESOLVED, resolve_time=unit.now)
                _log(unit, unit.sessions.get(comment.session_id), comment, principal)
            return answer(unit, comment)

        return await self._core.store.write(work)

    async def send(self, session: Session, principal: str, answer: Callable[[Unit, Prompt, list[Comment]], T]) -> T:
        """Send the agent all open comments as one prompt. Raises `WrongStateError` if there are none."""

        def work(unit: Unit) -> T:
            now = unit.sessions.get(session.id)
            waiting = [each for each in unit.comments.list(now.id) if each.state == CommentState.OPEN]
            if not waiting:
                raise WrongStateError(
                    f"no comment on {now.name} waits to be sent",
                    hint=f"`rametctl comment {now.name} FILE:LINE TEXT` makes one",
                )
            prompt, now = post(unit, self._core.kind(now.agent), now, review(waiting), principal)
            sent = [unit.comments.update(each.id, state=CommentState.SENT, prompt_id=prompt.id) for each in waiting]
            for each in sent:
                _log(unit, now, each, principal)
            return answer(unit, prompt, sent)

        done = await self._core.store.write(work)
        self._core.live.wake(session.id)
        return done

    async def where_now(self, session: Session, comments: list[Comment]) -> list[int]:
        """Where each comment's line is now: the nearest one that reads the same, 0 where there is none."""

        def look() -> list[int]:
            files: dict[str, list[str] | None] = {}
            for comment in comments:
                if comment.path not in files:
                    files[comment.path] = read_lines(session.worktree, comment.path)
            return [place_of(comment, files[comment.path] or []) for comment in comments]

        return await asyncio.to_thread(look)


def find_comment(reader: Reader, name: str) -> Comment:
    """By id or unique prefix. Raises `CommentNotFoundError`, `AmbiguousError`."""
    found = reader.comments.find_by_prefix(name) if name else []
    if len(found) > 1 and found[0].id != name:
        matches = ", ".join(each.id for each in found)
        raise AmbiguousError(f"{name!r} fits several comments: {matches}", hint="write more of its id", matches=matches)
    if not found:
        raise CommentNotFoundError(f"there is no comment {name!r}", hint="`rametctl comment S` lists them")
    return found[0]


def clean_path(path: str) -> str:
    """Raises `InvalidInputError` for a path that leads out of a worktree."""
    pure = PurePosixPath(path)
    if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts or pure.parts[:1] == (".git",):
        raise InvalidInputError(f"{path!r} is no path in a worktree", hint="write it as it stands in the diff")
    return str(pure)


def read_lines(worktree: Path, path: str) -> list[str] | None:
    """The lines of a file, as git and editors count them: a form feed ends none. None for what is none, is too large, or lies outside by way of a
    link."""
    place = worktree / path
    try:
        inside = place.resolve(strict=True).is_relative_to(worktree.resolve())
        if not inside or not place.is_file() or place.stat().st_size > FILE_LIMIT:
            return None
        text = place.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def quoted(lines: list[str], line: int) -> str:
    """The line with those around it, numbered, the one that is meant marked."""
    if not line:
        return ""
    first = max(line - AROUND, 1)
    shown = enumerate(lines[first - 1 : line + AROUND], first)
    return "\n".join(f"{'>' if number == line else ' '} {number:>5} {text[:QUOTED_WIDTH]}" for number, text in shown)


def place_of(comment: Comment, lines: list[str]) -> int:
    places = [number for number, text in enumerate(lines, 1) if text == comment.anchor] if comment.line else []
    return min(places, key=lambda number: abs(number - comment.line), default=0)


def review(comments: list[Comment]) -> str:
    """The prompt that carries comments to the agent."""
    parts = ["Review comments on your work. Deal with each, and say for each number what you did, or why not."]
    for number, comment in enumerate(comments, 1):
        where = f"{comment.path}:{comment.line}" if comment.line else comment.path
        quote = f"\n```\n{comment.quote}\n```" if comment.quote else ""
        parts.append(f"{number}. {where}{quote}\n{comment.text}")
    return "\n\n".join(parts)


def comment_message(comment: Comment, current_line: int = 0) -> worktree_pb2.Comment:
    return worktree_pb2.Comment(
        id=comment.id,
        session_id=comment.session_id,
        path=comment.path,
        line=comment.line,
        text=comment.text,
        quote=comment.quote,
        state=STATES[comment.state],
        author=comment.author,
        create_time=stamp(comment.create_time),
        resolve_time=stamp(comment.resolve_time),
        prompt_id=comment.prompt_id,
        current_line=current_line,
    )


def _log(unit: Unit, session: Session, comment: Comment, principal: str) -> None:
    events.log(unit, session, event_pb2.CommentChanged(comment=comment_message(comment)), principal)
