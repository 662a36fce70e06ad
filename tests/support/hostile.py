"""A daemon with hostile answers: each text of each message tries to control the terminal, or to be
invisible."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import any_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

CLIPBOARD = "\x1b]52;c;RVZJTA==\x07"
HOSTILE = (
    f"evil{CLIPBOARD}\x1b]0;title\x07\x1b[2J\x9b31m\x9d0;title\x9c\x08\x7f\r"
    "\u202e\u2066\u2062\U000e0041\u3164\u180e\U0001d173\U000e0100\u115f\u1160\uffa0\u2800\u200d\ufe0f\u2028\u2029\u0085\xad"
)
"""Control sequences of every effect, and one of each kind of invisible character."""

INPUT = json.dumps(
    {
        "command": HOSTILE,
        "description": HOSTILE,
        "file_path": HOSTILE,
        "old_string": HOSTILE,
        "new_string": f"{HOSTILE}+",
        "plan": HOSTILE,
        "questions": [
            {"question": HOSTILE, "header": HOSTILE, "options": [{"label": HOSTILE, "description": HOSTILE}]}
        ],
        HOSTILE: HOSTILE,
    },
    ensure_ascii=False,
)
DEPTH = 6


def fill(message: Message, pick: int, depth: int = 0) -> Message:
    """Set every field: texts to `HOSTILE`, enums to a value that ``pick`` chooses, in a oneof the
    field that it chooses."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
        message.seconds = 5  # type: ignore[attr-defined]
        return message
    chosen = {
        oneof.name: oneof.fields[pick % len(oneof.fields)].name for oneof in descriptor.oneofs if len(oneof.fields) > 1
    }
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and chosen.get(oneof.name, field.name) != field.name:
            continue
        _set(message, field, pick, depth)
    return message


def _set(message: Message, field: Any, pick: int, depth: int) -> None:
    if field.name.endswith("page_token"):
        return
    if field.message_type is not None:
        if depth >= DEPTH:
            return
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING:
                getattr(message, field.name)[HOSTILE] = HOSTILE
            return
        inner = getattr(message, field.name)
        fill(inner.add() if field.is_repeated else inner, pick, depth + 1)
        if not field.is_repeated:
            inner.SetInParent()
        return
    value = _value(field, pick)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _value(field: FieldDescriptor, pick: int) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return INPUT if field.name.endswith("_json") else HOSTILE
        case FieldDescriptor.TYPE_BYTES:
            return f"--- a/{HOSTILE}\n+++ b/x\n@@ {HOSTILE}\n+{HOSTILE}\n".encode()
        case FieldDescriptor.TYPE_BOOL:
            return bool(pick % 2)
        case FieldDescriptor.TYPE_ENUM:
            assert field.enum_type is not None
            values = field.enum_type.values
            return values[1 + pick % (len(values) - 1)].number if len(values) > 1 else 0
        case _:
            return 1


class Handler(grpc.GenericRpcHandler):
    """Answers every method of the contract: with a message from `fill`, or with a refusal in
    hostile words."""

    def __init__(self) -> None:
        self.pick = 0
        self.refuse = False

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        service, _, name = details.method.strip("/").partition("/")
        try:
            method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
        except KeyError:
            return None
        request, response = (message_factory.GetMessageClass(each) for each in (method.input_type, method.output_type))
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        answer = self._answer(response, streaming=method.server_streaming, setup=name in {"GetInfo", "Check"})
        return make(answer, request.FromString, response.SerializeToString)

    def _answer(self, response: type[Message], *, streaming: bool, setup: bool) -> Callable[[Any, Any], Any]:
        def one(request: Any, context: Any) -> Message:
            if self.refuse and not setup:
                info = error_details_pb2.ErrorInfo(
                    reason="EVIL", domain="ramet", metadata={"hint": HOSTILE, "file": HOSTILE}
                )
                detail = any_pb2.Any()
                detail.Pack(info)
                status = status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message=HOSTILE, details=[detail])
                context.abort_with_status(rpc_status.to_status(status))
            return fill(response(), self.pick)

        def many(request: Any, context: Any) -> Iterator[Message]:
            yield one(request, context)

        return many if streaming else one


@contextmanager
def hostile_daemon(socket: Path) -> Iterator[Handler]:
    """Serve at ``socket``; yield the handler, which chooses the answers."""
    handler = Handler()
    server = grpc.server(ThreadPoolExecutor(max_workers=8), handlers=[handler])
    server.add_insecure_port(f"unix:{socket}")
    socket.chmod(0o600)
    server.start()
    try:
        yield handler
    finally:
        server.stop(grace=None).wait()
