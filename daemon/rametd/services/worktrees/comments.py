"""Review comments on a session's work: collect them, send them to its agent as one prompt, track
them until resolved."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ramet.v1 import event_pb2, worktree_pb2
from ramet.words import plural

from rametd.domain.comments import Comment, CommentState
from rametd.domain.errors import CommentNotFoundError, InvalidInputError, WrongStateError
from rametd.domain.models import Prompt, Session
from rametd.git import File
from rametd.services import events
from rametd.services.core import Core
from rametd.services.delivery import post
from rametd.services.ids import new_id
from rametd.services.lifecycle import refuse_archived
from rametd.services.lookup import only
from rametd.services.messages import to_message
from rametd.services.repos import info_of
from rametd.services.worktrees.changes import state_at
from rametd.store import Reader, Unit

T = TypeVar("T")

TEXT_LIMIT = 16 << 10
FILE_LIMIT = 8 << 20
AROUND = 2
"""Lines quoted before and after the commented one."""
QUOTED_WIDTH = 300
MOST_QUOTED = 40
"""Lines of a range that are quoted."""

AT_WORDS = {"base": "the commit you started from", "target": "the branch you land on"}


@dataclass(frozen=True, slots=True)
class CommentPlace:
    """The lines that a comment is about, in a file at a state that is named as in
    `changes.against`; see `Comment`."""

    path: str
    line: int
    end_line: int
    at: str = ""


class Reviewer:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def add(
        self,
        session: Session,
        place: CommentPlace,
        text: str,
        principal: str,
        answer: Callable[[Unit, Comment], T],
    ) -> T:
        """Store a comment; return the result of ``answer`` in the same unit of work.

        Raises `InvalidInputError` for a missing file or line, and for a text that is empty or too
        long.
        """
        refuse_archived(session)
        if not text.strip() or len(text.encode("utf-8", "surrogatepass")) > TEXT_LIMIT:
            raise InvalidInputError("a comment has 1 to 16,384 bytes of text", hint="say what to change")
        clean, line, end_line = clean_path(place.path), place.line, place.end_line
        if place.at:
            lines = lines_of((await file_at(self._core, session, clean, place.at)).data)
        else:
            lines = await asyncio.to_thread(read_lines, session.worktree, clean)
        if lines is None:
            raise InvalidInputError(
                f"there is no file {clean!r} in the worktree of {session.name}",
                hint=f"`rametctl diff {session.reference} --name-only` lists what it changed",
            )
        if max(line, end_line) > len(lines):
            raise InvalidInputError(
                f"{clean} has {plural(len(lines), 'line')}, not {max(line, end_line)}",
                hint="leave :LINE out for the whole file",
            )
        if end_line < line or (end_line and not line):
            raise InvalidInputError(
                f"there are no lines {line} to {end_line}", hint="give the first line, then the last one"
            )
        comment = Comment(
            id=new_id(),
            session_id=session.id,
            path=clean,
            line=line,
            end_line=end_line,
            at=place.at,
            text=text.strip(),
            quote=quoted(lines, line, end_line),
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

    async def send(
        self, session: Session, text: str, principal: str, answer: Callable[[Unit, Prompt, list[Comment]], T]
    ) -> T:
        """Send the agent all open comments as one prompt, with ``text`` before them. Raises
        `WrongStateError` if there are none."""
        if len(text.encode("utf-8", "surrogatepass")) > TEXT_LIMIT:
            raise InvalidInputError("the text has more than 16,384 bytes", hint="send it as a prompt of its own")

        def work(unit: Unit) -> T:
            now = unit.sessions.get(session.id)
            waiting = [each for each in unit.comments.list(now.id) if each.state == CommentState.OPEN]
            if not waiting:
                raise WrongStateError(
                    f"{now.name} has no unsent comment",
                    hint=f"add one: `rametctl comment {now.reference} FILE:LINE TEXT`",
                )
            prompt, now = post(unit, self._core.kind(now.agent), now, review(waiting, text.strip()), principal)
            sent = [unit.comments.update(each.id, state=CommentState.SENT, prompt_id=prompt.id) for each in waiting]
            for each in sent:
                _log(unit, now, each, principal)
            return answer(unit, prompt, sent)

        done = await self._core.store.write(work)
        self._core.live.wake(session.id)
        return done

    async def where_now(self, session: Session, comments: list[Comment]) -> list[int]:
        """Present line number of each comment: that of the nearest line with the same text, 0 if
        there is none."""

        def look() -> list[int]:
            files: dict[str, list[str] | None] = {}
            for comment in comments:
                if comment.path not in files:
                    files[comment.path] = read_lines(session.worktree, comment.path)
            return [place_of(comment, files[comment.path] or []) for comment in comments]

        return await asyncio.to_thread(look)


def find_comment(reader: Reader, name: str) -> Comment:
    """Find a comment by id or unique prefix. Raise `CommentNotFoundError`, `AmbiguousError`."""
    found = reader.comments.find_by_prefix(name) if name else []
    missing = CommentNotFoundError(f"there is no comment {name!r}", hint="`rametctl comment SESSION` lists them")
    return only(found, name, "comments", missing)


def clean_path(path: str) -> str:
    """Normalize a path. Raise `InvalidInputError` for one that leads out of a worktree."""
    pure = PurePosixPath(path)
    if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts or pure.parts[:1] == (".git",):
        raise InvalidInputError(f"{path!r} is not a path in a worktree", hint="give it as the diff shows it")
    return str(pure)


def read_lines(worktree: Path, path: str) -> list[str] | None:
    """Lines of a file, counted as in git and editors: only a newline ends one. None for a missing
    or large file, or one outside the worktree."""
    place = worktree / path
    try:
        inside = place.resolve(strict=True).is_relative_to(worktree.resolve())
        if not inside or not place.is_file() or place.stat().st_size > FILE_LIMIT:
            return None
        data = place.read_bytes()
    except OSError:
        return None
    return lines_of(data)


def lines_of(data: bytes | None) -> list[str] | None:
    """The lines of a file's content; None for None."""
    if data is None:
        return None
    text = data.decode("utf-8", errors="replace")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def quoted(lines: list[str], line: int, end_line: int) -> str:
    """Number the lines from ``line`` to ``end_line``, and those around them, and mark the commented
    ones. A long range is cut after `MOST_QUOTED` lines."""
    if not line:
        return ""
    first, last = max(line - AROUND, 1), min(end_line + AROUND, line + MOST_QUOTED)
    shown = enumerate(lines[first - 1 : last], first)
    return "\n".join(
        f"{'>' if line <= number <= end_line else ' '} {number:>5} {text[:QUOTED_WIDTH]}" for number, text in shown
    )


