"""Messages as the JSON that `--json` prints.

Field names are those of the .proto files, and every field is present with any value. Differences
from a plain copy:

- an enum is its short name in lower case (``waiting``), UNSPECIFIED is null; a permission mode is
written as `--mode` takes it
- a 64 bit number is a number, a Timestamp an RFC 3339 string (UTC), a Duration its seconds, a
Cursor ``EPOCH:SEQ``
- a field that holds JSON (``input_json``) is shown as that JSON, under its name without the suffix
- of a oneof only the field that is set is there, and the oneof's name tells which (``"payload":
"state_changed"``)
- an optional or message field that is not set is null
"""

import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

_Reader = Callable[["Message", dict[str, Any]], None]

_JSON_SUFFIX = "_json"
_CAMEL_CASE = frozenset({"ramet.v1.PermissionMode"})
"""Enums whose values are written as on the command line."""


def to_json(message: "Message") -> dict[str, Any]:
    """The message as a JSON object."""
    result: dict[str, Any] = {}
    for read in _readers(message.DESCRIPTOR):
        read(message, result)
    return result


def jsonable(value: object) -> object:
    """A value for `dumps`: messages, also inside lists and dicts, as JSON; anything else
    unchanged."""
    if hasattr(value, "DESCRIPTOR"):
        return to_json(cast("Message", value))
    if isinstance(value, dict):
        return {key: jsonable(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [jsonable(each) for each in value]
    return value


def dumps(value: object) -> str:
    """One line of JSON, readable as UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def enum_name(message: "Message", field: str) -> str | None:
    """The short name of the value that an enum field has: ``SESSION_STATE_WAITING`` → ``waiting``;
    None for "not said".

    A value that only a later release knows is ``unknown_N``.
    """
    number = getattr(message, field)
    return _short_names(message.DESCRIPTOR.fields_by_name[field].enum_type).get(number, f"unknown_{number}")


def timestamp(seconds: int, nanos: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanos // 1_000_000:03d}Z"


@functools.cache
def _short_names(enum: "EnumDescriptor") -> dict[int, str | None]:
    if enum.full_name in _CAMEL_CASE:
        return {0: None} | {
            number: _camel_case(value.name) for number, value in enum.values_by_number.items() if number
        }
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {0: None} | {
        number: value.name.removeprefix(prefix).lower() for number, value in enum.values_by_number.items() if number
    }


def _camel_case(name: str) -> str:
    """``PERMISSION_MODE_ACCEPT_EDITS`` → ``acceptEdits``."""
    first, *rest = name.lower().split("_")[2:]
    return first + "".join(word.capitalize() for word in rest)


@functools.cache
def _readers(descriptor: "Descriptor") -> list[_Reader]:
    """For each field of a message a function that puts it into an object: a list of a thousand
    sessions is a common answer."""
    readers: list[_Reader] = []
    oneofs: set[str] = set()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is None or len(oneof.fields) == 1:
            readers.append(_reader(field))
        elif oneof.name not in oneofs:
            oneofs.add(oneof.name)
            readers.append(_oneof_reader(oneof.name, {member.name: _reader(member) for member in oneof.fields}))
    return readers


def _oneof_reader(name: str, members: dict[str, _Reader]) -> _Reader:
    def read(message: "Message", result: dict[str, Any]) -> None:
        chosen = result[name] = message.WhichOneof(name)
        if chosen is not None:
            members[chosen](message, result)

    return read


def _reader(field: "FieldDescriptor") -> _Reader:
    name = field.name
    entry = field.message_type
    if field.is_repeated and entry is not None and entry.GetOptions().map_entry:
        convert = _converter(entry.fields_by_name["value"])
        return lambda message, result: result.update(
            {name: {str(key): convert(value) for key, value in getattr(message, name).items()}}
        )
    convert = _parsed if name.endswith(_JSON_SUFFIX) else _converter(field)
    shown = name.removesuffix(_JSON_SUFFIX)
    repeated = field.is_repeated
    optional = field.has_presence

    def read(message: "Message", result: dict[str, Any]) -> None:
        if optional and not message.HasField(name):
            result[shown] = None
        elif repeated:
            result[shown] = [convert(item) for item in getattr(message, name)]
        else:
            result[shown] = convert(getattr(message, name))

    return read


def _converter(field: "FieldDescriptor") -> Callable[[Any], Any]:
    """What makes JSON of one value of the field."""
    if field.enum_type is not None:
        names = _short_names(field.enum_type)
        return lambda number: names.get(number, f"unknown_{number}")
    match field.message_type and field.message_type.full_name:
        case None:
            is_bytes = field.type == field.TYPE_BYTES
            return (lambda value: value.decode("utf-8", "replace")) if is_bytes else _as_it_is
        case "google.protobuf.Timestamp":
            return lambda value: timestamp(value.seconds, value.nanos)
        case "google.protobuf.Duration":
            return lambda value: value.seconds + value.nanos / 1e9
        case "ramet.v1.Cursor":
            return lambda value: f"{value.epoch}:{value.seq}"
        case _:
            return to_json


def _as_it_is(value: Any) -> Any:
    return value


def _parsed(text: str) -> Any:
    """The JSON in a field; what is none is shown as the text that it is."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
