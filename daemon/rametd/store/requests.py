"""Requests that wait for a person: asked once, answered once."""

# ruff: noqa: S608 - statements are built from constants

import json
import time
from collections.abc import Collection, Sequence

from rametd.domain.errors import RequestClosedError, RequestNotFoundError
from rametd.domain.models import DAEMON_REQUESTS, Request, RequestKind, RequestState
from rametd.store.rows import RowType, Table

OF_AGENTS = f"kind NOT IN ({', '.join(repr(kind.value) for kind in sorted(DAEMON_REQUESTS))})"

REQUESTS = RowType(Request, "requests")


DECISIONS = {"approve": "approved", "deny": "denied", "reply": "answered"}


def decision_in(request: Request) -> str:
    """Decision in the answer of a request; "" if it has none."""
    return str(json.loads(request.answer).get("decision", "")) if request.answer.startswith("{") else ""


class RequestReads(Table):
    def find(self, request_id: str) -> Request | None:
        return REQUESTS.find_one(self._db, "WHERE id = ?", request_id)

    def get(self, request_id: str) -> Request:
        """Raises ``RequestNotFoundError``."""
        found = self.find(request_id)
        if found is None:
            raise RequestNotFoundError(
                f"there is no request {request_id!r}", hint="`rametctl inbox` shows what waits", request=request_id
            )
        return found

    def find_by_prefix(self, prefix: str) -> list[Request]:
        """Requests whose id begins with ``prefix``, open ones first."""
        return REQUESTS.find_by_prefix(self._db, prefix, first="state <> 'open'")

    def by_control(self, session_id: str, generation: int, control_id: str) -> Request | None:
        return REQUESTS.find_one(
            self._db,
            "WHERE session_id = ? AND generation = ? AND control_id = ? AND control_id <> ''",
            session_id,
            generation,
            control_id,
        )

    def open(self, session_id: str | None = None, repo_id: str | None = None) -> list[Request]:
        """Open requests of all sessions, of one, or of a repository, oldest first."""
        if session_id is not None and repo_id is None:  # at every turn
            return REQUESTS.find_all(
                self._db, "WHERE session_id = ? AND state = 'open' ORDER BY create_time, id", session_id
            )
        return REQUESTS.find_all(
            self._db,
            "WHERE state = 'open' AND (?1 IS NULL OR session_id = ?1)"
            " AND (?2 IS NULL OR session_id IN (SELECT id FROM sessions WHERE repo_id = ?2)) ORDER BY create_time, id",
            session_id,
            repo_id,
        )

    def detached(self, session_id: str) -> list[Request]:
        """Requests of agent processes that have ended, neither withdrawn nor rebound, oldest
        first."""
        return REQUESTS.find_all(
            self._db,
            f"WHERE session_id = ? AND control_id = '' AND state <> 'gone' AND {OF_AGENTS} ORDER BY create_time, id",
            session_id,
        )

    def list(self, session_id: str | None = None, *, limit: int = 1000) -> list[Request]:
        """The newest ``limit`` requests, open and closed, oldest first."""
        found = REQUESTS.find_all(
            self._db,
            "WHERE ?1 IS NULL OR session_id = ?1 ORDER BY create_time DESC, id DESC LIMIT ?2",
            session_id,
            limit,
        )
        return found[::-1]

    def of_kind(self, repo_id: str, kind: RequestKind) -> Sequence[Request]:
        """Requests of one kind of all sessions of a repository, open and closed, oldest first."""
        return REQUESTS.find_all(
            self._db,
            "WHERE kind = ? AND session_id IN (SELECT id FROM sessions WHERE repo_id = ?) ORDER BY create_time, id",
            kind,
            repo_id,
        )

    def open_count(self, session_id: str) -> int:
        (count,) = self._db.execute(
            f"SELECT count(*) FROM requests WHERE state = 'open' AND {OF_AGENTS} AND session_id = ?", (session_id,)
        ).fetchone()
        return int(count)

    def open_counts(self) -> dict[str, int]:
        """Number of open requests by session; sessions without one are absent."""
        return dict(
            self._db.execute(
                "SELECT session_id, count(*) FROM requests WHERE state = 'open' AND kind NOT IN ('review', 'trouble', 'login', 'trust') GROUP BY session_id"
            )
        )


