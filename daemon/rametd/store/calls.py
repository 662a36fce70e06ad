"""Answers to mutating RPCs, so that a repeated request id gets the same answer."""

from dataclasses import dataclass, replace

from rametd.domain.errors import RequestIdReusedError
from rametd.store.rows import RowType, Table


@dataclass(frozen=True, slots=True)
class Call:
    request_id: str
    method: str
    digest: bytes  # of the request
    response: bytes
    create_time: float


CALLS = RowType(Call, "calls")


class CallReads(Table):
    def get(self, request_id: str) -> Call | None:
        return CALLS.find_one(self._db, "WHERE request_id = ?", request_id)


class Calls(CallReads):
    def put(self, request_id: str, method: str, digest: bytes, response: bytes, *, given: bool = False) -> Call:
        """Store an answer; return the stored call.

        The first answer stays, unless a later one was ``given`` to the caller: that one may have
        more warnings. Raises ``RequestIdReusedError`` if the id belongs to another request.
        """
        known = self.get(request_id)
        if known is None:
            known = Call(request_id, method, digest, response, self._scope.now)
            CALLS.add(self._db, known)
        elif (known.method, known.digest) != (method, digest):
            raise RequestIdReusedError(
                f"request id {request_id} belongs to another request", hint="use a new one", request_id=request_id
            )
        elif given and known.response != response:
            self._db.execute("UPDATE calls SET response = ? WHERE request_id = ?", (response, request_id))
            known = replace(known, response=response)
        return known

    def prune(self, before: float) -> int:
        """Delete calls older than ``before``; return how many."""
        return self._db.execute("DELETE FROM calls WHERE create_time < ?", (before,)).rowcount
