"""Costs: one entry per result of each agent process and model."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rametd.domain.models import LedgerEntry, Tokens
from rametd.store.rows import RowType, Table, json_text

LEDGER = RowType(LedgerEntry, "ledger")
_SUMS = (
    "ifnull(sum(cost_usd), 0.0), count(*) > count(cost_usd), ifnull(sum(input_tokens), 0), ifnull(sum(output_tokens), 0),"
    " ifnull(sum(cache_read_tokens), 0), ifnull(sum(cache_write_tokens), 0)"
)


class Grouping(StrEnum):
    SESSION = "session"
    DAY = "day"
    MODEL = "model"


_KEYS = {Grouping.SESSION: "session_id", Grouping.DAY: "date(time, 'unixepoch')", Grouping.MODEL: "model"}


@dataclass(frozen=True, slots=True)
class Spent:
    key: str  # a session's id, a day as YYYY-MM-DD (UTC), or a model; "" for a total
    cost_usd: float  # the known part
    unpriced: bool  # whether there are results of unknown cost
    tokens: Tokens


class LedgerReads(Table):
    def total(self, session_ids: Sequence[str] | None = None, *, since: float | None = None) -> Spent:
        """Total of all or of the given sessions, from ``since`` on."""
        return self._sum("''", session_ids, since)[0]

    def totals(self, session_id: str) -> Spent:
        return self.total([session_id])

    def results(self, session_id: str, generation: int) -> int:
        """The number for the next result of a generation."""
        row = self._db.execute(
            "SELECT ifnull(max(result_index), -1) + 1 FROM ledger WHERE session_id = ? AND generation = ?",
            (session_id, generation),
        ).fetchone()
        return int(row[0])

    def by(
        self, grouping: Grouping, *, session_ids: Sequence[str] | None = None, since: float | None = None
    ) -> list[Spent]:
        """Sums by session, day or model, in order of the keys."""
        return self._sum(_KEYS[grouping], session_ids, since, "GROUP BY 1 ORDER BY 1")

    def _sum(self, key: str, session_ids: Sequence[str] | None, since: float | None, tail: str = "") -> list[Spent]:
        rows = self._db.execute(
            f"SELECT {key}, {_SUMS} FROM ledger WHERE (?1 IS NULL OR time >= ?1)"  # noqa: S608 - constants of this module
            f" AND (?2 IS NULL OR session_id IN (SELECT value FROM json_each(?2))) {tail}",
            (since, None if session_ids is None else json_text(list(session_ids))),
        )
        return [Spent(key, cost, bool(unpriced), Tokens(*tokens)) for key, cost, unpriced, *tokens in rows]


class Ledger(LedgerReads):
    def add(self, entry: LedgerEntry) -> bool:
        """Add an entry; False if it exists already. The caller updates the sums in the session's
        row."""
        return self._db.execute(f"{LEDGER.insert} ON CONFLICT DO NOTHING", LEDGER.values(entry)).rowcount > 0
