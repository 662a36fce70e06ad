"""Convert between values of the domain and messages of the contract: fields with the same name have
the same value."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from ramet.v1 import common_pb2

from rametd.domain.models import Mode, PromptState, SetupState, Tokens
from rametd.domain.pull_requests import Checks

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_OTHER_NAMES: Mapping[Enum, str] = {
    Mode.BYPASS: "BYPASS_PERMISSIONS",
    **dict.fromkeys((SetupState.NONE, Checks.UNKNOWN, PromptState.CANCELLED), "UNSPECIFIED"),
}
"""Names in the contract's enums that differ from those of the domain."""


class _Shared(NamedTuple):
    """The fields that a message and a dataclass have in common, and conversions of some of them."""

    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    conversions: Mapping[str, Callable[[Any], Any]]


_known: dict[tuple[object, object, frozenset[str]], _Shared] = {}


def stamp(seconds: float | None) -> Timestamp | None:
    """Convert seconds since the epoch."""
    if seconds is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMicroseconds(int(seconds * 1_000_000))
    return timestamp


def tokens_message(tokens: Tokens) -> common_pb2.Tokens:
    return to_message(common_pb2.Tokens, tokens)


def to_message(kind: type[M], record: object, /, **others: object) -> M:
    """Create a message from a dataclass; ``others`` are values that the dataclass does not have, or
    that differ from it.

    Times, paths, enums, token counts, and tuples of them are converted.
    """
    key = (kind, type(record), frozenset(others))
    if (shared := _known.get(key)) is None:
        shared = _known[key] = shared_fields(kind, type(record), others)
    values = dict(zip(shared.names, shared.read(record), strict=True))
    for name, convert in shared.conversions.items():
        values[name] = convert(values[name])
    return kind(**values, **others)


def from_message(kind: type[T], message: Message, /, **others: object) -> T:
    """Create a dataclass from a request; ``others`` are values that the request does not have, or
    that need a check.

    Fields that the request leaves unset keep the dataclass's defaults; lists become tuples.
    """
    targets = message.DESCRIPTOR.fields_by_name
    found = {}
    for field in fields(kind):  # type: ignore[arg-type]  # dataclasses have no common type
        target = targets.get(field.name)
        if target is None or field.name in others:
            continue
        given = message.HasField(field.name) if target.has_presence else getattr(message, field.name)
        if given or (field.default is MISSING and field.default_factory is MISSING):
            found[field.name] = value_of(message, field.name)
    return kind(**found, **others)


def value_of(message: Message, name: str) -> Any:
    """Return a field's value; a list as a tuple."""
    value = getattr(message, name)
    return tuple(value) if message.DESCRIPTOR.fields_by_name[name].is_repeated else value


def enum_numbers(descriptor: EnumDescriptor, values: Iterable[Enum]) -> Mapping[Any, Any]:
    """Return the numbers of one of the contract's enums, by the value of the domain's enum that has
    the same name."""
    prefix = descriptor.values[0].name.removesuffix("UNSPECIFIED")
    numbers = {each.name.removeprefix(prefix): each.number for each in descriptor.values}
    return {each: numbers[each.name if each.name in numbers else _OTHER_NAMES[each]] for each in values}


def shared_fields(kind: type[Message], record: Any, others: Container[str]) -> _Shared:
    """Prepare `to_message` for a type of dataclass."""
    targets = kind.DESCRIPTOR.fields_by_name
    hints = {name: hint for name, hint in get_type_hints(record).items() if name in targets and name not in others}
    found = {name: _conversion(targets[name], hint) for name, hint in hints.items()}
    read = attrgetter(*hints, "__class__")  # for only one name it would return no tuple
    return _Shared(
        tuple(hints),
        lambda value: read(value)[:-1],
        {name: convert for name, convert in found.items() if convert is not None},
    )


def _conversion(field: Any, hint: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of one field, None if there is nothing to convert; ``hint`` is its type
    in the dataclass."""
    origin, options = get_origin(hint), get_args(hint)
    several = isinstance(origin, type) and issubclass(origin, Sequence)
    if several or type(None) in options:
        convert = _conversion(field, options[0])
        if convert is None:
            return None
        if several:
            return lambda values: [convert(value) for value in values]
        return lambda value: None if value is None else convert(value)
    if field.enum_type is not None:
        return enum_numbers(field.enum_type, hint).__getitem__
    if field.message_type is not None:
        is_time = field.message_type.full_name == Timestamp.DESCRIPTOR.full_name
        return stamp if is_time else partial(to_message, GetMessageClass(field.message_type))
    return str if hint is Path else None
