"""Applied plans and their threads."""

from dataclasses import asdict

from rametd.domain.plans import Plan, PlanThread
from rametd.store.rows import RowType, Table

PLANS = RowType(Plan, "plans")
THREADS = RowType(PlanThread, "plan_threads", columns={"after": "after_threads", "check": "check_commands"})


class PlanReads(Table):
    def get(self, plan_id: str) -> Plan | None:
        return PLANS.find_one(self._db, "WHERE id = ?", plan_id)

    def list(
        self, repo_id: str | None = None, *, after: tuple[float, str] | None = None, limit: int | None = None
    ) -> list[Plan]:
        """Plans, oldest first. ``after``: (create_time, id) of the last one on the previous
        page."""
        time, last_id = after or (None, None)
        return PLANS.find_all(
            self._db,
            "WHERE (?1 IS NULL OR repo_id = ?1) AND (?2 IS NULL OR (create_time, id) > (?2, ?3))"
            " ORDER BY create_time, id LIMIT ?4",
            repo_id,
            time,
            last_id,
            -1 if limit is None else limit,
        )

    def threads(self, plan_id: str) -> tuple[PlanThread, ...]:
        """Threads of a plan in landing order, dropped ones last."""
        return tuple(THREADS.find_all(self._db, "WHERE plan_id = ? ORDER BY dropped, position, id", plan_id))

    def thread_of(self, session_id: str) -> PlanThread | None:
        """The thread that a session works on."""
        return THREADS.find_one(self._db, "WHERE session_id = ?", session_id)


class Plans(PlanReads):
    def put(self, plan: Plan) -> Plan:
        """Insert or replace a plan."""
        statement, values = PLANS.update(asdict(plan))
        if not self._db.execute(f"{statement} WHERE id = ?", (*values, plan.id)).rowcount:
            PLANS.add(self._db, plan)
        return plan

    def put_thread(self, thread: PlanThread) -> PlanThread:
        """Insert or replace a thread."""
        self._db.execute("DELETE FROM plan_threads WHERE plan_id = ? AND id = ?", (thread.plan_id, thread.id))
        THREADS.add(self._db, thread)
        return thread

    def remove_thread(self, plan_id: str, thread_id: str) -> None:
        """Delete a thread, if it exists."""
        self._db.execute("DELETE FROM plan_threads WHERE plan_id = ? AND id = ?", (plan_id, thread_id))

    def remove(self, plan_id: str) -> None:
        """Delete a plan and its threads, if it exists."""
        self._db.execute("DELETE FROM plans WHERE id = ?", (plan_id,))
