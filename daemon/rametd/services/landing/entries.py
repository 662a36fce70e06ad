"""Entries of merge queues and their states. Everything here runs in one unit of work."""

import json
import shlex
from collections.abc import Sequence

from ramet.v1 import attention_pb2, event_pb2, landing_pb2
from ramet.words import plural

from rametd.agents.base import AgentKind
from rametd.domain.errors import (
    ChangedError,
    LandingNotFoundError,
    RametError,
    SessionNotFoundError,
    WrongStateError,
)
from rametd.domain.landing import AT_WORK, ENDED, Landing, LandingState
from rametd.domain.models import DAEMON, Hold, Request, RequestKind, Session
from rametd.domain.operations import Kind, Operation
from rametd.domain.states import State
from rametd.services import events
from rametd.services.delivery import post
from rametd.services.lifecycle import ask_person, close_reviews, log_request, log_update
from rametd.services.lookup import find_session, only
from rametd.services.messages import enum_numbers, to_message
from rametd.services.operations import holder_of
from rametd.store import Reader, Unit
from rametd.store.landings import LandingColumns

GONE = "its session was removed"
STATES = enum_numbers(landing_pb2.LandingState.DESCRIPTOR, LandingState)
S = LandingState


def present_name(reader: Reader, landing: Landing) -> str:
    """Return the present name of an entry's session; its last one if it was removed."""
    session = reader.sessions.find(landing.session_id)
    return session.name if session is not None else landing.session_name


def ending(reader: Reader, landing: Landing) -> str:
    """Say that an entry has ended: it landed, or left the queue."""
    ended = "has landed already" if landing.state == S.LANDED else "is not in the queue"
    return f"{present_name(reader, landing)} {ended}"


def message(reader: Reader, landing: Landing) -> landing_pb2.Landing:
    place = 0
    if landing.state not in ENDED:
        queue = [each.id for each in reader.landings.open(*landing.lane)]
        place = queue.index(landing.id) + 1
    return to_message(
        landing_pb2.Landing,
        landing,
        session_name=present_name(reader, landing),
        repo=reader.repos.get(landing.repo_id).name,
        check=landing.checks,
        place=place,
    )


def find_landing(reader: Reader, name: str, repo_id: str | None = None) -> Landing:
    """Find an entry by id, session (the open entry, else the newest), or unique prefix of an id;
    ``repo_id`` as in `find_session`.

    Raises LandingNotFoundError, AmbiguousError.
    """
    found = reader.landings.find_by_prefix(name) if name else []
    if exact := [landing for landing in found if landing.id == name]:
        return exact[0]
    try:
        landing = reader.landings.of_session(find_session(reader, name, repo_id=repo_id).id)
    except SessionNotFoundError:
        landing = None
    if landing is not None:
        return landing
    still = [landing for landing in found if landing.state not in ENDED] or found
    missing = LandingNotFoundError(f"there is no landing {name!r}", hint="`rametctl queue` lists them")
    return only(still, name, "landings", missing)


def log(unit: Unit, landing: Landing, principal: str = DAEMON) -> Landing:
    payload = event_pb2.LandingChanged(landing=message(unit, landing))
    unit.events.append(
        events.make(payload, session_id=landing.session_id, repo_id=landing.repo_id, principal=principal)
    )
    return landing


def change(
    unit: Unit,
    landing: Landing,
    state: LandingState,
    reason: str = "",
    *,
    principal: str = DAEMON,
    columns: LandingColumns | None = None,
) -> Landing:
    """Set an entry's state, with its event, if anything changes."""
    if (landing.state, landing.reason) == (state, reason) and not columns:
        return landing
    columns = {**(columns or {}), "state": state, "reason": reason}
    return log(unit, unit.landings.update(landing.id, **columns), principal)


def requeue(unit: Unit, landing: Landing, *, principal: str = DAEMON, columns: LandingColumns | None = None) -> Landing:
    _close_requests(unit, landing, principal)
    return change(unit, landing, S.QUEUED, principal=principal, columns=columns)


