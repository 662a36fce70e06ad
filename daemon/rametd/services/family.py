"""Families of sessions: relations, and caps on spawned sessions."""

from dataclasses import dataclass

from ramet.words import plural

from rametd.config import Caps
from rametd.domain.errors import (
    BudgetTooHighError,
    CapReachedError,
    ModeTooLooseError,
    NotAllowedError,
)
from rametd.domain.models import STRICTNESS, Mode, Session
from rametd.domain.states import State
from rametd.domain.text import dollars
from rametd.services.lookup import find_session
from rametd.store import Reader

GONE_STATES = frozenset({State.ARCHIVED, State.FAILED})
MINUTE = 60.0
PARENT = "parent"


def family_of(reader: Reader, session: Session) -> list[Session]:
    """The session's tree, then the other sessions of its plan."""
    tree = reader.sessions.family(session.root_id or session.id)
    if not session.plan_id:
        return tree
    known = {each.id for each in tree}
    beside = [each for each in reader.sessions.list(repo_id=session.repo_id) if each.plan_id == session.plan_id]
    return [*tree, *(each for each in beside if each.id not in known)]


def ancestors(reader: Reader, session: Session) -> list[Session]:
    """Ancestors from the parent up to the root."""
    found: list[Session] = []
    parent_id = session.parent_id
    while parent_id and (parent := reader.sessions.find(parent_id)) is not None:
        found.append(parent)
        parent_id = parent.parent_id
    return found


def relation(reader: Reader, caller: Session | None, member: Session) -> str:
    """Relation of ``member`` to ``caller``, in the contract's words."""
    if caller is None:
        return "other"
    if caller.id == member.id:
        return "self"
    if caller.parent_id == member.id:
        return "parent"
    if member.parent_id == caller.id:
        return "child"
    if caller.parent_id and caller.parent_id == member.parent_id:
        return "sibling"
    if member.id in {each.id for each in ancestors(reader, caller)}:
        return "ancestor"
    if caller.id in {each.id for each in ancestors(reader, member)}:
        return "descendant"
    return "other"


def require_descendant(reader: Reader, caller: Session, member: Session) -> None:
    """Raise `NotAllowedError` unless ``member`` descends from ``caller``."""
    if caller.id not in {each.id for each in ancestors(reader, member)}:
        raise NotAllowedError(
            f"{member.name} is not one of your descendants", hint="send_message can ask it or its parent"
        )


def is_family(caller: Session, member: Session) -> bool:
    """Whether both have the same root or the same plan."""
    same_plan = bool(caller.plan_id) and caller.plan_id == member.plan_id
    return same_plan or (caller.root_id or caller.id) == (member.root_id or member.id)


def require_family(reader: Reader, caller: Session, member: Session) -> None:
    """Raise `NotAllowedError` unless both are of one family or plan."""
    if not is_family(caller, member):
        raise NotAllowedError(
            f"{member.name} is not in your family",
            hint="list_sessions lists the sessions that you can reach; the person reaches all",
        )


def check_caps(reader: Reader, parent: Session, caps: Caps) -> None:
    """Raise `CapReachedError` if the parent may not spawn; the hint says what to do instead."""
    depth = len(ancestors(reader, parent)) + 1
    if depth > caps.depth:
        raise CapReachedError(
            f"sessions may be nested {caps.depth} deep (caps.depth)", hint="do this part yourself", cap="depth"
        )
    children = [each for each in reader.sessions.list(parent_id=parent.id) if each.state not in GONE_STATES]
    if len(children) >= caps.children:
        raise CapReachedError(
            f"you have {len(children)} living children, the maximum (caps.children)",
            hint="wait for one and send it the work with send_message, or do it yourself",
            cap="children",
        )
    root_id = parent.root_id or parent.id
    total = reader.spawns.total(root_id)
    if total >= caps.tree:
        raise CapReachedError(
            f"your family has spawned {plural(total, 'session')}, the maximum (caps.tree)",
            hint="send the work to an existing session",
            cap="tree",
        )


def check_rate(reader: Reader, parent: Session, caps: Caps, now: float) -> None:
    """Raise `CapReachedError` if the family spawns too fast."""
    lately = reader.spawns.since(parent.root_id or parent.id, now - MINUTE)
    if lately >= caps.spawns_per_minute:
        raise CapReachedError(
            f"your family has spawned {plural(lately, 'session')} within a minute, the maximum (caps.spawns_per_minute)",
            hint="wait a minute",
            cap="spawns_per_minute",
        )


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Settings that a child gets from its parent."""

    mode: Mode
    budget_usd: float | None
    owns: tuple[str, ...]


def inherit(
    parent: Session, *, mode: Mode | None, budget_usd: float | None, left: float | None, owns: tuple[str, ...]
) -> Inheritance:
    """Settings of a child, never more than the parent's. ``left``: the rest of the parent's budget,
    None without one.

    A child without a budget of its own spends the parent's. Raises `ModeTooLooseError`,
    `BudgetTooHighError`.
    """
    if mode is not None and STRICTNESS.index(mode) > STRICTNESS.index(parent.mode):
        raise ModeTooLooseError(
            f"{mode} is looser than your own mode, {parent.mode}", hint=f"use {parent.mode} or a stricter one"
        )
    if left is not None and (left <= 0 or (budget_usd or 0.0) > left):
        excess = f"{dollars(budget_usd)} is more than" if budget_usd is not None else "a child cannot work with"
        raise BudgetTooHighError(
            f"{excess} the {dollars(left)} that are left of your budget",
            hint="give less" if left > 0 else "end your turn: the person can raise it",
        )
    return Inheritance(mode or parent.mode, budget_usd, owns or parent.owns)


def find_member(reader: Reader, caller: Session | None, name: str) -> Session:
    """Find a session of the caller's family by "parent", id, prefix of an id, or name. Raises
    `NotAllowedError` for others."""
    if caller is None:
        return find_session(reader, name)
    if name == PARENT:
        if not caller.parent_id:
            raise NotAllowedError("no session spawned you", hint="the person reads your messages")
        return reader.sessions.get(caller.parent_id)
    member = find_session(reader, name, repo_id=caller.repo_id, complete=True)
    require_family(reader, caller, member)
    return member
