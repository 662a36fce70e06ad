"""Results of the radar as rows, events and texts."""

import json
from collections.abc import Sequence
from dataclasses import replace

from ramet.v1 import event_pb2, worktree_pb2
from ramet.words import plural

from rametd.domain.conflicts import (
    GREEN,
    SEVERITY,
    ConflictKind,
    FileConflict,
    LineRange,
    Notice,
    PairConflict,
    dump,
    load,
    mirrored,
    worst,
)
from rametd.domain.models import Request, RequestKind, RequestState, Session
from rametd.services import events
from rametd.services.landing.words import goal_of
from rametd.services.lifecycle import ask_person, log_request
from rametd.services.messages import enum_numbers, to_message
from rametd.store import Reader, Unit

KINDS = enum_numbers(worktree_pb2.ConflictKind.DESCRIPTOR, ConflictKind)
WORDS = {
    ConflictKind.OVERLAP: "both change the same lines of",
    ConflictKind.ADD_ADD: "both add",
    ConflictKind.BINARY: "both change the binary file",
    ConflictKind.SUBMODULE: "both move the submodule",
    ConflictKind.RENAME: "renames clash over",
    ConflictKind.DELETE_EDIT: "one deletes what the other changes:",
}
NAMED = 5
"""Files that a text names; it counts the others."""


def record(unit: Unit, session: Session, other: Session | None, files: tuple[FileConflict, ...]) -> PairConflict | None:
    """Store the result for a pair, with an event if it changed, and an entry in the inbox for a new
    conflict of two sessions. Return the row, None for a pair without conflicts.

    ``other`` is None for the session's base.
    """
    other_id = other.id if other is not None else ""
    before = unit.conflicts.get(session.id, other_id)
    kind = worst(files)
    old_kind = before.kind if before is not None else ConflictKind.CLEAN
    if before is not None and (before.kind, before.files) == (kind, dump(files)):
        return before
    was = _paths(load(before.files)) if before is not None else set()
    now = PairConflict(session.id, other_id, session.repo_id, kind, dump(files), unit.now)
    if before is not None and before.red and now.red:
        now = replace(now, notified=before.notified)
    if kind == ConflictKind.CLEAN:
        unit.conflicts.remove(session.id, other_id)
    else:
        unit.conflicts.put(now)
    if kind != old_kind or _paths(files) != was:
        payload = event_pb2.ConflictChanged(conflict=message(unit, now), old_kind=KINDS[old_kind])
        events.log(unit, session, payload)
    if other is not None:
        _update_inbox(unit, session, other, now)
    return now if kind != ConflictKind.CLEAN else None


def forget(unit: Unit, pair: PairConflict) -> None:
    """Delete a pair whose other session is gone, and its entry in the inbox."""
    unit.conflicts.remove(pair.session_id, pair.other_id)
    session = unit.sessions.get(pair.session_id)
    gone = [each for each in _requests(unit, session) if json.loads(each.input)["other_id"] == pair.other_id]
    _close(unit, session, gone)


def _close(unit: Unit, session: Session, requests: Sequence[Request]) -> None:
    for request in unit.requests.close([each.id for each in requests if each.state == RequestState.OPEN]):
        log_request(unit, session, request)


def _paths(files: Sequence[FileConflict]) -> set[tuple[str, str]]:
    return {(each.path, each.other_path) for each in files if each.kind not in GREEN}


def _update_inbox(unit: Unit, session: Session, other: Session, now: PairConflict) -> None:
    """Have one entry in the inbox for each conflicting pair. After an answer, open another one only
    if other files conflict."""
    mine = [each for each in _requests(unit, session) if json.loads(each.input)["other_id"] == other.id]
    if not now.red:
        _close(unit, session, mine)
        return
    files = sorted({each.path for each in load(now.files) if each.kind not in GREEN})
    known = mine[-1] if mine else None
    if known is not None and json.loads(known.input)["files"] == files and known.state != RequestState.GONE:
        return
    _close(unit, session, mine)
    given = {"other_id": other.id, "other": other.name, "files": files}
    reason = f"{session.name} and {other.name} will not merge: {in_words(load(now.files))}"
    ask_person(unit, session, RequestKind.CONFLICT, given, reason)


def _requests(reader: Reader, session: Session) -> list[Request]:
    return [each for each in reader.requests.list(session.id) if each.kind == RequestKind.CONFLICT]


Clash = tuple[Session, tuple[FileConflict, ...]]
"""Another session, and the files that conflict with it."""


