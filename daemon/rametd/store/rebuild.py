"""Rebuild a lost database from the keepers' directories."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rametd.domain.errors import NameTakenError, TakenError
from rametd.domain.models import Agent, AgentState, LedgerEntry, NewEvent, Repo, Session, Tokens
from rametd.store.rows import Scope
from rametd.store.unit import Unit

ALIVE = frozenset({AgentState.STARTING, AgentState.LIVE})


@dataclass(frozen=True, slots=True)
class RecoveredSession:
    """A session as recorded in the directory of one keeper. A session may have several, one per
    generation.

    ``session`` is its row when this generation began. The daemon reads the journal again from the
    start and adds the turns and costs in it to the row.
    """

    repo: Repo
    session: Session
    agent: Agent | None  # None before the first process
    fence: int = 0  # highest fence that this keeper has seen


def generation_of(found: RecoveredSession) -> int:
    return 0 if found.agent is None else found.agent.generation


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Result of replacing a damaged database."""

    reason: str
    quarantined: Path
    sessions: tuple[str, ...]  # ids of restored sessions
    lost: tuple[str, ...]  # ids of sessions that could not be restored, because another has their branch


def rebuilt_event(_: Rebuilt) -> NewEvent:
    """Default event for a rebuilt database, without a payload."""
    return NewEvent("store.rebuilt")


def restore_sessions(scope: Scope, found: Iterable[RecoveredSession]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Insert the sessions; return the restored and the lost ids. Every journal offset restarts at
    0."""
    unit = Unit(scope)
    generations: dict[str, list[RecoveredSession]] = {}
    for each in sorted(found, key=lambda each: (each.session.create_time, each.session.id, generation_of(each))):
        generations.setdefault(each.session.id, []).append(each)
    restored, lost = [], []
    for session_id, keepers in generations.items():
        try:
            with scope.savepoint():
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
