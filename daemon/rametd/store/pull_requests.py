"""Pull requests: at most one per session."""

from dataclasses import replace
from typing import Any

from rametd.domain.errors import PullRequestNotFoundError
from rametd.domain.pull_requests import OPEN_STATES, PullRequest
from rametd.store.rows import RowType, Table, marks

PULL_REQUESTS = RowType(PullRequest, "pull_requests", columns={"commit": "commit_id"})


class PullRequestReads(Table):
    def find(self, session_id: str) -> PullRequest | None:
        return PULL_REQUESTS.find_one(self._db, "WHERE session_id = ?", session_id)

    def get(self, session_id: str) -> PullRequest:
        """Raises ``PullRequestNotFoundError``."""
        found = self.find(session_id)
        if found is None:
            raise PullRequestNotFoundError(
                "the session has no pull request", hint="`rametctl pr create` opens one, `rametctl pr link` names one"
            )
        return found

    def open(self) -> list[PullRequest]:
        """Open pull requests, oldest first."""
        states = sorted(OPEN_STATES)
        return PULL_REQUESTS.find_all(
            self._db, f"WHERE state IN ({marks(len(states))}) AND number > 0 ORDER BY create_time", *states
        )

    def list(self, repo_id: str | None = None) -> list[PullRequest]:
        """Pull requests in order of creation."""
        return PULL_REQUESTS.find_all(
            self._db, "WHERE ?1 IS NULL OR repo_id = ?1 ORDER BY create_time, session_id", repo_id
        )


class PullRequests(PullRequestReads):
    def put(self, pull: PullRequest) -> PullRequest:
        """Insert or replace the pull request of a session."""
        now = self._scope.now
        known = self.find(pull.session_id)
        stored = replace(pull, create_time=known.create_time if known is not None else now, update_time=now)
        self._db.execute("DELETE FROM pull_requests WHERE session_id = ?", (pull.session_id,))
        PULL_REQUESTS.add(self._db, stored)
        return stored

    def update(self, session_id: str, **changes: Any) -> PullRequest:
        """Set fields by name. Raises ``PullRequestNotFoundError``."""
        statement, values = PULL_REQUESTS.update({**changes, "update_time": self._scope.now})
        self._db.execute(f"{statement} WHERE session_id = ?", (*values, session_id))
        return self.get(session_id)