def remove(unit: Unit, landing: Landing, reason: str, principal: str) -> Landing:
    """Remove an entry. Raises `WrongStateError` if it has ended, or its target is being moved."""
    if landing.state in ENDED:
        raise WrongStateError(ending(unit, landing), hint="nothing is left to do")
    if move_of(unit, landing) is not None:
        raise WrongStateError(
            f"{present_name(unit, landing)} is landing on {landing.target} now", hint="try again in a moment"
        )
    _close_requests(unit, landing, principal)
    return change(unit, landing, S.REMOVED, reason, principal=principal)


def leave(unit: Unit, session_id: str, principal: str) -> str:
    """Remove the entry of a removed session, in the unit of work that deletes its row.

    Return the target of the removed entry, "" if none was queued. If the target is being moved, the
    work lands; if that move fails, the next round finds no session. During a removal nothing of the
    session lands (`blocked_by_operation`), and the entry stays if the removal is undone.
    """
    landing = unit.landings.of_session(session_id)
    if landing is None or landing.state in ENDED or move_of(unit, landing) is not None:
        return ""
    return remove(unit, landing, GONE, principal).target


def blocked_by_operation(reader: Reader, session_id: str) -> str:
    """Why a session cannot land now, "" if it can: an operation that may change its branch."""
    found = reader.operations.exclusive(session_id)
    return f"its session is {found.doing}" if found and found.kind in {Kind.REMOVE, Kind.REWIND, Kind.SYNC} else ""


def retry(unit: Unit, landing: Landing, principal: str) -> Landing:
    """Queue a held or returned entry again; a queued one stays unchanged. Raises `WrongStateError`
    for an ended one."""
    if landing.state in ENDED:
        name = present_name(unit, landing)
        raise WrongStateError(ending(unit, landing), hint=f"`rametctl land {shlex.quote(name)}`")
    if landing.state not in {S.HELD, S.RETURNED}:
        return landing
    return requeue(unit, landing, principal=principal, columns={"returns": 0})


def reason_of(error: RametError) -> str:
    return "; ".join(filter(None, [error.message, error.hint]))


def hold(unit: Unit, landing: Landing, reason: str) -> Landing:
    """Hold an entry and open a request: approving it queues the entry again, denying it removes the
    entry."""
    session = unit.sessions.find(landing.session_id)
    if session is None:
        return change(unit, landing, S.REMOVED, GONE)
    landing = change(unit, landing, S.HELD, reason)
    _close_requests(unit, landing, DAEMON)
    given = {"landing": landing.id, "branch": landing.branch, "target": landing.target}
    ask_person(unit, session, RequestKind.LANDING, given, f"{landing.branch} is not on {landing.target}: {reason}")
    return landing


def give_back(unit: Unit, kind: AgentKind, landing: Landing, reason: str, prompt: str, tip: str, limit: int) -> Landing:
    """Return an entry to its agent with a prompt about the failure. After ``limit`` returns, or if
    the agent cannot work, ask the person.

    ``tip``: the failed commit of the branch; a new commit queues the entry again. The caller wakes
    the session.
    """
    session = unit.sessions.find(landing.session_id)
    if session is None or cannot_work(session):
        words = f"{reason}; {session.name} is {session.state}" if session is not None else reason
        return hold(unit, landing, words)
    if landing.returns >= limit:
        return hold(
            unit, landing, f"{reason}; asked its agent {plural(landing.returns, 'time')}" if landing.returns else reason
        )
    post(unit, kind, session, prompt, DAEMON)
    return change(unit, landing, S.RETURNED, reason, columns={"returns": landing.returns + 1, "commit": tip})


def cannot_work(session: Session) -> bool:
    """Whether a prompt of the daemon would wait for a person."""
    return session.state in {State.FAILED, State.ARCHIVED} or (
        session.state == State.PAUSED and session.hold != Hold.LIMIT
    )


def blockers(reader: Reader, landing: Landing, before: Sequence[str] = ()) -> list[str]:
    """Names of sessions that must land first and have not. ``before``: ids of sessions that land in
    the same round."""
    found = [reader.sessions.find(identity) for identity in landing.after if identity not in before]
    return [session.name for session in found if session is not None and not session.landed_reason]


def move_of(reader: Reader, landing: Landing) -> Operation | None:
    """The unfinished move of the target that lands the entry."""
    moves = reader.operations.list(kinds=(Kind.LAND,))
    return next((move for move in moves if landing.id in json.loads(move.data["steps"])), None)


