"""Errors of a command, each with its exit code.

ClientError               1    the daemon refused, or the operation failed
├── UsageError            2    the command line is invalid
├── RefusedError               the daemon refused: its reason, hint and data; the status determines the exit code
├── PersonNeededError     4    a person must answer first
├── UnreachableError      5    no daemon can be reached or started
│   └── ConnectionLostError    the daemon stopped during the call
└── TimedOutError       124    timed out
"""

from typing import TYPE_CHECKING, ClassVar, cast

if TYPE_CHECKING:
    import grpc

DOMAIN = "ramet"
"""The domain of the daemon's ``google.rpc.ErrorInfo``."""

DETAILS = "grpc-status-details-bin"
"""Trailing metadata with a ``google.rpc.Status``; only a server sends it, so a broken connection
has none."""

_EXIT_CODES = {"INVALID_ARGUMENT": 2, "NOT_FOUND": 3, "DEADLINE_EXCEEDED": 124}


class ClientError(Exception):
    """A failure in one line; ``hint`` is the next step."""

    exit_code: int = 1
    reason: str = "FAILED"

    def __init__(self, message: str, *, hint: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason = reason or type(self).reason


class UsageError(ClientError):
    exit_code = 2
    reason = "USAGE"


class PersonNeededError(ClientError):
    exit_code = 4
    reason = "PERSON_NEEDED"


class UnreachableError(ClientError):
    exit_code = 5
    reason = "NO_DAEMON"


class ConnectionLostError(UnreachableError):
    reason = "CONNECTION_LOST"


class TimedOutError(ClientError):
    exit_code = 124
    reason = "TIMED_OUT"


class RefusedError(ClientError):
    """An error from the daemon: ``status`` is the name of the gRPC status, ``data`` the details for
    programs."""

    STATUS_HINTS: ClassVar[dict[str, str]] = {
        "UNIMPLEMENTED": "run: rametctl daemon restart",
    }

    def __init__(self, message: str, *, status: str, hint: str = "", reason: str = "", data: dict[str, str]) -> None:
        super().__init__(message, hint=hint or self.STATUS_HINTS.get(status, ""), reason=reason or status)
        self.status = status
        self.data = data
        self.exit_code = _EXIT_CODES.get(status, 1)


def is_transient(error: ClientError) -> bool:
    """Return whether the daemon is unreachable or recovers, so that the same call may succeed
    soon."""
    return isinstance(error, UnreachableError) or error.reason == "RECOVERING"


def no_answer_in_time() -> TimedOutError:
    return TimedOutError("timed out before the daemon answered", hint="run: rametctl daemon status")


def from_rpc_error(error: Exception) -> ClientError:
    """Convert a failed call to a ClientError.

    UNAVAILABLE has two meanings: the daemon says "not now" (with a reason), or there is no
    connection (without one).
    """
    import grpc

    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        # The channel was closed under the call.
        return ConnectionLostError("the connection to the daemon is closed", hint="run: rametctl daemon status")
    status: str = error.code().name
    message = " ".join((error.details() or "").split()) or f"the call failed ({status})"
    reason, data = _error_info(error)
    if status == "UNIMPLEMENTED":
        return RefusedError("the daemon is older than this rametctl", status=status, reason="VERSION_SKEW", data=data)
    # A stopping server cancels its calls; the client never looks at one that it cancelled itself.
    if status in {"UNAVAILABLE", "CANCELLED"} and not reason:
        return ConnectionLostError("the connection to the daemon is lost", hint="run: rametctl daemon status")
    if status == "DEADLINE_EXCEEDED" and not reason:
        return no_answer_in_time()
    return RefusedError(message, status=status, hint=data.pop("hint", ""), reason=reason, data=data)


def _error_info(error: "grpc.Call | grpc.aio.AioRpcError") -> tuple[str, dict[str, str]]:
    """Return reason and metadata of the daemon's ErrorInfo, or ("", {})."""
    if DETAILS not in dict(error.trailing_metadata() or ()):
        return "", {}
    # Imported here: they take as long as all other imports, and only an error needs them.
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    status = rpc_status.from_call(cast("grpc.Call", error))  # an AioRpcError has the attributes that it reads
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
            return info.reason, dict(info.metadata)
    return "", {}
