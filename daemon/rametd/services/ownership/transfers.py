"""Transfers of paths between sessions and by the person. Everything here runs in one unit of
work."""

import json
from collections.abc import Sequence

from ramet.v1 import event_pb2

from rametd.domain.errors import PathsNotOwnedError
from rametd.domain.models import Request, RequestKind, Session
from rametd.git import Tree
from rametd.ownership import Patterns, check_size, overlap
from rametd.services import events
from rametd.services.lifecycle import log_update, refuse_archived
from rametd.services.ownership.claims import IGNORE_CASE, check_claims, patterns_of
from rametd.store import Unit


def set_paths(
    unit: Unit,
    session: Session,
    owns: Sequence[str] | None,
    forbids: Sequence[str] | None,
    principal: str,
    tree: Tree | None,
) -> Session:
    """Set the owned and forbidden paths of a session; None changes nothing. ``tree``: as for
    `check_claims`.

    Raises `InvalidInputError`, `PathsNotOwnedError`, `PathsOwnedError`, `WrongStateError`.
    """
    refuse_archived(session)
    for patterns in (owns, forbids):
        check_size(patterns or ())
    new_owns = session.owns if owns is None else _tidy(session.owns, owns, "owned")
    new_forbids = session.forbids if forbids is None else _tidy(session.forbids, forbids, "forbidden")
    check_claims(unit, session.repo_id, new_owns, new_forbids, parent=None, session_id=session.id, tree=tree)
    changed = unit.sessions.update(session.id, owns=new_owns, forbids=new_forbids)
    log_owner(unit, session, "", session.id, new_owns, principal)
    return changed


def _tidy(before: Sequence[str], wanted: Sequence[str], what: str) -> tuple[str, ...]:
    """Drop exceptions of ``before`` that no longer exclude anything. Raises `PathsNotOwnedError`
    for a new exception that excludes nothing."""
    patterns: list[str] = []
    for text in wanted:
        taken_in = tuple(each for each in patterns if not each.startswith("!"))
        if text.startswith("!") and taken_in and text not in before:
            if not meets(Patterns.parse(patterns), Patterns.parse([text[1:]])):
                raise PathsNotOwnedError(
                    f"{text[1:]} is not {what}: {', '.join(patterns)}",
                    hint="`rametctl show` lists its paths",
                    path=text[1:],
                )
        elif (
            text.startswith("!")
            and text in before
            and (text in patterns or not taken_in or not meets(patterns_of(taken_in), Patterns.parse([text[1:]])))
        ):
            continue
        patterns.append(text)
    return tuple(patterns)


def transfer(
    unit: Unit, had: Sequence[Session], to: Session, paths: Patterns, principal: str, *, ignore_case: bool
) -> None:
    """Move paths from their owners to another session, with events.

    A session that owns nothing may write all paths without an owner. Paths would restrict it, so it
    gets none. Raises `InvalidInputError` if a set becomes too large.
    """
    for each in had:
        lost = [text for text in paths.texts if meets(patterns_of(each.owns), Patterns((text,)), ignore_case)]
        if not lost:  # it gave them away meanwhile
            continue
        out = [f"!{text}" for text in lost]
        owns = (*(text for text in each.owns if text not in out), *out)
        check_size(owns)
        unit.sessions.update(each.id, owns=owns)
        log_update(unit, unit.sessions.get(each.id), ["owns"], principal)
    to = unit.sessions.get(to.id)
    owns = (*(text for text in to.owns if text not in paths.texts), *paths.texts) if to.owns else ()
    allowed = bool(to.forbids) and meets(patterns_of(to.forbids), paths, ignore_case)
    forbids = (*to.forbids, *(f"!{text}" for text in paths.texts)) if allowed else to.forbids
    for patterns in (owns, forbids):
        check_size(patterns)
    to = unit.sessions.update(to.id, owns=owns, forbids=forbids)
    log_update(unit, to, ["forbids", "owns"] if allowed else ["owns"], principal)
    for from_id in [each.id for each in had] or [""]:
        log_owner(unit, to, from_id, to.id, paths.texts, principal)


def log_owner(unit: Unit, session: Session, from_id: str, to_id: str, paths: Sequence[str], principal: str) -> None:
    events.log(unit, session, event_pb2.OwnershipChanged(from_id=from_id, to_id=to_id, paths=paths), principal)


def meets(one: Patterns, other: Patterns, ignore_case: bool = IGNORE_CASE) -> bool:
    return overlap(one, other, ignore_case=ignore_case) is not None


def involved(request: Request) -> list[str]:
    """Ids of sessions to which an answer may send a message."""
    return list(json.loads(request.input)["owners"]) if request.kind == RequestKind.OWNERSHIP else []