def notify_agents(unit: Unit, repo_id: str, *, tell: bool) -> set[str]:
    """Write a notice for each agent about all conflicts that it has not heard of, and delete
    notices about conflicts that are gone. Return the sessions with a notice. Only ``tell`` writes
    new ones."""
    red = [pair for pair in unit.conflicts.list(repo_id) if pair.other_id and pair.red]
    waiting: set[str] = set()
    concerned = unit.notices.sessions().union(*((pair.session_id, pair.other_id) for pair in red))
    for session in [each for each in map(unit.sessions.find, sorted(concerned)) if each is not None]:
        if session.repo_id != repo_id:
            continue
        notice = unit.notices.get(session.id)
        unread = notice.other_ids if notice is not None else ()
        clashes: list[Clash] = []
        for pair in red:
            other = _other(unit, pair, session)
            known = session.id in pair.notified
            if other is None or (other.id not in unread if known else not tell):
                continue
            files = load(pair.files)
            clashes.append((other, files if session.id == pair.session_id else mirrored(files)))
            if not known:
                now = unit.conflicts.get(pair.session_id, pair.other_id) or pair
                unit.conflicts.put(replace(now, notified=(*now.notified, session.id)))
        if clashes:
            waiting.add(session.id)
            new = Notice(session.id, tuple(other.id for other, _ in clashes), warning(unit, clashes))
            if new != notice:
                unit.notices.put(new)
        elif notice is not None:
            unit.notices.take(session.id)
    return waiting


def _other(reader: Reader, pair: PairConflict, session: Session) -> Session | None:
    """The session with which ``session`` conflicts in this pair; None for a pair of others."""
    ids = {pair.session_id, pair.other_id}
    return reader.sessions.find((ids - {session.id}).pop()) if session.id in ids else None


def warning(reader: Reader, clashes: Sequence[Clash]) -> str:
    """Prompt about sessions whose work conflicts with the agent's."""
    lines = ["[Ramet] Your work will not merge with that of other sessions:"]
    for other, files in clashes[:NAMED]:
        goal = goal_of(reader, other)
        purpose = f", whose task (not yours) is: “{goal}”" if goal else ""
        lines += [f"The session {other.name!r} ({other.id}){purpose}:", *(f"- {each}" for each in listed(files))]
    if len(clashes) > NAMED:
        lines.append(f"And {plural(len(clashes) - NAMED, 'more session')}.")
    lines.append(
        "Nothing is lost, and you need not undo anything now. Continue with your own task. If both of you need the same lines, agree by"
        " send_message on who changes them, or read its work with get_diff first."
    )
    return "\n".join(lines)


def listed(files: tuple[FileConflict, ...]) -> list[str]:
    """One line for each conflicting file, up to a limit."""
    red = [each for each in files if each.kind not in GREEN]
    lines = []
    for each in red[:NAMED]:
        where = f", your {spans(each.lines)}, its {spans(each.other_lines)}" if each.lines else ""
        other = f" (there {each.other_path})" if each.other_path else ""
        lines.append(f"{WORDS[each.kind]} {each.path}{other}{where}")
    if len(red) > NAMED:
        lines.append(f"and {plural(len(red) - NAMED, 'more file')}")
    return lines


def in_words(files: tuple[FileConflict, ...]) -> str:
    """The conflicts in one line."""
    red = [each for each in files if each.kind not in GREEN]
    parts = [
        f"{WORDS[each.kind]} {each.path}" + (f" ({spans(each.lines)})" if each.lines else "") for each in red[:NAMED]
    ]
    return "; ".join(parts) + (f"; and {len(red) - NAMED} more" if len(red) > NAMED else "")


def spans(lines: Sequence[LineRange]) -> str:
    """Format line ranges: ``line 9``, ``lines 3–5, 9``."""
    one = len(lines) == 1 and lines[0].end <= lines[0].start
    return ("line " if one else "lines ") + ", ".join(
        str(each.start) if each.end <= each.start else f"{each.start}–{each.end}" for each in lines
    )


def message(reader: Reader, pair: PairConflict) -> worktree_pb2.Conflict:
    """The message of a pair."""
    session = reader.sessions.find(pair.session_id)
    other = reader.sessions.find(pair.other_id) if pair.other_id else None
    base = session.base_ref if session is not None else ""
    return to_message(
        worktree_pb2.Conflict,
        pair,
        session_name=session.name if session is not None else "",
        other_name=(other.name if other is not None else "") if pair.other_id else base,
        red=pair.red,
        files=[to_message(worktree_pb2.FileConflict, each) for each in load(pair.files)],
    )


def by_severity(pairs: Sequence[PairConflict]) -> list[PairConflict]:
    """Sort pairs by severity, worst first."""
    return sorted(pairs, key=lambda each: (-SEVERITY[each.kind], each.session_id, each.other_id))
