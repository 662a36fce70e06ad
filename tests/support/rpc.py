"""Every call of the contract, from its descriptor, for tests of all calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import grpc
import ramet.v1
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from rametd.domain import errors

from tests.support.daemon import reason_of

SERVICES = [
    service
    for module in iter_modules(ramet.v1.__path__, "ramet.v1.")
    if module.name.endswith("_pb2")
    for service in import_module(module.name).DESCRIPTOR.services_by_name.values()
]

DEADLINE_S = 20.0


@dataclass(frozen=True)
class Rpc:
    """One method of the contract."""

    method: MethodDescriptor
    streams: bool

    @property
    def name(self) -> str:
        return str(self.method.name)

    @property
    def path(self) -> str:
        return f"/{self.method.containing_service.full_name}/{self.name}"

    @property
    def mutates(self) -> bool:
        return "request_id" in self.method.input_type.fields_by_name

    def request(self, **fields: Any) -> Message:
        made: Message = message_factory.GetMessageClass(self.method.input_type)(**fields)
        return made

    async def call(self, channel: grpc.aio.Channel, request: Message, metadata: Any = ()) -> Message:
        """Return the response; of a stream the first one."""
        response = message_factory.GetMessageClass(self.method.output_type)

        def encode(message: Message) -> bytes:
            return message.SerializeToString()

        answer: Message
        if self.streams:
            stream: Any = channel.unary_stream(self.path, encode, response.FromString)(
                request, metadata=metadata, timeout=DEADLINE_S
            )
            answer = await stream.read()
            stream.cancel()
            return answer
        unary: Any = channel.unary_unary(self.path, encode, response.FromString)
        answer = await unary(request, metadata=metadata, timeout=DEADLINE_S)
        return answer

    async def refusal(self, channel: grpc.aio.Channel, request: Message, metadata: Any = ()) -> str:
        """Return the reason of a refused call; "" if it is answered."""
        try:
            await self.call(channel, request, metadata)
        except grpc.aio.AioRpcError as error:
            return reason_of(error) or error.code().name
        return ""


def rpcs() -> Iterator[Rpc]:
    for service in SERVICES:
        described = descriptor_pb2.ServiceDescriptorProto()
        service.CopyToProto(described)
        for method, flags in zip(service.methods, described.method, strict=True):
            yield Rpc(method, flags.server_streaming)


RPCS = {each.name: each for each in rpcs()}


def reasons() -> set[str]:
    """Return all reasons of refusals."""
    return {
        each.reason for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.RametError)
    }