def resolve(unit: Unit, request: Request, resolution: attention_pb2.Resolution, principal: str) -> None:
    """Apply the person's answer to a held entry."""
    found = unit.landings.find_by_prefix(str(json.loads(request.input)["landing"]))
    if not found or found[0].state != S.HELD:
        return
    if resolution.WhichOneof("decision") == "approve":
        retry(unit, found[0], principal)
    else:
        remove(unit, found[0], resolution.deny.message or "denied by the person", principal)


Move = tuple[Landing, str, str, str]
"""An entry, the tip of its branch, and the target before and after it."""


def move_to(steps: Sequence[Move], repo_id: str, target: str) -> dict[str, str]:
    """Data of the operation that moves a target to ``steps``, in order."""
    return {
        "repo": repo_id,
        "target": target,
        "old": steps[0][2],
        "new": steps[-1][3],
        "steps": json.dumps({landing.id: rest for landing, *rest in steps}),
    }


def admit_move(unit: Unit, steps: Sequence[Move], repo_id: str, target: str) -> None:
    """Store the commits of a move of the target.

    Raise `ChangedError` if an entry was removed or changed since it was merged, or if another
    operation has its session, or the session in whose worktree the target is checked out.
    """
    for landing, *_ in steps:
        if unit.landings.get(landing.id).state not in AT_WORK or blocked_by_operation(unit, landing.session_id):
            raise ChangedError(f"{landing.session_name} has changed meanwhile", hint="the queue merges it again")
    if holder_of(unit, repo_id, target) is not None:
        raise ChangedError(f"another operation has {target}", hint="the queue merges it again")
    for landing, tip, old, new in steps:
        now = unit.landings.get(landing.id)
        change(unit, now, S.MERGING, columns={"commit": tip, "old_target": old, "new_target": new})


def complete_move(unit: Unit, operation: Operation) -> None:
    """Record that the target has moved."""
    if unit.operations.get(operation.id) is None:
        return
    steps: dict[str, list[str]] = json.loads(operation.data["steps"])
    target = operation.data["target"]
    for identity, (_, _, new) in steps.items():
        landed(unit, unit.landings.get(identity), f"on {target} as {new[:12]}")
    payload = event_pb2.TargetMoved(
        branch=target, old_commit=operation.data["old"], new_commit=operation.data["new"], landing_ids=list(steps)
    )
    unit.events.append(events.make(payload, repo_id=operation.data["repo"]))
    unit.operations.finish(operation)


def undo_move(unit: Unit, operation: Operation, state: LandingState, reason: str) -> None:
    """Record that the target has not moved, and ask the person if the entries are held now."""
    if unit.operations.get(operation.id) is None:
        return
    for identity in json.loads(operation.data["steps"]):
        if state == S.HELD:
            landing = unit.landings.update(identity, new_target="")
            again = f"rametctl queue retry {shlex.quote(present_name(unit, landing))}"
            hold(unit, landing, f"{reason}; mend that, then `{again}`")
        else:
            change(unit, unit.landings.get(identity), state, reason, columns={"new_target": ""})
    unit.operations.finish(operation)


def landed(unit: Unit, landing: Landing, reason: str) -> None:
    _close_requests(unit, landing, DAEMON)
    change(unit, landing, S.LANDED, reason)
    if unit.sessions.find(landing.session_id) is not None:
        session = unit.sessions.update(landing.session_id, landed_reason=f"landed {reason}")
        log_update(unit, session, ["landed_reason"], DAEMON)
        close_reviews(unit, session)


def recover(unit: Unit) -> None:
    """Queue entries again whose merge or check a killed daemon began. The queue itself completes an
    unfinished move."""
    moving = {
        identity for move in unit.operations.list(kinds=(Kind.LAND,)) for identity in json.loads(move.data["steps"])
    }
    for landing in unit.landings.open():
        if landing.state in AT_WORK and landing.id not in moving:
            change(unit, landing, S.QUEUED)


def _close_requests(unit: Unit, landing: Landing, principal: str) -> None:
    session = unit.sessions.find(landing.session_id)
    if session is not None:
        for request in unit.requests.close_of_kind(session.id, RequestKind.LANDING):
            log_request(unit, session, request, principal=principal)
