"""Changes of an application: compare the stored rows with the new ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rametd.domain.errors import WrongStateError
from rametd.domain.models import Session
from rametd.domain.plans import PlanThread
from rametd.services.plans.world import Checked

CREATE, UPDATE, PROMPT, DROP, KEEP = "create", "update", "prompt", "drop", "keep"

_FIELDS = {
    "name": "name",
    "goal": "goal",
    "owns": "owns",
    "forbids": "forbids",
    "merge_order": "merge_order",
    "after": "after",
    "model": "model",
    "mode": "mode",
    "budget_usd": "budget",
    "check": "check",
    "title": "title",
}
"""Fields of a thread that can change while its session exists, with their keys in the plan."""
_FIXED = ("branch", "base", "agent")


@dataclass(frozen=True, slots=True)
class Change:
    """As the contract's `PlanChange`. ``fields``: changed fields of the row."""

    action: str
    thread: str
    message: str
    session_id: str = ""
    fields: tuple[str, ...] = ()


def planned_rows(checked: Checked, plan_id: str) -> list[PlanThread]:
    """New rows of the threads, in the order of landing, with their existing sessions."""
    rows = []
    for thread in checked.threads:
        text, before, session = thread.text, checked.known.get(thread.id), checked.sessions.get(thread.id)
        rows.append(
            PlanThread(
                plan_id=plan_id,
                id=thread.id,
                position=thread.position,
                session_id=session.id if session is not None else before.session_id if before is not None else "",
                name=thread.name,
                branch=thread.branch,
                goal=text.goal,
                prompt=checked.prompts[thread.id],
                base=text.base,
                owns=text.owns,
                forbids=text.forbids,
                merge_order=thread.merge_order,
                model=text.model,
                mode=str(text.mode or ""),
                agent=text.agent,
                budget_usd=text.budget,
                after=text.after,
                check=text.check,
                title=text.title,
                ended=before.ended if before is not None and session is None else "",
            )
        )
    return rows


def compare(
    known: Mapping[str, PlanThread], sessions: Mapping[str, Session], wanted: Sequence[PlanThread]
) -> list[Change]:
    """One or more changes for each thread, in the order of landing, then for threads that the plan no longer has.

    Raises `WrongStateError` for a change that an existing session does not allow.
    """
    changes: list[Change] = []
    for row in wanted:
        before, session = known.get(row.id), sessions.get(row.id)
        if row.ended:
            changes.append(Change(KEEP, row.id, f"it has landed: {row.ended}"))
        elif before is None or session is None:
            branch = f" on {row.branch}" if row.branch else ""
            again = "a new session, since its session is gone" if before is not None else "a new session"
            waits = f", after {', '.join(row.after)}" if row.after else ""
            changes.append(Change(CREATE, row.id, f"{again}: {row.name}{branch}{waits}"))
        else:
            changes += _of_one(before, row, session)
    ids = {row.id for row in wanted}
    for name, before in known.items():
        if name not in ids and not before.dropped:
            session = sessions.get(name)
            left = (
                f"its session {session.name} stays: `rametctl rm {session.name}`" if session else "its row is deleted"
            )
            changes.append(Change(DROP, name, f"the plan no longer has it; {left}", session.id if session else ""))
    return changes


def _of_one(before: PlanThread, row: PlanThread, session: Session) -> list[Change]:
    fixed = [name for name in _FIXED if getattr(before, name) != getattr(row, name)]
    if fixed:
        old = getattr(before, fixed[0]) or "the default"
        raise WrongStateError(
            f"thread {row.id} was created with the {fixed[0]} {old}, which cannot be changed",
            hint=f"keep it, or `rametctl rm {session.name}` and apply again, or give the new work another id",
        )
    fields = tuple(name for name in _FIELDS if getattr(before, name) != getattr(row, name))
    changes = []
    if fields or before.dropped:
        words = ", ".join(f"{_FIELDS[name]} {_shown(before, row, name)}" for name in fields)
        back = "is back in the plan" if before.dropped else ""
        changes.append(Change(UPDATE, row.id, "; ".join(filter(None, (back, words))), session.id, fields))
    if before.prompt != row.prompt and row.prompt:
        changes.append(Change(PROMPT, row.id, "it gets the new task as a prompt", session.id))
    return changes or [Change(KEEP, row.id, "nothing changes", session.id)]


def _shown(before: PlanThread, row: PlanThread, name: str) -> str:
    old, new = getattr(before, name), getattr(row, name)
    if isinstance(new, tuple):
        taken, given = [each for each in old if each not in new], [each for each in new if each not in old]
        words = [f"+{each}" for each in given] + [f"-{each}" for each in taken]
        return " ".join(words)[:200] or "order changed"
    if name in {"goal", "title"}:
        return "(text changed)"
    return f"{old if old not in ('', None) else 'default'} → {new if new not in ('', None) else 'default'}"


def with_session(row: PlanThread, session: Session) -> PlanThread:
    """The row of a thread with its new session, whose creation may have chosen the branch."""
    return replace(row, session_id=session.id, branch=session.branch)
