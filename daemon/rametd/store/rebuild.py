"""The rows of a new database, from what the keepers' directories still know."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rametd.domain.errors import NameTakenError, TakenError
from rametd.domain.models import Agent, AgentState, LedgerEntry, NewEvent, Repo, Session, Tokens
from rametd.store.connection import savepoint
from rametd.store.unit import Unit

ALIVE = frozenset({AgentState.STARTING, AgentState.LIVE})


@dataclass(frozen=True, slots=True)
class RecoveredSession:
    """What one keeper's directory knows of its session; a session may have several, one of each generation.

    ``session`` is the row as it was when this generation began: its journal is read again from the start, and what it holds
    (turns, cost) is added to those sums.
    """

    repo: Repo
    session: Session
    agent: Agent | None  # None for a session that has had no process yet
    fence: int = 0  # the highest that this keeper has seen


def generation_of(found: RecoveredSession) -> int:
    return 0 if found.agent is None else found.agent.generation


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of a damaged database."""

    reason: str
    quarantined: Path
    sessions: tuple[str, ...]  # the ids that were brought back
    lost: tuple[str, ...]  # the ids that could not be, because another has their branch


def rebuilt_event(_: Rebuilt) -> NewEvent:
    """The event that tells of it, where the caller has no payload for one."""
    return NewEvent("store.rebuilt")


def restore_sessions(
    db: sqlite3.Connection, unit: Unit, found: Iterable[RecoveredSession]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids brought back and those lost; every journal counts from its first byte again."""
    generations: dict[str, list[RecoveredSession]] = {}
    for each in sorted(found, key=lambda each: (each.session.create_time, each.session.id, generation_of(each))):
        generations.setdefault(each.session.id, []).append(each)
    restored, lost = [], []
    for session_id, keepers in generations.items():
        try:
            with savepoint(db):
                _restore_session(unit, keepers)
        except (TakenError, sqlite3.IntegrityError):
            lost.append(session_id)
        else:
            restored.append(session_id)
    return tuple(restored), tuple(lost)


def _restore_session(unit: Unit, keepers: list[RecoveredSession]) -> None:
    newest = keepers[-1]
    repo = unit.repos.upsert(newest.repo)
    session = replace(
        newest.session, repo_id=repo.id, generation=generation_of(newest), last_seq=0, version=0, update_time=unit.now
    )
    try:
        unit.sessions.insert(session)
    except NameTakenError:
        unit.sessions.insert(replace(session, name=f"{session.name} ({session.id})"))
    if session.cost_usd or session.tokens != Tokens():
        carried = LedgerEntry(session.id, 0, 0, session.model, session.cost_usd, session.tokens, unit.now)
        unit.ledger.add(carried)
    for keeper in keepers:
        if keeper.agent is None:
            continue
        agent = replace(keeper.agent, journal_offset=0, stdin_offset=0)
        if keeper is not newest and agent.state in ALIVE:
            agent = replace(agent, state=AgentState.LOST, end_time=unit.now)
        unit.agents.insert(agent)