class Requests(RequestReads):
    def add(self, request: Request) -> Request:
        REQUESTS.add(self._db, request)
        return request

    def answer(self, request_id: str, answer: str, by: str) -> Request:
        """Store the first answer. Raises ``RequestNotFoundError``; ``RequestClosedError`` with the
        first answerer and time."""
        request = self.get(request_id)
        if request.state == RequestState.ANSWERED:
            when = time.strftime("%H:%M:%S", time.localtime(request.answer_time))
            raise RequestClosedError(
                f"{request.answered_by} has {DECISIONS.get(decision_in(request), 'answered')} it already, at {when}",
                hint="nothing is left to do",
                request=request_id,
                by=request.answered_by,
                time=str(request.answer_time),
            )
        if request.state == RequestState.GONE:
            asked = [each.id for each in self.open(request.session_id) if each.kind not in DAEMON_REQUESTS]
            raise RequestClosedError(
                "the agent no longer asks",
                hint=f"it asks now: {', '.join(asked)}" if asked else "`rametctl inbox` shows what waits",
                request=request_id,
                time=str(request.answer_time),
            )
        statement, values = REQUESTS.update(
            {"state": RequestState.ANSWERED, "answer": answer, "answered_by": by, "answer_time": self._scope.now}
        )
        self._db.execute(f"{statement} WHERE id = ?", (*values, request_id))
        return self.get(request_id)

    def mark_gone(self, session_id: str, generation: int, control_id: str | None = None) -> list[Request]:
        """Close the open requests of a generation, or the one of ``control_id``; return those
        closed."""
        asked = [
            each
            for each in self.open(session_id)
            if each.generation == generation and control_id in (None, each.control_id)
        ]
        return self._mark_gone(asked)

    def supersede(self, session_id: str, generation: int) -> list[Request]:
        """Close the open requests of processes before ``generation``, which asks something else;
        return those closed."""
        return self._mark_gone(
            REQUESTS.find_all(
                self._db,
                f"WHERE session_id = ? AND state = 'open' AND control_id = '' AND generation < ? AND {OF_AGENTS} ORDER BY create_time, id",
                session_id,
                generation,
            )
        )

    def mark_all_gone(self, session_id: str) -> list[Request]:
        """Close the open requests of all agents of a session; return those closed.

        Stored answers to earlier processes expire too: they belong to the turn that ended, not to a
        similar request later.
        """
        self._db.execute(
            f"UPDATE requests SET control_id = 'unused-' || id WHERE session_id = ? AND control_id = '' AND state = 'answered' AND {OF_AGENTS}",
            (session_id,),
        )
        asked = [each for each in self.open(session_id) if each.kind not in DAEMON_REQUESTS]
        return self._mark_gone(asked)

    def close(self, request_ids: Collection[str]) -> list[Request]:
        """Close the given open requests; return them."""
        return self._mark_gone([self.get(each) for each in request_ids])

    def close_reviews(self, session_id: str) -> list[Request]:
        """Close the open reviews of a session; return those closed."""
        return self.close_of_kind(session_id, RequestKind.REVIEW)

    def close_of_kind(self, session_id: str, kind: RequestKind) -> list[Request]:
        """Close the open requests of one kind of a session; return those closed."""
        return self._mark_gone([each for each in self.open(session_id) if each.kind == kind])

    def _mark_gone(self, asked: Sequence[Request]) -> list[Request]:
        self._db.executemany(
            "UPDATE requests SET state = 'gone', answer_time = ? WHERE id = ?",
            [(self._scope.now, each.id) for each in asked],
        )
        return [self.get(each.id) for each in asked]

    def detach_answered(self, session_id: str, generation: int, control_ids: Collection[str]) -> None:
        """Detach answers that a dead process never received: they apply when the next process asks
        the same."""
        self._db.executemany(
            "UPDATE requests SET control_id = '' WHERE session_id = ? AND generation = ? AND control_id = ? AND state = 'answered'",
            [(session_id, generation, control_id) for control_id in control_ids],
        )

    def detach(self, session_id: str, generation: int) -> list[Request]:
        """Clear the ``control_id`` of the open requests of a dead process; return them. They stay
        open."""
        asked = [each for each in self.open(session_id) if each.generation == generation]
        self._db.executemany("UPDATE requests SET control_id = '' WHERE id = ?", [(each.id,) for each in asked])
        return [self.get(each.id) for each in asked]

    def rebind(self, request_id: str, generation: int, control_id: str) -> Request:
        """Attach a request to the new process that asks the same. Raises
        ``RequestNotFoundError``."""
        self._db.execute(
            "UPDATE requests SET generation = ?, control_id = ? WHERE id = ?", (generation, control_id, request_id)
        )
        return self.get(request_id)
