"""The mapping of the domain's errors to gRPC statuses: a code, one line, and
`google.rpc.ErrorInfo`.

``ErrorInfo.reason`` is the error's reason, ``domain`` is "ramet", ``metadata`` holds the hint and
the error's data.
"""

import grpc
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from rametd.domain import errors

DOMAIN = "ramet"
DETAILS = "grpc-status-details-bin"

CODES: dict[type[errors.RametError], grpc.StatusCode] = {
    errors.InvalidInputError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.TakenError: grpc.StatusCode.ALREADY_EXISTS,
    errors.PreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.DeniedError: grpc.StatusCode.PERMISSION_DENIED,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.ExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.AbortedError: grpc.StatusCode.ABORTED,
    errors.BrokenError: grpc.StatusCode.INTERNAL,
}

METADATA_LIMIT = 2500
MESSAGE_LIMIT = 1500
"""Maximum bytes of an error's data, and of its message. gRPC may drop an answer with more than 8
KiB of headers, which contain the message twice: percent-encoded and, with the data, in base 64."""


def code_of(error: errors.RametError) -> grpc.StatusCode:
    return next(CODES[base] for base in type(error).__mro__ if base in CODES)


def status_of(error: errors.RametError) -> tuple[grpc.StatusCode, str, bytes]:
    """Return code, message, and the serialized `google.rpc.Status` for the trailing metadata."""
    code = code_of(error)
    info = ErrorInfo(reason=error.reason, domain=DOMAIN)
    room = METADATA_LIMIT
    for key, value in {"hint": error.hint, **error.data}.items():
        cut = value.encode()[:room].decode(errors="ignore")
        room -= len(cut.encode())
        if cut:
            info.metadata[key] = cut
    message = _short(" ".join(error.message.split()))
    status = Status(code=code.value[0], message=message)
    detail = Any()
    detail.Pack(info)
    status.details.append(detail)
    return code, message, status.SerializeToString()


def _short(message: str) -> str:
    room = MESSAGE_LIMIT
    for at, letter in enumerate(message):
        room -= 1 if " " <= letter <= "~" and letter != "%" else 3 * len(letter.encode())
        if room < 0:
            return message[:at]
    return message