def place_of(comment: Comment, lines: list[str]) -> int:
    places = [number for number, text in enumerate(lines, 1) if text == comment.anchor] if comment.line else []
    return min(places, key=lambda number: abs(number - comment.line), default=0)


async def file_at(core: Core, session: Session, path: str, at: str) -> File:
    """A file of a session at a state that is named as in `changes.against`, "" for the present one.
    Raises `InvalidInputError` for a missing file."""
    state = await state_at(core, session, at)
    found = await core.git.diffs.file(await info_of(core, session), state.tree, path, FILE_LIMIT)
    if found is None:
        where = f"in {at} of {session.name}" if at else f"in the worktree of {session.name}"
        raise InvalidInputError(
            f"there is no file {path!r} {where}",
            hint=f"`rametctl diff {session.reference} --name-only` lists what it changed",
        )
    return found


def place_words(comment: Comment) -> str:
    """Where a comment is, as ``FILE``, ``FILE:LINE`` or ``FILE:LINE-END``."""
    if not comment.line:
        return comment.path
    end = f"-{comment.end_line}" if comment.end_line > comment.line else ""
    at = f" (as in {AT_WORDS.get(comment.at, f'checkpoint {comment.at}' if comment.at.isdecimal() else comment.at)})"
    return f"{comment.path}:{comment.line}{end}{at if comment.at else ''}"


def review(comments: list[Comment], text: str = "") -> str:
    """The prompt that carries comments to the agent, ``text`` first."""
    parts = [text] if text else []
    parts.append("Review comments on your work. Deal with each, and say for each number what you did, or why not.")
    for number, comment in enumerate(comments, 1):
        where = place_words(comment)
        quote = f"\n```\n{comment.quote}\n```" if comment.quote else ""
        parts.append(f"{number}. {where}{quote}\n{comment.text}")
    return "\n\n".join(parts)


def comment_message(comment: Comment, current_line: int = 0) -> worktree_pb2.Comment:
    return to_message(worktree_pb2.Comment, comment, current_line=current_line)


def _log(unit: Unit, session: Session, comment: Comment, principal: str) -> None:
    events.log(unit, session, event_pb2.CommentChanged(comment=comment_message(comment)), principal)
